//! DataFusion's memory pool and temporary files, as the exchange asks for them.

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use roundel_exchange::{MemoryBudget, SpillFile};
use std::sync::Arc;

/// The memory of one query for rows that wait.
pub(super) struct QueryBudget {
    reservation: MemoryReservation,
    context: Arc<TaskContext>,
}

impl QueryBudget {
    pub(super) fn new(context: &Arc<TaskContext>) -> Self {
        Self {
            reservation: MemoryConsumer::new("RoundelExchange")
                .with_can_spill(true)
                .register(context.memory_pool()),
            context: context.clone(),
        }
    }
}

impl MemoryBudget for QueryBudget {
    fn try_grow(&self, bytes: usize) -> bool {
        self.reservation.try_grow(bytes).is_ok()
    }

    fn shrink(&self, bytes: usize) {
        self.reservation.shrink(bytes);
    }

    fn spill_file(&self) -> Result<SpillFile, String> {
        let file = self
            .context
            .runtime_env()
            .disk_manager
            .create_tmp_file("rows of an exchange")
            .map_err(|error| error.strip_backtrace())?;
        let path = file.path().ok_or("the temporary file has no path")?;
        let open = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(SpillFile {
            file: open,
            guard: Box::new(file),
        })
    }
}

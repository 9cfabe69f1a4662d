//! The synthetic workload of section 7.1: every node scans its fragment of a relation several times and
//! sends the rows where they belong, all nodes count what arrives. `grpc` moves whole batches, and no messages of a transport.

mod consume;
pub mod grpc;
mod messages;
mod one_by_one;
mod partition;
mod relation;
mod run;
mod turns;

pub use consume::Consumer;
pub use messages::{RowsFromMessages, RowsToMessages};
pub use one_by_one::{RowsFromTuples, RowsToTuples};
pub use partition::{check_partitioning, partition_alone};
pub use relation::{Partitioning, Relation};
#[cfg(feature = "mpi")]
pub use run::over_mpi;
pub use run::{Job, Threads, consume_alone, over_qperf, ping_pong};
pub(crate) use run::{by_node, send_until};

use crate::error::Result;
use arrow::array::RecordBatch;
use roundel_exchange::Selection;
use roundel_exchange::frame::RowSource;
use std::future::Future;

/// Where the rows of a thread go.
pub trait RowsOut {
    /// Sends rows of a batch to a transmission group.
    fn send(
        &mut self,
        group: usize,
        batch: &RecordBatch,
        source: &RowSource<'_>,
        rows: Selection<'_>,
    ) -> impl Future<Output = Result<()>>;
    /// Sends what is left, says that no more comes, and waits until all of it was taken.
    fn finish(&mut self) -> impl Future<Output = Result<()>>;
}

/// Where the rows of a thread come from.
pub trait RowsIn {
    /// Rows that have come already, where that can be seen without asking to be woken.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    fn take(&mut self) -> Result<Option<RecordBatch>> {
        Ok(None)
    }
    /// The next rows; none at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<RecordBatch>>>;
}

//! A SQL session over a cluster.

use std::path::Path;
use std::sync::Arc;

use datafusion::error::Result as DataFusionResult;
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
use datafusion_distributed::{DistributedExt as _, SessionStateBuilderExt as _};
use futures::FutureExt as _;

use crate::channel::ExchangeConfig;
use crate::cluster::Core;
use crate::cluster::membership::LiveWorkers;
use crate::query::{restarting, watched};
use crate::tables::codec::MemoryShardCodec;
use crate::tables::load::TableSet;
use crate::tables::{files, placement};
use crate::yielding::YieldingJoins;
use crate::{Fabric, Result, tpch};

/// Bytes of a file that are worth a partition of a task. Small, so that all but tiny tables are
/// read by all workers, as memory tables are.
const FILE_BYTES_PER_PARTITION: usize = 64 << 10;

/// Hears how far loading or generating tables has come.
pub trait LoadProgress: Send + Sync {
    /// `rows_done` of `rows_total` rows of `table` are there. The total can be an estimate until
    /// the last call, in which both are equal.
    fn advance(&self, table: &str, rows_done: u64, rows_total: u64);
}

impl LoadProgress for () {
    fn advance(&self, _table: &str, _rows_done: u64, _rows_total: u64) {}
}

/// A SQL session over a cluster, with its own tables and settings.
pub struct Session {
    core: Arc<Core>,
    context: SessionContext,
}

impl Session {
    pub(crate) fn new(core: Arc<Core>, fabric: Fabric) -> Result<Self> {
        let config = SessionConfig::new()
            .with_target_partitions(core.options.partitions_per_task())
            .with_information_schema(true)
            .with_extension(Arc::clone(&core.catalog));
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(config)
            .with_runtime_env(Arc::clone(&core.runtime))
            .with_physical_optimizer_rule(Arc::new(YieldingJoins))
            .with_distributed_worker_resolver(LiveWorkers(Arc::clone(&core.membership)))
            .with_distributed_channel_resolver(core.channels.resolver(fabric, &core.node))
            .with_distributed_planner()
            .with_distributed_user_codec(MemoryShardCodec)
            .with_distributed_desired_task_count_handler(placement::desired_task_count)
            .with_distributed_scale_up_leaf_node_handler(placement::scale_up_leaf)
            .with_distributed_route_tasks_handler(placement::route_tasks)
            // Travels with every query, so that the workers use the same fabric among themselves.
            .with_distributed_option_extension(ExchangeConfig::new(fabric))
            .with_distributed_compression(None)?
            // An isolated child of a union would get fewer tasks than its table has shards.
            .with_distributed_children_isolator_unions(false)?
            .with_distributed_file_scan_config_bytes_per_partition(FILE_BYTES_PER_PARTITION)?
            .build();
        Ok(Self {
            core,
            context: SessionContext::from(state),
        })
    }

    /// DataFusion's session context, to plan with or to register more tables in.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Registers a Parquet or CSV file, or a directory of them, as a table. The workers read it
    /// by the same path.
    pub async fn register_file(&self, name: &str, path: &str) -> Result<()> {
        files::register(&self.context, name, path).await
    }

    /// Has every worker generate its shards of the TPC-H tables, in memory, and hold them while
    /// any session uses them. Sessions of a cluster share the tables of one scale.
    pub async fn load_tpch_memory(&self, scale: f64, progress: &dyn LoadProgress) -> Result<()> {
        let tables = TableSet::load(&self.core, scale, progress).await?;
        tables.register(&self.context)
    }

    /// Registers the TPC-H tables in a directory's Parquet files, which are generated first when
    /// the directory is empty or absent. A directory of another scale is refused.
    pub async fn register_tpch_files(
        &self,
        dir: &Path,
        scale: f64,
        progress: &dyn LoadProgress,
    ) -> Result<()> {
        tpch::files::provide(dir, scale, progress).await?;
        tpch::files::register(&self.context, dir).await
    }

    /// Plans and starts one SQL statement. Errors of the stream convert to
    /// [`crate::EngineError`], which names the worker that failed. Dropping the stream cancels
    /// the query on all workers.
    pub async fn sql(&self, sql: &str) -> Result<SendableRecordBatchStream> {
        let workers = self.core.membership.live();
        let frame = self.context.sql(sql).await?;
        let reads = reads_only(frame.logical_plan());
        let batches = start(frame.clone()).await?;
        let batches = match reads {
            true => restarting(batches, move || start(frame.clone()).boxed()),
            false => batches,
        };
        Ok(watched(batches, Arc::clone(&self.core.membership), workers))
    }
}

async fn start(frame: DataFrame) -> DataFusionResult<SendableRecordBatchStream> {
    let tasks = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await?;
    execute_stream(plan, tasks)
}

/// Whether a statement may be run twice without anybody noticing.
fn reads_only(plan: &LogicalPlan) -> bool {
    !matches!(
        plan,
        LogicalPlan::Dml(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::Statement(_)
    )
}

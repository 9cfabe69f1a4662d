//! [`MemoryShardExec`]: the leaf of a plan that reads a memory table.
//!
//! ```text
//!   sharded:     task i reads shard i, on the worker that holds it     (the planner sees to that)
//!   replicated:  task 0 reads all rows, other tasks none; any worker holds it
//! ```
//!
//! The shards of a table may be those that a shuffle by a key would make, with the partitions of its tasks.
//! The leaf says so, and plans need no shuffle by that key.
//!
//! A leaf declares no order of rows, and at least two partitions.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::common::{Statistics, exec_err, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, StatisticsArgs,
};
use datafusion_distributed::DistributedTaskContext;
use url::Url;

use super::catalog::{ShardCatalog, ShardKey};

/// Fewest shards of a sharded table. One alone would let datafusion-distributed run a stage in
/// the coordinator, where no shard is.
pub(crate) const SHARDS_MIN: usize = 2;

/// Where the rows of a memory table are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Every process holds all rows.
    Replicated,
    /// Each row is in one of several shards.
    Sharded {
        /// How many shards there are.
        shards: usize,
        /// The worker of each shard; empty in the workers themselves, which need not know.
        workers: Arc<[Url]>,
    },
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicated => f.write_str("replicated"),
            Self::Sharded { shards, .. } => write!(f, "shards={shards}"),
        }
    }
}

/// Whether a plan reads rows that only one worker has.
pub(crate) fn needs_shards(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| {
        let leaf = node.downcast_ref::<MemoryShardExec>();
        Ok(leaf.is_some_and(|leaf| matches!(leaf.placement, Placement::Sharded { .. })))
    })
}

/// What a leaf reads; all of it but the statistics travels to the workers.
#[derive(Debug, Clone)]
pub(crate) struct Scan {
    pub(crate) table_set: String,
    pub(crate) table: String,
    /// Indices of the columns to read, and their schema.
    pub(crate) columns: Vec<usize>,
    pub(crate) schema: SchemaRef,
    /// Partitions of each task.
    pub(crate) partitions: usize,
    /// Index of the column whose hash, modulo the partitions of all tasks, says in which of them a row is.
    pub(crate) key: Option<usize>,
    /// Of all shards together.
    pub(crate) statistics: Statistics,
}

impl Scan {
    fn partitioning(&self) -> Partitioning {
        let key = self
            .key
            .and_then(|key| self.columns.iter().position(|column| *column == key));
        match key {
            Some(at) => {
                let column = Column::new(self.schema.field(at).name(), at);
                Partitioning::Hash(vec![Arc::new(column)], self.partitions)
            }
            None => Partitioning::UnknownPartitioning(self.partitions),
        }
    }
}

/// Reads one shard of a memory table, or a replicated table.
#[derive(Debug, Clone)]
pub(crate) struct MemoryShardExec {
    pub(crate) scan: Scan,
    pub(crate) placement: Placement,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl MemoryShardExec {
    pub(crate) fn new(scan: Scan, placement: Placement) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&scan.schema)),
            scan.partitioning(),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            scan,
            placement,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The shard that a task reads, if any.
    fn shard_of(&self, task: &DistributedTaskContext) -> Result<Option<usize>> {
        match &self.placement {
            Placement::Replicated => Ok((task.task_index == 0).then_some(0)),
            // A shard that no task reads would be rows that are silently missing.
            Placement::Sharded { shards, .. } if task.task_count < *shards => internal_err!(
                "memory table {} has {shards} shards but was planned on {} tasks",
                self.scan.table,
                task.task_count
            ),
            // With more tasks a shuffle would send equal keys elsewhere.
            Placement::Sharded { shards, .. }
                if self.scan.key.is_some() && task.task_count > *shards =>
            {
                exec_err!(
                    "memory table {} is dealt to {shards} shards by a key, and cannot be read beside a \
                     table that takes {} tasks: load it at random",
                    self.scan.table,
                    task.task_count
                )
            }
            Placement::Sharded { shards, .. } => {
                Ok((task.task_index < *shards).then_some(task.task_index))
            }
        }
    }
}

impl DisplayAs for MemoryShardExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<&str> = self
            .scan
            .schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        write!(
            f,
            "MemoryShardExec: table={}, {}, partitions={}, projection=[{}]",
            self.scan.table,
            self.placement,
            self.scan.partitions,
            columns.join(", ")
        )?;
        match self.properties.output_partitioning() {
            Partitioning::Hash(..) => f.write_str(", dealt by key"),
            _ => Ok(()),
        }
    }
}

impl ExecutionPlan for MemoryShardExec {
    fn name(&self) -> &str {
        "MemoryShardExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !children.is_empty() {
            return internal_err!("MemoryShardExec is a leaf");
        }
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let task = DistributedTaskContext::from_ctx(&context);
        let mut batches = Vec::new();
        if let Some(shard) = self.shard_of(&task)? {
            let (part, step) = match self.scan.key {
                Some(_) => (partition, 1),
                None => (0, self.scan.partitions),
            };
            let key = ShardKey {
                table_set: self.scan.table_set.clone(),
                table: self.scan.table.clone(),
                shard,
                partition: part,
            };
            let held = context
                .session_config()
                .get_extension::<ShardCatalog>()
                .and_then(|catalog| catalog.get(&key));
            let Some(held) = held else {
                return exec_err!(
                    "this worker does not hold shard {shard} of memory table {}; it may have been \
                     restarted: load the tables again",
                    self.scan.table
                );
            };
            for batch in held.iter().skip(partition - part).step_by(step) {
                batches.push(batch.project(&self.scan.columns)?);
            }
        }
        let batches = batches.into_iter().map(move |batch| {
            metrics.record_output(batch.num_rows());
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.scan.schema),
            futures::stream::iter(batches),
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::new(match args.partition() {
            None => self.scan.statistics.clone(),
            Some(_) => Statistics::new_unknown(&self.scan.schema),
        }))
    }
}

//! The top of a stage whose rows are scattered over the tasks of the next one.
//!
//! A stage that is shuffled ends in a `RepartitionExec`. Where an exchange carries its rows, the worker
//! puts this node in its place: the exchange hashes the rows itself, on their way into messages.

use super::ScatterState;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties as _, PlanProperties,
};
use datafusion_distributed::{WorkerPlanRewriteEvent, WorkerPlanRewriteEventResponse};
use std::fmt::{self, Formatter};
use std::sync::Arc;

/// Hands rows on as they are, to be scattered by the hash of their keys.
#[derive(Debug)]
pub(super) struct ShuffleExec {
    input: Arc<dyn ExecutionPlan>,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    metrics: ExecutionPlanMetricsSet,
}

impl ShuffleExec {
    /// What to hash.
    pub(super) fn keys(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.keys
    }

    /// Partitions of the rows before they are scattered.
    pub(super) fn input_partitions(&self) -> usize {
        self.input.output_partitioning().partition_count()
    }

    /// Where to count what becomes of a partition's rows.
    pub(super) fn metrics_of(&self, partition: usize) -> BaselineMetrics {
        BaselineMetrics::new(&self.metrics, partition)
    }

    /// Something else to count of them.
    pub(super) fn count(&self, name: &'static str, partition: usize) -> Count {
        MetricBuilder::new(&self.metrics).counter(name, partition)
    }
}

/// Puts a [`ShuffleExec`] in the place of the repartitioning that a task's plan ends in, and makes it known to the task.
pub(super) fn replace_repartitioning(
    event: WorkerPlanRewriteEvent<'_>,
) -> Result<WorkerPlanRewriteEventResponse> {
    let plan = event.plan;
    let config = event.session_config;
    if let Some(repartition) = plan.downcast_ref::<RepartitionExec>()
        && let Partitioning::Hash(keys, _) = repartition.partitioning()
        && let Some(state) = config.get_extension::<ScatterState>()
    {
        let shuffle = Arc::new(ShuffleExec {
            input: Arc::clone(repartition.input()),
            keys: keys.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        });
        state.set_plan(&shuffle);
        return Ok(WorkerPlanRewriteEventResponse::new(shuffle));
    }
    Ok(WorkerPlanRewriteEventResponse::new(plan))
}

impl DisplayAs for ShuffleExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys.iter().map(ToString::to_string).collect();
        write!(f, "ShuffleExec: keys=[{}]", keys.join(", "))
    }
}

impl ExecutionPlan for ShuffleExec {
    fn name(&self) -> &str {
        "ShuffleExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for key in &self.keys {
            if f(key)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.pop().unwrap_or_else(|| Arc::clone(&self.input));
        Ok(Arc::new(Self {
            input,
            keys: self.keys.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

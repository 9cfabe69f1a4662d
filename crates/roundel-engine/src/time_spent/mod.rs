//! Where the time of a query went: the three things that its answer waited for longest, each with what can be done about it; and all that
//! was measured, as JSON. `stages` has the measures of each stage, and `causes` follows waits from stage to stage.

mod causes;
mod stages;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::{
    DistributedExec, DistributedMetricsFormat, rewrite_distributed_plan_with_metrics,
};
use roundel_datafusion::Spent;
use serde_json::{Value, json};

use causes::told_of;
use stages::{Stage, inputs_of, stages_json};

/// How many things are told.
const TOLD: usize = 3;
/// Less of a query's time than this is not told.
const SHARE_MIN: f64 = 0.05;

/// Where the time of a query went.
pub(crate) struct TimeSpent {
    took: Duration,
    /// Whose rows the coordinator reads.
    inputs: Vec<Stage>,
}

impl TimeSpent {
    /// Of a plan that was executed, which took so long. `None` if it has no stages.
    ///
    /// # Errors
    /// When the plan has not ended.
    pub(crate) async fn of(plan: &Arc<dyn ExecutionPlan>, took: Duration) -> Result<Option<Self>> {
        if !plan.is::<DistributedExec>() {
            return Ok(None);
        }
        let format = DistributedMetricsFormat::Aggregated;
        let measured = rewrite_distributed_plan_with_metrics(Arc::clone(plan), format).await?;
        let inputs = inputs_of(&measured)?;
        let any = inputs.iter().any(|stage| !stage.links.is_empty());
        Ok(any.then_some(Self { took, inputs }))
    }

    /// The things that were waited for longest, a line each, with what can be done.
    pub(crate) fn summary(&self) -> String {
        let took = self.took.as_secs_f64();
        let mut text = format!("{took:.2} s, of which were spent");
        let mut told = 0;
        for (cause, by_worker) in self.longest() {
            let time: f64 = by_worker.values().sum();
            if told == TOLD || time < SHARE_MIN * took {
                break;
            }
            told += 1;
            let (what, remedy) = told_of(&cause, &by_worker);
            // A String takes all that is written to it.
            let _ = write!(text, "\n{told}. {time:.2} s: {what}\n   {remedy}");
        }
        text
    }

    /// All that was measured, by stage and link, in seconds, for each task.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "seconds": self.took.as_secs_f64(),
            "starting": self.starting().as_secs_f64(),
            "stages": stages_json(&self.inputs),
        })
    }

    /// What those spent their time on who read at the coordinator.
    fn readers(&self) -> impl Iterator<Item = &Spent> {
        let links = self.inputs.iter().flat_map(|stage| stage.links.values());
        links.flat_map(|link| link.readers.values())
    }

    /// How long it took until the first of them began.
    fn starting(&self) -> Duration {
        let read = self.readers().map(Spent::total).max();
        self.took.saturating_sub(read.unwrap_or_default())
    }
}

//! SET, RESET and SHOW in a session over a cluster. A value that is accepted holds in the coordinator and on every worker.
//! A value that cannot hold is refused at once.
//!
//! | module | for |
//! |---|---|
//! | `options` | Roundel's own settings |
//! | `ring` | what they say of rings |
//! | `checks` | which values of them and of datafusion-distributed's are refused |
//! | `shown` | settings that are shown by their full names, and checked when they are set |
//! | `travel` | how they reach the workers |
//!
//! It knows nothing of plans other than SET and RESET.

mod checks;
mod options;
mod ring;
mod shown;
mod travel;

use std::sync::Arc;

use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, ResetVariable, SetVariable, Statement};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{DistributedConfig, DistributedExt as _};

pub use options::Skew;
pub(crate) use options::{ExchangeConfig, fabric_of, skew_of};
pub(crate) use ring::{JoinChoice, RingSettings, Spin, may_use_rings};
pub(crate) use travel::hear;

use crate::{EngineError, Fabric};
use shown::Shown;
use travel::{Values, told, untold, values};

/// Settings of the coordinator's process that no other process needs to have.
const OF_THE_COORDINATOR: [&str; 3] = [
    "datafusion.runtime.list_files_cache_limit",
    "datafusion.runtime.list_files_cache_ttl",
    "datafusion.runtime.file_statistics_cache_limit",
];

/// Most partitions of a task. Each task of a shuffle has a queue for each partition of all: their number is that of partitions,
/// squared.
const PARTITIONS_MAX: usize = 1024;

/// Settings that plans rely on being what a session begins with, and why.
const OF_THE_PLANNER: [(&str, &str); 2] = [
    (
        "datafusion.optimizer.enable_physical_uncorrelated_scalar_subquery",
        "plans whose subqueries are so made cannot be sent to workers",
    ),
    (
        "datafusion.optimizer.enable_aggregate_dynamic_filter_pushdown",
        "it leaves out rows that another min or max of the same query needs",
    ),
];

/// Switches off what gives wrong rows. Another setting of DataFusion switches it on again, so this comes before each statement.
pub(crate) fn keep_right(options: &mut ConfigOptions) {
    options.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
}

/// What a session's settings are compared with.
struct Began {
    /// What it began with, which RESET goes back to.
    with: Values,
    /// The values of workers that were told nothing.
    untold: Values,
}

/// Gives a session its settings: the last step of making it.
pub(crate) fn begin(config: &mut SessionConfig, own: ExchangeConfig) {
    let options = config.options_mut();
    let theirs = options.extensions.get::<DistributedConfig>();
    let theirs = theirs.cloned().unwrap_or_default();
    options.extensions.insert(Shown(theirs));
    options.extensions.insert(Shown(own));
    let with = values(options);
    let untold = untold(&with);
    config.set_extension(Arc::new(Began { with, untold }));
}

/// Makes `fabric` what carries a session's rows.
pub(crate) fn set_fabric(config: &mut SessionConfig, fabric: Fabric) {
    let options = config.options_mut();
    if let Some(own) = options.extensions.get_mut::<ExchangeConfig>() {
        own.fabric = fabric.to_string();
    }
}

/// Has the session's settings, as they are now, travel with every plan that it sends.
///
/// # Errors
/// When they are too many.
pub(crate) fn ship(context: &SessionContext) -> Result<()> {
    let state = context.state_ref();
    let mut state = state.write();
    let Some(began) = state.config().get_extension::<Began>() else {
        return Ok(());
    };
    let config = state.config_mut();
    keep_right(config.options_mut());
    let headers = told(config.options(), &began.untold)?;
    config.set_distributed_passthrough_headers(headers)
}

/// The statement to run in place of a plan: RESET goes back to what the session began with, not to what DataFusion begins with.
///
/// # Errors
/// When it is a SET that could not hold.
pub(crate) fn checked(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let Some(began) = state.config().get_extension::<Began>() else {
        return Ok(plan);
    };
    let plan = match plan {
        LogicalPlan::Statement(Statement::ResetVariable(reset)) => reset_to(reset, &began.with),
        other => other,
    };
    if let LogicalPlan::Statement(Statement::SetVariable(set)) = &plan {
        check(set, state, &began)?;
    } else if let LogicalPlan::Statement(Statement::ResetVariable(reset)) = &plan {
        check_runtime(&reset.variable)?;
    }
    Ok(plan)
}

/// RESET as the SET that it is, if the setting had a value to begin with.
fn reset_to(reset: ResetVariable, began: &Values) -> LogicalPlan {
    LogicalPlan::Statement(match began.get(&reset.variable) {
        Some(Some(value)) => Statement::SetVariable(SetVariable {
            value: value.clone(),
            variable: reset.variable,
        }),
        _ => Statement::ResetVariable(reset),
    })
}

fn check(set: &SetVariable, state: &SessionState, began: &Began) -> Result<()> {
    let SetVariable { variable, value } = set;
    if variable.starts_with("datafusion.runtime.") {
        return check_runtime(variable);
    }
    let mut options = state.config_options().as_ref().clone();
    options.set(variable, value)?;
    let partitions = options.execution.target_partitions;
    if partitions > PARTITIONS_MAX {
        let why = format!(
            "datafusion.execution.target_partitions is {partitions}: use 0 to {PARTITIONS_MAX}"
        );
        return Err(EngineError::Query(why).into());
    }
    let planned = OF_THE_PLANNER.iter().find(|(name, _)| name == variable);
    if let Some((name, why)) = planned
        && let Some(Some(began)) = began.with.get(*name)
        && values(&options).get(*name) != Some(&Some(began.clone()))
    {
        return Err(EngineError::Query(format!("{name} stays {began}: {why}")).into());
    }
    told(&options, &began.untold).map(drop)
}

/// Whether a setting of a process may be set by a session of it.
fn check_runtime(variable: &str) -> Result<()> {
    if !variable.starts_with("datafusion.runtime.") || OF_THE_COORDINATOR.contains(&variable) {
        return Ok(());
    }
    let instead = match variable {
        "datafusion.runtime.memory_limit" => ": start the cluster with --memory-limit",
        "datafusion.runtime.temp_directory" => ": set TMPDIR where it is started",
        _ => "",
    };
    Err(EngineError::Query(format!(
        "{variable} is of a process, and would hold in the coordinator only{instead}"
    ))
    .into())
}

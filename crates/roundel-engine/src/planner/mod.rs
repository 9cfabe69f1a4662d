//! What Roundel does between DataFusion's plan of a query and the stages that run on workers.
//!
//! In the order in which it happens:
//!
//! | step | file | why |
//! |---|---|---|
//! | expressions that are nested too deep are refused | `depth` | they would end a process |
//! | keys of a joined table, or of `unnest`, determine no others | `functional_dependencies` | keys of GROUP BY and ORDER BY, and DISTINCT, would be left out |
//! | clauses that would be ignored are refused | `ignored_clauses` | the answer would be of another statement |
//! | IGNORE NULLS is of the function in whose parentheses it stands | `null_treatment` | it would be ignored |
//! | ORDER BY names columns of SELECT | `order_by_names` | a key that casts another column of that name would be sorted by |
//! | subqueries are refused in which what depends on the outer row is below an outer join or GROUPING SETS | `outer_references` | they would become other joins |
//! | UNIQUE is left out of definitions of tables | `unique_columns` | several rows may have NULL there |
//! | scalar subqueries are run, and their values put in their places | `scalar_subqueries` | a stage cannot ask another plan for a value |
//! | rules of the analyzer: expressions keep their values | `values_kept` | casts and decimals would become others |
//! | rules of the logical optimizer: joins in which NULL is equal to NULL stay apart from others | `null_safe_joins` | the others would have rows too many |
//! | subqueries of `ANY` and `ALL` get names | `comparison_aliases` | their columns are not the outer row's |
//! | keys of DISTINCT ON become columns | `distinct_keys` | they would not be those of ORDER BY any more |
//! | sums keep their types where a distinct aggregate is done in two steps | `sum_types` | a condition would compare other types |
//! | some filters stay above aggregates and windows | `filter_above_aggregate` | below them they are of other rows |
//! | fields of structs are read where they stand | `leaf_projections` | they would be beside other columns |
//! | both sides of a join's comparisons have one type | `join_types` | equal keys would have no partner |
//! | aggregate functions are ordered by each key once | `aggregate_order` | otherwise some fail |
//! | limits stay above windows | `limit_over_window` | a window must see all rows |
//! | limits that only skip rows stay right above sorts | `offset_on_sort` | the sort would be dropped |
//! | a union may be NULL where a branch may | `nullable_unions` | aggregates above it would be refused |
//! | rules of the physical optimizer: bounds of floating point numbers are forgotten | `tables::scan` | they say nothing of NaN |
//! | outer joins are not merged piecewise | `outer_merge_joins` | rows whose key is NULL would be lost |
//! | limits stay above sorts of what merge joins give | `limit_above_sort` | the join would miss rows |
//! | joins are done where equal keys are together, or on rings | `local_joins`, `cyclo_joins` | less is sent |
//! | filters stay above nodes with two columns of one name | `unambiguous_filters`, `fence` | they would be of the wrong one |
//! | projections stay above merge joins with a filter | `merge_join_filters`, `fence` | it would be of other columns |
//! | sorts stay above limits that only skip rows, and above DISTINCT | `sort_above`, `fence` | other rows would be skipped, or too few be distinct |
//! | rules that only make a plan faster may fail | `optional_rules` | the query would be refused |
//! | keys of aggregates are forgotten below sorts of sorted rows | `misplaced_keys` | other columns would be taken for keys, and sorts left out |
//! | what is constant in a side of an outer join is not so in the join | `nullable_sides` | sorts would be left out |
//! | what is constant or equal below GROUPING SETS is not so above them | `grouping_sets` | sorts would be left out |
//! | of what a filter leaves the same in all rows, what is computed is forgotten | `filter_constants` | sorts would be left out |
//! | rows of a join are in the order of one side | `join_orders` | sorts would be left out |
//! | orders of the results of windows are forgotten | `window_orders` | some are wrong, and sorts would be left out |
//! | sorted partitions are merged by all that they are sorted by | `finer_merges` | the rows would be in the order of less |
//! | merge joins heed a filter of no column | `merge_join_filters` | it would be ignored |
//! | order is not lost in shuffles | `order` | a network shuffle does not merge, and forgets constants |
//! | rows are sorted above a shuffle of one input | `order_of_one_input` | a worker does not know that they are |
//! | rows are sorted where an order was lost that a node needs | `required_order` | the rows would be wrong, or the query refused |
//! | DataFusion checks what nodes require of their inputs | | a wrong answer is worse than none |
//! | joins yield | `yielding` | a worker answers, and can be cancelled |
//! | files are checked as they are read | `tables::scan` | a file that changed gives no rows |
//! | datafusion-distributed cuts the plan into stages; nodes that need it get one task | `invariant` | the answer must not depend on the number of tasks |
//! | the stages are checked against the invariant | `check` | a wrong answer is worse than a slow one |
//! | the stages are encoded and decoded once | `travel` | what a worker would refuse is known before it runs |
//!
//! A plan that fails one of the last two is planned again for one task, which runs in the coordinator and
//! asks workers only for the shards of memory tables.
//!
//! It must not know what carries the rows.

mod aggregate_order;
mod check;
mod comparison_aliases;
mod cyclo_joins;
mod depth;
mod distinct_keys;
mod fence;
mod filter_above_aggregate;
mod filter_constants;
mod finer_merges;
mod functional_dependencies;
mod grouping_sets;
mod ignored_clauses;
mod invariant;
mod join_orders;
mod join_types;
mod leaf_projections;
mod limit_above_sort;
mod limit_over_window;
mod local_joins;
mod merge_join_filters;
mod misplaced_keys;
mod null_safe_joins;
mod null_treatment;
mod nullable_sides;
mod nullable_unions;
mod offset_on_sort;
mod optional_rules;
mod order;
mod order_by_names;
mod order_of_one_input;
mod outer_merge_joins;
mod outer_references;
pub(crate) mod placement;
mod plan_rule;
mod required_order;
mod scalar_subqueries;
mod sort_above;
mod statement;
mod sum_types;
mod travel;
mod unambiguous_filters;
mod unique_columns;
mod values_kept;
mod window_orders;
mod yielding;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::common::{internal_datafusion_err, plan_datafusion_err};
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule as _};
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner as _};
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{DistributedConfig, NetworkBoundaryExt as _};
use uuid::Uuid;

use crate::Extensions;
use crate::rules::Rule;
use crate::tables::memory_shard::needs_shards;
use crate::tables::scan::{checked_scans, float_bounds};
use aggregate_order::aggregate_order;
use comparison_aliases::comparison_aliases;
use distinct_keys::distinct_keys;
use filter_above_aggregate::filter_above_aggregate;
use filter_constants::filter_constants;
use finer_merges::finer_merges;
use functional_dependencies::truly_determined;
use grouping_sets::grouping_sets;
use join_orders::join_orders;
use join_types::join_types;
use leaf_projections::fields_in_place;
use limit_above_sort::limit_above_sort;
use limit_over_window::limit_over_window;
use local_joins::local_joins;
use merge_join_filters::{merge_join_filters, with_filter_columns};
use misplaced_keys::misplaced_keys;
use null_safe_joins::{null_safe_joins, null_safe_keys};
use nullable_sides::nullable_sides;
use nullable_unions::nullable_unions;
use offset_on_sort::offset_on_sort;
use optional_rules::optional;
use order::order_across_shuffles;
use order_of_one_input::order_of_one_input;
use outer_merge_joins::outer_merge_joins;
use plan_rule::PlanRule;
use required_order::required_order;
use sort_above::with_sorts_above;
use sum_types::sum_types;
use unambiguous_filters::unambiguous;
use values_kept::values_kept;
use window_orders::window_orders;
use yielding::yielding_joins;

pub(crate) use cyclo_joins::cyclo_joins;
pub(crate) use depth::{check_depth, check_length};
pub(crate) use functional_dependencies::TrulyDeterminedRelations;
pub(crate) use ignored_clauses::check_clauses;
pub(crate) use invariant::desired_task_count;
pub(crate) use null_treatment::give_null_treatment;
pub(crate) use order_by_names::{by_names, mark_names};
pub(crate) use outer_references::check_outer_references;
pub(crate) use scalar_subqueries::{RunSubquery, with_values};
pub(crate) use unique_columns::without_unique;

/// The rules of the analyzer: DataFusion's, after one that has expressions keep their values.
pub(crate) fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let rules = Analyzer::new().rules;
    std::iter::once(values_kept()).chain(rules).collect()
}

/// Rules that take the places of those of DataFusion that have their names.
fn in_place_of_datafusions() -> [PlanRule; 3] {
    [filter_above_aggregate(), null_safe_keys(), sum_types()]
}

/// The rules of the logical optimizer: DataFusion's, and those that keep its answers right.
pub(crate) fn logical_rules() -> Vec<PlanRule> {
    let kept_right = in_place_of_datafusions();
    let mut rules = vec![comparison_aliases(), distinct_keys()];
    for rule in Optimizer::new().rules {
        if rule.name() == EliminateCrossJoin::new().name() {
            rules.push(null_safe_joins());
        }
        let in_its_place = kept_right.iter().find(|own| own.name() == rule.name());
        let rule = in_its_place.cloned().unwrap_or(rule);
        rules.push(fields_in_place(truly_determined(rule)));
    }
    rules.push(join_types());
    rules.push(aggregate_order());
    // Others put limits into sorts.
    rules.push(limit_over_window());
    // Others put projections below limits.
    rules.push(offset_on_sort());
    rules.push(nullable_unions());
    rules
}

/// DataFusion's rule that shuffles and sorts what needs it.
const SORTS: &str = "EnsureRequirements";

/// DataFusion's rule that checks what nodes require of their inputs, and changes nothing.
const CHECK: &str = "SanityCheckPlan";

/// DataFusion's rule that chooses how joins are done.
const JOINS: &str = "join_selection";

/// The rules of the physical optimizer, which come before the stages are cut: DataFusion's, of which those that put filters
/// below other nodes are kept right, and our own. `rings` puts joins on rings; `runtime` executes the plans.
///
/// # Errors
/// When DataFusion lacks a rule that one of ours has its place by.
pub(crate) fn physical_rules(rings: Rule, runtime: Arc<RuntimeEnv>) -> Result<Vec<Rule>> {
    let rules = PhysicalOptimizer::new().rules.into_iter();
    let mut rules: Vec<Rule> = rules
        .map(unambiguous)
        .map(with_sorts_above)
        .map(with_filter_columns)
        .map(optional)
        .collect();
    let check = rules.remove(place(&rules, CHECK)?);
    let joins_are_chosen = place(&rules, JOINS)? + 1;
    rules.splice(joins_are_chosen..joins_are_chosen, [local_joins(), rings]);
    let sorts = place(&rules, SORTS)?;
    rules.insert(sorts + 1, finer_merges());
    let forgetting = [
        misplaced_keys(),
        nullable_sides(),
        filter_constants(),
        grouping_sets(),
        join_orders(),
        window_orders(),
    ];
    rules.splice(sorts..sorts, forgetting);
    rules.splice(
        0..0,
        [float_bounds(), outer_merge_joins(), limit_above_sort()],
    );
    rules.extend([
        merge_join_filters(),
        order_across_shuffles(),
        order_of_one_input(),
        required_order(),
        check,
        yielding_joins(),
        checked_scans(runtime),
    ]);
    Ok(rules)
}

/// Where a rule of DataFusion is among these.
fn place(rules: &[Rule], name: &str) -> Result<usize> {
    let place = rules.iter().position(|rule| rule.name() == name);
    place.ok_or_else(|| internal_datafusion_err!("DataFusion has no rule {name}"))
}

/// Plans queries for the cluster, or for one task where that is the only right way.
#[derive(Clone)]
pub(crate) struct ClusterPlanner {
    /// datafusion-distributed's, with the handlers and rules of the session.
    stages: Arc<dyn QueryPlanner + Send + Sync>,
    /// The functions and codecs that workers have besides this crate's.
    extensions: Extensions,
    /// A worker that nothing was set for.
    worker: Arc<TaskContext>,
}

/// A plan for the cluster.
pub(crate) struct Planned {
    pub plan: Arc<dyn ExecutionPlan>,
    /// Why it has one task, where stages of several would not do.
    pub why_one_task: Option<DataFusionError>,
}

impl fmt::Debug for ClusterPlanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterPlanner")
    }
}

impl ClusterPlanner {
    /// A planner around that of a session that is being built.
    ///
    /// # Errors
    /// When the functions that workers have cannot be made.
    pub(crate) fn around(
        builder: &mut SessionStateBuilder,
        extensions: Extensions,
    ) -> Result<Self> {
        let stages = builder.query_planner().take();
        let worker = extensions.as_on_workers(SessionConfig::new())?;
        let planner = Self {
            stages: stages.unwrap_or_else(|| Arc::clone(worker.query_planner())),
            worker: worker.task_ctx(),
            extensions,
        };
        *builder.query_planner() = Some(Arc::new(planner.clone()));
        Ok(planner)
    }

    /// Plans a query for as many tasks as are right.
    pub(crate) async fn plan(
        &self,
        logical: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Planned> {
        // Rules of the optimizer put expressions into each other.
        check_depth(logical)?;
        let own;
        let mut session = session;
        let mut planned = self.in_stages(logical, session).await;
        if let Err(DataFusionError::Internal(_)) = planned.as_ref().map_err(|e| e.find_root()) {
            // Some of DataFusion's estimates from statistics fail.
            own = with_options(session, |options| {
                options.execution.collect_statistics = false;
                Ok(())
            })?;
            session = &own;
            planned = self.in_stages(logical, session).await;
        }
        let why = match planned {
            Ok(plan) => {
                return Ok(Planned {
                    plan,
                    why_one_task: None,
                });
            }
            Err(why) => why,
        };
        // Rules know by it that joins have no ring.
        let alone = with_options(session, |options| {
            DistributedConfig::from_config_options_mut(options)?.max_tasks_per_stage = 1;
            Ok(())
        })?;
        let mut plan = DefaultPhysicalPlanner::default()
            .create_physical_plan(logical, &alone)
            .await?;
        if needs_shards(&plan)? {
            plan = self.stages.create_physical_plan(logical, &alone).await?;
            check::check(&plan)?;
        }
        tracing::info!("this query runs in one task: {why}");
        Ok(Planned {
            plan,
            why_one_task: Some(why),
        })
    }

    /// A plan in stages that is right in any number of tasks, and that workers can read.
    async fn in_stages(
        &self,
        logical: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.stages.create_physical_plan(logical, session).await?;
        check::check(&plan)?;
        travel::check(&plan, session.config(), &self.worker, &self.extensions)?;
        Ok(plan)
    }
}

#[async_trait]
impl QueryPlanner for ClusterPlanner {
    async fn create_physical_plan(
        &self,
        logical: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.plan(logical, session).await?.plan)
    }
}

/// The number by which workers know the query of this plan; none if it has no stages.
pub(crate) fn query_id(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Uuid>> {
    let mut found = None;
    plan.apply(|node| {
        let boundary = node.as_network_boundary();
        found = boundary.map(|boundary| boundary.input_stage().query_id());
        Ok(match found {
            Some(_) => TreeNodeRecursion::Stop,
            None => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// The session with other options.
fn with_options(
    session: &dyn Session,
    change: impl FnOnce(&mut ConfigOptions) -> Result<()>,
) -> Result<SessionState> {
    let state = session.as_any().downcast_ref::<SessionState>();
    let mut state = state
        .ok_or_else(|| plan_datafusion_err!("only a SessionState can plan for a cluster"))?
        .clone();
    change(state.config_mut().options_mut())?;
    Ok(state)
}

#[cfg(test)]
mod tests;

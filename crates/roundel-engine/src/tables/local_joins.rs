//! Joins of tables that were dealt to the workers by the keys of the join are done where the rows are.
//!
//! DataFusion collects the smaller side of a join when it is small, which takes an exchange where its rows
//! are in several workers. Where equal keys are in the same partition anyway, there is nothing to exchange.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};

/// Joins partition by partition what is partitioned alike.
#[derive(Debug)]
struct LocalJoins;

type Rules = Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>;

/// DataFusion's rules, and where joins have their modes and no exchange was put below them yet, this one and `others`.
pub(crate) fn rules_with_joins(
    mut rules: Rules,
    others: impl PhysicalOptimizerRule + Send + Sync + 'static,
) -> Rules {
    let selected = rules
        .iter()
        .position(|rule| rule.name() == "join_selection");
    let after = selected.map_or(0, |at| at + 1);
    rules.insert(after, Arc::new(LocalJoins));
    rules.insert(after + 1, Arc::new(others));
    rules
}

impl PhysicalOptimizerRule for LocalJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| match node.downcast_ref::<HashJoinExec>() {
            Some(join) if is_local(join) => {
                let join = join
                    .builder()
                    .with_partition_mode(PartitionMode::Partitioned);
                Ok(Transformed::yes(Arc::new(join.build()?)))
            }
            _ => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "LocalJoins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether rows that a join brings together are in the same partition of both its inputs.
fn is_local(join: &HashJoinExec) -> bool {
    let (Some((left, lefts)), Some((right, rights))) =
        (hashed_by(join.left()), hashed_by(join.right()))
    else {
        return false;
    };
    let meets = |(one, other): &(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)| {
        one.eq(&left) && other.eq(&right)
    };
    // One null among the rows that are not to be found decides for all partitions.
    *join.partition_mode() == PartitionMode::CollectLeft
        && !join.null_aware
        && lefts == rights
        && join.on().iter().any(meets)
}

/// The one key of a plan's partitions, and how many there are.
fn hashed_by(plan: &Arc<dyn ExecutionPlan>) -> Option<(Arc<dyn PhysicalExpr>, usize)> {
    match plan.properties().output_partitioning() {
        Partitioning::Hash(keys, count) => match keys.as_slice() {
            [key] => Some((Arc::clone(key), *count)),
            _ => None,
        },
        _ => None,
    }
}

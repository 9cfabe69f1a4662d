//! Joins of tables that were dealt to the workers by the keys of the join are done where the rows are.
//!
//! DataFusion collects the smaller side of a join when it is small, which takes an exchange where its rows
//! are in several workers. Where equal keys are in the same partition anyway, there is nothing to exchange.

use std::sync::Arc;

use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};

use crate::rules::{Rule, node_rule};

/// Joins partition by partition what is partitioned alike. Its place is where joins have their modes, and no exchange was put
/// below them yet.
pub(super) fn local_joins() -> Rule {
    node_rule("local_joins", |node| {
        match node.downcast_ref::<HashJoinExec>() {
            Some(join) if is_local(join) => {
                let join = join
                    .builder()
                    .with_partition_mode(PartitionMode::Partitioned);
                Ok(Some(Arc::new(join.build()?)))
            }
            _ => Ok(None),
        }
    })
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

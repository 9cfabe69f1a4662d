//! Which joins of a plan may have the rows of heavy keys elsewhere than their hash says.
//!
//! | join | whose heavy keys may be spread |
//! |---|---|
//! | inner | either side's |
//! | left, left semi, left anti, left mark | the left side's |
//! | right, right semi, right anti, right mark | the right side's |
//! | full, and anti joins for which one null decides | neither's |
//!
//! A row that is spread is in one partition, and all rows that it can match are there, too. A row of the other side is
//! in many partitions. So each row of the join is made once, as long as no row of the other side makes one by itself.
//! It does so in an outer join of its side, when it matches nothing, and in a semi join of its side, which makes one
//! row of it however often it matches.
//!
//! A join whose rows are spread is not partitioned by its keys any more. So what is above it must not rely on that, up
//! to the next shuffle.

use crate::settings::Role;
use datafusion::common::JoinType;
use datafusion::common::stats::Precision;
use datafusion::physical_expr::{Distribution, Partitioning, PhysicalExpr};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};
use datafusion_distributed::{
    NetworkBoundary as _, NetworkBoundaryExt as _, NetworkShuffleExec, Stage,
};
use std::fmt;
use std::sync::Arc;
use url::Url;

/// The joins of two shuffled inputs of a query. Shown as EXPLAIN shows them.
#[derive(Debug, Default)]
pub(crate) struct SkewedJoins {
    /// The stages that take part, each with its role.
    roles: Vec<(usize, Role)>,
    told: Vec<String>,
}

/// Finds the joins of a plan whose heavy keys are to be spread; their tasks agree at one of these workers.
pub(crate) fn find(plan: &Arc<dyn ExecutionPlan>, live: &[Url]) -> SkewedJoins {
    let mut found = SkewedJoins::default();
    visit(plan, 1, &mut Vec::new(), live, &mut found);
    found.told.sort_unstable();
    found
}

/// A node, and which of its children is the next one.
type Above<'a> = Vec<(&'a Arc<dyn ExecutionPlan>, usize)>;

/// Looks at what is below a node of a stage of so many tasks.
fn visit<'a>(
    node: &'a Arc<dyn ExecutionPlan>,
    tasks: usize,
    above: &mut Above<'a>,
    live: &[Url],
    found: &mut SkewedJoins,
) {
    if tasks > 1
        && let Some(join) = node.downcast_ref::<HashJoinExec>()
        && let Some(inputs) = shuffled(join)
    {
        found.add(join, inputs, relies_on_keys(node, above), live);
    }
    let inside = node.as_network_boundary();
    let inside = inside.map_or(tasks, |boundary| boundary.input_stage().task_count());
    for (number, child) in node.children().into_iter().enumerate() {
        above.push((node, number));
        visit(child, inside, above, live, found);
        above.pop();
    }
}

/// The stages of a join's inputs, if both are shuffled by its keys.
fn shuffled(join: &HashJoinExec) -> Option<[&Stage; 2]> {
    if *join.partition_mode() != PartitionMode::Partitioned {
        return None;
    }
    let (left, right): (Vec<_>, Vec<_>) = join.on().iter().map(|(l, r)| (l, r)).unzip();
    let (left, left_count) = shuffled_by(join.left(), &left)?;
    let (right, right_count) = shuffled_by(join.right(), &right)?;
    (left_count == right_count).then_some([left, right])
}

fn shuffled_by<'a>(
    input: &'a Arc<dyn ExecutionPlan>,
    keys: &[&Arc<dyn PhysicalExpr>],
) -> Option<(&'a Stage, usize)> {
    let shuffle = input.downcast_ref::<NetworkShuffleExec>()?;
    let Partitioning::Hash(hashed, count) = input.output_partitioning() else {
        return None;
    };
    let same = hashed.len() == keys.len() && hashed.iter().zip(keys).all(|(one, key)| one == *key);
    let stage = shuffle.input_stage();
    let scattered = stage.local_plan()?.is::<RepartitionExec>();
    (same && scattered).then_some((stage, *count))
}

/// Whether a node is relied on to have rows of equal keys in one partition.
fn relies_on_keys(node: &Arc<dyn ExecutionPlan>, above: &Above<'_>) -> bool {
    let mut below = node;
    for (parent, child) in above.iter().rev() {
        if !has_keys(below) {
            return false;
        }
        let required = parent.input_distribution_requirements().into_per_child();
        match required.get(*child) {
            None | Some(Distribution::UnspecifiedDistribution | Distribution::SinglePartition) => {}
            Some(_) => return true,
        }
        if parent.is::<RepartitionExec>() || parent.is::<NetworkShuffleExec>() {
            return false;
        }
        below = parent;
    }
    false
}

/// Whether a node says that rows of equal keys are in one partition.
fn has_keys(node: &Arc<dyn ExecutionPlan>) -> bool {
    match node.output_partitioning() {
        Partitioning::Hash(..) | Partitioning::Range(_) => true,
        Partitioning::RoundRobinBatch(_) | Partitioning::UnknownPartitioning(_) => false,
    }
}

/// Whose heavy keys may be spread: the left side's, the right side's.
fn may_spread(join: JoinType) -> [bool; 2] {
    match join {
        JoinType::Inner => [true, true],
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
            [true, false]
        }
        JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
            [false, true]
        }
        JoinType::Full => [false, false],
    }
}

/// Rows that are expected of a stage.
fn rows_of(stage: &Stage) -> Option<u64> {
    let all = StatisticsArgs::new().with_partition(None);
    let plan = stage.local_plan()?;
    let known = StatisticsContext::new().compute(plan.as_ref(), &all).ok()?;
    match known.num_rows {
        Precision::Exact(rows) | Precision::Inexact(rows) => Some(rows as u64),
        Precision::Absent => None,
    }
}

impl SkewedJoins {
    fn add(&mut self, join: &HashJoinExec, inputs: [&Stage; 2], relied_on: bool, live: &[Url]) {
        let stages = inputs.map(Stage::num);
        let [left, right] = stages;
        let spread = match join.null_aware {
            true => [false, false],
            false => may_spread(*join.join_type()),
        };
        let of = format!("join of stages {left} and {right}");
        let place = match live.len() {
            0 => None,
            count => live.get(left % count),
        };
        let told = match (spread, place) {
            ([false, false], _) => {
                format!(
                    "{of}: heavy keys stay: rows of both sides count in a {} join",
                    join.join_type()
                )
            }
            _ if relied_on => {
                format!("{of}: heavy keys stay: what is above needs equal keys together")
            }
            (_, None) => format!("{of}: heavy keys stay: no worker is there to agree at"),
            (spread, Some(place)) => {
                let counts = inputs.map(|stage| stage.task_count() as u64);
                let samplers = counts.iter().zip(spread).filter(|(_, spreads)| *spreads);
                let role = |side: usize| Role {
                    join: left as u64,
                    side,
                    spreads: spread[side],
                    samplers: samplers.clone().map(|(count, _)| count).sum(),
                    tasks: counts.iter().sum(),
                    expected: inputs.map(rows_of),
                    place: place.clone(),
                };
                self.roles.extend([(left, role(0)), (right, role(1))]);
                let whose = match spread {
                    [true, true] => "both stages".to_owned(),
                    [true, false] => format!("stage {left}"),
                    _ => format!("stage {right}"),
                };
                format!(
                    "{of}: heavy keys of {whose} are spread, their rows of the other sent to all"
                )
            }
        };
        self.told.push(told);
    }

    /// The role of a stage in one of these joins, if it has one.
    pub(crate) fn role_of(&self, stage: usize) -> Option<&Role> {
        let mut roles = self.roles.iter();
        roles.find(|(of, _)| *of == stage).map(|(_, role)| role)
    }
}

impl fmt::Display for SkewedJoins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.told.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

#[cfg(test)]
mod tests;

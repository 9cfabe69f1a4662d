//! Keeps the order of rows where a network boundary would lose it.
//!
//! DataFusion's repartitioning can merge sorted inputs, and knows which columns are constant. A network shuffle of
//! datafusion-distributed does neither: it takes rows as they come, and its plan properties are bare. So rows are sorted again
//! above a shuffle that was to keep their order, and below a window that relies on more than is written in the order of its
//! input.
//!
//! DataFusion also runs a window backwards where that saves a sort. The encoding of a plan loses that, so windows run
//! forwards here.

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::common::plan_err;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, Partitioning, PhysicalSortExpr,
};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _, InputOrderMode};

use crate::rules::{Replacement, Rule, above, node_rule};

/// How a function of a window shows that it runs backwards.
pub(super) const REVERSED: &str = "is_reversed: true";

/// Sorts what a network boundary would leave unsorted.
pub(crate) fn order_across_shuffles() -> Rule {
    node_rule("order_across_shuffles", |node| {
        for replacement in [sorted_above, forwards, sorted_below] {
            if let Some(replacement) = replacement(node)? {
                return Ok(Some(replacement));
            }
        }
        Ok(None)
    })
}

/// A shuffle that merges, as one that does not, and a sort.
fn sorted_above(node: &Arc<dyn ExecutionPlan>) -> Replacement {
    let Some(shuffle) = node.downcast_ref::<RepartitionExec>() else {
        return Ok(None);
    };
    let (true, Partitioning::Hash(..), Some(order)) = (
        shuffle.preserve_order(),
        shuffle.partitioning(),
        node.output_ordering(),
    ) else {
        return Ok(None);
    };
    let plain =
        RepartitionExec::try_new(Arc::clone(shuffle.input()), shuffle.partitioning().clone())?;
    Ok(Some(sort(Arc::new(plain), order.clone())))
}

/// A window whose input is sorted as far as one can tell without knowing constants.
fn sorted_below(node: &Arc<dyn ExecutionPlan>) -> Replacement {
    if window(node).is_none() {
        return Ok(None);
    }
    let Some(required) = node.required_input_ordering().into_iter().next().flatten() else {
        return Ok(None);
    };
    let input = Arc::clone(node.children()[0]);
    let required = required.into_single();
    let mut written = EquivalenceProperties::new(input.schema());
    written.add_orderings(input.output_ordering().cloned());
    if written.ordering_satisfy_requirement(required.clone())? {
        return Ok(None);
    }
    let order = LexOrdering::from(required);
    let sorted = above(vec![sort(input, order)], node)?;
    // A limit may rely on the order that there was, without a word.
    let Some(order) = node.output_ordering() else {
        return Ok(Some(sorted));
    };
    let kept = sorted.equivalence_properties();
    Ok(Some(
        match kept.ordering_satisfy(order.iter().cloned())? {
            true => sorted,
            false => sort(sorted, order.clone()),
        },
    ))
}

/// The functions of a window, and whether it may run in several partitions, by its keys; none of other nodes.
pub(super) fn window(node: &Arc<dyn ExecutionPlan>) -> Option<(&[Arc<dyn WindowExpr>], bool)> {
    if let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() {
        Some((window.window_expr(), !window.partition_keys().is_empty()))
    } else if let Some(window) = node.downcast_ref::<WindowAggExec>() {
        Some((window.window_expr(), !window.partition_keys().is_empty()))
    } else {
        None
    }
}

/// A window whose functions run backwards, as one whose functions run forwards, between sorts.
fn forwards(node: &Arc<dyn ExecutionPlan>) -> Replacement {
    let Some((functions, keyed)) = window(node) else {
        return Ok(None);
    };
    // No method tells; the functions of a window are all reversed, or none is.
    let backwards = |function: &Arc<dyn WindowExpr>| format!("{function:?}").contains(REVERSED);
    if !functions.iter().any(backwards) {
        return Ok(None);
    }
    let forwards = functions.iter().map(|function| function.get_reverse_expr());
    let Some(functions) = forwards.collect::<Option<Vec<_>>>() else {
        return plan_err!("a window that runs backwards cannot run forwards");
    };
    let by_partition = functions[0].partition_by().iter().cloned();
    let order = by_partition
        .map(|key| PhysicalSortExpr::new(key, SortOptions::default()))
        .chain(functions[0].order_by().iter().cloned());
    let mut input = Arc::clone(node.children()[0]);
    if let Some(order) = LexOrdering::new(order) {
        input = sort(input, order);
    }
    let bounded = functions.iter().all(|f| f.uses_bounded_memory());
    let forwards: Arc<dyn ExecutionPlan> = match bounded {
        true => Arc::new(BoundedWindowAggExec::try_new(
            functions,
            input,
            InputOrderMode::Sorted,
            keyed,
        )?),
        false => Arc::new(WindowAggExec::try_new(functions, input, keyed)?),
    };
    Ok(Some(match node.output_ordering() {
        Some(order) => sort(forwards, order.clone()),
        None => forwards,
    }))
}

/// Sorts the rows of each partition.
pub(super) fn sort(input: Arc<dyn ExecutionPlan>, order: LexOrdering) -> Arc<dyn ExecutionPlan> {
    Arc::new(SortExec::new(order, input).with_preserve_partitioning(true))
}

//! Refuses expressions that are nested too deep.
//!
//! Plans are walked, encoded and evaluated by functions that call themselves. An expression that is nested deeper than a
//! thread's stack allows would end a process, and with a worker the queries of everybody.

use datafusion::common::plan_err;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// How deep expressions may be nested: each operator of a row of them is one level. What is as deep needs a tenth of
/// [`STACK_BYTES`](crate::STACK_BYTES).
const DEPTH_MAX: usize = 5_000;

/// Refuses a plan with an expression that is nested deeper than [`DEPTH_MAX`].
pub(crate) fn check_depth(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            if depth(expression)? > DEPTH_MAX {
                return plan_err!(
                    "an expression has more than {DEPTH_MAX} operators within each other: write it shorter, \
                     such as with IN, or compute parts of it in subqueries"
                );
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })
    .map(drop)
}

/// The levels of an expression, as far as [`DEPTH_MAX`]. It does not call itself.
fn depth(expression: &Expr) -> Result<usize> {
    let mut deepest = 0;
    let mut left = vec![(expression, 1)];
    while let Some((expression, level)) = left.pop() {
        deepest = deepest.max(level);
        if deepest > DEPTH_MAX {
            break;
        }
        expression.apply_children(|child| {
            left.push((child, level + 1));
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(deepest)
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{LogicalPlanBuilder, lit};

    use super::*;

    fn sum_of(terms: usize) -> LogicalPlan {
        let sum = (1..terms).fold(lit(1), |sum, _| sum + lit(1));
        let plan = LogicalPlanBuilder::empty(true).project([sum]);
        plan.expect("a plan").build().expect("a plan")
    }

    #[test]
    fn expressions_are_as_deep_as_their_longest_row_of_operators() {
        // The stack of a test's thread is smaller than that of a worker's.
        let deep = std::thread::Builder::new().stack_size(crate::STACK_BYTES);
        let checked = deep.spawn(|| {
            check_depth(&sum_of(DEPTH_MAX - 1)).expect("as deep as may be");
            let refused = check_depth(&sum_of(DEPTH_MAX + 2)).expect_err("deeper");
            assert!(refused.to_string().contains("more than"), "{refused}");
        });
        checked.expect("a thread").join().expect("no panic");
    }
}

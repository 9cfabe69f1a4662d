//! Refuses expressions that are nested too deep.
//!
//! Plans are walked, encoded and evaluated by functions that call themselves. An expression that is nested deeper than a
//! thread's stack allows would end a process, and with a worker the queries of everybody.

use datafusion::common::plan_err;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// How deep expressions may be nested: each operator of a row of them is one level. What is as deep needs a tenth of
/// [`STACK_BYTES`](crate::STACK_BYTES).
const DEPTH_MAX: usize = 5_000;

/// Operators in a row that a statement may have to begin with: some bind less than others, and make no level. To plan what is longer
/// takes minutes, and a stack.
const LENGTH_MAX: usize = 2 * DEPTH_MAX;

/// Refuses a statement with more than [`LENGTH_MAX`] operators in a row, before it is parsed.
pub(crate) fn check_length(sql: &str) -> Result<()> {
    // An operator has a letter at least.
    if sql.len() <= LENGTH_MAX {
        return Ok(());
    }
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize() else {
        // The parser will say what is wrong with it.
        return Ok(());
    };
    // Operators of the expressions that the one being read is within, and its own.
    let mut around = Vec::new();
    let mut operators = 0;
    for token in &tokens {
        match token {
            Token::LParen | Token::LBracket => around.push(std::mem::take(&mut operators)),
            Token::RParen | Token::RBracket => operators = around.pop().unwrap_or(0),
            Token::Comma | Token::SemiColon => operators = 0,
            Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::Mod
            | Token::StringConcat => operators += 1,
            Token::Word(word) if matches!(word.keyword, Keyword::AND | Keyword::OR) => {
                operators += 1;
            }
            _ => {}
        }
        if operators > LENGTH_MAX {
            return too_deep();
        }
    }
    Ok(())
}

fn too_deep() -> Result<()> {
    plan_err!(
        "an expression has more than {DEPTH_MAX} operators within each other: write it shorter, such as with IN"
    )
}

/// Refuses a plan with an expression that is nested deeper than [`DEPTH_MAX`].
pub(crate) fn check_depth(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            if depth(expression)? > DEPTH_MAX {
                too_deep()?;
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
    fn what_is_too_long_is_refused_before_it_is_parsed() {
        let row =
            |terms: usize, between: &str| format!("SELECT {}", vec!["x"; terms].join(between));
        for sql in [
            row(LENGTH_MAX, "+"),
            row(3 * LENGTH_MAX, ", "),
            format!("SELECT x IN ({})", vec!["-1"; 3 * LENGTH_MAX].join(", ")),
            format!("SELECT {}", vec!["(x OR y)"; LENGTH_MAX].join(" AND ")),
            "SELECT 'never ends".to_owned(),
        ] {
            check_length(&sql).expect("is short enough");
        }
        for between in ["+", " OR ", " || "] {
            check_length(&row(LENGTH_MAX + 2, between)).expect_err("is too long");
        }
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

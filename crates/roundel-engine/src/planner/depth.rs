//! Refuses expressions that are nested too deep, and too many inputs in a row.
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

/// How deep expressions may be nested: each operator of a row of them is one level. An expression of this depth needs a tenth of
/// [`STACK_BYTES`](crate::STACK_BYTES).
const DEPTH_MAX: usize = 5_000;

/// Most operators in a row that are parsed at all. They may be more than [`DEPTH_MAX`], as not each of them makes a level. To plan what
/// is longer takes minutes, and a stack.
const LENGTH_MAX: usize = 2 * DEPTH_MAX;

/// Most set operations and joins in a row: each makes a level of the plan, which takes more of a stack than one of an expression.
const CHAIN_MAX: usize = 2_000;

/// What is in a row at a place of a statement.
#[derive(Clone, Copy, Default)]
struct Row {
    operators: usize,
    inputs: usize,
}

/// Refuses a statement with more than [`LENGTH_MAX`] operators in a row, or more than [`CHAIN_MAX`] set operations or joins,
/// before it is parsed.
pub(crate) fn check_length(sql: &str) -> Result<()> {
    // An operator is at least one byte, and UNION more than four.
    if sql.len() <= LENGTH_MAX {
        return Ok(());
    }
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize() else {
        // The parser will say what is wrong with it.
        return Ok(());
    };
    // The rows that the one being read is within, and itself.
    let mut around = Vec::new();
    let mut row = Row::default();
    for token in &tokens {
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                around.push(std::mem::take(&mut row));
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                row = around.pop().unwrap_or_default();
            }
            Token::Comma => row.operators = 0,
            Token::SemiColon => row = Row::default(),
            Token::Word(word) => match word.keyword {
                Keyword::CASE => around.push(std::mem::take(&mut row)),
                Keyword::END => row = around.pop().unwrap_or_default(),
                Keyword::WHEN | Keyword::THEN | Keyword::ELSE => row.operators = 0,
                Keyword::SELECT | Keyword::VALUES | Keyword::WHERE | Keyword::ON => {
                    row.operators = 0;
                }
                Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT | Keyword::JOIN => {
                    row.inputs += 1;
                }
                Keyword::AND
                | Keyword::OR
                | Keyword::XOR
                | Keyword::NOT
                | Keyword::IS
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::IN
                | Keyword::BETWEEN
                | Keyword::AT
                | Keyword::COLLATE
                | Keyword::DIV => row.operators += 1,
                _ => {}
            },
            Token::EOF
            | Token::Number(..)
            | Token::Char(_)
            | Token::Whitespace(_)
            | Token::Period
            | Token::Placeholder(_)
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::DollarQuotedString(_)
            | Token::NationalStringLiteral(_)
            | Token::EscapedStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::HexStringLiteral(_) => {}
            // Every other sign is, or may be, an operator.
            _ => row.operators += 1,
        }
        if row.operators > LENGTH_MAX {
            return too_deep();
        }
        if row.inputs > CHAIN_MAX {
            return plan_err!(
                "a statement has more than {CHAIN_MAX} set operations or joins in a row: run it in parts"
            );
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
            format!(
                "SELECT CASE {} END",
                vec!["WHEN x = 0 AND y = 1 OR z = 2 THEN 0"; LENGTH_MAX].join(" ")
            ),
            "SELECT 'never ends".to_owned(),
        ] {
            check_length(&sql).expect("is short enough");
        }
        for between in ["+", " OR ", " || ", "|", " IS DISTINCT FROM ", "::INT::"] {
            check_length(&row(LENGTH_MAX + 2, between)).expect_err("is too long");
        }
        let case = "CASE WHEN x = 0 THEN 1 ELSE 2 END";
        check_length(&format!(
            "SELECT {}",
            vec![case; LENGTH_MAX + 2].join(" + ")
        ))
        .expect_err("is too long");
    }

    #[test]
    fn set_operations_and_joins_in_a_row_are_counted() {
        let unions = |count: usize| vec!["SELECT 1-1"; count].join(" UNION ALL ");
        let joins = |count: usize| format!("SELECT 1 FROM t{}", " JOIN t USING (k)".repeat(count));
        check_length(&unions(CHAIN_MAX + 1)).expect("is short enough");
        check_length(&joins(CHAIN_MAX)).expect("is short enough");
        check_length(&unions(CHAIN_MAX + 2)).expect_err("is too long");
        check_length(&joins(CHAIN_MAX + 1)).expect_err("is too long");
        let apart = vec![format!("({})", unions(CHAIN_MAX)); 3].join(" UNION ALL ");
        check_length(&apart).expect("is short enough");
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

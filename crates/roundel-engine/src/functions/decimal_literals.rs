//! Compares decimals with numbers as they are written.
//!
//! SQL's `m = 34.48` is exact where `m` is a decimal. DataFusion reads `34.48` as a floating point number, which is a little less, and compares
//! with that (#14272). Here the number becomes the decimal that it was written as.

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{BinaryExpr, Case, Expr, ExprSchemable as _};

#[derive(Debug)]
pub(super) struct DecimalLiterals;

impl FunctionRewrite for DecimalLiterals {
    fn name(&self) -> &str {
        "decimal_literals"
    }

    /// Comes before both sides are given one type.
    fn rewrite(
        &self,
        mut expr: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        let compared: Vec<&mut Expr> = match &mut expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
                vec![left, right]
            }
            Expr::Between(Between {
                expr, low, high, ..
            }) => vec![expr, low, high],
            Expr::InList(InList { expr, list, .. }) => {
                std::iter::once(expr.as_mut()).chain(list).collect()
            }
            Expr::Case(Case {
                expr: Some(expr),
                when_then_expr,
                ..
            }) => {
                let whens = when_then_expr.iter_mut().map(|(when, _)| when.as_mut());
                std::iter::once(expr.as_mut()).chain(whens).collect()
            }
            _ => return Ok(Transformed::no(expr)),
        };
        let is_decimal = |expr: &&mut Expr| {
            let kind = expr.get_type(schema);
            kind.is_ok_and(|kind| {
                matches!(kind, DataType::Decimal128(..) | DataType::Decimal256(..))
            })
        };
        if !compared.iter().any(is_decimal) {
            return Ok(Transformed::no(expr));
        }
        let mut changed = false;
        for literal in compared {
            if let Expr::Literal(ScalarValue::Float64(Some(number)), _) = literal
                && let Some(decimal) = as_written(*number)
            {
                *literal = Expr::Literal(decimal, None);
                changed = true;
            }
        }
        Ok(Transformed::new_transformed(expr, changed))
    }
}

/// The shortest decimal that is read as this number; none if it has too many digits.
fn as_written(number: f64) -> Option<ScalarValue> {
    let text = number.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits = format!("{whole}{fraction}");
    let precision = digits.trim_start_matches(['-', '0']).len();
    let scale = i8::try_from(fraction.len()).ok()?;
    let precision = u8::try_from(precision.max(fraction.len()).max(1)).ok()?;
    let value = digits.parse().ok()?;
    let fits = precision <= DECIMAL128_MAX_PRECISION;
    fits.then_some(ScalarValue::Decimal128(Some(value), precision, scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::tests::rows;

    #[tokio::test]
    async fn decimals_are_compared_as_they_are_written() {
        let table = "(SELECT CAST(m AS DECIMAL(12, 2)) AS m FROM (VALUES ('34.48'), ('32.41'), ('-1.10')) AS v(m))";
        for (condition, right) in [
            ("m = 34.48", "34.48"),
            ("34.48 <= m", "34.48"),
            ("m < 34.48", "-1.10 32.41"),
            ("m <> 34.48", "-1.10 32.41"),
            ("m BETWEEN 32.41 AND 34.48", "32.41 34.48"),
            ("m NOT IN (34.48, -1.1)", "32.41"),
            ("CASE m WHEN 32.41 THEN true END", "32.41"),
            ("m IS NOT DISTINCT FROM 32.41", "32.41"),
            ("m > 32.405", "32.41 34.48"),
            ("m + 0.01 > 34.4", "34.48"),
        ] {
            let sql = format!("SELECT m FROM {table} WHERE {condition} ORDER BY m");
            assert_eq!(rows(&sql).await.expect(&sql), right, "{sql}");
        }
    }

    #[test]
    fn numbers_are_the_decimals_that_they_were_written_as() {
        for (number, value, precision, scale) in [
            (34.48, 3448, 4, 2),
            (-0.05, -5, 2, 2),
            (7.0, 7, 1, 0),
            (0.0, 0, 1, 0),
            (1e20, 100_000_000_000_000_000_000, 21, 0),
        ] {
            let decimal = ScalarValue::Decimal128(Some(value), precision, scale);
            assert_eq!(as_written(number), Some(decimal));
        }
        for number in [f64::NAN, f64::INFINITY, 1e300, 1e-300] {
            assert_eq!(as_written(number), None);
        }
    }
}

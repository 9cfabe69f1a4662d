//! Compares decimals with numbers as they are written.
//!
//! SQL's `m = 34.48` is exact where `m` is a decimal. DataFusion reads `34.48` as a floating point number, which is a little less, and makes a
//! decimal of that (#14272). Here the number becomes the decimal that it was written as.

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::{BinaryExpr, Case, Expr, ExprSchemable as _};

/// A comparison, in which numbers beside decimals are decimals.
pub(super) fn with_decimals(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
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
        _ => return Transformed::no(expr),
    };
    let decimals = compared
        .iter()
        .filter_map(|expr| digits(&expr.get_type(schema).ok()?));
    let Some(beside) = decimals.reduce(widest) else {
        return Transformed::no(expr);
    };
    let mut changed = false;
    for literal in compared {
        if let Expr::Literal(ScalarValue::Float64(Some(number)), _) = literal
            && let Some(decimal) = as_written(*number)
            && let Some(own) = digits(&decimal.data_type())
            && let (whole, fraction) = widest(own, beside)
            && whole + fraction <= i16::from(DECIMAL128_MAX_PRECISION)
        {
            *literal = Expr::Literal(decimal, None);
            changed = true;
        }
    }
    Transformed::new_transformed(expr, changed)
}

/// Digits before and after the point that decimals of a type have.
fn digits(decimal: &DataType) -> Option<(i16, i16)> {
    match *decimal {
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            Some((i16::from(precision) - i16::from(scale), i16::from(scale)))
        }
        _ => None,
    }
}

/// Those of a type that has room for both.
fn widest(one: (i16, i16), other: (i16, i16)) -> (i16, i16) {
    (one.0.max(other.0), one.1.max(other.1))
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
            // A decimal with as many places would have no room for others before the point.
            ("m * 1000000 > 1.1102230246251565e-16", "32.41 34.48"),
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

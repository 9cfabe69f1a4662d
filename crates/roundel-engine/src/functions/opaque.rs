//! Values that DataFusion's rules do not look into, where they would make something else of them.
//!
//! The rules compare `d` in `CAST(d AS DECIMAL(9, 2)) = 1.23`, which rounds it (#23095). They take what is cast to TIME, or truncated in a time
//! zone, for sorted where the timestamps are (#25506, #25353). They make one list of two in `i NOT IN (1, 5) OR i NOT IN (2, 6)`, which then is
//! true of NULL (#24246). A function that gives back its argument stands between.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{
    BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable as _, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TryCast, Volatility,
};

/// The function, whose value is its argument.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Opaque(Signature);

impl Default for Opaque {
    fn default() -> Self {
        Self(Signature::any(1, Volatility::Immutable))
    }
}

impl ScalarUDFImpl for Opaque {
    fn name(&self) -> &str {
        "opaque"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&arguments.arg_fields[0]))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(arguments.args[0].clone())
    }
}

/// Puts the function where it is needed.
#[derive(Debug)]
pub(super) struct Opaquely(pub(super) Arc<ScalarUDF>);

impl Opaquely {
    fn opaque(&self, value: Expr) -> Expr {
        let arguments = vec![value];
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&self.0), arguments))
    }

    /// Has no list be made one with another of the same value.
    fn set_apart(&self, lists: Expr, tested: &[Expr]) -> Result<Transformed<Expr>> {
        lists.transform_down(|part| match part {
            Expr::InList(mut list) if tested.contains(&list.expr) => {
                while tested.contains(&list.expr) {
                    list.expr = Box::new(self.opaque(*list.expr));
                }
                Ok(Transformed::yes(Expr::InList(list)))
            }
            other => Ok(Transformed::no(other)),
        })
    }
}

impl FunctionRewrite for Opaquely {
    fn name(&self) -> &str {
        "opaque"
    }

    fn rewrite(
        &self,
        expr: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if matches!(op, Operator::And | Operator::Or) =>
            {
                let right = self.set_apart(*right, &tested(&left, schema)?)?;
                right.update_data(|right| {
                    Expr::BinaryExpr(BinaryExpr::new(left, op, Box::new(right)))
                })
            }
            // It may come beside another later.
            Expr::InList(mut list) if list.negated && list.list.iter().any(is_null) => {
                list.expr = Box::new(self.opaque(*list.expr));
                Transformed::yes(Expr::InList(list))
            }
            seen if is_seen_wrongly(&seen, schema) => Transformed::yes(self.opaque(seen)),
            other => Transformed::no(other),
        })
    }
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.is_null())
}

/// What is looked for in lists, and may be NULL.
fn tested(lists: &Expr, schema: &DFSchema) -> Result<Vec<Expr>> {
    let mut tested = Vec::new();
    lists.apply(|part| {
        if let Expr::InList(InList { expr, .. }) = part
            && expr.nullable(schema).unwrap_or(true)
        {
            tested.push(expr.as_ref().clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(tested)
}

/// Whether rules take its value, or its order, for that of what it is made of.
fn is_seen_wrongly(expr: &Expr, schema: &DFSchema) -> bool {
    use DataType::{Decimal128, Decimal256, Time32, Time64, Timestamp};
    let (of, to) = match expr {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            (expr.as_ref(), Some(field.data_type()))
        }
        Expr::ScalarFunction(ScalarFunction { func, args })
            if func.name() == "date_trunc" && args.len() == 2 =>
        {
            (&args[1], None)
        }
        _ => return false,
    };
    match (of.get_type(schema).ok(), to) {
        (Some(Decimal128(_, from) | Decimal256(_, from)), Some(to)) => match to {
            Decimal128(_, scale) | Decimal256(_, scale) => *scale < from,
            to => to.is_integer() && from > 0,
        },
        (Some(Timestamp(..)), Some(to)) => matches!(to, Time32(_) | Time64(_)),
        // Where a clock is turned back, an hour comes twice.
        (Some(Timestamp(_, zone)), None) => zone.is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::functions::tests::rows;

    #[tokio::test]
    async fn a_decimal_that_is_rounded_is_compared_rounded() {
        let table = "(SELECT CAST(d AS DECIMAL(20, 4)) AS d FROM (VALUES ('1.2345'), ('1.2399'), ('1.2500')) AS v(d))";
        for (condition, right) in [
            ("CAST(d AS DECIMAL(20, 2)) = 1.23", "1.2345"),
            ("CAST(d AS DECIMAL(20, 2)) > 1.23", "1.2399 1.2500"),
            ("CAST(d AS DECIMAL(20, 2)) IN (1.23, 1.25)", "1.2345 1.2500"),
            ("TRY_CAST(d AS DECIMAL(20, 1)) <> 1.2", "1.2500"),
            ("d::INT = 1", "1.2345 1.2399 1.2500"),
            ("CAST(d AS DECIMAL(20, 6)) = 1.25", "1.2500"),
        ] {
            let sql = format!("SELECT d FROM {table} WHERE {condition} ORDER BY d");
            assert_eq!(rows(&sql).await.expect(&sql), right, "{sql}");
        }
        let sql = format!(
            "SELECT k, count(*) FROM (SELECT d::DECIMAL(12, 2) AS k FROM {table}) WHERE k = 1.23 GROUP BY k"
        );
        assert_eq!(rows(&sql).await.expect(&sql), "1.23|1");
    }

    #[tokio::test]
    async fn lists_of_what_may_be_null_stay_two() {
        for (condition, right) in [
            ("i NOT IN (1, 5) OR i NOT IN (2, 6)", "1 2 3"),
            ("NOT (i IN (1, 5) AND i IN (2, 6))", "1 2 3"),
            ("(i IN (1, 5) AND i IN (2, 6)) IS NULL", ""),
            ("i IN (1, 2) AND i NOT IN (2, NULL)", ""),
            ("NOT (i IN (1, 5) AND i IN (2, 6) AND i IN (3, 7))", "1 2 3"),
        ] {
            let sql = format!(
                "SELECT i FROM (VALUES (1), (2), (3), (NULL)) AS t(i) WHERE {condition} ORDER BY i"
            );
            assert_eq!(rows(&sql).await.expect(&sql), right, "{sql}");
        }
        let sql = "SELECT i FROM (SELECT * FROM (VALUES (1), (2)) AS t(i) WHERE i IN (1, 2)) WHERE i NOT IN (2, NULL)";
        assert_eq!(rows(sql).await.expect(sql), "");
    }

    #[tokio::test]
    async fn times_and_hours_are_not_in_the_order_of_timestamps() {
        let sql = "SELECT CAST(t AS TIME) AS x FROM (SELECT t FROM \
                   (VALUES (TIMESTAMP '2024-01-01T09:00:00'), (TIMESTAMP '2024-01-02T08:00:00')) AS v(t) ORDER BY t LIMIT 9) \
                   ORDER BY x";
        assert_eq!(rows(sql).await.expect(sql), "08:00:00 09:00:00");
    }
}

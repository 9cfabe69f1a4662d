//! Values that DataFusion's rules do not look into, where they would make something else of them.
//!
//! The rules compare `d` in `CAST(d AS DECIMAL(9, 2)) = 1.23`, which rounds it (#23095). They take what is cast to TIME, or truncated in a time
//! zone, for sorted where the timestamps are (#25506, #25353). They make one list of the two in `i IN (1, 5) AND i IN (2, 6)` or `i NOT IN (1, 5) OR
//! i NOT IN (2, 6)`, which then is not NULL where `i` is (#24246). A function that gives back its first argument stands between.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable as _, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TryCast, Volatility, lit,
};

const NAME: &str = "roundel_opaque";

/// The function, whose value is its first argument. By the second, values are told apart.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Opaque(Signature);

impl Default for Opaque {
    fn default() -> Self {
        Self(Signature::any(2, Volatility::Immutable))
    }
}

impl ScalarUDFImpl for Opaque {
    fn name(&self) -> &str {
        NAME
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

fn opaque(value: Expr, number: u64) -> Expr {
    let arguments = vec![value, lit(number)];
    let function = Arc::new(ScalarUDF::from(Opaque::default()));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments))
}

/// Puts the function where it is needed: around an expression, or in a part of it.
pub(super) fn made_opaque(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::And | Operator::Or) =>
        {
            let before = lists(&left, op);
            let set_apart = set_apart(*right, op, &before, schema);
            set_apart
                .update_data(|right| Expr::BinaryExpr(BinaryExpr::new(left, op, Box::new(right))))
        }
        // It may come beside another later.
        Expr::InList(mut list) if list.negated && list.list.iter().any(is_null) => {
            list.expr = Box::new(opaque(*list.expr, 0));
            Transformed::yes(Expr::InList(list))
        }
        seen if is_seen_wrongly(&seen, schema) => Transformed::yes(opaque(seen, 0)),
        other => Transformed::no(other),
    }
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.is_null())
}

/// A list that an operator joins with others: what is looked for, and whether it must not be there.
type List = (Expr, bool);

fn lists(joined: &Expr, operator: Operator) -> Vec<List> {
    match joined {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == operator => {
            [left, right].map(|side| lists(side, operator)).concat()
        }
        Expr::Not(of) => negated(lists(of, dual(operator))),
        Expr::InList(InList { expr, negated, .. }) => vec![(sought(expr).0.clone(), *negated)],
        _ => Vec::new(),
    }
}

fn negated(lists: Vec<List>) -> Vec<List> {
    let lists = lists.into_iter();
    lists.map(|(sought, negated)| (sought, !negated)).collect()
}

/// The operator that takes its place below NOT.
fn dual(operator: Operator) -> Operator {
    match operator {
        Operator::And => Operator::Or,
        _ => Operator::And,
    }
}

/// What is looked for, and by which number it is told apart.
fn sought(expr: &Expr) -> (&Expr, u64) {
    if let Expr::ScalarFunction(function) = expr
        && function.name() == NAME
        && let [value, Expr::Literal(ScalarValue::UInt64(Some(number)), _)] = &function.args[..]
    {
        return (value, *number);
    }
    (expr, 0)
}

/// Has no list be made one with those before it, unless it is the union of both, which is NULL when they are.
fn set_apart(
    joined: Expr,
    operator: Operator,
    before: &[List],
    schema: &DFSchema,
) -> Transformed<Expr> {
    match joined {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op == operator => {
            let left = set_apart(*left, operator, before, schema);
            let right = set_apart(*right, operator, before, schema);
            let changed = left.transformed || right.transformed;
            let both = BinaryExpr::new(Box::new(left.data), op, Box::new(right.data));
            Transformed::new_transformed(Expr::BinaryExpr(both), changed)
        }
        Expr::Not(of) => {
            let before = negated(before.to_vec());
            let of = set_apart(*of, dual(operator), &before, schema);
            of.update_data(|of| Expr::Not(Box::new(of)))
        }
        Expr::InList(mut list) => {
            let (value, number) = sought(&list.expr);
            let same = before.iter().filter(|(sought, _)| sought == value);
            let same: Vec<bool> = same.map(|(_, negated)| *negated).collect();
            let of_union = operator == Operator::And;
            let is_union = |before: &bool| *before == of_union && list.negated == of_union;
            let stays = same.iter().all(is_union) && number == 0;
            if stays || same.is_empty() || !value.nullable(schema).unwrap_or(true) {
                return Transformed::no(Expr::InList(list));
            }
            list.expr = Box::new(opaque(value.clone(), number + same.len() as u64));
            Transformed::yes(Expr::InList(list))
        }
        other => Transformed::no(other),
    }
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
        let many: Vec<_> = (0..300)
            .map(|n| format!("i NOT IN ({n}, {})", n + 1))
            .collect();
        let sql = format!(
            "SELECT count(*) FROM (VALUES (1), (NULL)) AS t(i) WHERE {}",
            many.join(" OR ")
        );
        assert_eq!(rows(&sql).await.expect("answers"), "1");
        let sql = "SELECT i FROM (SELECT * FROM (VALUES (1), (2)) AS t(i) WHERE i IN (1, 2)) WHERE i NOT IN (2, NULL)";
        assert_eq!(rows(sql).await.expect(sql), "");
    }

    #[tokio::test]
    async fn times_and_hours_are_not_in_the_order_of_timestamps() {
        let sql = "SELECT CAST(t AS TIME) AS x FROM (SELECT t FROM \
                   (VALUES (TIMESTAMP '2024-01-01T09:00:00'), (TIMESTAMP '2024-01-02T08:00:00')) AS v(t) ORDER BY t LIMIT 9) \
                   ORDER BY x";
        assert_eq!(rows(sql).await.expect(sql), "08:00:00 09:00:00");
        // The plan sorts twice.
        let sql = "EXPLAIN SELECT date_trunc('hour', t) AS x FROM (SELECT arrow_cast(column1, 'Timestamp(Second, Some(\"Europe/Berlin\"))') AS t \
                   FROM (VALUES (TIMESTAMP '2024-10-27T00:10:00')) ORDER BY t LIMIT 9) ORDER BY x";
        let plan = rows(sql).await.expect(sql);
        assert_eq!(plan.matches("SortExec").count(), 2, "{plan}");
    }
}

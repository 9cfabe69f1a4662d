//! `sum` that fails where DataFusion's wraps around (apache/datafusion#3520, #16406).
//!
//! Integers, durations and small decimals are summed in a wider type, in which no table's sum is too large; the result
//! must be in the range of its own type. Large decimals have no wider type that is as fast: each addition is checked.
//! So the sum does not depend on which rows a task has. Whether there is a sum does not depend on that either, except
//! for the largest decimals.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use datafusion::arrow::array::types::{
    ArrowPrimitiveType, Decimal128Type, Decimal256Type, DecimalType, Int64Type,
};
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowNumericType, AsArray as _, BooleanArray,
    PrimitiveArray,
};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options, sum_checked};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, FieldRef,
};
use datafusion::common::{ScalarValue, exec_datafusion_err, exec_err, not_impl_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

/// DataFusion's `sum`, but for its accumulators.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ExactSum(Sum);

/// How sums of a type are kept exact.
enum Way {
    /// In a wider type.
    Wide(DataType),
    /// Each addition is checked.
    Checked,
    /// Floating point numbers have infinity, and nobody sums intervals that long.
    Plain,
}

impl Way {
    /// Of sums with this type.
    fn of(result: &DataType, is_distinct: bool) -> Self {
        match result {
            DataType::Int64 | DataType::UInt64 | DataType::Duration(_) => {
                Self::Wide(DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))
            }
            DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) => {
                Self::Wide(DataType::Decimal128(DECIMAL128_MAX_PRECISION, *scale))
            }
            DataType::Decimal128(_, scale) if is_distinct => {
                Self::Wide(DataType::Decimal256(DECIMAL256_MAX_PRECISION, *scale))
            }
            DataType::Decimal128(..) => Self::Checked,
            DataType::Decimal256(..) if !is_distinct => Self::Checked,
            _ => Self::Plain,
        }
    }
}

fn with_type(field: &FieldRef, data_type: &DataType) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(data_type.clone()))
}

impl AggregateUDFImpl for ExactSum {
    // Not `simplify_expr_op_literal`, so that `sum(x + 1)` stays what it is: `count(x) * 1` may be out of range where it
    // is not.
    forward! {
        name() -> &str;
        signature() -> &Signature;
        return_type(arguments: &[DataType]) -> Result<DataType>;
        groups_accumulator_supported(args: AccumulatorArgs<'_>) -> bool;
        reverse_expr() -> ReversedUDAF;
        order_sensitivity() -> AggregateOrderSensitivity;
        documentation() -> Option<&Documentation>;
        set_monotonicity(data_type: &DataType) -> SetMonotonicity;
        value_from_stats(args: &StatisticsArgs<'_>) -> Option<ScalarValue>;
    }

    fn state_fields(&self, mut args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if let Way::Wide(wide) = Way::of(args.return_type(), args.is_distinct) {
            args.return_field = with_type(&args.return_field, &wide);
        }
        self.0.state_fields(args)
    }

    fn accumulator(&self, mut args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let result = args.return_type().clone();
        match Way::of(&result, args.is_distinct) {
            Way::Wide(wide) => {
                args.return_field = with_type(&args.return_field, &wide);
                let inner = self.0.accumulator(args)?;
                Ok(Box::new(InRange::new(inner, Some(wide), result)))
            }
            Way::Checked => checked(&result),
            Way::Plain => self.0.accumulator(args),
        }
    }

    fn create_sliding_accumulator(
        &self,
        mut args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let result = args.return_type().clone();
        match Way::of(&result, args.is_distinct) {
            // DataFusion has no other type of distinct values in a frame.
            Way::Wide(_) if args.is_distinct && result == DataType::Int64 => {
                Ok(Box::<DistinctInFrame>::default())
            }
            Way::Wide(wide) if !args.is_distinct => {
                args.return_field = with_type(&args.return_field, &wide);
                let inner = self.0.create_sliding_accumulator(args)?;
                Ok(Box::new(InRange::new(inner, Some(wide), result)))
            }
            Way::Checked => checked(&result),
            _ => self.0.create_sliding_accumulator(args),
        }
    }

    fn create_groups_accumulator(
        &self,
        mut args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let result = args.return_type().clone();
        match Way::of(&result, args.is_distinct) {
            Way::Wide(wide) => {
                args.return_field = with_type(&args.return_field, &wide);
                let inner = self.0.create_groups_accumulator(args)?;
                Ok(Box::new(InRange::new(inner, Some(wide), result)))
            }
            Way::Checked => match result {
                DataType::Decimal128(..) => Ok(checked_groups::<Decimal128Type>(result)),
                _ => Ok(checked_groups::<Decimal256Type>(result)),
            },
            Way::Plain => self.0.create_groups_accumulator(args),
        }
    }
}

/// An accumulator whose results must be in the range of their type.
#[derive(Debug)]
struct InRange<A> {
    inner: A,
    /// The type of its input and state, if that is a wider one.
    wide: Option<DataType>,
    result: DataType,
}

impl<A> InRange<A> {
    fn new(inner: A, wide: Option<DataType>, result: DataType) -> Self {
        Self {
            inner,
            wide,
            result,
        }
    }

    fn widen(&self, values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let Some(wide) = &self.wide else {
            return Ok(values.to_vec());
        };
        let widen = |values: &ArrayRef| match values.data_type() {
            DataType::Int64 => {
                let values = values.as_primitive::<Int64Type>();
                let sums: PrimitiveArray<Decimal128Type> = values.unary(i128::from);
                Ok(Arc::new(sums.with_data_type(wide.clone())) as ArrayRef)
            }
            DataType::Duration(_) => cast(&cast(values, &DataType::Int64)?, wide),
            _ => cast(values, wide),
        };
        values.iter().map(|values| Ok(widen(values)?)).collect()
    }

    /// The sums in their own type.
    fn narrow(&self, sums: ArrayRef) -> Result<ArrayRef> {
        if self.wide.is_none() {
            match sums.as_primitive_opt::<Decimal128Type>() {
                Some(sums) => in_range(sums, &self.result)?,
                None => in_range(sums.as_primitive::<Decimal256Type>(), &self.result)?,
            }
            return Ok(sums);
        }
        let strict = CastOptions {
            safe: false,
            ..Default::default()
        };
        let narrow = |sums: &ArrayRef, to: &DataType| {
            cast_with_options(sums, to, &strict).map_err(|_| out_of_range(&self.result))
        };
        match &self.result {
            DataType::Duration(_) => Ok(cast(&narrow(&sums, &DataType::Int64)?, &self.result)?),
            other => narrow(&sums, other),
        }
    }
}

fn out_of_range(result: &DataType) -> DataFusionError {
    let roomy = match result {
        DataType::Int64 | DataType::UInt64 => "DECIMAL(38, 0)",
        _ => "DOUBLE",
    };
    exec_datafusion_err!(
        "a sum is out of the range of {result}; sum(CAST(… AS {roomy})) has more room"
    )
}

impl Accumulator for InRange<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = self.widen(values)?;
        self.inner.update_batch(&values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = self.inner.evaluate()?.to_array()?;
        ScalarValue::try_from_array(&self.narrow(sum)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = self.widen(values)?;
        self.inner.retract_batch(&values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

impl GroupsAccumulator for InRange<Box<dyn GroupsAccumulator>> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        let values = self.widen(values)?;
        self.inner.update_batch(&values, groups, filter, total)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = self.inner.evaluate(emit_to)?;
        self.narrow(sums)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.inner.merge_batch(states, groups, total)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(&self.widen(values)?, filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

/// The sum of the distinct integers in the frame of a window, which moves.
#[derive(Debug, Default)]
struct DistinctInFrame {
    /// How many rows of the frame have each value.
    rows: HashMap<i64, u64>,
    sum: i128,
}

impl Accumulator for DistinctInFrame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<Int64Type>().iter().flatten() {
            let rows = self.rows.entry(value).or_default();
            if *rows == 0 {
                self.sum += i128::from(value);
            }
            *rows += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<Int64Type>().iter().flatten() {
            match self.rows.get_mut(&value) {
                Some(rows) if *rows > 1 => *rows -= 1,
                Some(_) => {
                    self.rows.remove(&value);
                    self.sum -= i128::from(value);
                }
                None => return exec_err!("a window takes out {value}, which is not in its frame"),
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.rows.is_empty() {
            return Ok(ScalarValue::Int64(None));
        }
        let sum = i64::try_from(self.sum).map_err(|_| out_of_range(&DataType::Int64))?;
        Ok(ScalarValue::Int64(Some(sum)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.rows.capacity() * size_of::<(i64, u64)>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        not_impl_err!("the sum in a window's frame has no state that could be merged")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        not_impl_err!("the sum in a window's frame has no state that could be merged")
    }
}

/// The sum of decimals, of which each addition is checked.
#[derive(Debug)]
struct Checked<T: ArrowPrimitiveType> {
    sum: T::Native,
    /// How many values were added. The sum of no values is NULL.
    count: u64,
    result: DataType,
}

fn checked(result: &DataType) -> Result<Box<dyn Accumulator>> {
    let result = result.clone();
    Ok(match result {
        DataType::Decimal128(..) => Box::new(Checked::<Decimal128Type>::new(result)),
        _ => Box::new(Checked::<Decimal256Type>::new(result)),
    })
}

impl<T: DecimalType + ArrowNumericType> Checked<T> {
    fn new(result: DataType) -> Self {
        Self {
            sum: T::Native::ZERO,
            count: 0,
            result,
        }
    }
}

impl<T: DecimalType + ArrowNumericType + Debug> Accumulator for Checked<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        let failed = |_| out_of_range(&self.result);
        if let Some(sum) = sum_checked(values).map_err(failed)? {
            self.sum = self.sum.add_checked(sum).map_err(failed)?;
            self.count += (values.len() - values.null_count()) as u64;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = (self.count > 0).then_some(self.sum);
        let value = ScalarValue::new_primitive::<T>(sum, &self.result)?;
        let array = value.to_array()?;
        in_range(array.as_primitive::<T>(), &self.result)?;
        Ok(value)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = (self.count > 0).then_some(self.sum);
        Ok(vec![ScalarValue::new_primitive::<T>(sum, &self.result)?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        let failed = |_| out_of_range(&self.result);
        if let Some(sum) = sum_checked(values).map_err(failed)? {
            self.sum = self.sum.sub_checked(sum).map_err(failed)?;
            self.count -= (values.len() - values.null_count()) as u64;
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}

fn in_range<T: DecimalType>(sums: &PrimitiveArray<T>, result: &DataType) -> Result<()> {
    let valid = sums.validate_decimal_precision(sums.precision());
    valid.map_err(|_| out_of_range(result))
}

/// Sums of decimals by group. A sum that went out of range stays at the largest value of its native type, which is not
/// the value of any decimal.
fn checked_groups<T: DecimalType + ArrowNumericType>(
    result: DataType,
) -> Box<dyn GroupsAccumulator> {
    let lost = T::Native::MAX_TOTAL_ORDER;
    let add = move |sum: &mut T::Native, value: T::Native| {
        *sum = match *sum == lost || value == lost {
            true => lost,
            false => sum.add_checked(value).unwrap_or(lost),
        }
    };
    let inner: Box<dyn GroupsAccumulator> =
        Box::new(PrimitiveGroupsAccumulator::<T, _>::new(&result, add));
    Box::new(InRange::new(inner, None, result))
}

#[cfg(test)]
mod tests {
    use crate::functions::tests::rows;

    const MAX: &str = "9223372036854775807";

    #[tokio::test]
    async fn sums_out_of_range_are_errors() {
        let big = "9".repeat(38);
        for from in [
            format!("sum(x) FROM (VALUES ({MAX}), (1)) AS t(x)"),
            format!("sum(x) FROM (VALUES (-{MAX}), (-2)) AS t(x)"),
            format!("g, sum(x) FROM (VALUES (1, {MAX}), (2, 7), (1, 1)) AS t(g, x) GROUP BY g"),
            format!("sum(DISTINCT x) FROM (VALUES ({MAX}), (1)) AS t(x)"),
            format!("sum(x) OVER (ORDER BY x) FROM (VALUES ({MAX}), (1)) AS t(x)"),
            format!(
                "sum(DISTINCT x) OVER (ORDER BY i ROWS 1 PRECEDING) FROM (VALUES (1, {MAX}), (2, 1)) AS t(i, x)"
            ),
            format!("sum(x + {MAX}), sum(x) FROM (VALUES (1), (2)) AS t(x)"),
            "sum(x) FROM (VALUES (18446744073709551615), (18446744073709551615)) AS t(x)".into(),
            format!("sum(CAST('{big}' AS DECIMAL(38, 0))) FROM (VALUES (1), (2)) AS t(x)"),
            format!("x % 2, sum(CAST('{big}' AS DECIMAL(38, 0))) FROM (VALUES (1), (3)) AS t(x) GROUP BY 1"),
            format!("sum(DISTINCT d - x) FROM (SELECT x, CAST('{big}' AS DECIMAL(38, 0)) AS d FROM (VALUES (1), (2)) AS t(x))"),
            "sum(arrow_cast(x, 'Duration(Second)')) FROM (VALUES (9223372036854775807), (1)) AS t(x)".into(),
        ] {
            let got = rows(&format!("SELECT {from}")).await;
            let error = got.expect_err(&from);
            assert!(error.contains("out of the range"), "{from}: {error}");
        }
    }

    #[tokio::test]
    async fn what_is_in_range_is_right_whatever_comes_on_the_way() {
        let big = "9".repeat(38);
        for (from, right) in [
            (
                format!("sum(x) FROM (VALUES ({MAX}), (1), (-1)) AS t(x)"),
                MAX,
            ),
            (
                format!(
                    "g, sum(x) FROM (VALUES (1, {MAX}), (1, 1), (1, -5)) AS t(g, x) GROUP BY g"
                ),
                "1|9223372036854775803",
            ),
            (
                format!("sum(DISTINCT x) FROM (VALUES ({MAX}), (1), (-1), (-1)) AS t(x)"),
                MAX,
            ),
            (
                format!(
                    "sum(x) OVER (ORDER BY i ROWS 1 PRECEDING) FROM (VALUES (1, {MAX}), (2, -1), (3, 2)) AS t(i, x) ORDER BY i"
                ),
                "9223372036854775807 9223372036854775806 1",
            ),
            (
                format!(
                    "sum(DISTINCT x) OVER (ORDER BY i ROWS 2 PRECEDING) FROM (VALUES (1, {MAX}), (2, -1), (3, -1), \
                     (4, 2), (5, NULL), (6, NULL), (7, NULL)) AS t(i, x) ORDER BY i"
                ),
                "9223372036854775807 9223372036854775806 9223372036854775806 1 1 2 ",
            ),
            (
                "sum(x) FROM (VALUES (1), (2)) AS t(x) WHERE x > 5".into(),
                "",
            ),
            (
                "sum(x), sum(x) FILTER (WHERE x > 1) FROM (VALUES (1), (2), (NULL)) AS t(x)".into(),
                "3|2",
            ),
            ("sum(x) FROM (VALUES (1.5), (2.25)) AS t(x)".into(), "3.75"),
            (
                "sum(CAST(x AS DECIMAL(10, 2))) FROM (VALUES (1.5), (2.25)) AS t(x)".into(),
                "3.75",
            ),
            (
                format!(
                    "sum(DISTINCT d * x) FROM (SELECT x, CAST('{big}' AS DECIMAL(38, 0)) AS d FROM (VALUES (1), (-1)) AS t(x))"
                ),
                "0",
            ),
            (
                "sum(CAST(x AS BIGINT UNSIGNED)) FROM (VALUES (18446744073709551614), (1)) AS t(x)"
                    .into(),
                "18446744073709551615",
            ),
            (
                "sum(arrow_cast(x, 'Duration(Second)')) FROM (VALUES (3), (4)) AS t(x)".into(),
                "PT7S",
            ),
        ] {
            let got = rows(&format!("SELECT {from}"))
                .await
                .map_err(|e| format!("{from}: {e}"));
            assert_eq!(got.as_deref(), Ok(right), "{from}");
        }
    }
}

//! `min` and `max` of floating point numbers by group.
//!
//! DataFusion's take NaN for less and for more than any number, so that their answers depend on the order of rows. These use
//! the order in which it sorts, as its `min` and `max` without GROUP BY do: NaN is above all numbers.

use std::cmp::Ordering;
use std::hash::Hash;

use datafusion::arrow::array::ArrowNativeTypeOp;
use datafusion::arrow::array::types::{ArrowPrimitiveType, Float16Type, Float32Type, Float64Type};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature, StatisticsArgs,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

/// A function that keeps one of its values.
pub(super) trait Extreme: AggregateUDFImpl + Default + Eq + Hash {
    /// How a value that is kept instead compares with the one that was kept.
    const BETTER: Ordering;
}

impl Extreme for Min {
    const BETTER: Ordering = Ordering::Less;
}

impl Extreme for Max {
    const BETTER: Ordering = Ordering::Greater;
}

/// DataFusion's function, but for floating point numbers by group.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct InOrder<F>(F);

impl<F: Extreme> AggregateUDFImpl for InOrder<F> {
    forward! {
        name() -> &str;
        signature() -> &Signature;
        return_type(arguments: &[DataType]) -> Result<DataType>;
        accumulator(args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>>;
        create_sliding_accumulator(args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>>;
        groups_accumulator_supported(args: AccumulatorArgs<'_>) -> bool;
        is_descending() -> Option<bool>;
        order_sensitivity() -> AggregateOrderSensitivity;
        coerce_types(arguments: &[DataType]) -> Result<Vec<DataType>>;
        reverse_expr() -> ReversedUDAF;
        value_from_stats(args: &StatisticsArgs<'_>) -> Option<ScalarValue>;
        documentation() -> Option<&Documentation>;
        set_monotonicity(data_type: &DataType) -> SetMonotonicity;
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match args.return_type() {
            of @ DataType::Float16 => Ok(by_group::<F, Float16Type>(of)),
            of @ DataType::Float32 => Ok(by_group::<F, Float32Type>(of)),
            of @ DataType::Float64 => Ok(by_group::<F, Float64Type>(of)),
            _ => self.0.create_groups_accumulator(args),
        }
    }
}

fn by_group<F: Extreme, T: ArrowPrimitiveType + Send>(of: &DataType) -> Box<dyn GroupsAccumulator> {
    let worst = match F::BETTER {
        Ordering::Less => T::Native::MAX_TOTAL_ORDER,
        _ => T::Native::MIN_TOTAL_ORDER,
    };
    let keep = |kept: &mut T::Native, value: T::Native| {
        if value.compare(*kept) == F::BETTER {
            *kept = value;
        }
    };
    Box::new(PrimitiveGroupsAccumulator::<T, _>::new(of, keep).with_starting_value(worst))
}

#[cfg(test)]
mod tests {
    use crate::functions::tests::rows;

    #[tokio::test]
    async fn nan_is_the_greatest_wherever_it_comes() {
        for values in [
            "('NaN'::double), (1.5), (-2.5)",
            "(1.5), ('NaN'::double), (-2.5)",
            "(-2.5), (1.5), ('NaN'::double), (NULL)",
        ] {
            for (select, expected) in [
                ("min(x), max(x) FROM t", "-2.5|NaN"),
                (
                    "min(x), max(x) FROM t GROUP BY x > 99 HAVING count(*) = 2",
                    "-2.5|1.5",
                ),
                (
                    "min(f), max(f) FROM (SELECT 1 AS g, x::float AS f FROM t) GROUP BY g",
                    "-2.5|NaN",
                ),
                (
                    "min(x), max(x) FROM (SELECT 1 AS g, x FROM t) GROUP BY g",
                    "-2.5|NaN",
                ),
                (
                    "min(x) FROM (SELECT 1 AS g, x FROM t WHERE isnan(x)) GROUP BY g",
                    "NaN",
                ),
                (
                    "max(x) FROM (SELECT 1 AS g, '-inf'::double AS x) GROUP BY g",
                    "-inf",
                ),
                (
                    "max(x) FROM (SELECT 1 AS g, NULL::double AS x) GROUP BY g",
                    "",
                ),
                ("max(n) FROM (SELECT 1 AS g, 7 AS n) GROUP BY g", "7"),
            ] {
                let sql = format!("WITH t(x) AS (VALUES {values}) SELECT {select}");
                assert_eq!(rows(&sql).await.as_deref(), Ok(expected), "{sql}");
            }
        }
    }
}

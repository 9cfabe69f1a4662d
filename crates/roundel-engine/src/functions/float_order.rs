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
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.0.return_type(arguments)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.0.accumulator(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        self.0.create_sliding_accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.0.groups_accumulator_supported(args)
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

    fn is_descending(&self) -> Option<bool> {
        self.0.is_descending()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.0.coerce_types(arguments)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.reverse_expr()
    }

    fn value_from_stats(&self, args: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.0.value_from_stats(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.0.set_monotonicity(data_type)
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

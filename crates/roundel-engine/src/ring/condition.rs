//! Windows that rows are merged in, made of a filter's bands, inequalities and equalities of two columns. All else is
//! tested pair by pair: so are the ends of windows of floating point, and pairs of which arithmetic may overflow, as the
//! engine's wraps around then, or fails.

use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{JoinSide, ScalarValue};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr, split_conjunction};
use datafusion::physical_plan::joins::utils::JoinFilter;
use roundel_ring::join::is_whole;
use roundel_ring::{Algorithm, Limits, Window};

/// How the pairs that a filter leaves are found best.
pub(super) fn algorithm(filter: Option<&JoinFilter>, spins: JoinSide) -> Algorithm {
    filter
        .and_then(|filter| window(filter, spins))
        .unwrap_or(Algorithm::NestedLoops)
}

/// A sum of at most one column of either side, and a number.
#[derive(Clone, Copy, Debug)]
struct Sum {
    /// Columns of the filter, and whether they are taken away.
    columns: [Option<(usize, bool)>; 2],
    constant: f64,
    /// Additions by which it is reckoned, each of which rounds, or may overflow.
    additions: u32,
    /// Whether one of them has 32 bits of floating point.
    single: bool,
    /// Where none of them overflows.
    limits: Limits,
}

/// `stationary - spinning`, compared with a number.
#[derive(Clone, Copy, Debug)]
struct Distance {
    /// The columns of the filter, of the spinning side and of the stationary one.
    columns: [usize; 2],
    low: Bound<f64>,
    high: Bound<f64>,
    /// How the sums that it comes from are reckoned.
    sum: Option<Reckoned>,
    limits: Limits,
}

/// How a distance of floating point is reckoned.
#[derive(Clone, Copy, Debug)]
struct Reckoned {
    /// In 32 bits.
    single: bool,
    /// Whether the comparison may be true if it is no number.
    nans_match: bool,
}

/// Numbers up to here are whole in floating point too.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

fn window(filter: &JoinFilter, spins: JoinSide) -> Option<Algorithm> {
    let reader = Reader { filter, spins };
    let mut found: Option<Distance> = None;
    for part in split_conjunction(filter.expression()) {
        for distance in reader.distances(part) {
            match &mut found {
                None => found = Some(distance),
                Some(first) if first.columns == distance.columns => {
                    first.low = tighter(first.low, distance.low, |new, old| new > old);
                    first.high = tighter(first.high, distance.high, |new, old| new < old);
                    first.limits = first.limits.and(distance.limits);
                    first.sum = match (first.sum, distance.sum) {
                        (Some(one), Some(other)) => Some(Reckoned {
                            single: one.single || other.single,
                            nans_match: one.nans_match && other.nans_match,
                        }),
                        (one, other) => one.or(other),
                    };
                }
                // The others are tested.
                Some(_) => {}
            }
        }
    }
    let Distance {
        columns,
        low,
        high,
        sum,
        limits,
    } = found?;
    let index = |column: usize| filter.column_indices()[column].index;
    let data_type = |column: usize| filter.schema().field(column).data_type();
    let window = match (
        is_whole(data_type(columns[0]))?,
        is_whole(data_type(columns[1]))?,
    ) {
        (true, true) => {
            let (low, high) = (whole(low, f64::ceil)?, whole(high, f64::floor)?);
            match limits {
                Limits::NONE => Window::Whole { low, high },
                limits => Window::WholeSum { low, high, limits },
            }
        }
        (false, false) => match sum {
            None => Window::Real { low, high },
            Some(Reckoned { single, nans_match }) => Window::RealSum {
                low,
                high,
                single,
                nans_match,
            },
        },
        _ => return None,
    };
    Some(Algorithm::Merge {
        spinning: index(columns[0]),
        stationary: index(columns[1]),
        window,
    })
}

/// The tighter of two ends; of equal ones, that without the end itself.
fn tighter(one: Bound<f64>, other: Bound<f64>, is_tighter: fn(f64, f64) -> bool) -> Bound<f64> {
    match (one, other) {
        (Bound::Unbounded, _) => other,
        (_, Bound::Unbounded) => one,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            match is_tighter(b, a) || (a == b && matches!(other, Bound::Excluded(_))) {
                true => other,
                false => one,
            }
        }
    }
}

fn whole(bound: Bound<f64>, round: fn(f64) -> f64) -> Option<Bound<i64>> {
    Some(match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(end) | Bound::Excluded(end) if end.abs() > EXACT_MAX => return None,
        // Between whole numbers there is no end to leave out.
        Bound::Included(end) => Bound::Included(round(end) as i64),
        Bound::Excluded(end) if end.fract() != 0.0 => Bound::Included(round(end) as i64),
        Bound::Excluded(end) => Bound::Excluded(end as i64),
    })
}

/// Reads a filter.
struct Reader<'a> {
    filter: &'a JoinFilter,
    spins: JoinSide,
}

impl Reader<'_> {
    /// The distances that a comparison allows.
    fn distances(&self, part: &Arc<dyn PhysicalExpr>) -> Vec<Distance> {
        let Some(compared) = part.downcast_ref::<BinaryExpr>() else {
            return Vec::new();
        };
        let (left, right) = (compared.left(), compared.right());
        let within = match compared.op() {
            Operator::Lt | Operator::LtEq => self.within(left, right, *compared.op()),
            Operator::Gt => self.within(right, left, Operator::Lt),
            Operator::GtEq => self.within(right, left, Operator::LtEq),
            _ => None,
        };
        if let Some(distances) = within {
            return distances;
        }
        let (Some(left), Some(right)) = (self.sum(left), self.sum(right)) else {
            return Vec::new();
        };
        let both: &[(Sum, Sum, Operator)] = match compared.op() {
            Operator::Lt | Operator::LtEq => &[(left, right, *compared.op())],
            Operator::Gt => &[(right, left, Operator::Lt)],
            Operator::GtEq => &[(right, left, Operator::LtEq)],
            Operator::Eq => &[(left, right, Operator::LtEq), (right, left, Operator::LtEq)],
            _ => return Vec::new(),
        };
        // A NaN is not equal to a number, but may be less, by its sign.
        let nans_match = *compared.op() != Operator::Eq || left.is_of_one();
        both.iter()
            .filter_map(|(less, more, operator)| self.distance(*less, *more, *operator, nans_match))
            .collect()
    }

    /// `abs(sum) <= number`, as the two sides of it.
    fn within(
        &self,
        inner: &Arc<dyn PhysicalExpr>,
        bound: &Arc<dyn PhysicalExpr>,
        operator: Operator,
    ) -> Option<Vec<Distance>> {
        let inner = match inner.downcast_ref::<CastExpr>() {
            Some(cast) if self.changes_nothing(cast) => cast.expr(),
            _ => inner,
        };
        let function = inner.downcast_ref::<ScalarFunctionExpr>()?;
        let [argument] = function.args() else {
            return None;
        };
        if function.name() != "abs" {
            return None;
        }
        let (mut sum, bound) = (self.sum(argument)?, self.sum(bound)?);
        // The least whole number has no other side.
        if let Some([least, most]) = argument
            .data_type(self.filter.schema())
            .ok()
            .and_then(|data_type| range(&data_type))
        {
            sum.limits = sum.limits.and(sum.limits_within([least + 1, most]));
        }
        let minus = Sum::of_number(0.0).plus(sum, true)?;
        let both = [(sum, bound), (minus, bound)];
        // Without a sign, what is no number is greater than all numbers.
        both.into_iter()
            .map(|(less, more)| self.distance(less, more, operator, false))
            .collect()
    }

    /// `less < more`, or `<=`.
    fn distance(
        &self,
        less: Sum,
        more: Sum,
        operator: Operator,
        nans_match: bool,
    ) -> Option<Distance> {
        let sum = less.plus(more, true)?;
        let [Some((spinning, minus)), Some((stationary, other))] = sum.columns else {
            return None;
        };
        let is_real = is_whole(self.filter.schema().field(spinning).data_type()) == Some(false);
        // A window has room for what one addition rounds.
        if minus == other || (is_real && sum.additions > 1) {
            return None;
        }
        let end = |number: f64| match operator {
            Operator::Lt => Bound::Excluded(number + 0.0),
            _ => Bound::Included(number + 0.0),
        };
        let (low, high) = match minus {
            // stationary - spinning + constant < 0
            true => (Bound::Unbounded, end(-sum.constant)),
            // spinning - stationary + constant < 0
            false => (end(sum.constant), Bound::Unbounded),
        };
        Some(Distance {
            columns: [spinning, stationary],
            low,
            high,
            sum: (sum.additions > 0).then_some(Reckoned {
                single: sum.single,
                nans_match,
            }),
            limits: sum.limits,
        })
    }

    /// Whether a cast leaves all numbers as they are.
    fn changes_nothing(&self, cast: &CastExpr) -> bool {
        let from = cast.expr().data_type(self.filter.schema());
        from.is_ok_and(|from| widens(&from, cast.cast_type()))
    }

    fn sum(&self, expression: &Arc<dyn PhysicalExpr>) -> Option<Sum> {
        if let Some(column) = expression.downcast_ref::<Column>() {
            let side = self.filter.column_indices().get(column.index())?.side;
            let mut sum = Sum::of_number(0.0);
            sum.columns[usize::from(side != self.spins)] = Some((column.index(), false));
            return Some(sum);
        }
        if let Some(literal) = expression.downcast_ref::<Literal>() {
            return number(literal.value()).map(Sum::of_number);
        }
        if let Some(cast) = expression.downcast_ref::<CastExpr>() {
            return match self.changes_nothing(cast) {
                true => self.sum(cast.expr()),
                false => None,
            };
        }
        let binary = expression.downcast_ref::<BinaryExpr>()?;
        let (left, right) = (self.sum(binary.left())?, self.sum(binary.right())?);
        let sum = match binary.op() {
            Operator::Plus => left.plus(right, false),
            Operator::Minus => left.plus(right, true),
            _ => None,
        }?;
        let sum = Sum {
            additions: sum.additions + 1,
            ..sum
        };
        let data_type = |side: &Arc<dyn PhysicalExpr>| side.data_type(self.filter.schema()).ok();
        match (data_type(binary.left())?, data_type(expression)?) {
            // Days, as they are stored, which never overflow so.
            (DataType::Date32, DataType::Int64) => Some(sum),
            (DataType::Float64, DataType::Float64) => Some(sum),
            (DataType::Float32, DataType::Float32) => Some(Sum {
                single: true,
                ..sum
            }),
            (of, data_type) if of == data_type => Some(Sum {
                limits: sum.limits.and(sum.limits_within(range(&data_type)?)),
                ..sum
            }),
            _ => None,
        }
    }
}

impl Sum {
    fn of_number(constant: f64) -> Self {
        Self {
            columns: [None; 2],
            constant,
            additions: 0,
            single: false,
            limits: Limits::NONE,
        }
    }

    /// Whether it has one column.
    fn is_of_one(&self) -> bool {
        self.columns.iter().flatten().count() == 1
    }

    fn plus(self, other: Self, minus: bool) -> Option<Self> {
        let mut columns = self.columns;
        for (own, other) in columns.iter_mut().zip(other.columns) {
            match (&own, other) {
                (_, None) => {}
                (None, Some((column, negative))) => *own = Some((column, negative != minus)),
                (Some(_), Some(_)) => return None,
            }
        }
        let constant = match minus {
            true => self.constant - other.constant,
            false => self.constant + other.constant,
        };
        (constant.abs() <= EXACT_MAX).then_some(Self {
            columns,
            constant,
            additions: self.additions + other.additions,
            single: self.single || other.single,
            limits: self.limits.and(other.limits),
        })
    }

    /// Where this sum of whole numbers is within a range. Sums that are no distance of columns are within none.
    fn limits_within(&self, [least, most]: [i128; 2]) -> Limits {
        let constant = self.constant as i128;
        let (low, high) = (least - constant, most - constant);
        // Of what a column, or their distance, may be.
        let range = |minus: bool| match minus {
            true => [-high, -low],
            false => [low, high],
        };
        let none = Limits::NONE;
        match self.columns {
            [Some((_, minus)), None] => Limits {
                spinning: range(minus),
                ..none
            },
            [None, Some((_, minus))] => Limits {
                stationary: range(minus),
                ..none
            },
            [Some((_, other)), Some((_, minus))] if other != minus => Limits {
                distance: range(minus),
                ..none
            },
            [None, None] if low <= 0 && high >= 0 => none,
            _ => Limits {
                distance: [0, -1],
                ..none
            },
        }
    }
}

/// The least and the greatest number of a whole type that is added in.
fn range(data_type: &DataType) -> Option<[i128; 2]> {
    let range = match data_type {
        DataType::Int8 => [i8::MIN.into(), i8::MAX.into()],
        DataType::Int16 => [i16::MIN.into(), i16::MAX.into()],
        DataType::Int32 => [i32::MIN.into(), i32::MAX.into()],
        DataType::Int64 => [i64::MIN.into(), i64::MAX.into()],
        DataType::UInt8 => [0, u8::MAX.into()],
        DataType::UInt16 => [0, u16::MAX.into()],
        DataType::UInt32 => [0, u32::MAX.into()],
        _ => return None,
    };
    Some(range)
}

fn number(value: &ScalarValue) -> Option<f64> {
    let number = match value {
        ScalarValue::Int8(Some(value)) => f64::from(*value),
        ScalarValue::Int16(Some(value)) => f64::from(*value),
        ScalarValue::Int32(Some(value)) => f64::from(*value),
        ScalarValue::Int64(Some(value)) => *value as f64,
        ScalarValue::UInt8(Some(value)) => f64::from(*value),
        ScalarValue::UInt16(Some(value)) => f64::from(*value),
        ScalarValue::UInt32(Some(value)) => f64::from(*value),
        ScalarValue::Float32(Some(value)) => f64::from(*value),
        ScalarValue::Float64(Some(value)) => *value,
        _ => return None,
    };
    (number.is_finite() && number.abs() <= EXACT_MAX).then_some(number)
}

/// Whether all numbers of a type are of the other too.
fn widens(from: &DataType, to: &DataType) -> bool {
    use DataType::{Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32};
    match to {
        Int64 => matches!(from, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32),
        Int32 => matches!(from, Int8 | Int16 | Int32 | UInt8 | UInt16),
        Float64 => matches!(from, Float32 | Float64),
        _ => from == to,
    }
}

#[cfg(test)]
mod tests;

//! What a filter says about the distance of two columns: bands, inequalities and equalities become windows that rows are
//! merged in. All else, and the ends of windows of floating point, is tested pair by pair.

use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{JoinSide, ScalarValue};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr, split_conjunction};
use datafusion::physical_plan::joins::utils::JoinFilter;
use roundel_ring::join::is_whole;
use roundel_ring::{Algorithm, Window};

/// How the pairs that a filter leaves are found best.
pub(super) fn algorithm(filter: Option<&JoinFilter>, spins: JoinSide) -> Algorithm {
    filter
        .and_then(|filter| window(filter, spins))
        .unwrap_or(Algorithm::NestedLoops)
}

/// A sum of at most one column of either side, and a number.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// Columns of the filter, and whether they are taken away.
    columns: [Option<(usize, bool)>; 2],
    constant: f64,
    /// Additions by which it is reckoned, each of which rounds.
    additions: u32,
}

/// `stationary - spinning`, compared with a number.
#[derive(Clone, Copy, Debug)]
struct Distance {
    /// The columns of the filter, of the spinning side and of the stationary one.
    columns: [usize; 2],
    low: Bound<f64>,
    high: Bound<f64>,
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
                }
                // The others are tested.
                Some(_) => {}
            }
        }
    }
    let Distance { columns, low, high } = found?;
    let index = |column: usize| filter.column_indices()[column].index;
    let data_type = |column: usize| filter.schema().field(column).data_type();
    let window = match (
        is_whole(data_type(columns[0]))?,
        is_whole(data_type(columns[1]))?,
    ) {
        (true, true) => Window::Whole {
            low: whole(low, f64::ceil)?,
            high: whole(high, f64::floor)?,
        },
        (false, false) => Window::Real { low, high },
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
    /// What a comparison says about distances.
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
        both.iter()
            .filter_map(|(less, more, operator)| self.distance(*less, *more, *operator))
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
        let (sum, bound) = (self.sum(argument)?, self.sum(bound)?);
        let minus = Sum::default().plus(sum, true)?;
        let both = [(sum, bound), (minus, bound)];
        both.into_iter()
            .map(|(less, more)| self.distance(less, more, operator))
            .collect()
    }

    /// `less < more`, or `<=`.
    fn distance(&self, less: Sum, more: Sum, operator: Operator) -> Option<Distance> {
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
            let mut sum = Sum::default();
            sum.columns[usize::from(side != self.spins)] = Some((column.index(), false));
            return Some(sum);
        }
        if let Some(literal) = expression.downcast_ref::<Literal>() {
            return Some(Sum {
                constant: number(literal.value())?,
                ..Sum::default()
            });
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
        Some(Sum {
            additions: sum.additions + 1,
            ..sum
        })
    }
}

impl Sum {
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
        Some(Self {
            columns,
            constant,
            additions: self.additions + other.additions,
        })
    }
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
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::common::DFSchema;
    use datafusion::physical_plan::joins::utils::ColumnIndex;
    use datafusion::prelude::SessionContext;

    /// How the pairs of a condition on `l.x, l.i, l.y, r.x, r.i, r.y` are found when the left side spins: 64-bit and
    /// 32-bit whole numbers, and real ones.
    async fn found(condition: &str) -> Algorithm {
        let types = [DataType::Int64, DataType::Int32, DataType::Float64];
        let names = ["lx", "li", "ly", "rx", "ri", "ry"];
        let fields = names.iter().zip(types.iter().cycle());
        let fields = fields.map(|(name, data_type)| Field::new(*name, data_type.clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let context = SessionContext::new();
        let of_names = DFSchema::try_from(Arc::clone(&schema)).unwrap();
        let expression = context.parse_sql_expr(condition, &of_names).unwrap();
        let expression = context.create_physical_expr(expression, &of_names).unwrap();
        let column = |at: usize| ColumnIndex {
            index: at % 3 + 10,
            side: if at < 3 {
                JoinSide::Left
            } else {
                JoinSide::Right
            },
        };
        let columns = (0..names.len()).map(column).collect();
        let filter = JoinFilter::new(expression, columns, schema);
        algorithm(Some(&filter), JoinSide::Left)
    }

    fn whole(column: usize, low: Bound<i64>, high: Bound<i64>) -> Algorithm {
        Algorithm::Merge {
            spinning: column,
            stationary: column,
            window: Window::Whole { low, high },
        }
    }

    #[tokio::test]
    async fn distances_of_two_columns_are_windows() {
        use Bound::{Excluded, Included, Unbounded};
        // The stationary column less the spinning one.
        for (condition, low, high) in [
            ("abs(lx - rx) <= 5", Included(-5), Included(5)),
            ("5 > abs(rx - lx)", Excluded(-5), Excluded(5)),
            ("lx BETWEEN rx - 3 AND rx + 1", Included(-1), Included(3)),
            ("lx < rx", Excluded(0), Unbounded),
            ("lx + 2 >= rx", Unbounded, Included(2)),
            ("lx - rx = 4", Included(-4), Included(-4)),
            (
                "lx < rx AND lx > rx - 9 AND li <> ri",
                Excluded(0),
                Excluded(9),
            ),
            ("lx < rx AND lx <= rx - 4", Included(4), Unbounded),
        ] {
            assert_eq!(found(condition).await, whole(10, low, high), "{condition}");
        }
        let narrow = found("abs(li - ri) <= 2").await;
        assert_eq!(narrow, whole(11, Included(-2), Included(2)));
        let real = Algorithm::Merge {
            spinning: 12,
            stationary: 12,
            window: Window::Real {
                low: Included(-0.5),
                high: Included(0.5),
            },
        };
        assert_eq!(found("abs(ly - ry) <= 0.5").await, real);
    }

    #[tokio::test]
    async fn what_is_no_distance_is_tested_pair_by_pair() {
        for condition in [
            "lx <> rx",
            "lx * rx < 5",
            "lx + rx < 5",
            "lx < 5",
            "lx < ly",
            "lx < rx OR li < ri",
            "2 * lx < rx",
            "abs(lx) <= rx",
            "lx - rx <= 2.5",
        ] {
            assert_eq!(
                found(condition).await,
                Algorithm::NestedLoops,
                "{condition}"
            );
        }
    }
}

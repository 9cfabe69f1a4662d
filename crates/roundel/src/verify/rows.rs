//! Two results in a form in which rows can be matched: an exact key of bytes per row, and its
//! floats beside it. It knows nothing of queries.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, NullArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// How far two floats may lie apart and still count as equal:
/// `|a - b| <= absolute + relative * max(|a|, |b|)`.
///
/// Sums of floats depend on the order of their rows, which an exchange does not keep.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    /// Part that does not depend on the values.
    pub absolute: f64,
    /// Part that grows with the larger value, for `Float64`.
    pub relative: f64,
    /// The same for `Float32` and `Float16`.
    pub relative_short: f64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self {
            absolute: 1e-9,
            relative: 1e-9,
            relative_short: 1e-5,
        }
    }
}

/// The type that stands for all encodings of one logical type.
pub(super) fn logical_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::LargeUtf8,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => DataType::LargeBinary,
        DataType::Dictionary(_, values) => logical_type(values),
        other => other.clone(),
    }
}

/// One row as text, for error messages.
pub(super) fn display(batch: &RecordBatch, row: usize) -> Result<String, ArrowError> {
    let options = FormatOptions::default().with_null("NULL");
    let mut values = Vec::with_capacity(batch.num_columns());
    for column in batch.columns() {
        values.push(
            ArrayFormatter::try_new(column.as_ref(), &options)?
                .value(row)
                .try_to_string()?,
        );
    }
    Ok(format!("({})", values.join(", ")))
}

/// A column of floats, with the tolerance that its type has.
struct FloatColumn {
    values: Float64Array,
    absolute: f64,
    relative: f64,
}

impl FloatColumn {
    fn get(&self, row: usize) -> Option<f64> {
        self.values.is_valid(row).then(|| self.values.value(row))
    }

    fn margin(&self, value: f64) -> f64 {
        self.absolute + self.relative * value.abs()
    }

    fn close(&self, a: Option<f64>, b: Option<f64>) -> bool {
        match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) if a.is_nan() || b.is_nan() => a.is_nan() && b.is_nan(),
            (Some(a), Some(b)) if a.is_infinite() || b.is_infinite() => a == b,
            (Some(a), Some(b)) => (a - b).abs() <= self.margin(a.abs().max(b.abs())),
            _ => false,
        }
    }
}

/// NULL first, then numbers, then NaN, whatever the sign of the NaN.
fn float_order(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => match (a.is_nan(), b.is_nan()) {
            (false, false) => a.total_cmp(&b),
            (a, b) => a.cmp(&b),
        },
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// The rows of one result.
struct Side {
    /// All columns but floats, encoded.
    exact: Rows,
    /// The sort columns but floats, encoded.
    exact_keys: Rows,
    floats: Vec<FloatColumn>,
    /// Indices into `floats` of the sort columns.
    float_keys: Vec<usize>,
}

/// Two results of equal columns, ready to be matched.
pub(super) struct Comparable {
    expected: Side,
    actual: Side,
}

impl Comparable {
    pub(super) fn new(
        expected: &RecordBatch,
        actual: &RecordBatch,
        sort_columns: &[usize],
        tolerance: Tolerance,
    ) -> Result<Self, ArrowError> {
        let types: Vec<DataType> = expected
            .schema()
            .fields()
            .iter()
            .map(|f| logical_type(f.data_type()))
            .collect();
        let exact: Vec<usize> = (0..types.len())
            .filter(|i| !types[*i].is_floating())
            .collect();
        let float: Vec<usize> = (0..types.len())
            .filter(|i| types[*i].is_floating())
            .collect();
        let exact_keys: Vec<usize> = sort_columns
            .iter()
            .copied()
            .filter(|i| !types[*i].is_floating())
            .collect();
        let float_keys: Vec<usize> = sort_columns
            .iter()
            .filter_map(|i| float.iter().position(|f| f == i))
            .collect();

        let rows_converter = converter(&types, &exact)?;
        let keys_converter = converter(&types, &exact_keys)?;
        let side = |batch: &RecordBatch| -> Result<Side, ArrowError> {
            let mut floats = Vec::with_capacity(float.len());
            for column in &float {
                let short = types[*column] != DataType::Float64;
                let values = cast(batch.column(*column), &DataType::Float64)?;
                floats.push(FloatColumn {
                    values: values.as_primitive::<Float64Type>().clone(),
                    absolute: tolerance.absolute,
                    relative: if short {
                        tolerance.relative_short
                    } else {
                        tolerance.relative
                    },
                });
            }
            Ok(Side {
                exact: encode(&rows_converter, batch, &types, &exact)?,
                exact_keys: encode(&keys_converter, batch, &types, &exact_keys)?,
                floats,
                float_keys: float_keys.clone(),
            })
        };
        Ok(Self {
            expected: side(expected)?,
            actual: side(actual)?,
        })
    }

    /// Whether the sort keys of `expected` and `actual`, each a row of its side, are equal.
    pub(super) fn same_sort_keys(&self, expected: usize, actual: usize) -> bool {
        same_keys(&self.expected, expected, &self.actual, actual)
    }

    /// Whether a row of the reference and the one after it have equal sort keys.
    pub(super) fn tied_with_next(&self, row: usize) -> bool {
        same_keys(&self.expected, row, &self.expected, row + 1)
    }

    /// Matches rows one to one and returns those of each side that are left over.
    pub(super) fn unmatched(
        &self,
        expected: Range<usize>,
        actual: Range<usize>,
    ) -> (Vec<usize>, Vec<usize>) {
        let mut groups: HashMap<&[u8], (Vec<usize>, Vec<usize>)> = HashMap::new();
        for row in expected {
            groups
                .entry(self.expected.exact.row(row).data())
                .or_default()
                .0
                .push(row);
        }
        for row in actual {
            groups
                .entry(self.actual.exact.row(row).data())
                .or_default()
                .1
                .push(row);
        }
        let (mut missing, mut unexpected) = (Vec::new(), Vec::new());
        for (_, (expected, actual)) in groups {
            let (left_expected, left_actual) = self.match_floats(expected, actual);
            missing.extend(left_expected);
            unexpected.extend(left_actual);
        }
        (missing, unexpected)
    }

    /// Matches rows whose exact parts are equal by their floats.
    fn match_floats(
        &self,
        mut expected: Vec<usize>,
        mut actual: Vec<usize>,
    ) -> (Vec<usize>, Vec<usize>) {
        if self.expected.floats.is_empty() {
            let matched = expected.len().min(actual.len());
            return (expected.split_off(matched), actual.split_off(matched));
        }
        sort_by_floats(&self.expected, &mut expected);
        sort_by_floats(&self.actual, &mut actual);
        // Nearly always the sorted rows pair up one by one.
        if expected.len() == actual.len()
            && expected
                .iter()
                .zip(&actual)
                .all(|(e, a)| self.close(*e, *a))
        {
            return (Vec::new(), Vec::new());
        }
        self.match_by_augmenting_paths(&expected, &actual)
    }

    fn close(&self, expected: usize, actual: usize) -> bool {
        let columns = self.expected.floats.iter().zip(&self.actual.floats);
        columns
            .into_iter()
            .all(|(e, a)| e.close(e.get(expected), a.get(actual)))
    }

    /// Positions in `expected`, which is sorted, that are close to the row `actual`.
    fn candidates(&self, expected: &[usize], actual: usize) -> impl Iterator<Item = usize> {
        let column = &self.expected.floats[0];
        let value = self.actual.floats[0].get(actual);
        // Twice the margin, since the margin of a larger partner is larger; `close` decides.
        let reach = |sign: f64| {
            value.map(|v| {
                if v.is_finite() {
                    v + sign * 2.0 * column.margin(v)
                } else {
                    v
                }
            })
        };
        let (low, high) = (reach(-1.0), reach(1.0));
        let start = expected.partition_point(|row| float_order(column.get(*row), low).is_lt());
        let end = expected.partition_point(|row| float_order(column.get(*row), high).is_le());
        let rows = &expected[start..end.max(start)];
        let close = rows
            .iter()
            .enumerate()
            .filter(move |(_, row)| self.close(**row, actual));
        close
            .map(move |(i, _)| start + i)
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// A maximum matching: a row that is close to several partners never blocks another row that
    /// could have taken one of them.
    fn match_by_augmenting_paths(
        &self,
        expected: &[usize],
        actual: &[usize],
    ) -> (Vec<usize>, Vec<usize>) {
        let mut partner_of_expected: Vec<Option<usize>> = vec![None; expected.len()];
        let mut partner_of_actual: Vec<Option<usize>> = vec![None; actual.len()];
        let mut unexpected = Vec::new();
        for start in 0..actual.len() {
            // Breadth first over alternating paths; `reached_from[e]` is the actual row that found e.
            let mut reached_from: HashMap<usize, usize> = HashMap::new();
            let mut queue = VecDeque::from([start]);
            let mut free = None;
            'search: while let Some(a) = queue.pop_front() {
                for e in self.candidates(expected, actual[a]) {
                    if reached_from.contains_key(&e) {
                        continue;
                    }
                    reached_from.insert(e, a);
                    match partner_of_expected[e] {
                        Some(other) => queue.push_back(other),
                        None => {
                            free = Some(e);
                            break 'search;
                        }
                    }
                }
            }
            let Some(mut e) = free else {
                unexpected.push(actual[start]);
                continue;
            };
            // Back along the path: each row on it gives its old partner up for the one it found.
            loop {
                let a = reached_from[&e];
                partner_of_expected[e] = Some(a);
                match partner_of_actual[a].replace(e) {
                    Some(given_up) => e = given_up,
                    None => break,
                }
            }
        }
        let unmatched = partner_of_expected
            .iter()
            .enumerate()
            .filter(|(_, p)| p.is_none());
        (unmatched.map(|(e, _)| expected[e]).collect(), unexpected)
    }
}

fn same_keys(left: &Side, left_row: usize, right: &Side, right_row: usize) -> bool {
    left.exact_keys.row(left_row) == right.exact_keys.row(right_row)
        && left.float_keys.iter().all(|key| {
            let (left, right) = (&left.floats[*key], &right.floats[*key]);
            left.close(left.get(left_row), right.get(right_row))
        })
}

fn sort_by_floats(side: &Side, rows: &mut [usize]) {
    rows.sort_by(|a, b| {
        let columns = side.floats.iter();
        let orders = columns.map(|column| float_order(column.get(*a), column.get(*b)));
        orders.fold(Ordering::Equal, Ordering::then)
    });
}

fn converter(types: &[DataType], columns: &[usize]) -> Result<RowConverter, ArrowError> {
    let mut fields: Vec<SortField> = columns
        .iter()
        .map(|column| SortField::new(types[*column].clone()))
        .collect();
    if fields.is_empty() {
        // Without a column the encoder would not know the number of rows.
        fields.push(SortField::new(DataType::Null));
    }
    RowConverter::new(fields)
}

fn encode(
    converter: &RowConverter,
    batch: &RecordBatch,
    types: &[DataType],
    columns: &[usize],
) -> Result<Rows, ArrowError> {
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    for column in columns {
        arrays.push(cast(batch.column(*column), &types[*column])?);
    }
    if arrays.is_empty() {
        arrays.push(Arc::new(NullArray::new(batch.num_rows())));
    }
    converter.convert_columns(&arrays)
}

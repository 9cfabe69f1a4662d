//! Is a query's result equal to the reference? Rows are compared as a multiset, with their types,
//! floats within a tolerance, and in order where the query orders. It knows nothing of clusters or
//! of how either side was computed.
//!
//! # What is asserted
//!
//! * **Columns**: the same names and types. Encodings of one logical type count as equal: `Utf8`,
//!   `LargeUtf8` and `Utf8View`; `Binary`, `LargeBinary` and `BinaryView`; a dictionary and the type
//!   of its values. Nullability and metadata are not compared.
//! * **Rows**: a one-to-one match between both sides. Floating-point columns match within
//!   [`Tolerance`]; everything else, also a float inside a list or a struct, matches exactly. NaN
//!   equals NaN and NULL equals NULL.
//! * **Order**: at each position the sort keys are equal. Rows with equal sort keys may come in any
//!   order, since SQL does not say which is first.
//! * **LIMIT and OFFSET**: the reference holds the rows *without* them. A group of ties that the
//!   limit cuts in two may be represented by any of its members, but by members only, and by each
//!   of them at most once.

mod rows;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;

pub use rows::Tolerance;
use rows::{Comparable, logical_type};

/// At most this many rows of each side are shown by a [`Mismatch`].
const EXAMPLES_MAX: usize = 3;

/// What a query must return.
#[derive(Debug, Clone)]
pub struct Expected {
    /// Columns of the result.
    pub schema: SchemaRef,
    /// All rows in the query's order, before its outermost OFFSET and LIMIT.
    pub batches: Vec<RecordBatch>,
    /// Indices of the columns that the query orders by, most significant first; empty if the query
    /// does not order its rows.
    pub sort_columns: Vec<usize>,
    /// Rows that the outermost OFFSET skips.
    pub skip: usize,
    /// The outermost LIMIT.
    pub fetch: Option<usize>,
}

impl Expected {
    /// Which of all rows the query must return.
    fn window(&self, all: usize) -> Range<usize> {
        let start = self.skip.min(all);
        let end = match self.fetch {
            Some(fetch) => start.saturating_add(fetch).min(all),
            None => all,
        };
        start..end
    }
}

/// How a result differs from what was expected.
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    /// Names or types of the columns differ.
    #[error("expected the columns ({expected}), got ({actual})")]
    Columns {
        /// Columns of the reference.
        expected: String,
        /// Columns of the result.
        actual: String,
    },
    /// A row has other sort keys than the row at the same position of the reference.
    #[error("row {position} is out of order: expected {expected}, got {actual}")]
    Order {
        /// Position in the result, from 1.
        position: usize,
        /// The reference's row.
        expected: String,
        /// The result's row.
        actual: String,
    },
    /// Rows are missing, repeated, changed or made up.
    #[error("{0}")]
    Rows(RowDifference),
    /// Rows of this type cannot be compared.
    #[error("the rows cannot be compared: {0}")]
    Incomparable(#[from] ArrowError),
}

/// Rows of one side that have no counterpart on the other.
#[derive(Debug, PartialEq, Eq)]
pub struct RowDifference {
    /// Number of rows expected.
    pub expected_rows: usize,
    /// Number of rows that came.
    pub actual_rows: usize,
    /// Number of expected rows that did not come.
    pub missing_rows: usize,
    /// Number of rows that came and were not expected.
    pub unexpected_rows: usize,
    /// The first missing rows.
    pub missing: Vec<String>,
    /// The first unexpected rows.
    pub unexpected: Vec<String>,
}

impl fmt::Display for RowDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "expected {} rows, got {}; {} missing, {} unexpected",
            self.expected_rows, self.actual_rows, self.missing_rows, self.unexpected_rows
        )?;
        for row in &self.missing {
            write!(f, "\n  missing:    {row}")?;
        }
        for row in &self.unexpected {
            write!(f, "\n  unexpected: {row}")?;
        }
        Ok(())
    }
}

/// Checks that `actual` is a right answer.
///
/// # Errors
///
/// The first [`Mismatch`] found: columns, then order, then rows.
pub fn compare(
    expected: &Expected,
    actual_schema: &SchemaRef,
    actual: &[RecordBatch],
    tolerance: Tolerance,
) -> Result<(), Mismatch> {
    compare_columns(&expected.schema, actual_schema)?;
    let reference = concat_batches(&expected.schema, &expected.batches)?;
    let actual = concat_batches(actual_schema, actual)?;
    let window = expected.window(reference.num_rows());
    let comparable = Comparable::new(&reference, &actual, &expected.sort_columns, tolerance)?;

    if window.len() != actual.num_rows() {
        // No position can be trusted now: show what differs as a plain multiset.
        let mut difference = Difference::default();
        difference.add(&comparable, window.clone(), 0..actual.num_rows(), true);
        return Err(difference.into_mismatch(&reference, &actual, window.len())?);
    }
    for (position, row) in window.clone().enumerate() {
        if !comparable.same_sort_keys(row, position) {
            return Err(Mismatch::Order {
                position: position + 1,
                expected: rows::display(&reference, row)?,
                actual: rows::display(&actual, position)?,
            });
        }
    }

    let mut difference = Difference::default();
    for group in split_at_cut_ties(&comparable, &window, reference.num_rows()) {
        let came = group.window.start - window.start..group.window.end - window.start;
        difference.add(&comparable, group.candidates, came, group.whole);
    }
    if difference.is_empty() {
        Ok(())
    } else {
        Err(difference.into_mismatch(&reference, &actual, window.len())?)
    }
}

/// A run of positions whose rows can be exchanged with each other only.
struct Group {
    /// Rows of the reference that may stand here.
    candidates: Range<usize>,
    /// The part of `candidates` that the limit lets through.
    window: Range<usize>,
    /// Every candidate must have come, not just some of them.
    whole: bool,
}

/// Splits `window` into the ties that its start and its end cut, and the rest between them.
fn split_at_cut_ties(comparable: &Comparable, window: &Range<usize>, all: usize) -> Vec<Group> {
    let tied = |row: usize| comparable.tied_with_next(row);
    let mut groups = Vec::new();
    if window.is_empty() {
        return groups;
    }
    let mut middle = window.clone();
    if window.start > 0 && tied(window.start - 1) {
        let mut first = window.start - 1;
        while first > 0 && tied(first - 1) {
            first -= 1;
        }
        let mut end = window.start + 1;
        while end < all && tied(end - 1) {
            end += 1;
        }
        let cut = window.start..end.min(window.end);
        middle.start = cut.end;
        groups.push(Group {
            candidates: first..end,
            window: cut,
            whole: false,
        });
    }
    if !middle.is_empty() && window.end < all && tied(window.end - 1) {
        let mut first = window.end - 1;
        while first > middle.start && tied(first - 1) {
            first -= 1;
        }
        let mut end = window.end + 1;
        while end < all && tied(end - 1) {
            end += 1;
        }
        middle.end = first;
        groups.push(Group {
            candidates: first..end,
            window: first..window.end,
            whole: false,
        });
    }
    groups.push(Group {
        candidates: middle.clone(),
        window: middle,
        whole: true,
    });
    groups
}

#[derive(Default)]
struct Difference {
    missing: Vec<usize>,
    unexpected: Vec<usize>,
}

impl Difference {
    fn add(
        &mut self,
        comparable: &Comparable,
        expected: Range<usize>,
        actual: Range<usize>,
        all_must_come: bool,
    ) {
        let (missing, unexpected) = comparable.unmatched(expected, actual);
        if all_must_come {
            self.missing.extend(missing);
        }
        self.unexpected.extend(unexpected);
    }

    fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty()
    }

    fn into_mismatch(
        mut self,
        reference: &RecordBatch,
        actual: &RecordBatch,
        expected_rows: usize,
    ) -> Result<Mismatch, ArrowError> {
        self.missing.sort_unstable();
        self.unexpected.sort_unstable();
        let show = |batch: &RecordBatch, rows: &[usize]| -> Result<Vec<String>, ArrowError> {
            rows.iter()
                .take(EXAMPLES_MAX)
                .map(|row| rows::display(batch, *row))
                .collect()
        };
        Ok(Mismatch::Rows(RowDifference {
            expected_rows,
            actual_rows: actual.num_rows(),
            missing_rows: self.missing.len(),
            unexpected_rows: self.unexpected.len(),
            missing: show(reference, &self.missing)?,
            unexpected: show(actual, &self.unexpected)?,
        }))
    }
}

fn compare_columns(expected: &SchemaRef, actual: &SchemaRef) -> Result<(), Mismatch> {
    let columns = |schema: &SchemaRef| -> Vec<(String, DataType)> {
        let fields = schema.fields().iter();
        fields
            .map(|field| (field.name().clone(), logical_type(field.data_type())))
            .collect()
    };
    let (expected, actual) = (columns(expected), columns(actual));
    if expected == actual {
        return Ok(());
    }
    let text = |columns: &[(String, DataType)]| -> String {
        let columns: Vec<String> = columns
            .iter()
            .map(|(name, ty)| format!("{name} {ty}"))
            .collect();
        columns.join(", ")
    };
    Err(Mismatch::Columns {
        expected: text(&expected),
        actual: text(&actual),
    })
}

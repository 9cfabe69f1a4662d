//! Joins on one host: rows of a fragment that spins against all rows that stay. Each algorithm has a set-up, done once
//! for either side, and a join phase for each fragment. Knows no ring.
//!
//! * `set_up`: what is done once, on all threads.
//! * `cluster`: rows in parts.
//! * `table`: equality of any columns, by hash tables of parts that fit the cache.
//! * `merge`: windows around one column: equality, bands, inequalities.
//! * `nested`: anything, pair by pair.
//! * `stationary`: what all of them share: predicates, matches so far, rows of the result.

mod bits;
mod cluster;
mod keys;
mod merge;
mod nested;
mod set_up;
mod stationary;
mod table;

pub use bits::Bits;
pub use merge::is_whole;
pub use set_up::{set_up, set_up_spinning, set_up_stationary};
pub use stationary::Stationary;

use crate::error::{Result, RingError};
use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::ops::{Bound, Range};
use std::sync::Arc;
use strum::VariantArray;

/// Pairs of rows that are looked at together.
pub const PAIRS: usize = 8192;

/// Which rows a join has. The one relation spins, the other stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, VariantArray)]
pub enum JoinType {
    /// Only pairs of rows that match.
    Inner,
    /// Pairs, and the spinning rows that have no partner.
    Spinning,
    /// Pairs, and the stationary rows that have no partner.
    Stationary,
    /// Pairs, and the rows of both that have no partner.
    Full,
    /// Spinning rows that have a partner.
    SpinningSemi,
    /// Spinning rows that have none.
    SpinningAnti,
    /// Stationary rows that have a partner.
    StationarySemi,
    /// Stationary rows that have none.
    StationaryAnti,
}

impl JoinType {
    /// All of them.
    pub const ALL: [Self; 8] = *Self::VARIANTS.as_array().unwrap();

    /// Whether rows of the result are pairs.
    pub fn has_pairs(self) -> bool {
        matches!(
            self,
            Self::Inner | Self::Spinning | Self::Stationary | Self::Full
        )
    }

    /// Whether it matters which spinning rows have had a partner, on any host.
    pub fn notes_spinning(self) -> bool {
        matches!(
            self,
            Self::Spinning | Self::Full | Self::SpinningSemi | Self::SpinningAnti
        )
    }

    /// Whether it matters which stationary rows have had a partner.
    pub fn notes_stationary(self) -> bool {
        matches!(
            self,
            Self::Stationary | Self::Full | Self::StationarySemi | Self::StationaryAnti
        )
    }

    /// The same, were the other relation to spin.
    pub fn swapped(self) -> Self {
        match self {
            Self::Inner | Self::Full => self,
            Self::Spinning => Self::Stationary,
            Self::Stationary => Self::Spinning,
            Self::SpinningSemi => Self::StationarySemi,
            Self::SpinningAnti => Self::StationaryAnti,
            Self::StationarySemi => Self::SpinningSemi,
            Self::StationaryAnti => Self::SpinningAnti,
        }
    }
}

/// How far the stationary key may be from the spinning one, in the unit of the keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Window {
    /// For whole numbers, dates, times, and decimals, as they are stored.
    Whole {
        /// The least of `stationary - spinning`.
        low: Bound<i64>,
        /// The most of it.
        high: Bound<i64>,
    },
    /// The same, for a predicate that adds keys in types of limited range. It decides about all pairs beyond the limits,
    /// be they within the window or not.
    WholeSum {
        /// The least of `stationary - spinning`.
        low: Bound<i64>,
        /// The most of it.
        high: Bound<i64>,
        /// Where no addition of the predicate overflows.
        limits: Limits,
    },
    /// For floating point, in its total order, where 0 and -0 are one. Additions round: a predicate has to say which of the
    /// pairs at the ends of the window match, but where the ends are 0, and which of the pairs of no numbers do.
    Real {
        /// The least of `stationary - spinning`.
        low: Bound<f64>,
        /// The most of it.
        high: Bound<f64>,
    },
    /// The same, for a predicate that adds keys, once. It decides about all pairs at the ends of the window.
    RealSum {
        /// The least of `stationary - spinning`.
        low: Bound<f64>,
        /// The most of it.
        high: Bound<f64>,
        /// Whether it adds in 32 bits, instead of 64.
        single: bool,
        /// Whether a pair may match of which one is no number: the predicate decides about all of them.
        nans_match: bool,
    },
}

/// Where sums of whole keys are what they would be without a limit of their type: from the one number to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Least and most of the spinning key.
    pub spinning: [i128; 2],
    /// Least and most of the stationary key.
    pub stationary: [i128; 2],
    /// Least and most of `stationary - spinning`.
    pub distance: [i128; 2],
}

impl Limits {
    /// No limits: all numbers are within them.
    pub const NONE: Self = Self {
        spinning: [i128::MIN, i128::MAX],
        stationary: [i128::MIN, i128::MAX],
        distance: [i128::MIN, i128::MAX],
    };

    /// The numbers that are within both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let both =
            |[low, high]: [i128; 2], other: [i128; 2]| [low.max(other[0]), high.min(other[1])];
        Self {
            spinning: both(self.spinning, other.spinning),
            stationary: both(self.stationary, other.stationary),
            distance: both(self.distance, other.distance),
        }
    }
}

/// How pairs of rows are found.
#[derive(Clone, Debug, PartialEq)]
pub enum Algorithm {
    /// Those whose keys are equal, by tables of hashes.
    Hash {
        /// The columns of the spinning relation.
        spinning: Vec<usize>,
        /// Those of the stationary relation that they are equal to, of the same types.
        stationary: Vec<usize>,
        /// Whether a null is equal to a null.
        nulls_equal: bool,
    },
    /// Those whose keys are near each other, in their order.
    Merge {
        /// The column of the spinning relation.
        spinning: usize,
        /// That of the stationary relation, of the same type.
        stationary: usize,
        /// How far the stationary key may be from the spinning one.
        window: Window,
    },
    /// All pairs are looked at; a predicate, if there is one, says which of them match.
    NestedLoops,
}

/// Tests pairs of rows: whatever an engine can evaluate.
pub trait PairPredicate: Send + Sync {
    /// The columns of the spinning relation that it looks at.
    fn spinning(&self) -> &[usize];

    /// Those of the stationary relation.
    fn stationary(&self) -> &[usize];

    /// Which of so many pairs match. `columns` has first the spinning ones, then the stationary ones, of each pair a row. A
    /// null is no match.
    ///
    /// # Errors
    /// Says why it cannot be evaluated.
    fn test(&self, columns: &[ArrayRef], pairs: usize) -> Result<BooleanArray, String>;
}

/// A join of a spinning relation and a stationary one.
#[derive(Clone)]
pub struct JoinSpec {
    /// Which rows it has.
    pub join_type: JoinType,
    /// How pairs are found.
    pub algorithm: Algorithm,
    /// What pairs that were found have to match besides.
    pub predicate: Option<Arc<dyn PairPredicate>>,
    /// The columns of the relation that spins.
    pub spinning: SchemaRef,
    /// Those of the one that stays.
    pub stationary: SchemaRef,
}

impl JoinSpec {
    /// The columns of the result: those of the spinning relation, then those of the stationary one.
    pub fn schema(&self) -> SchemaRef {
        let fields = |schema: &SchemaRef, nullable: bool| {
            let fields = schema.fields().iter();
            let field = |field: &Arc<Field>| {
                field
                    .as_ref()
                    .clone()
                    .with_nullable(nullable || field.is_nullable())
            };
            fields.map(field).collect::<Vec<_>>()
        };
        let outer =
            |join_type: JoinType| self.join_type == join_type || self.join_type == JoinType::Full;
        let spinning = || fields(&self.spinning, outer(JoinType::Stationary));
        let stationary = || fields(&self.stationary, outer(JoinType::Spinning));
        Arc::new(Schema::new(match self.join_type {
            JoinType::SpinningSemi | JoinType::SpinningAnti => spinning(),
            JoinType::StationarySemi | JoinType::StationaryAnti => stationary(),
            _ => [spinning(), stationary()].concat(),
        }))
    }
}

/// Whether these are rows of a relation, and a number of 32 bits can name each.
fn check(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<()> {
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if rows > u32::MAX as usize {
        return Err(RingError::Unsupported(format!(
            "{rows} rows on one host; there can be 2^32"
        )));
    }
    let types = |schema: &SchemaRef| -> Vec<DataType> {
        let fields = schema.fields().iter();
        fields.map(|field| field.data_type().clone()).collect()
    };
    let expected = types(schema);
    let other = |batch: &&RecordBatch| types(batch.schema_ref()) != expected;
    match batches.iter().find(other) {
        Some(batch) => Err(RingError::Unsupported(format!(
            "columns of types {:?} in a relation of {expected:?}",
            types(batch.schema_ref())
        ))),
        None => Ok(()),
    }
}

/// All rows in one batch.
fn whole(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<RecordBatch> {
    check(schema, batches)?;
    Ok(concat_batches(schema, batches)?)
}

/// Pairs of rows, by their numbers in the fragment and among the stationary rows.
#[derive(Default)]
struct Pairs {
    spinning: Vec<u32>,
    stationary: Vec<u32>,
}

impl Pairs {
    fn len(&self) -> usize {
        self.spinning.len()
    }

    fn push(&mut self, spinning: u32, stationary: u32) {
        self.spinning.push(spinning);
        self.stationary.push(stationary);
    }

    fn clear(&mut self) {
        self.spinning.clear();
        self.stationary.clear();
    }
}

/// Takes pairs as they are found, and empties them.
type Found<'a> = dyn FnMut(&mut Pairs) -> Result<()> + 'a;

/// What an algorithm has set up of the stationary rows.
trait Matcher: Send + Sync {
    /// Finds the pairs of some rows of a fragment, about [`PAIRS`] at a time.
    fn pairs(
        &self,
        fragment: &RecordBatch,
        rows: Range<usize>,
        found: &mut Found<'_>,
    ) -> Result<()>;
}

//! The relation that stays, set up, and what a fragment makes of it.

use super::{Bits, JoinSpec, JoinType, Matcher, Pairs};
use crate::error::{Result, RingError};
use arrow::array::{
    Array as _, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array,
    new_null_array,
};
use arrow::compute::{prep_null_mask_filter, take};
use arrow::datatypes::SchemaRef;
use std::ops::Range;

/// Rows of a batch of the result where they have no partner.
const UNMATCHED_ROWS: usize = 8192;

/// The stationary rows of a host, set up. Threads join fragments with it at once.
pub struct Stationary {
    spec: JoinSpec,
    schema: SchemaRef,
    rows: RecordBatch,
    matcher: Box<dyn Matcher>,
    /// Those that have had a partner, where it matters.
    matched: Option<Bits>,
}

/// Takes rows of the result as they are made.
pub type Emit<'a> = dyn FnMut(RecordBatch) -> Result<()> + 'a;

impl Stationary {
    /// The rows of a host, and what finds pairs of them.
    pub(super) fn new(spec: &JoinSpec, rows: RecordBatch, matcher: Box<dyn Matcher>) -> Self {
        let noted = spec.join_type.notes_stationary();
        Self {
            schema: spec.schema(),
            matched: noted.then(|| Bits::new(rows.num_rows())),
            spec: spec.clone(),
            rows,
            matcher,
        }
    }

    /// Joins some rows of a fragment, as long as it `goes_on`. `matched` has the fragment's rows that have had a partner
    /// so far, on any host.
    ///
    /// # Errors
    /// [`RingError::Cancelled`] when it does not go on; when the predicate fails, or the result is not taken.
    pub fn join(
        &self,
        fragment: &RecordBatch,
        rows: Range<usize>,
        matched: &Bits,
        goes_on: &dyn Fn() -> bool,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let mut found = |pairs: &mut Pairs| {
            if !goes_on() {
                return Err(RingError::Cancelled);
            }
            let result = self.take_pairs(fragment, pairs, matched, emit);
            pairs.clear();
            result
        };
        self.matcher.pairs(fragment, rows, &mut found)
    }

    /// How many rows of a fragment have to be looked at once all hosts have seen it: all, or none.
    pub fn ends_of(&self, fragment: &RecordBatch) -> usize {
        match self.spec.join_type {
            JoinType::Spinning | JoinType::Full | JoinType::SpinningAnti => fragment.num_rows(),
            _ => 0,
        }
    }

    /// Those of some rows of a fragment that have had no partner on any host, which is known once all have seen it.
    ///
    /// # Errors
    /// When the result is not taken.
    pub fn end_of_fragment(
        &self,
        fragment: &RecordBatch,
        rows: Range<usize>,
        matched: &Bits,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        for rows in matched.unset(rows).chunks(UNMATCHED_ROWS) {
            let spinning = taken(fragment, rows)?;
            let columns = match self.spec.join_type.has_pairs() {
                true => [spinning, nulls(&self.spec.stationary, rows.len())].concat(),
                false => spinning,
            };
            emit(self.batch(columns, rows.len())?)?;
        }
        Ok(())
    }

    /// How many stationary rows have to be looked at once all fragments have come: all, or none.
    pub fn ends(&self) -> usize {
        match self.spec.join_type {
            JoinType::Stationary | JoinType::Full | JoinType::StationaryAnti => {
                self.rows.num_rows()
            }
            _ => 0,
        }
    }

    /// Those of some stationary rows that have had no partner, once all fragments have come.
    ///
    /// # Errors
    /// When the result is not taken.
    pub fn end(&self, rows: Range<usize>, emit: &mut Emit<'_>) -> Result<()> {
        let Some(matched) = &self.matched else {
            return Ok(());
        };
        for rows in matched.unset(rows).chunks(UNMATCHED_ROWS) {
            let stationary = taken(&self.rows, rows)?;
            let columns = match self.spec.join_type.has_pairs() {
                true => [nulls(&self.spec.spinning, rows.len()), stationary].concat(),
                false => stationary,
            };
            emit(self.batch(columns, rows.len())?)?;
        }
        Ok(())
    }

    fn take_pairs(
        &self,
        fragment: &RecordBatch,
        pairs: &mut Pairs,
        matched: &Bits,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        self.test(fragment, pairs)?;
        if pairs.len() == 0 {
            return Ok(());
        }
        let join_type = self.spec.join_type;
        let new = |rows: &[u32], bits: &Bits| {
            let rows = rows.iter().copied();
            rows.filter(|row| bits.set(*row as usize))
                .collect::<Vec<_>>()
        };
        let new_spinning = match join_type.notes_spinning() {
            true => new(&pairs.spinning, matched),
            false => Vec::new(),
        };
        let new_stationary = match &self.matched {
            Some(matched) => new(&pairs.stationary, matched),
            None => Vec::new(),
        };
        let columns = match join_type {
            JoinType::Inner | JoinType::Spinning | JoinType::Stationary | JoinType::Full => [
                taken(fragment, &pairs.spinning)?,
                taken(&self.rows, &pairs.stationary)?,
            ]
            .concat(),
            JoinType::SpinningSemi if !new_spinning.is_empty() => taken(fragment, &new_spinning)?,
            JoinType::StationarySemi if !new_stationary.is_empty() => {
                taken(&self.rows, &new_stationary)?
            }
            _ => return Ok(()),
        };
        let rows = match join_type {
            JoinType::SpinningSemi => new_spinning.len(),
            JoinType::StationarySemi => new_stationary.len(),
            _ => pairs.len(),
        };
        emit(self.batch(columns, rows)?)
    }

    /// Leaves the pairs that match the predicate.
    fn test(&self, fragment: &RecordBatch, pairs: &mut Pairs) -> Result<()> {
        let (Some(predicate), false) = (&self.spec.predicate, pairs.len() == 0) else {
            return Ok(());
        };
        let take_of = |rows: &RecordBatch, columns: &[usize], numbers: &[u32]| {
            let numbers = UInt32Array::from(numbers.to_vec());
            let columns = columns
                .iter()
                .map(|column| Ok(take(rows.column(*column), &numbers, None)?));
            columns.collect::<Result<Vec<ArrayRef>>>()
        };
        let mut columns = take_of(fragment, predicate.spinning(), &pairs.spinning)?;
        columns.extend(take_of(
            &self.rows,
            predicate.stationary(),
            &pairs.stationary,
        )?);
        let matching = predicate
            .test(&columns, pairs.len())
            .map_err(RingError::Predicate)?;
        if matching.len() != pairs.len() {
            let reason = format!("{} answers for {} pairs", matching.len(), pairs.len());
            return Err(RingError::Predicate(reason));
        }
        let matching: BooleanArray = match matching.null_count() {
            0 => matching,
            _ => prep_null_mask_filter(&matching),
        };
        let mut kept = 0;
        for at in matching.values().set_indices() {
            pairs.spinning[kept] = pairs.spinning[at];
            pairs.stationary[kept] = pairs.stationary[at];
            kept += 1;
        }
        pairs.spinning.truncate(kept);
        pairs.stationary.truncate(kept);
        Ok(())
    }

    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(
            self.schema.clone(),
            columns,
            &options,
        )?)
    }
}

fn taken(rows: &RecordBatch, numbers: &[u32]) -> Result<Vec<ArrayRef>> {
    let numbers = UInt32Array::from(numbers.to_vec());
    let columns = rows
        .columns()
        .iter()
        .map(|column| Ok(take(column, &numbers, None)?));
    columns.collect()
}

fn nulls(schema: &SchemaRef, rows: usize) -> Vec<ArrayRef> {
    let fields = schema.fields().iter();
    fields
        .map(|field| new_null_array(field.data_type(), rows))
        .collect()
}

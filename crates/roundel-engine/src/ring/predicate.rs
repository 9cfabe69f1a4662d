//! A join's filter as what tests pairs on the ring.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use datafusion::common::JoinSide;
use datafusion::common::cast::as_boolean_array;
use datafusion::physical_plan::joins::utils::JoinFilter;
use roundel_ring::PairPredicate;

/// A filter whose columns come from the two sides of the ring.
pub(super) struct FilterPredicate {
    filter: JoinFilter,
    /// The columns of either relation that the filter looks at.
    spinning: Vec<usize>,
    stationary: Vec<usize>,
    /// For each column of the filter, where it is among those.
    places: Vec<usize>,
}

impl FilterPredicate {
    pub(super) fn new(filter: JoinFilter, spins: JoinSide) -> Self {
        let of_side = |spinning: bool| {
            let columns = filter.column_indices().iter();
            let columns = columns.filter(|column| (column.side == spins) == spinning);
            columns.map(|column| column.index).collect::<Vec<_>>()
        };
        let (spinning, stationary) = (of_side(true), of_side(false));
        let mut next = [0, spinning.len()];
        let place = |column: &datafusion::physical_plan::joins::utils::ColumnIndex| {
            let next = &mut next[usize::from(column.side != spins)];
            *next += 1;
            *next - 1
        };
        Self {
            places: filter.column_indices().iter().map(place).collect(),
            spinning,
            stationary,
            filter,
        }
    }
}

impl PairPredicate for FilterPredicate {
    fn spinning(&self) -> &[usize] {
        &self.spinning
    }

    fn stationary(&self) -> &[usize] {
        &self.stationary
    }

    fn test(&self, columns: &[ArrayRef], pairs: usize) -> Result<BooleanArray, String> {
        let columns = self.places.iter().map(|place| Arc::clone(&columns[*place]));
        let options = RecordBatchOptions::new().with_row_count(Some(pairs));
        let schema = Arc::clone(self.filter.schema());
        let batch = RecordBatch::try_new_with_options(schema, columns.collect(), &options);
        let batch = batch.map_err(|error| error.to_string())?;
        let tested = self.filter.expression().evaluate(&batch);
        let tested = tested.and_then(|tested| tested.into_array(pairs));
        let tested = tested.map_err(|error| error.strip_backtrace())?;
        let tested = as_boolean_array(&tested).map_err(|error| error.strip_backtrace())?;
        Ok(tested.clone())
    }
}

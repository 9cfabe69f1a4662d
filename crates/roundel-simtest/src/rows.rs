//! The rows of a simulated exchange, which tell where they are from, and the account of those that came.

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Int64Type, SchemaRef};
use std::sync::Arc;

/// Between the numbers of the rows of two batches.
const BATCH_STRIDE: i64 = 1 << 20;

/// A batch of a source for a partition.
pub fn batch(source: usize, partition: u32, number: usize, rows: usize) -> RecordBatch {
    let keys = (0..rows as i64).map(|row| number as i64 * BATCH_STRIDE + row);
    let names = (0..rows).map(|row| format!("{source}/{partition}/{row}"));
    let columns: [(&str, ArrayRef); 2] = [
        ("key", Arc::new(Int64Array::from_iter_values(keys))),
        ("name", Arc::new(StringArray::from_iter_values(names))),
    ];
    RecordBatch::try_from_iter(columns).expect("both columns have a value for each row")
}

/// The columns of all batches.
pub fn schema() -> SchemaRef {
    batch(0, 0, 0, 1).schema()
}

/// What a reader has got of a source's partition.
pub struct Account {
    source: usize,
    partition: u32,
    rows: usize,
    ordered: bool,
    seen: Vec<bool>,
    count: usize,
}

impl Account {
    /// Of so many batches of so many rows.
    pub fn new(source: usize, partition: u32, batches: usize, rows: usize, ordered: bool) -> Self {
        Self {
            source,
            partition,
            rows,
            ordered,
            seen: vec![false; batches],
            count: 0,
        }
    }

    /// Takes note of a batch; says what is wrong with it.
    pub fn add(&mut self, got: &RecordBatch) -> Result<(), String> {
        let place = format!("partition {} of node {}", self.partition, self.source);
        let number = match got.columns().first() {
            Some(keys) if got.num_rows() > 0 => {
                let keys = keys.as_primitive_opt::<Int64Type>();
                keys.map(|keys| (keys.value(0) / BATCH_STRIDE) as usize)
            }
            _ => None,
        };
        let Some(number) = number.filter(|number| *number < self.seen.len()) else {
            return Err(format!("{place}: rows that nobody sent"));
        };
        if self.ordered && number != self.count {
            return Err(format!(
                "{place}: batch {number} came as number {}",
                self.count
            ));
        }
        if std::mem::replace(&mut self.seen[number], true) {
            return Err(format!("{place}: batch {number} came twice"));
        }
        if *got != batch(self.source, self.partition, number, self.rows) {
            return Err(format!(
                "{place}: batch {number} has other rows than were sent"
            ));
        }
        self.count += 1;
        Ok(())
    }

    /// Whether everything has come, at the end.
    pub fn close(&self) -> Result<(), String> {
        match self.seen.iter().position(|seen| !seen) {
            None => Ok(()),
            Some(missing) => Err(format!(
                "partition {} of node {}: it ended without batch {missing}",
                self.partition, self.source
            )),
        }
    }
}

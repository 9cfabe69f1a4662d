//! SHUFFLE of rows that go to one partition each (section 4.3.1): hashed, and gathered from the columns
//! of a batch straight into registered buffers.

use super::frames::{self, Gathered};
use super::shuffle::{Group, Shuffle};
use crate::error::{ExchangeError, Result};
use crate::frame::RowSource;
use crate::selection::{RowsByPartition, Selection};
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use std::sync::Arc;

/// Says where each row goes. The engine supplies its own hash.
pub trait Partitioner: Send {
    /// How many partitions there are.
    fn partitions(&self) -> usize;
    /// Whether some rows may go to all partitions.
    fn has_rows_for_all(&self) -> bool {
        false
    }
    /// Sets `targets` to one partition per row, each below [`partitions`](Self::partitions); or to that number itself,
    /// for a row that goes to all partitions.
    ///
    /// # Errors
    /// What went wrong, when the rows cannot be told apart.
    fn partition(&mut self, batch: &RecordBatch, targets: &mut Vec<u32>) -> Result<(), String>;
}

/// One task that scatters rows: the rows of partition `p` go to `groups[p]`, as partition `p`. A
/// partition whose members have failed gets no more rows, and says so when it is
/// [finished](Shuffle::finish); the others go on.
pub struct Scatter {
    shuffle: Arc<Shuffle>,
    groups: Vec<Group>,
    partitioner: Box<dyn Partitioner>,
    targets: Vec<u32>,
    rows: RowsByPartition,
    /// Partitions that rows still go to.
    open: Vec<bool>,
    /// Where the next batch begins, so that not all tasks send to one partition at a time.
    first: usize,
}

impl Scatter {
    /// A task that scatters. Several of one exchange begin best at different partitions: `first`.
    ///
    /// # Errors
    /// When there are not as many groups as partitions.
    pub fn new(
        shuffle: Arc<Shuffle>,
        groups: Vec<Group>,
        partitioner: Box<dyn Partitioner>,
        first: usize,
    ) -> Result<Self> {
        let partitions = partitioner.partitions();
        if groups.is_empty() || groups.len() != partitions {
            return Err(ExchangeError::own(format!(
                "{} groups for {partitions} partitions",
                groups.len()
            )));
        }
        Ok(Self {
            shuffle,
            open: vec![true; partitions],
            first: first % partitions,
            groups,
            partitioner,
            targets: Vec::new(),
            rows: RowsByPartition::default(),
        })
    }

    /// Sends the rows of a batch, waiting for buffers and credit. Dropping the future mid-way breaks
    /// the partitions. Returns whether any partition is left that wants rows.
    ///
    /// # Errors
    /// When the rows cannot be partitioned or cannot be sent whoever they go to.
    pub async fn send(&mut self, batch: &RecordBatch) -> Result<bool> {
        self.targets.clear();
        self.partitioner
            .partition(batch, &mut self.targets)
            .map_err(ExchangeError::own)?;
        let partitions = self.groups.len();
        if self.targets.len() != batch.num_rows() {
            return Err(ExchangeError::own(format!(
                "{} rows partitioned of {}",
                self.targets.len(),
                batch.num_rows()
            )));
        }
        let source = RowSource::new(batch);
        let numbers = source.as_ref().is_none_or(RowSource::needs_numbers);
        let for_all = self.partitioner.has_rows_for_all();
        self.rows
            .sort(&self.targets, partitions + usize::from(for_all), numbers)
            .map_err(|target| ExchangeError::own(format!("partition {target} of {partitions}")))?;
        let for_all = match for_all {
            true => gather(batch, source.as_ref(), self.rows.of(partitions))?,
            false => Vec::new(),
        };
        for turn in 0..partitions {
            let partition = (self.first + turn) % partitions;
            if !self.open[partition] {
                continue;
            }
            let part = Part {
                group: &self.groups[partition],
                partition: partition as u32,
                rows: self.rows.of(partition),
                for_all: &for_all,
            };
            match part.send(&self.shuffle, batch, source.as_ref()).await {
                Ok(()) => {}
                Err(error) if error.is_of_peer() => self.open[partition] = false,
                Err(error) => return Err(error),
            }
        }
        self.first = (self.first + 1) % partitions;
        Ok(self.open.contains(&true))
    }
}

/// Rows of a batch that go to all partitions: gathered once, whatever the number of these.
fn gather(
    batch: &RecordBatch,
    source: Option<&RowSource<'_>>,
    mut rows: Selection<'_>,
) -> Result<Vec<Gathered>> {
    const PEERS: &str = "all partitions";
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let Some(source) = source else {
        let part = picked(batch, rows)?;
        return Ok(vec![frames::gathered(PEERS, &part)?]);
    };
    std::iter::from_fn(|| frames::next(PEERS, batch, source, &mut rows).transpose()).collect()
}

/// Rows of a batch, by themselves.
fn picked(batch: &RecordBatch, rows: Selection<'_>) -> Result<RecordBatch> {
    let rows = UInt32Array::from(rows.numbers().into_owned());
    take_record_batch(batch, &rows)
        .map_err(|error| ExchangeError::own(format!("rows cannot be picked from a batch: {error}")))
}

/// What goes to one partition of a batch.
struct Part<'a> {
    group: &'a Group,
    partition: u32,
    rows: Selection<'a>,
    for_all: &'a [Gathered],
}

impl Part<'_> {
    async fn send(
        self,
        shuffle: &Shuffle,
        batch: &RecordBatch,
        source: Option<&RowSource<'_>>,
    ) -> Result<()> {
        let Self {
            group,
            partition,
            rows,
            for_all,
        } = self;
        match source {
            _ if rows.is_empty() => {}
            Some(source) => {
                shuffle
                    .send_rows(group, partition, batch, source, rows)
                    .await?;
            }
            None => {
                let part = picked(batch, rows)?;
                shuffle.send(group, partition, &part).await?;
            }
        }
        for frame in for_all {
            shuffle.send_gathered(group, partition, frame).await?;
        }
        Ok(())
    }
}

//! What a node does with the rows that arrive: it counts them, and works on each as long as it is told to.

use super::relation::{keys, rows_of};
use crate::measured::Rows;
use arrow::array::RecordBatch;
use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

/// The consumer of a thread.
#[derive(Debug, Default)]
pub struct Consumer {
    rounds: u32,
    /// When it does another number of rounds.
    midway: Option<(Range<Instant>, u32)>,
    rows: Rows,
    worked: u64,
}

impl Consumer {
    /// One that does so many rounds of work for each tuple: some multiplications, one after the other.
    pub fn new(rounds: u32) -> Self {
        Self {
            rounds,
            ..Self::default()
        }
    }

    /// The same, which does another number of rounds meanwhile.
    pub fn with_midway(self, when: Range<Instant>, rounds: u32) -> Self {
        Self {
            midway: Some((when, rounds)),
            ..self
        }
    }

    /// Takes rows.
    pub fn take(&mut self, batch: &RecordBatch) {
        self.rows.add(rows_of(batch));
        let rounds = match &self.midway {
            Some((when, rounds)) if when.contains(&Instant::now()) => *rounds,
            _ => self.rounds,
        };
        if rounds > 0 {
            for key in keys(batch) {
                // A tuple waits for the one before it: the work cannot be overlapped.
                let mut value = key ^ self.worked;
                for _ in 0..rounds {
                    value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (value >> 29);
                }
                self.worked = value;
            }
            black_box(self.worked);
        }
    }

    /// What it took.
    pub fn rows(&self) -> Rows {
        self.rows
    }
}

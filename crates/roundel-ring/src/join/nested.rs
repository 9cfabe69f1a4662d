//! Every row with every row, for predicates that nothing is known of. Predicates are tested in blocks, so that those of a
//! fragment's row with many stationary ones are looked at together.

use super::{Found, Matcher, PAIRS, Pairs};
use crate::error::Result;
use arrow::array::RecordBatch;
use std::ops::Range;

/// The stationary rows, as they are.
pub(super) struct Loops {
    rows: usize,
}

impl Loops {
    pub(super) fn new(rows: &RecordBatch) -> Self {
        Self {
            rows: rows.num_rows(),
        }
    }
}

impl Matcher for Loops {
    fn pairs(
        &self,
        _fragment: &RecordBatch,
        rows: Range<usize>,
        found: &mut Found<'_>,
    ) -> Result<()> {
        let mut pairs = Pairs::default();
        for spinning in rows {
            let mut next = 0;
            while next < self.rows {
                let count = (PAIRS - pairs.len()).min(self.rows - next);
                pairs
                    .spinning
                    .extend(std::iter::repeat_n(spinning as u32, count));
                pairs.stationary.extend(next as u32..(next + count) as u32);
                next += count;
                if pairs.len() == PAIRS {
                    found(&mut pairs)?;
                }
            }
        }
        found(&mut pairs)
    }
}

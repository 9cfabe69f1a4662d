//! Rows of a batch, by their numbers or by a bit for each row of the batch: what a partition gets of it.
//! Knows nothing of columns.
//!
//! All row numbers and bits are of rows that are there: whoever gathers values relies on it.

mod by_partition;
#[cfg(target_arch = "x86_64")]
mod group;

pub use by_partition::RowsByPartition;

use std::borrow::Cow;
use std::ops::Range;

/// Rows that a word of bits is for.
pub(crate) const WORD_ROWS: usize = u16::BITS as usize;

/// Where fewer than one in so many rows is selected, it is faster to look each up than to look at all.
#[cfg(target_arch = "x86_64")]
pub(crate) const SPREAD_MAX: usize = 4;

/// Whether this processor compresses the values of rows by their bits.
#[cfg(target_arch = "x86_64")]
pub(crate) fn are_compressed() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("popcnt")
}

/// Some rows of a batch. By their bits, values of common widths are gathered many at a time.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    rows: Rows<'a>,
    /// How many rows are selected.
    count: usize,
    /// What each of them is below.
    below: usize,
}

#[derive(Clone, Copy, Debug)]
enum Rows<'a> {
    /// In any order, and repeatedly.
    Numbers(&'a [u32]),
    /// With the numbers of the same rows, where somebody has listed them already.
    Bits(RowBits<'a>, Option<&'a [u32]>),
}

/// Rows in their order, by bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowBits<'a> {
    /// Bit `row % 16` of word `row / 16` is for a row. Only those of rows in `start..end` count.
    pub(crate) words: &'a [u16],
    /// Not more than `end`.
    pub(crate) start: usize,
    /// Not more than there are rows.
    pub(crate) end: usize,
}

impl<'a> RowBits<'a> {
    /// The rows that have a bit in these words.
    pub(crate) fn of_words(&self, words: Range<usize>) -> impl Iterator<Item = usize> + use<'a> {
        let Self {
            words: all,
            start,
            end,
        } = *self;
        let rows_of = move |word: usize| ones(all[word]).map(move |bit| word * WORD_ROWS + bit);
        words
            .flat_map(rows_of)
            .filter(move |row| (start..end).contains(row))
    }

    fn rows(&self) -> impl Iterator<Item = usize> + use<'a> {
        self.of_words(self.start / WORD_ROWS..self.end.div_ceil(WORD_ROWS))
    }

    /// The first `count` rows, of which there are more, and the others.
    fn split_at(self, count: usize) -> (Self, Self) {
        let mut left = count;
        let mut middle = self.start;
        // As far as possible by words.
        let whole = self.start.next_multiple_of(WORD_ROWS).min(self.end);
        let head = Self { end: whole, ..self }.rows().count();
        if head <= left {
            left -= head;
            middle = whole;
            while let Some(words) = self.words[middle / WORD_ROWS..].first_chunk::<4>()
                && let count = count_ones(words)
                && count <= left
                && middle + 4 * WORD_ROWS <= self.end
            {
                left -= count;
                middle += 4 * WORD_ROWS;
            }
            while let Some(word) = self.words.get(middle / WORD_ROWS)
                && word.count_ones() as usize <= left
                && middle + WORD_ROWS <= self.end
            {
                left -= word.count_ones() as usize;
                middle += WORD_ROWS;
            }
        }
        let rest = Self {
            start: middle,
            ..self
        };
        if let Some(last) = left.checked_sub(1) {
            middle = rest.rows().nth(last).map_or(self.end, |row| row + 1);
        }
        (
            Self {
                end: middle,
                ..self
            },
            Self {
                start: middle,
                ..self
            },
        )
    }
}

impl<'a> From<&'a [u32]> for Selection<'a> {
    /// Rows in any order, and repeatedly.
    fn from(numbers: &'a [u32]) -> Self {
        // Without a branch for each of them.
        let highest = numbers.iter().fold(0, |highest, row| highest.max(*row));
        Self {
            rows: Rows::Numbers(numbers),
            count: numbers.len(),
            below: highest as usize + usize::from(!numbers.is_empty()),
        }
    }
}

impl<'a> Selection<'a> {
    /// How many rows are selected.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What the number of every selected row is below.
    pub fn below(&self) -> usize {
        self.below
    }

    /// The number of the first row.
    pub fn first(&self) -> Option<u32> {
        match self.rows {
            Rows::Numbers(numbers) | Rows::Bits(_, Some(numbers)) => numbers.first().copied(),
            Rows::Bits(bits, None) => bits.rows().next().map(|row| row as u32),
        }
    }

    /// The numbers of all rows, in order.
    pub fn numbers(&self) -> Cow<'a, [u32]> {
        match self.rows {
            Rows::Numbers(numbers) | Rows::Bits(_, Some(numbers)) => Cow::Borrowed(numbers),
            Rows::Bits(bits, None) => bits.rows().map(|row| row as u32).collect(),
        }
    }

    /// The rows by bits, where there are some.
    pub(crate) fn bits(&self) -> Option<&RowBits<'a>> {
        match &self.rows {
            Rows::Bits(bits, _) => Some(bits),
            Rows::Numbers(_) => None,
        }
    }

    /// The rows as a range, if they follow each other, as all rows of a batch do.
    pub(crate) fn as_range(&self) -> Option<Range<usize>> {
        let range = match self.rows {
            Rows::Bits(bits, _) => bits.start..bits.end,
            Rows::Numbers(numbers) => {
                let (first, last) = (*numbers.first()?, *numbers.last()?);
                let follow = last.checked_sub(first)? as usize + 1 == numbers.len()
                    && numbers.iter().zip(first..).all(|(row, next)| *row == next);
                follow.then(|| first as usize..last as usize + 1)?
            }
        };
        (range.len() == self.count).then_some(range)
    }

    /// The first `count` rows, or all if there are fewer, and the others.
    pub fn split_at(self, count: usize) -> (Self, Self) {
        let count = count.min(self.count);
        let with = |rows, count| Self {
            rows,
            count,
            below: self.below,
        };
        let (first, rest) = match self.rows {
            Rows::Numbers(numbers) => {
                let (first, rest) = numbers.split_at(count);
                (Rows::Numbers(first), Rows::Numbers(rest))
            }
            Rows::Bits(bits, numbers) => {
                let (first, rest) = match count == self.count {
                    true => (
                        bits,
                        RowBits {
                            start: bits.end,
                            ..bits
                        },
                    ),
                    false => bits.split_at(count),
                };
                let numbers = numbers.map(|numbers| numbers.split_at(count)).unzip();
                (Rows::Bits(first, numbers.0), Rows::Bits(rest, numbers.1))
            }
        };
        (with(first, count), with(rest, self.count - count))
    }
}

/// Bits that are set in four words, counted at once: processors that a build must run on may have no
/// instruction for it.
fn count_ones(words: &[u16; 4]) -> usize {
    let together = words
        .iter()
        .fold(0, |all, word| all << WORD_ROWS | u64::from(*word));
    together.count_ones() as usize
}

/// The places of the set bits, from the lowest.
fn ones(mut word: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = word.trailing_zeros() as usize;
        let any = word != 0;
        word &= word.wrapping_sub(1);
        any.then_some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rows of both partitions, by bits and by numbers alone.
    fn check(rows: Selection<'_>, expected: &[u32], cuts: &[usize]) -> Result<(), TestCaseError> {
        prop_assert_eq!(rows.len(), expected.len());
        prop_assert_eq!(&*rows.numbers(), expected);
        prop_assert_eq!(rows.first(), expected.first().copied());
        let range = rows.as_range();
        let follows = expected.windows(2).all(|two| two[0] + 1 == two[1]);
        match range {
            Some(range) => {
                let all: Vec<u32> = range.map(|row| row as u32).collect();
                prop_assert_eq!(all, expected);
            }
            // Bits of a range may lie between rows that are not selected.
            None if matches!(rows.rows, Rows::Numbers(_)) => {
                prop_assert!(!follows || expected.is_empty());
            }
            None => {}
        }
        let Some((cut, cuts)) = cuts.split_first() else {
            return Ok(());
        };
        let cut = cut % (expected.len() + 2);
        let (first, rest) = rows.split_at(cut);
        let (expected_first, expected_rest) = expected.split_at(cut.min(expected.len()));
        check(first, expected_first, cuts)?;
        check(rest, expected_rest, cuts)
    }

    proptest! {
        #[test]
        fn bits_and_numbers_are_cut_alike(
            bits in prop::collection::vec(prop_oneof![Just(0), Just(u16::MAX), any::<u16>()], 0..20),
            fewer in 0usize..WORD_ROWS,
            cuts in prop::collection::vec(any::<usize>(), 0..4),
            listed in any::<bool>(),
        ) {
            let mut bits = bits;
            let below = (bits.len() * WORD_ROWS).saturating_sub(fewer);
            if let Some(last) = bits.last_mut() {
                *last &= u16::MAX >> fewer;
            }
            let numbers: Vec<u32> = (0..below)
                .filter(|row| bits[row / WORD_ROWS] >> (row % WORD_ROWS) & 1 == 1)
                .map(|row| row as u32)
                .collect();
            let by_bits = Selection {
                rows: Rows::Bits(
                    RowBits {
                        words: &bits,
                        start: 0,
                        end: below,
                    },
                    listed.then_some(&numbers),
                ),
                count: numbers.len(),
                below,
            };
            check(by_bits, &numbers, &cuts)?;
            check(Selection::from(&numbers[..]), &numbers, &cuts)?;
        }
    }
}

//! A bit for each row, which threads set at once.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bits of rows.
pub struct Bits(Vec<AtomicU64>);

impl Bits {
    /// None of them set.
    pub fn new(rows: usize) -> Self {
        Self((0..rows.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Those of as many rows as the bytes have; the bits that are missing in the last word are not set.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let word = |chunk: &[u8]| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            AtomicU64::new(u64::from_le_bytes(word))
        };
        Self(bytes.chunks(8).map(word).collect())
    }

    /// The same as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes())
            .collect()
    }

    /// Sets one; whether it was not set.
    pub fn set(&self, row: usize) -> bool {
        let (word, bit) = (&self.0[row / 64], 1 << (row % 64));
        // Most rows that have one partner have others.
        word.load(Relaxed) & bit == 0 && word.fetch_or(bit, Relaxed) & bit == 0
    }

    /// Those of `rows` that are not set.
    pub fn unset(&self, rows: Range<usize>) -> Vec<u32> {
        let set = |row: &u32| self.0[*row as usize / 64].load(Relaxed) >> (row % 64) & 1 == 1;
        (rows.start as u32..rows.end as u32)
            .filter(|row| !set(row))
            .collect()
    }

    /// Sets those that are set in others of as many rows.
    pub fn add(&self, others: &Self) {
        for (word, other) in self.0.iter().zip(&others.0) {
            word.fetch_or(other.load(Relaxed), Relaxed);
        }
    }

    /// Sets those that are not set, and no others.
    pub fn invert(&self) {
        for word in &self.0 {
            word.fetch_xor(u64::MAX, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_set_once_and_survives_as_bytes() {
        let bits = Bits::new(130);
        assert!(bits.set(0) && bits.set(64) && bits.set(129) && !bits.set(64));
        let again = Bits::of_bytes(&bits.to_bytes());
        assert_eq!(again.unset(0..130).len(), 127);
        assert!(!again.unset(0..130).contains(&129));
        assert!(!again.set(0));
        again.invert();
        assert_eq!(again.unset(0..130), [0, 64, 129]);
        assert_eq!(again.unset(1..129), [64]);
        again.add(&bits);
        assert!(again.unset(0..130).is_empty());
    }
}

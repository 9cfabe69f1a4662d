//! Grouping of rows by few partitions with AVX-512, 16 rows at a time: a comparison with the number of a
//! partition gives the bits of its rows, and bits compress row numbers.
#![allow(unsafe_code)] // Vector instructions, behind a check that the processor has them.

use super::{WORD_ROWS, are_compressed};
use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_cmpeq_epi32_mask, _mm512_loadu_si512,
    _mm512_maskz_compress_epi32, _mm512_maskz_loadu_epi32, _mm512_set1_epi32, _mm512_setr_epi32,
    _mm512_storeu_si512,
};

/// With more partitions, passes over the rows that look at each once are faster.
pub(super) const PARTITIONS_MAX: usize = 8;

/// Sets the bits of the rows of each partition, as many words for each, and how many rows it has in
/// `counts`. Returns how many rows are of any of the partitions.
///
/// # Panics
/// Without the instructions, or with other than a word for each 16 targets in each partition.
pub(super) fn bits(targets: &[u32], bits: &mut [u16], counts: &mut [u32]) -> usize {
    assert!(are_compressed(), "no AVX-512 here");
    let words = targets.len().div_ceil(WORD_ROWS);
    assert!(bits.len() == words * counts.len(), "a bit for each row");
    // SAFETY: the processor has the instructions, and there is room.
    unsafe { bits_unchecked(targets, bits, counts) }
    counts.iter().map(|count| *count as usize).sum()
}

/// # Safety
/// The processor has the instructions, and there is a word for each 16 targets in each partition.
#[target_feature(enable = "avx512f,popcnt")]
unsafe fn bits_unchecked(targets: &[u32], bits: &mut [u16], counts: &mut [u32]) {
    let (chunks, rest) = targets.as_chunks::<WORD_ROWS>();
    let words = chunks.len() + usize::from(!rest.is_empty());
    let bits = bits.as_mut_ptr();
    let of_rest = !(u16::MAX << rest.len());
    for (partition, count) in counts.iter_mut().enumerate() {
        let number = _mm512_set1_epi32(partition as i32);
        // SAFETY: the words of this partition.
        let bits = unsafe { bits.add(partition * words) };
        let mut found = 0;
        for (word, chunk) in chunks.iter().enumerate() {
            // SAFETY: a chunk is as long as a register.
            let targets = unsafe { _mm512_loadu_si512(chunk.as_ptr().cast::<__m512i>()) };
            let own = _mm512_cmpeq_epi32_mask(targets, number);
            // SAFETY: there is a word for each chunk.
            unsafe { bits.add(word).write(own) };
            found += own.count_ones();
        }
        if !rest.is_empty() {
            // SAFETY: only those that are there are loaded.
            let targets = unsafe { _mm512_maskz_loadu_epi32(of_rest, rest.as_ptr().cast()) };
            let own = _mm512_cmpeq_epi32_mask(targets, number) & of_rest;
            // SAFETY: there is a word for the rest, too.
            unsafe { bits.add(chunks.len()).write(own) };
            found += own.count_ones();
        }
        *count = found;
    }
}

/// Writes the numbers of the rows that have a bit to the start of `numbers`, and others behind them.
///
/// # Panics
/// Without the instructions, or when `numbers` has not room for all rows and 16 more.
pub(super) fn list(bits: &[u16], numbers: &mut [u32]) {
    assert!(are_compressed(), "no AVX-512 here");
    let count: usize = bits.iter().map(|word| word.count_ones() as usize).sum();
    assert!(numbers.len() >= count + WORD_ROWS, "room for every row");
    // SAFETY: the processor has the instructions, and there is room.
    unsafe { list_unchecked(bits, numbers.as_mut_ptr()) }
}

/// # Safety
/// The processor has the instructions, and there is room for all rows and 16 more.
#[target_feature(enable = "avx512f,popcnt")]
unsafe fn list_unchecked(bits: &[u16], mut numbers: *mut u32) {
    let step = _mm512_set1_epi32(WORD_ROWS as i32);
    let mut rows = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for word in bits {
        let compressed = _mm512_maskz_compress_epi32(*word, rows);
        // SAFETY: no more were written than have been counted, so that there is room for a register.
        // What is beyond the compressed numbers is written over by the next ones, or ignored.
        unsafe {
            _mm512_storeu_si512(numbers.cast::<__m512i>(), compressed);
            numbers = numbers.add(word.count_ones() as usize);
        }
        rows = _mm512_add_epi32(rows, step);
    }
}

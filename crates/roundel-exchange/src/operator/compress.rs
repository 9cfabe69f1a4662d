//! Grouping of row numbers by few partitions with AVX-512: for each partition, the numbers of its rows
//! are compressed out of 16 at a time.
#![allow(unsafe_code)] // Vector instructions, behind a check that the processor has them.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_cmpeq_epi32_mask, _mm512_loadu_si512,
    _mm512_maskz_compress_epi32, _mm512_set1_epi32, _mm512_setr_epi32, _mm512_storeu_si512,
};

/// With more partitions, one pass over the rows that looks at each once is faster.
pub(super) const PARTITIONS_MAX: usize = 8;
/// Numbers in a register.
pub(super) const LANES: usize = 16;

/// Whether this processor can.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
}

/// Writes the numbers of the rows of partition `p` from `rows[p * stride]` on, and how many there are
/// to `counts[p]`. A partition has room for all rows and [`LANES`] more: the rows after the last
/// whole register are left to the caller, who learns from which on.
///
/// # Panics
/// Without the instructions, or with less room.
pub(super) fn group(targets: &[u32], stride: usize, rows: &mut [u32], counts: &mut [u32]) -> usize {
    assert!(is_available(), "no AVX-512 here");
    assert!(
        stride >= targets.len() + LANES && rows.len() >= stride * counts.len(),
        "room for every row in every partition"
    );
    // SAFETY: the processor has AVX-512F, and there is room.
    unsafe { group_unchecked(targets, stride, rows, counts) }
}

/// # Safety
/// The processor has AVX-512F, and `rows` has `stride` places for each of `counts`, which is at least
/// [`LANES`] more than there are targets.
#[target_feature(enable = "avx512f")]
unsafe fn group_unchecked(
    targets: &[u32],
    stride: usize,
    rows: &mut [u32],
    counts: &mut [u32],
) -> usize {
    let (chunks, _) = targets.as_chunks::<LANES>();
    let step = _mm512_set1_epi32(LANES as i32);
    let mut numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let mut ends = [0usize; PARTITIONS_MAX];
    let ends = &mut ends[..counts.len()];
    for (partition, end) in ends.iter_mut().enumerate() {
        *end = partition * stride;
    }
    let rows = rows.as_mut_ptr();
    for chunk in chunks {
        // SAFETY: a chunk is as long as a register.
        let targets = unsafe { _mm512_loadu_si512(chunk.as_ptr().cast::<__m512i>()) };
        for (partition, end) in ends.iter_mut().enumerate() {
            let own = _mm512_cmpeq_epi32_mask(targets, _mm512_set1_epi32(partition as i32));
            let compressed = _mm512_maskz_compress_epi32(own, numbers);
            // SAFETY: at most as many numbers were written there as rows were looked at, so that
            // there is room for a register. What is beyond the compressed numbers is written over
            // by the next ones, or ignored.
            unsafe { _mm512_storeu_si512(rows.add(*end).cast::<__m512i>(), compressed) };
            *end += own.count_ones() as usize;
        }
        numbers = _mm512_add_epi32(numbers, step);
    }
    for (partition, (count, end)) in counts.iter_mut().zip(ends).enumerate() {
        *count = (*end - partition * stride) as u32;
    }
    chunks.len() * LANES
}

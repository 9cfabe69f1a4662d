//! Values of the rows that have a bit, compressed with AVX-512: a register of values at a time, wherever
//! their rows are.
#![allow(unsafe_code)] // Vector instructions, behind a check that the processor has them.

use crate::selection::{RowBits, WORD_ROWS, are_compressed};
use std::arch::x86_64::{
    __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_loadu_si512, _mm512_maskz_compress_epi32,
    _mm512_maskz_compress_epi64, _mm512_storeu_si512,
};
use std::mem::MaybeUninit;

/// How far ahead values are fetched into the cache.
const PREFETCH: usize = 2048;
/// Bytes of a register.
const REGISTER: usize = size_of::<__m512i>();

/// Whether this processor can, for values of this width.
pub(super) fn is_available(width: usize) -> bool {
    matches!(width, 4 | 8 | 16) && are_compressed()
}

/// Writes the values of the rows that have a bit, one after the other. `values` has `width` bytes for each.
///
/// # Panics
/// When it is not [available](is_available), there are not the values of all rows, or `target` has another
/// length than all of them together.
pub(super) fn compress(
    values: &[u8],
    width: usize,
    rows: &RowBits<'_>,
    target: &mut [MaybeUninit<u8>],
) {
    assert!(is_available(width), "no AVX-512 for this width");
    assert!(rows.end * width <= values.len(), "a value for each row");
    // Words that have rows before the first or behind the last one, row by row.
    let first = rows.start.div_ceil(WORD_ROWS);
    let last = (rows.end / WORD_ROWS).max(first);
    let one_by_one = |target: &mut [MaybeUninit<u8>], mut at: usize, words| {
        for row in rows.of_words(words) {
            let value = &values[row * width..][..width];
            target[at..at + width].write_copy_of_slice(value);
            at += width;
        }
        at
    };
    let mut at = one_by_one(target, 0, rows.start / WORD_ROWS..first);
    // Beyond the end, where all rows are in one word, of which none is whole.
    let whole = values.get(first * WORD_ROWS * width..last * WORD_ROWS * width);
    let whole = whole.unwrap_or_default().as_ptr();
    let words = rows.words.get(first..last).unwrap_or_default();
    // SAFETY: the processor has the instructions, and the words are those of the values.
    let (done, written) = unsafe {
        match width {
            4 => compress_words::<4>(whole, words, &mut target[at..]),
            8 => compress_words::<8>(whole, words, &mut target[at..]),
            _ => compress_words::<16>(whole, words, &mut target[at..]),
        }
    };
    at += written;
    at = one_by_one(target, at, first + done..rows.end.div_ceil(WORD_ROWS));
    assert!(at == target.len(), "room for the values alone");
}

/// Compresses the values of words until the room that is left is less than what a word may have. Returns
/// how many words it did, and bytes of the target.
///
/// # Safety
/// The processor has the instructions, and there are the values of all words.
#[target_feature(enable = "avx512f,popcnt")]
unsafe fn compress_words<const WIDTH: usize>(
    mut values: *const u8,
    words: &[u16],
    target: &mut [MaybeUninit<u8>],
) -> (usize, usize) {
    let start = target.as_mut_ptr().cast::<u8>();
    let Some(room) = target.len().checked_sub(WORD_ROWS * WIDTH) else {
        return (0, 0);
    };
    let (mut at, mut done) = (0, 0);
    for word in words {
        if at > room {
            break;
        }
        for line in 0..WORD_ROWS * WIDTH / REGISTER {
            let ahead = values.wrapping_add(PREFETCH + line * REGISTER);
            _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
        }
        // SAFETY: there is room for as many values as a word has bits, and a register is written only where
        // those that it begins with belong: what is beyond the compressed ones is written over.
        unsafe {
            let to = start.add(at);
            at += match WIDTH {
                4 => compress_4(values, *word, to),
                8 => {
                    let written = compress_lanes(values, *word as u8, to);
                    let (values, to) = (values.add(REGISTER), to.add(written));
                    written + compress_lanes(values, (*word >> 8) as u8, to)
                }
                _ => (0..4).fold(0, |written, quarter| {
                    let lanes = TWICE[usize::from(*word >> (4 * quarter) & 0xf)];
                    let values = values.add(quarter * REGISTER);
                    written + compress_lanes(values, lanes, to.add(written))
                }),
            };
            values = values.add(WORD_ROWS * WIDTH);
        }
        done += 1;
    }
    (done, at)
}

/// Compresses 4 bytes for each of 16 bits, and writes a register. Returns how many bytes of it count.
///
/// # Safety
/// There are 16 values, and there is room for a register.
#[inline]
#[target_feature(enable = "avx512f,popcnt")]
unsafe fn compress_4(values: *const u8, lanes: u16, to: *mut u8) -> usize {
    // SAFETY: see above.
    unsafe {
        let compressed = _mm512_maskz_compress_epi32(lanes, _mm512_loadu_si512(values.cast()));
        _mm512_storeu_si512(to.cast(), compressed);
    }
    lanes.count_ones() as usize * 4
}

/// The same of 8 bytes for each of 8 bits.
///
/// # Safety
/// There are 8 values, and there is room for a register.
#[inline]
#[target_feature(enable = "avx512f,popcnt")]
unsafe fn compress_lanes(values: *const u8, lanes: u8, to: *mut u8) -> usize {
    // SAFETY: see above.
    unsafe {
        let compressed = _mm512_maskz_compress_epi64(lanes, _mm512_loadu_si512(values.cast()));
        _mm512_storeu_si512(to.cast(), compressed);
    }
    lanes.count_ones() as usize * 8
}

/// Each of 4 bits twice: two lanes for a value of 16 bytes.
const TWICE: [u8; 16] = {
    let mut twice = [0; 16];
    let mut bits = 0;
    while bits < 16 {
        let mut bit = 0;
        while bit < 4 {
            if bits >> bit & 1 == 1 {
                twice[bits] |= 0b11 << (2 * bit);
            }
            bit += 1;
        }
        bits += 1;
    }
    twice
};

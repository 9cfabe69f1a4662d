//! Gathers values of one width: the innermost loop of SHUFFLE.
#![allow(unsafe_code)] // Without a check for each value: all rows have been checked before.

use std::mem::MaybeUninit;
use std::ops::Range;

/// Writes the values of `rows` one after the other. `values` has values of `width` bytes, and
/// `target` room for exactly as many as there are rows.
///
/// # Safety
/// `values` has each of the rows.
///
/// # Panics
/// When `target` has another length.
pub(super) unsafe fn gather(
    values: &[u8],
    width: usize,
    rows: &[u32],
    target: &mut [MaybeUninit<u8>],
) {
    assert_eq!(target.len(), width * rows.len(), "room for the rows alone");
    if let Some(run) = as_run(rows) {
        target.write_copy_of_slice(&values[run.start * width..run.end * width]);
        return;
    }
    // SAFETY: the caller has checked the rows.
    unsafe {
        match width {
            0 => {}
            1 => gather_width::<1>(values, rows, target),
            2 => gather_width::<2>(values, rows, target),
            4 => gather_width::<4>(values, rows, target),
            8 => gather_width::<8>(values, rows, target),
            16 => gather_width::<16>(values, rows, target),
            32 => gather_width::<32>(values, rows, target),
            _ => gather_scalar(values, width, rows, target),
        }
    }
}

/// The rows as a range, if they follow each other, as all rows of a batch do.
fn as_run(rows: &[u32]) -> Option<Range<usize>> {
    let (first, last) = (*rows.first()?, *rows.last()?);
    let follow = last.checked_sub(first)? as usize + 1 == rows.len()
        && rows
            .iter()
            .zip(first..=last)
            .all(|(row, next)| *row == next);
    follow.then(|| first as usize..last as usize + 1)
}

/// Of any width, with every check: what the others are tested against.
fn gather_scalar(values: &[u8], width: usize, rows: &[u32], target: &mut [MaybeUninit<u8>]) {
    for (target, row) in target.chunks_exact_mut(width).zip(rows) {
        let from = width * *row as usize;
        target.write_copy_of_slice(&values[from..from + width]);
    }
}

/// # Safety
/// `values` has each of the rows.
unsafe fn gather_width<const W: usize>(
    values: &[u8],
    rows: &[u32],
    target: &mut [MaybeUninit<u8>],
) {
    let (values, _) = values.as_chunks::<W>();
    let (target, _) = target.as_chunks_mut::<W>();
    for (target, row) in target.iter_mut().zip(rows) {
        // SAFETY: it is there, as the caller has checked.
        let value = unsafe { values.get_unchecked(*row as usize) };
        *target = value.map(MaybeUninit::new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(
        gather: impl Fn(&[u8], usize, &[u32], &mut [MaybeUninit<u8>]),
        values: &[u8],
        width: usize,
        rows: &[u32],
    ) -> Vec<u8> {
        let mut target = vec![MaybeUninit::new(0xee); width * rows.len()];
        gather(values, width, rows, &mut target);
        // SAFETY: all of it was initialised above.
        target
            .iter()
            .map(|byte| unsafe { byte.assume_init() })
            .collect()
    }

    proptest! {
        #[test]
        fn every_width_is_gathered_as_by_the_scalar_twin(
            width in prop::sample::select(vec![1usize, 2, 3, 4, 5, 8, 12, 16, 32, 33]),
            count in 1u32..300,
            picks in prop::collection::vec(any::<u32>(), 0..700),
            (seed, follow) in (any::<u8>(), any::<bool>()),
        ) {
            let values: Vec<u8> = (0..count as usize * width)
                .map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed))
                .collect();
            let mut rows: Vec<u32> = picks.iter().map(|pick| pick % count).collect();
            if follow {
                rows = (0..count).skip(seed as usize).collect();
            }
            // SAFETY: rows are picked from those there are.
            let all_there = |values: &_, width, rows: &_, target: &mut _| unsafe {
                gather(values, width, rows, target);
            };
            prop_assert_eq!(
                run(all_there, &values, width, &rows),
                run(gather_scalar, &values, width, &rows)
            );
        }
    }
}

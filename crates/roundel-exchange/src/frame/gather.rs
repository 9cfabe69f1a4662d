//! Gathers values of one width: the innermost loop of SHUFFLE.
#![allow(unsafe_code)] // Without a check for each value: all rows have been checked before.

#[cfg(target_arch = "x86_64")]
use super::compress;
#[cfg(target_arch = "x86_64")]
use crate::selection::SPREAD_MAX;
use crate::selection::Selection;
use std::mem::MaybeUninit;

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
    rows: &Selection<'_>,
    target: &mut [MaybeUninit<u8>],
) {
    assert_eq!(target.len(), width * rows.len(), "room for the rows alone");
    if let Some(range) = rows.as_range() {
        target.write_copy_of_slice(&values[range.start * width..range.end * width]);
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if compress::is_available(width)
        && let Some(bits) = rows.bits()
        && rows.len() * SPREAD_MAX >= bits.end - bits.start
    {
        compress::compress(values, width, bits, target);
        return;
    }
    let rows = &*rows.numbers();
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

/// Whether values of this width are gathered without the numbers of their rows, where there are bits.
pub(super) fn needs_numbers(width: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    let needs = !compress::is_available(width);
    #[cfg(not(target_arch = "x86_64"))]
    let needs = width > 0;
    needs
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
    use crate::selection::RowsByPartition;
    use proptest::prelude::*;

    fn run(gather: impl Fn(&mut [MaybeUninit<u8>]), length: usize) -> Vec<u8> {
        let mut target = vec![MaybeUninit::new(0xee); length];
        gather(&mut target);
        // SAFETY: all of it was initialised above.
        target
            .iter()
            .map(|byte| unsafe { byte.assume_init() })
            .collect()
    }

    fn check(values: &[u8], width: usize, rows: Selection<'_>) -> Result<(), TestCaseError> {
        let length = width * rows.len();
        // SAFETY: rows are picked from those there are.
        let gathered = run(
            |target| unsafe { gather(values, width, &rows, target) },
            length,
        );
        let numbers = rows.numbers();
        let scalar = run(
            |target| gather_scalar(values, width, &numbers, target),
            length,
        );
        prop_assert_eq!(gathered, scalar);
        Ok(())
    }

    fn values(count: usize, width: usize, seed: u8) -> Vec<u8> {
        let value = |at| {
            (at as u8)
                .wrapping_mul(31)
                .wrapping_add((at >> 8) as u8 ^ seed)
        };
        (0..count * width).map(value).collect()
    }

    const WIDTHS: [usize; 10] = [1, 2, 3, 4, 5, 8, 12, 16, 32, 33];

    proptest! {
        #[test]
        fn every_width_is_gathered_as_by_the_scalar_twin(
            width in prop::sample::select(&WIDTHS),
            count in 1u32..300,
            picks in prop::collection::vec(any::<u32>(), 0..700),
            (seed, follow) in (any::<u8>(), any::<bool>()),
        ) {
            let values = values(count as usize, width, seed);
            let mut rows: Vec<u32> = picks.iter().map(|pick| pick % count).collect();
            if follow {
                rows = (0..count).skip(seed as usize).collect();
            }
            check(&values, width, Selection::from(&rows[..]))?;
        }

        #[test]
        fn so_are_partitions_in_parts(
            width in prop::sample::select(&WIDTHS),
            partitions in 1u32..10,
            picks in prop::collection::vec(any::<u32>(), 0..700),
            (seed, numbers) in (any::<u8>(), any::<bool>()),
            cut in any::<prop::sample::Index>(),
        ) {
            // The last of many picks are of one partition, so that there are whole words.
            let few = if seed % 2 == 0 { picks.len() } else { picks.len() / 2 };
            let target = |(row, pick): (usize, &u32)| if row < few { pick % partitions } else { 0 };
            let targets: Vec<u32> = picks.iter().enumerate().map(target).collect();
            let values = values(targets.len(), width, seed);
            let mut sorted = RowsByPartition::default();
            sorted.sort(&targets, partitions as usize, numbers).unwrap();
            for partition in 0..partitions as usize {
                let (first, rest) = sorted.of(partition).split_at(cut.index(targets.len() + 1));
                check(&values, width, first)?;
                check(&values, width, rest)?;
            }
        }
    }
}

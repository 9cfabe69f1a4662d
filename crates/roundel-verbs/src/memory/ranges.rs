//! A first-fit allocator of ranges: buffers come and go with endpoints, not with messages, so
//! that a plain map is fast enough.

use std::collections::BTreeMap;

/// Free ranges: offset to length, neighbours merged.
pub(crate) struct FreeRanges {
    ranges: BTreeMap<usize, usize>,
    /// Bytes free in all.
    pub(crate) bytes: usize,
}

impl FreeRanges {
    /// All of `0..length`.
    pub(crate) fn whole(length: usize) -> Self {
        Self {
            ranges: BTreeMap::from([(0, length)]),
            bytes: length,
        }
    }

    /// The offset of a range of `length`, first fit.
    pub(crate) fn take(&mut self, length: usize) -> Option<usize> {
        let (&offset, &available) = self.ranges.iter().find(|(_, free)| **free >= length)?;
        self.ranges.remove(&offset);
        if available > length {
            self.ranges.insert(offset + length, available - length);
        }
        self.bytes -= length;
        Some(offset)
    }

    /// Frees what `take` handed out.
    pub(crate) fn give_back(&mut self, mut offset: usize, mut length: usize) {
        self.bytes += length;
        if let Some(next) = self.ranges.remove(&(offset + length)) {
            length += next;
        }
        if let Some((&before, &free)) = self.ranges.range(..offset).next_back()
            && before + free == offset
        {
            self.ranges.remove(&before);
            offset = before;
            length += free;
        }
        self.ranges.insert(offset, length);
    }
}

#[cfg(test)]
mod tests {
    use super::FreeRanges;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_never_overlap_and_merge_again(sizes in prop::collection::vec(1usize..9, 1..40), order: u64) {
            let mut free = FreeRanges::whole(128);
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (step, size) in sizes.iter().enumerate() {
                if let Some(offset) = free.take(*size) {
                    prop_assert!(held.iter().all(|(o, s)| offset + size <= *o || o + s <= offset));
                    held.push((offset, *size));
                }
                if (order >> (step % 64)) & 1 == 1 && !held.is_empty() {
                    let (offset, size) = held.swap_remove(step % held.len());
                    free.give_back(offset, size);
                }
            }
            for (offset, size) in held {
                free.give_back(offset, size);
            }
            prop_assert_eq!(free.bytes, 128);
            prop_assert_eq!(free.ranges, std::collections::BTreeMap::from([(0, 128)]));
        }
    }
}

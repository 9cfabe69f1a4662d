//! The receiver's side of fragmentation: fragments, in any order, back into one aligned buffer.

use std::ops::Range;

use arrow::buffer::{Buffer, MutableBuffer};

use super::FrameError;
use super::layout::SECTION_ALIGNMENT;

// What Arrow allocates is aligned well enough for a frame to be decoded in place.
const _: () = assert!(arrow::alloc::ALIGNMENT.is_multiple_of(SECTION_ALIGNMENT));

/// Most holes that early fragments may leave in a frame at a time: far more than a network reorders,
/// few enough to be cheap to keep.
pub const HOLES_MAX: usize = 65_536;

/// Bytes reserved for a frame at once: most frames as a whole.
const RESERVED_BYTES_MAX: usize = 1 << 20;

/// A frame that is arriving.
///
/// Memory is taken as fragments arrive: what a sender announces and does not send costs little.
/// Fragments that arrive in order are appended, at the cost of one copy; those that arrive early
/// leave holes, which are remembered until they are filled.
#[derive(Debug)]
pub struct FrameAssembler {
    bytes: MutableBuffer,
    length: usize,
    /// Parts of `bytes` that have not arrived, in order, disjoint, none empty.
    holes: Vec<Range<usize>>,
    missing: usize,
    gap: usize,
}

impl FrameAssembler {
    /// For a frame of `length` bytes, whose fragments may come in any order.
    pub fn new(length: u32) -> Self {
        Self::with_gap(length, length as usize)
    }

    /// For a frame of `length` bytes, of which at most `gap` are missing before any fragment that
    /// arrives.
    pub fn with_gap(length: u32, gap: usize) -> Self {
        let length = length as usize;
        Self {
            bytes: MutableBuffer::with_capacity(length.min(RESERVED_BYTES_MAX)),
            length,
            holes: Vec::new(),
            missing: length,
            gap,
        }
    }

    /// Bytes of memory it holds.
    pub fn reserved(&self) -> usize {
        self.bytes.capacity()
    }

    /// Length of the whole frame in bytes.
    pub fn frame_length(&self) -> usize {
        self.length
    }

    /// Bytes that have not arrived yet; 0 when the frame is complete.
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// Puts a fragment in its place and returns whether the frame is complete now.
    ///
    /// # Errors
    /// When the fragment reaches beyond the frame, overlaps one that arrived before, or leaves more
    /// than [`HOLES_MAX`] holes or a larger gap than there may be; the frame is as it was.
    pub fn insert(&mut self, offset: usize, fragment: &[u8]) -> Result<bool, FrameError> {
        self.insert_with(offset, fragment.len(), |target| {
            target.copy_from_slice(fragment);
        })
    }

    /// The same for a fragment of `length` bytes that `fill` copies to its place.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert); `fill` is not called then.
    pub fn insert_with(
        &mut self,
        offset: usize,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<bool, FrameError> {
        let Some(end) = offset.checked_add(length).filter(|&end| end <= self.length) else {
            let frame_length = self.length;
            return Err(FrameError::FragmentBounds {
                offset,
                length,
                frame_length,
            });
        };
        if offset >= self.bytes.len() {
            if offset > self.bytes.len() && length > 0 {
                self.check_holes()?;
                let arrived = self.length - self.missing;
                if offset - arrived > self.gap {
                    return Err(FrameError::Scattered);
                }
                self.holes.push(self.bytes.len()..offset);
                self.bytes.resize(offset, 0);
            }
            self.bytes.resize(end, 0);
            fill(&mut self.bytes[offset..end]);
        } else if length > 0 {
            let hole = self.holes.partition_point(|hole| hole.end <= offset);
            match self.holes.get(hole).cloned() {
                Some(found) if found.start <= offset && end <= found.end => {
                    let rest = [found.start..offset, end..found.end];
                    self.check_holes()?;
                    let rest = rest.into_iter().filter(|rest| !rest.is_empty());
                    self.holes.splice(hole..=hole, rest);
                }
                _ => return Err(FrameError::FragmentOverlap { offset, length }),
            }
            fill(&mut self.bytes[offset..end]);
        }
        self.missing -= length;
        Ok(self.missing == 0)
    }

    /// True to the limit even when the next fragment splits a hole in two.
    fn check_holes(&self) -> Result<(), FrameError> {
        if self.holes.len() < HOLES_MAX {
            Ok(())
        } else {
            Err(FrameError::Scattered)
        }
    }

    /// The frame, ready for [`FrameDecoder::decode`](super::FrameDecoder::decode).
    ///
    /// # Errors
    /// When bytes are missing.
    pub fn finish(self) -> Result<Buffer, FrameError> {
        if self.missing > 0 {
            let (missing, frame_length) = (self.missing, self.length);
            return Err(FrameError::Incomplete {
                missing,
                frame_length,
            });
        }
        Ok(self.bytes.into())
    }
}

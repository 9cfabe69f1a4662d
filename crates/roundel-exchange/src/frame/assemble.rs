//! The receiver's side of fragmentation: fragments, in any order, back into one aligned buffer.

use std::ops::Range;

use arrow::buffer::{Buffer, MutableBuffer};

use super::FrameError;
use super::layout::SECTION_ALIGNMENT;

// What Arrow allocates is aligned well enough for a frame to be decoded in place.
const _: () = assert!(arrow::alloc::ALIGNMENT.is_multiple_of(SECTION_ALIGNMENT));

/// The bytes of a fragment, wherever they are.
pub trait Fragment {
    /// Appends all of them; false when they cannot be read, and nothing is appended.
    fn append_to(&mut self, target: &mut Vec<u8>) -> bool;

    /// Copies all of them to `target`, which has their length; false when they cannot be read.
    fn copy_to(&mut self, target: &mut [u8]) -> bool;

    /// All of them in memory of their own, where they are: a frame of one fragment need not be copied then.
    fn whole(&self) -> Option<Buffer> {
        None
    }
}

impl Fragment for &[u8] {
    fn append_to(&mut self, target: &mut Vec<u8>) -> bool {
        target.extend_from_slice(self);
        true
    }

    fn copy_to(&mut self, target: &mut [u8]) -> bool {
        target.copy_from_slice(self);
        true
    }
}

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
    bytes: Vec<u8>,
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
            bytes: Vec::with_capacity(length.min(RESERVED_BYTES_MAX)),
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
    /// Those of [`insert_from`](Self::insert_from).
    pub fn insert(&mut self, offset: usize, fragment: &[u8]) -> Result<bool, FrameError> {
        self.insert_from(offset, fragment.len(), fragment)
    }

    /// Puts a fragment of `length` bytes in its place and returns whether the frame is complete now.
    ///
    /// # Errors
    /// When the fragment reaches beyond the frame, overlaps one that arrived before, leaves more than
    /// [`HOLES_MAX`] holes or a larger gap than there may be, or cannot be read; nothing has arrived
    /// then.
    pub fn insert_from(
        &mut self,
        offset: usize,
        length: usize,
        mut fragment: impl Fragment,
    ) -> Result<bool, FrameError> {
        let unread = Err(FrameError::Unread { offset, length });
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
            if !fragment.append_to(&mut self.bytes) || self.bytes.len() != end {
                self.bytes.truncate(offset);
                return unread;
            }
        } else if length > 0 {
            let hole = self.holes.partition_point(|hole| hole.end <= offset);
            match self.holes.get(hole).cloned() {
                Some(found) if found.start <= offset && end <= found.end => {
                    let rest = [found.start..offset, end..found.end];
                    self.check_holes()?;
                    if !fragment.copy_to(&mut self.bytes[offset..end]) {
                        return unread;
                    }
                    let rest = rest.into_iter().filter(|rest| !rest.is_empty());
                    self.holes.splice(hole..=hole, rest);
                }
                _ => return Err(FrameError::FragmentOverlap { offset, length }),
            }
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
        Ok(aligned(self.bytes))
    }
}

/// A buffer of these bytes from which a frame can be decoded.
pub fn aligned(bytes: Vec<u8>) -> Buffer {
    let bytes = Buffer::from_vec(bytes);
    match bytes.as_ptr().align_offset(SECTION_ALIGNMENT) {
        0 => bytes,
        // No allocator is known that does this.
        _ => {
            let mut aligned = MutableBuffer::with_capacity(bytes.len());
            aligned.extend_from_slice(&bytes);
            aligned.into()
        }
    }
}

//! Registered memory of a node: pages of this process, whose remote addresses are the same in every run.

use crate::error::Result;
use crate::memory::{Pages, RemoteAddress};
use crate::provider::RawLocal;
use std::sync::Arc;

/// Between the remote addresses of two segments: more than any of them has.
const REMOTE_STRIDE_BITS: u32 = 40;

/// The segments of a node, by number. Keys are made of numbers, and neither begins at 0 nor opens as another
/// kind.
#[derive(Default)]
pub(super) struct Segments(Vec<Option<Segment>>);

#[derive(Clone)]
pub(super) struct Segment {
    pub pages: Arc<Pages>,
    pub number: usize,
    exposed: bool,
}

impl Segment {
    pub(super) fn local_key(&self) -> u32 {
        2 * self.number as u32 + 1
    }

    pub(super) fn remote_key(&self) -> u32 {
        match self.exposed {
            true => 2 * self.number as u32 + 2,
            false => 0,
        }
    }

    pub(super) fn remote_base(&self) -> u64 {
        (self.number as u64 + 1) << REMOTE_STRIDE_BITS
    }

    /// So far from its beginning, unless that is behind its end: requests come with any address.
    fn place(&self, offset: u64) -> Option<Place> {
        let offset = usize::try_from(offset).ok()?;
        (offset < self.pages.len()).then_some(Place {
            segment: self.number,
            offset,
        })
    }
}

/// Where memory is: a segment by its number, and how far from its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub segment: usize,
    pub offset: usize,
}

impl Segments {
    pub(super) fn register(&mut self, length: usize, exposed: bool) -> Result<Segment> {
        // Numbers are not used twice, so that memory that is gone stays gone.
        let segment = Segment {
            pages: Arc::new(Pages::map(length, None)?),
            number: self.0.len(),
            exposed,
        };
        self.0.push(Some(segment.clone()));
        Ok(segment)
    }

    pub(super) fn deregister(&mut self, number: usize) {
        if let Some(segment) = self.0.get_mut(number) {
            *segment = None;
        }
    }

    fn at(&self, number: u32) -> Option<&Segment> {
        self.0.get(number as usize)?.as_ref()
    }

    /// The segment of local memory.
    fn local_segment(&self, local: &RawLocal) -> Option<&Segment> {
        let number = local.local_key.checked_sub(1)?;
        self.at(number / 2).filter(|_| number.is_multiple_of(2))
    }

    /// The segment of exposed memory, and how far from its beginning an address is.
    fn exposed_segment(&self, at: RemoteAddress) -> Option<(&Segment, u64)> {
        let number = at.remote_key.checked_sub(2)?;
        let segment = self.at(number / 2).filter(|_| number.is_multiple_of(2))?;
        let offset = at.address.checked_sub(segment.remote_base())?;
        Some((segment, offset))
    }

    /// Where local memory is.
    pub(super) fn place(&self, local: &RawLocal) -> Option<Place> {
        let segment = self.local_segment(local)?;
        segment.place(local.address.checked_sub(segment.pages.base() as u64)?)
    }

    /// Where exposed memory is.
    pub(super) fn place_exposed(&self, at: RemoteAddress) -> Option<Place> {
        let (segment, offset) = self.exposed_segment(at)?;
        segment.place(offset)
    }

    /// The address of local memory, if its key covers it. No bytes need no key.
    pub(super) fn local(&self, local: &RawLocal) -> Option<*mut u8> {
        if local.length == 0 {
            return Some(std::ptr::NonNull::dangling().as_ptr());
        }
        let segment = self.local_segment(local)?;
        segment.pages.range(local.address, local.length)
    }

    /// The address of exposed memory, if the key covers it. No bytes need no key.
    pub(super) fn exposed(&self, at: RemoteAddress, length: usize) -> Option<*mut u8> {
        if length == 0 {
            return Some(std::ptr::NonNull::dangling().as_ptr());
        }
        let (segment, offset) = self.exposed_segment(at)?;
        let address = (segment.pages.base() as u64).checked_add(offset)?;
        segment
            .pages
            .range(address, length)
            .filter(|_| segment.exposed)
    }
}

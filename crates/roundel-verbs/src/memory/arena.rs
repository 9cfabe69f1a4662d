//! The arena: segments registered with the device, cut into buffers.
#![allow(unsafe_code)] // Clears memory of a segment.

use super::buffer::{Buffer, ExposedBuffer};
use super::segment::{Allocation, ProviderSegment, Segment};
use crate::error::{Result, VerbsError};
use crate::numa::Region;
use parking_lot::Mutex;
use std::sync::Arc;

/// Memory is registered in pages of this size, on every provider.
const PAGE_BYTES: usize = 4096;

/// Sizes of an arena.
#[derive(Clone, Copy, Debug)]
pub struct ArenaOptions {
    /// Most bytes registered at a time: the quota.
    pub registered_bytes_max: usize,
    /// Bytes of one segment; a larger allocation gets a segment of its own size.
    pub segment_bytes: usize,
}

impl Default for ArenaOptions {
    fn default() -> Self {
        Self {
            registered_bytes_max: 1 << 30,
            segment_bytes: 4 << 20,
        }
    }
}

/// What an arena holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaUsage {
    /// Bytes that are registered now.
    pub registered: usize,
    /// Highest value of `registered` so far.
    pub registered_max: usize,
    /// Bytes that are handed out in buffers now.
    pub allocated: usize,
}

/// Registered memory of a device. Clones share it.
#[derive(Clone)]
pub struct Arena {
    inner: Arc<ArenaInner>,
    /// Where buffers are wanted.
    region: Region,
}

/// Registers new memory: at least so many bytes, exposed to peers or not, on a NUMA node.
type Register = dyn Fn(usize, bool, Option<u32>) -> Result<Box<dyn ProviderSegment>> + Send + Sync;

struct ArenaInner {
    register: Box<Register>,
    options: ArenaOptions,
    state: Mutex<ArenaState>,
}

#[derive(Default)]
struct ArenaState {
    segments: Vec<Arc<Segment>>,
    usage: ArenaUsage,
}

impl ArenaState {
    /// A range of a segment such as is wanted.
    fn take(&self, length: usize, wanted: impl Fn(&Segment) -> bool) -> Option<Allocation> {
        let mut segments = self.segments.iter();
        segments.find_map(|segment| wanted(segment).then(|| segment.take(length))?)
    }
}

impl Arena {
    pub(crate) fn new(register: Box<Register>, options: ArenaOptions) -> Self {
        Self {
            inner: Arc::new(ArenaInner {
                register,
                options,
                state: Mutex::default(),
            }),
            region: Region::default(),
        }
    }

    /// The same memory, with the same quota, of which buffers are taken that lie in a NUMA region. Where the quota
    /// leaves none there, they lie elsewhere: [`Buffer::region`] says where.
    pub fn in_region(&self, region: Region) -> Self {
        Self {
            inner: self.inner.clone(),
            region,
        }
    }

    /// A buffer of `length` bytes that no peer can reach but through a posted request.
    pub fn allocate(&self, length: usize) -> Result<Buffer> {
        self.allocation(length, false).map(Buffer::new)
    }

    /// A buffer to fill or to read that can be [exposed](Buffer::expose) to peers. It holds what its last
    /// user left there.
    pub fn allocate_exposable(&self, length: usize) -> Result<Buffer> {
        self.allocation(length, true).map(Buffer::new)
    }

    /// A zeroed buffer that peers may read and write remotely.
    pub fn allocate_exposed(&self, length: usize) -> Result<ExposedBuffer> {
        let allocation = self.allocation(length, true)?;
        // SAFETY: the allocation is ours alone until its remote address is given to a peer.
        unsafe { std::ptr::write_bytes(allocation.base(), 0, allocation.len()) };
        Ok(ExposedBuffer::new(allocation))
    }

    /// Gives segments that no buffer uses back to the device. Returns the bytes given back.
    pub fn shrink(&self) -> usize {
        let mut state = self.inner.state.lock();
        let before = state.usage.registered;
        let idle: Vec<_> = state
            .segments
            .extract_if(.., |segment| !segment.is_in_use())
            .collect();
        state.usage.registered = registered(&state.segments);
        let given_back = before - state.usage.registered;
        // The device may take its time, in which others allocate.
        drop(state);
        drop(idle);
        given_back
    }

    /// What it holds now.
    pub fn usage(&self) -> ArenaUsage {
        let state = self.inner.state.lock();
        let free: usize = state.segments.iter().map(|s| s.free_bytes()).sum();
        ArenaUsage {
            allocated: state.usage.registered - free,
            ..state.usage
        }
    }

    /// Most bytes that may be registered at a time.
    pub fn quota(&self) -> usize {
        self.inner.options.registered_bytes_max
    }

    fn allocation(&self, length: usize, exposed: bool) -> Result<Allocation> {
        if length == 0 {
            return Err(VerbsError::InvalidRequest("a buffer of 0 bytes".into()));
        }
        let rounded = Segment::rounded(length)
            .ok_or_else(|| VerbsError::InvalidRequest(format!("a buffer of {length} bytes")))?;
        let mut state = self.inner.state.lock();
        let anywhere = |segment: &Segment| segment.exposed == exposed;
        let in_region = |segment: &Segment| segment.region == self.region && anywhere(segment);
        if let Some(allocation) = state.take(length, in_region) {
            return Ok(allocation);
        }
        let limit = self.inner.options.registered_bytes_max;
        let wanted = rounded.max(self.inner.options.segment_bytes);
        if wanted > limit.saturating_sub(state.usage.registered) {
            // A segment of the other kind may lie idle.
            state.segments.retain(|segment| segment.is_in_use());
            state.usage.registered = registered(&state.segments);
        }
        let room = limit.saturating_sub(state.usage.registered);
        // Whole pages only: a part of one would be registered as a page, above the quota.
        let size = wanted
            .checked_next_multiple_of(PAGE_BYTES)
            .unwrap_or(wanted)
            .min(room - room % PAGE_BYTES);
        if size < rounded {
            let elsewhere = state.take(length, anywhere);
            return elsewhere.ok_or(VerbsError::OutOfRegisteredMemory {
                requested: length,
                registered: state.usage.registered,
                limit,
            });
        }
        let registration = (self.inner.register)(size, exposed, self.region.node())?;
        let segment = Arc::new(Segment::new(registration, exposed, self.region));
        let allocation = segment
            .take(length)
            .ok_or_else(|| VerbsError::InvalidRequest("a segment smaller than asked for".into()))?;
        state.segments.push(segment);
        state.usage.registered = registered(&state.segments);
        state.usage.registered_max = state.usage.registered_max.max(state.usage.registered);
        Ok(allocation)
    }
}

fn registered(segments: &[Arc<Segment>]) -> usize {
    segments.iter().map(|s| s.len()).sum()
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena({:?})", self.usage())
    }
}

//! Registered memory: segments of the device's file, with a local key, and with a remote key and an
//! entry in the region table when peers may reach them.

use super::device::DeviceState;
use super::layout::{PAGE, REGIONS_MAX, SEGMENTS_AT};
use super::mapping::punch_hole;
use super::sync::Ordering;
use crate::error::{Result, VerbsError};
use crate::numa::{Placement, forget};
use crate::provider::ProviderSegment;
use std::sync::Arc;
use std::sync::atomic::fence;

/// Of a segment.
const INSIDE: &str = "a segment lies inside its device's memory";

impl DeviceState {
    pub(super) fn register(
        self: &Arc<Self>,
        length: usize,
        exposed: bool,
        node: Option<u32>,
    ) -> Result<ShmSegment> {
        let length = length.next_multiple_of(PAGE);
        let at = {
            let mut segments = self.segments.lock();
            let free = segments.bytes;
            segments
                .take(length)
                .ok_or(VerbsError::OutOfRegisteredMemory {
                    requested: length,
                    registered: self.capabilities.registered_bytes_max - free,
                    limit: self.capabilities.registered_bytes_max,
                })?
        };
        let at = (SEGMENTS_AT + at) as u64;
        let region = if exposed {
            self.free_regions.lock().pop()
        } else {
            None
        };
        if exposed && region.is_none() {
            self.segments
                .lock()
                .give_back(at as usize - SEGMENTS_AT, length);
            return Err(VerbsError::DeviceLimit {
                what: "exposed memory regions",
                requested: REGIONS_MAX + 1,
                limit: REGIONS_MAX,
            });
        }
        let placement = node.and_then(Placement::on);
        let placed = placement.is_some_and(|placement| {
            let base = self.mapping.segment_range(at, length);
            placement.prefer(base.expect(INSIDE).cast(), length)
        });
        let incarnation = self.new_incarnation();
        let mut remote_key = 0;
        if let Some(region) = region {
            let entry = self
                .mapping
                .region(region as usize)
                .expect("the index came from the free list");
            entry.offset.store(at, Ordering::Relaxed);
            entry.length.store(length as u64, Ordering::Relaxed);
            entry.incarnation.store(incarnation, Ordering::Release);
            remote_key = remote_key_of(region, incarnation);
        }
        self.local_keys.write().insert(incarnation, (at, length));
        Ok(ShmSegment {
            device: self.clone(),
            at,
            length,
            region,
            placed,
            local_key: incarnation,
            remote_key,
        })
    }
}

/// A remote key: which entry of the region table, and which life of it.
fn remote_key_of(region: u32, incarnation: u32) -> u32 {
    region | incarnation << 12
}

/// The region table's entry and the incarnation that a remote key names.
pub(super) fn split_remote_key(key: u32) -> (usize, u32) {
    const _: () = assert!(REGIONS_MAX == 1 << 12);
    ((key & 0xfff) as usize, key >> 12)
}

pub(super) struct ShmSegment {
    device: Arc<DeviceState>,
    at: u64,
    length: usize,
    region: Option<u32>,
    placed: bool,
    local_key: u32,
    remote_key: u32,
}

impl ProviderSegment for ShmSegment {
    fn base(&self) -> *mut u8 {
        self.device
            .mapping
            .segment_range(self.at, self.length)
            .expect(INSIDE)
    }

    fn remote_base(&self) -> u64 {
        self.at
    }

    fn len(&self) -> usize {
        self.length
    }

    fn local_key(&self) -> u32 {
        self.local_key
    }

    fn remote_key(&self) -> u32 {
        self.remote_key
    }
}

impl Drop for ShmSegment {
    fn drop(&mut self) {
        self.device.local_keys.write().remove(&self.local_key);
        let mut visitors = Vec::new();
        if let Some(region) = self.region {
            if let Some(entry) = self.device.mapping.region(region as usize) {
                entry.incarnation.store(0, Ordering::Release);
            }
            // Pairs with the fence on entering: a peer either finds the region gone or is seen.
            fence(Ordering::SeqCst);
            visitors = self.device.visitors();
        }
        let memory = SegmentMemory {
            device: self.device.clone(),
            at: self.at,
            length: self.length,
            region: self.region,
            placed: self.placed,
        };
        self.device.retire(visitors, Vec::new(), memory);
    }
}

/// What a segment leaves behind.
struct SegmentMemory {
    device: Arc<DeviceState>,
    at: u64,
    length: usize,
    region: Option<u32>,
    /// Its pages were asked for on a node.
    placed: bool,
}

impl Drop for SegmentMemory {
    fn drop(&mut self) {
        self.device.free_regions.lock().extend(self.region);
        punch_hole(&self.device.memory, self.at as usize, self.length);
        if self.placed
            && let Some(base) = self.device.mapping.segment_range(self.at, self.length)
        {
            forget(base.cast(), self.length);
        }
        self.device
            .segments
            .lock()
            .give_back(self.at as usize - SEGMENTS_AT, self.length);
    }
}

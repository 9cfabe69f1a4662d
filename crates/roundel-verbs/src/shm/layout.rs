//! The layout of a device's shared memory: one memfd that the owner and its peers map whole.
//!
//! ```text
//!   0            header: magic, version, process, sizes
//!   PAGE         memory regions:      REGIONS_MAX        × RegionEntry
//!   …            completion queues:   QUEUES_MAX         × QueueEntry (armed flag, channel)
//!   …            queue pairs:         QUEUE_PAIRS_MAX    × PairEntry
//!   RINGS_AT     receive rings
//!   SEGMENTS_AT  registered segments, as many bytes as the device was opened with
//! ```
//!
//! The file is sparse: only touched pages take memory, and pages of released ranges are punched
//! out again, but for short rings. Everything here is written by peers too, so it is atomics
//! throughout and no value is believed: whoever reads an offset or a length checks it against the
//! mapping.

use super::sync::{AtomicU32, AtomicU64, Ordering};

/// Version of this layout and of the hello that goes before it.
pub(super) const VERSION: u32 = 1;
/// First word of the header.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"roundel\x01");

/// Memory regions per device.
pub(super) const REGIONS_MAX: usize = 4096;
/// Completion queues per device.
pub(super) const QUEUES_MAX: usize = 4096;
/// Queue pairs per device.
pub(super) const QUEUE_PAIRS_MAX: usize = 8192;
/// Completion channels per device: each is an eventfd that goes to every peer with the hello.
pub(super) const CHANNELS_MAX: usize = 8;

pub(super) const PAGE: usize = 4096;
const REGIONS_AT: usize = PAGE;
const QUEUES_AT: usize = REGIONS_AT + REGIONS_MAX * size_of::<RegionEntry>();
const PAIRS_AT: usize = QUEUES_AT + QUEUES_MAX * size_of::<QueueEntry>();
/// Where receive rings start.
pub(super) const RINGS_AT: usize =
    (PAIRS_AT + QUEUE_PAIRS_MAX * size_of::<PairEntry>()).next_multiple_of(PAGE);
/// Where segments start.
pub(super) const SEGMENTS_AT: usize = 256 << 20;

#[cfg(not(roundel_loom))]
const _: () = assert!(RINGS_AT < SEGMENTS_AT);
#[cfg(not(roundel_loom))]
const _: () = assert!(size_of::<Header>() <= PAGE);
#[cfg(not(roundel_loom))]
const _: () = assert!(size_of::<RegionEntry>() == 32);
#[cfg(not(roundel_loom))]
const _: () = assert!(size_of::<QueueEntry>() == 64);
#[cfg(not(roundel_loom))]
const _: () = assert!(size_of::<PairEntry>() == 256);
#[cfg(not(roundel_loom))]
const _: () = assert!(size_of::<SlotEntry>() == 64);

/// The first page.
#[repr(C)]
pub(super) struct Header {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    pub process: AtomicU32,
    pub file_bytes: AtomicU64,
}

/// A registered, exposed region. Its remote key is the entry's index and `incarnation`.
#[repr(C)]
pub(super) struct RegionEntry {
    /// 0 when the entry is free.
    pub incarnation: AtomicU32,
    pub _pad: AtomicU32,
    pub offset: AtomicU64,
    pub length: AtomicU64,
    pub _pad2: AtomicU64,
}

/// What a peer must know of a completion queue: whether it is armed, and which channel to wake.
#[repr(C, align(64))]
pub(super) struct QueueEntry {
    pub armed: AtomicU32,
    /// Index of the channel's eventfd; `NO_CHANNEL` for none.
    pub channel: AtomicU32,
}

/// [`QueueEntry::channel`] of a queue without a channel.
pub(super) const NO_CHANNEL: u32 = u32::MAX;

/// A cache line, so that what one side writes does not slow the other side's reads down.
#[repr(C, align(64))]
pub(super) struct Line<T>(pub T);

impl<T> std::ops::Deref for Line<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// What a peer must know of a queue pair: a line that rarely changes, one for each direction of
/// its receive ring, and one for what it does at its peer.
#[repr(C, align(128))]
pub(super) struct PairEntry {
    /// Incarnation and one of the `PAIR_` states, see [`life`]; 0 when the entry was never used.
    pub life: AtomicU64,
    pub queue_key: AtomicU32,
    /// Entry of the receive completion queue.
    pub receive_queue: AtomicU32,
    /// Entry of the send completion queue.
    pub send_queue: AtomicU32,
    /// Slots of the receive ring.
    pub ring_slots: AtomicU32,
    /// Offset of the receive ring.
    pub ring_at: AtomicU64,
    /// RC: number and incarnation of the one queue pair that may send here.
    pub peer_pair: AtomicU64,
    /// Receives posted so far, by the owner.
    pub posted: Line<AtomicU64>,
    /// What peers write.
    pub peers: Line<PeerWords>,
    /// RC: odd while this queue pair is inside an operation on its peer's memory. Here and not in
    /// the peer's entry, so that a stale peer cannot spoil it.
    pub inside: Line<AtomicU64>,
}

/// The words of a queue pair's entry that peers write.
#[repr(C)]
pub(super) struct PeerWords {
    /// RC: receives completed so far, by the peer. UD: next sequence to claim, by all peers.
    pub taken: AtomicU64,
    /// RC: 1 when the peer has a SEND that waits for a receive here.
    pub waiting: AtomicU32,
}

/// The word that says which incarnation of a queue pair is in which state.
pub(super) fn life(incarnation: u32, state: u32) -> u64 {
    u64::from(incarnation) << 32 | u64::from(state)
}

/// Not in use.
pub(super) const PAIR_RESET: u32 = 0;
/// Created, and not connected yet.
pub(super) const PAIR_INIT: u32 = 1;
/// Ready to receive and send.
pub(super) const PAIR_READY: u32 = 2;
/// Broken: it carries nothing any more.
pub(super) const PAIR_ERROR: u32 = 3;

/// A posted receive, and where its completion is written.
#[repr(C, align(64))]
pub(super) struct SlotEntry {
    /// UD: who may do what with the slot; see [`super::datagram_ring`].
    pub claim: AtomicU64,
    /// Offset in the owner's file of the memory to fill; 0 for none.
    pub at: AtomicU64,
    /// Bytes to fill at most.
    pub length: AtomicU32,
    /// Payload bytes written.
    pub bytes: AtomicU32,
    pub immediate: AtomicU32,
    /// `HAS_IMMEDIATE`, `TOO_LONG`, `WRITTEN`.
    pub flags: AtomicU32,
    /// UD: the sending queue pair.
    pub source_pair: AtomicU32,
}

impl SlotEntry {
    /// As in a file that nobody has written to.
    pub(super) fn clear(&self) {
        let Self {
            claim,
            at,
            length,
            bytes,
            immediate,
            flags,
            source_pair,
        } = self;
        for word in [claim, at] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [length, bytes, immediate, flags, source_pair] {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// The message carried immediate data.
pub(super) const HAS_IMMEDIATE: u32 = 1;
/// The message did not fit in the posted receive.
pub(super) const TOO_LONG: u32 = 2;
/// The bytes went to exposed memory, not to the posted receive.
pub(super) const WRITTEN: u32 = 4;

/// Byte offset of a memory region's entry.
pub(super) fn region_at(index: usize) -> usize {
    REGIONS_AT + index * size_of::<RegionEntry>()
}

/// Byte offset of a completion queue's entry.
pub(super) fn queue_at(index: usize) -> usize {
    QUEUES_AT + index * size_of::<QueueEntry>()
}

/// Byte offset of a queue pair's entry.
pub(super) fn pair_at(index: usize) -> usize {
    PAIRS_AT + index * size_of::<PairEntry>()
}

//! A shared-memory device: its memory, its peers, and the tables its objects live in.

use super::connected_ring::Posted;
use super::hello::{self, Hello, ShmAddress};
use super::layout::{
    CHANNELS_MAX, PAGE, QUEUE_PAIRS_MAX, QUEUES_MAX, REGIONS_MAX, RINGS_AT, SEGMENTS_AT, SlotEntry,
};
use super::mapping::{Mapping, punch_hole};
use super::peer::Peer;
use super::peers::PeerTable;
use super::sync::Ordering;
use super::visitor::{Claim, Retired, Visitor};
use super::watch_list::WatchList;
use crate::address::DeviceAddress;
use crate::capabilities::{Capabilities, GRH_BYTES};
use crate::counters::{CounterSnapshot, Counters};
use crate::error::{Result, VerbsError};
use crate::memory::FreeRanges;
use crate::provider::{ProviderQueuePair, RawCompletion, RawLocal};
use crate::queue_pair::Transport;
use crate::work::INLINE_BYTES_MAX;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, fence};
use std::sync::{Arc, Weak};

/// How often it is looked whether memory is free before the device's thread is left to it.
const QUIESCE_SPINS: usize = 1000;

/// Released rings of at most so many bytes keep their memory.
const RING_KEPT_BYTES: usize = 64 << 10;

/// How a shared-memory device is opened.
#[derive(Clone, Copy, Debug)]
pub struct ShmOptions {
    /// Room for registered memory, in bytes. Only what is registered takes memory.
    pub registered_bytes_max: usize,
    /// Whether peers' memory may be read at once. Without, all READs go through the queue, as with
    /// devices that do not map it.
    pub reads_at_once: bool,
}

impl Default for ShmOptions {
    fn default() -> Self {
        Self {
            registered_bytes_max: 16 << 30,
            reads_at_once: true,
        }
    }
}

/// A device without its thread yet, and where its peers will knock.
pub(super) fn create(options: ShmOptions) -> Result<(Arc<DeviceState>, OwnedFd)> {
    let registered_bytes_max = options.registered_bytes_max.next_multiple_of(PAGE);
    let (mapping, memory) = Mapping::create(registered_bytes_max)?;
    let mut eventfds = Vec::with_capacity(CHANNELS_MAX);
    for _ in 0..CHANNELS_MAX {
        eventfds.push(eventfd()?);
    }
    let eventfds: [OwnedFd; CHANNELS_MAX] = eventfds
        .try_into()
        .expect("as many were made as the array has");
    let address = ShmAddress {
        id: rand::random(),
        secret: rand::random(),
        host: hello::host_id()?,
        process: std::process::id(),
    };
    let listener = hello::listen(&address.id)?;
    let state = Arc::new(DeviceState {
        capabilities: Capabilities {
            provider: "shm",
            device: "shared memory".to_owned(),
            transports: Transport::ALL.to_vec(),
            queue_pairs_max: QUEUE_PAIRS_MAX - 1,
            work_requests_max: 16 << 10,
            completion_queues_max: QUEUES_MAX,
            completions_max: usize::MAX,
            completion_channels_max: CHANNELS_MAX,
            inline_bytes_max: INLINE_BYTES_MAX,
            rc_message_bytes_max: 1 << 30,
            ud_message_bytes_max: 4096,
            grh_bytes: GRH_BYTES,
            registered_bytes_max,
            outstanding_reads_max: 128,
            reads_at_once: options.reads_at_once,
            exposes_all_memory: false,
            atomics: true,
            immediate_data: true,
            shared_receive_queues_max: 0,
            shared_receives_max: 0,
            multicast_groups_max: 0,
            write_in_address_order: true,
            write_whole_words: true,
            progress_without_polling: false,
            waits_for_connection: true,
            waits_for_receive: true,
            completes_on_arrival: true,
            breaks_with_peer: true,
            same_host_only: true,
            networked: false,
        },
        address,
        mapping: Arc::new(mapping),
        memory,
        eventfds: Arc::new(eventfds),
        free_channels: Mutex::new((0..CHANNELS_MAX).rev().collect()),
        free_queues: Mutex::new((0..QUEUES_MAX as u32).rev().collect()),
        // No queue pair has number 0, as on real devices.
        free_pairs: Mutex::new((1..QUEUE_PAIRS_MAX as u32).collect()),
        free_regions: Mutex::new((0..REGIONS_MAX as u32).rev().collect()),
        rings: Mutex::new(FreeRanges::whole(SEGMENTS_AT - RINGS_AT)),
        segments: Mutex::new(FreeRanges::whole(registered_bytes_max)),
        local_keys: RwLock::default(),
        incarnations: AtomicU32::new(1),
        peers: PeerTable::default(),
        pairs: RwLock::default(),
        retired: Mutex::default(),
        counters: Mutex::default(),
        watch_list: WatchList {
            watched: Mutex::default(),
            wake: eventfd()?,
        },
    });
    state.add_self();
    Ok((state, listener))
}

fn eventfd() -> Result<OwnedFd> {
    use rustix::event::{EventfdFlags, eventfd};
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(VerbsError::system("eventfd"))
}

/// A queue pair, as far as its device and its completion queues ask something of it.
pub(super) trait Pair: ProviderQueuePair {
    fn number(&self) -> u32;
    /// Breaks a reliable connection if `peer` is at its other end. A datagram queue pair is woken
    /// to look after its receives, one of which the peer may have died in.
    fn peer_died(&self, peer: &Arc<Peer>);
    /// The peer's queue pair, if it is inside an operation on this device's memory.
    fn visitor(&self) -> Option<Visitor>;
    /// A completion of the send queue was polled: there is room for one more.
    fn send_polled(&self);
    /// Tries the sends again that wait for the receiver.
    fn progress(&self);
    /// Appends at most `limit` completions of receives.
    fn poll_receives(&self, completions: &mut Vec<RawCompletion>, limit: usize);
}

/// What the handle that users hold and the device's objects share.
pub(super) struct DeviceState {
    pub capabilities: Capabilities,
    pub address: ShmAddress,
    pub mapping: Arc<Mapping>,
    pub memory: OwnedFd,
    pub eventfds: Arc<[OwnedFd; CHANNELS_MAX]>,
    pub free_channels: Mutex<Vec<usize>>,
    pub free_queues: Mutex<Vec<u32>>,
    /// First in, first out: a stale peer must not meet its number in a new life soon.
    pub free_pairs: Mutex<VecDeque<u32>>,
    pub free_regions: Mutex<Vec<u32>>,
    rings: Mutex<FreeRanges>,
    pub segments: Mutex<FreeRanges>,
    /// Local key to offset and length.
    pub local_keys: RwLock<HashMap<u32, (u64, usize)>>,
    incarnations: AtomicU32,
    pub peers: PeerTable,
    /// Queue pairs by number, for those who must hear of a peer's death.
    pub pairs: RwLock<HashMap<u32, Weak<dyn Pair>>>,
    /// Memory not in use any more that a peer may still be at work in.
    retired: Mutex<Vec<Retired>>,
    /// Of destroyed queue pairs.
    counters: Mutex<CounterSnapshot>,
    pub watch_list: WatchList,
}

impl DeviceState {
    /// A number that no other queue pair or region of this device has had lately; never 0.
    pub(super) fn new_incarnation(&self) -> u32 {
        loop {
            let incarnation = self.incarnations.fetch_add(1, Ordering::Relaxed)
                % super::datagram_ring::INCARNATIONS;
            if incarnation != 0 {
                return incarnation;
            }
        }
    }

    fn add_self(self: &Arc<Self>) {
        self.peers.insert_self(&Arc::new(Peer::new(
            self.address.id,
            self.mapping.clone(),
            self.eventfds.clone(),
            self.peers.offer_token(),
            "this process".into(),
        )));
    }

    /// The peer of an address, connecting to it first if need be.
    pub(super) fn peer(&self, address: &DeviceAddress) -> Result<Arc<Peer>> {
        let address = ShmAddress::decode(address)?;
        if let Some(peer) = self.peers.get(&address.id) {
            return Ok(peer);
        }
        if address.host != self.address.host {
            return Err(VerbsError::PeerUnreachable {
                peer: address.name(),
                reason: "it runs on another host; shared memory joins processes of one host only"
                    .into(),
            });
        }
        let token = self.peers.offer_token();
        self.introduce(&address, token)
            .inspect_err(|_| self.peers.withdraw_token(token))
    }

    fn introduce(&self, address: &ShmAddress, token: u32) -> Result<Arc<Peer>> {
        let socket = hello::connect(address)?;
        self.send_hello(&socket, address.secret, token)?;
        let (theirs, descriptors) = hello::receive(&socket, &address.name())?;
        if theirs.id != address.id || theirs.secret != address.secret {
            return Err(VerbsError::InvalidAddress(
                "another device answered at the peer's socket".into(),
            ));
        }
        let peer = self.peers.insert(&theirs, descriptors, token)?;
        self.watch_list.watch(socket, peer.clone());
        Ok(peer)
    }

    /// Answers the hello that came over an accepted connection.
    pub(super) fn welcome(&self, socket: OwnedFd) -> Result<()> {
        let (theirs, descriptors) = hello::receive(&socket, "a connecting process")?;
        if theirs.secret != self.address.secret {
            return Err(VerbsError::InvalidAddress(
                "the connecting process does not know this device's secret".into(),
            ));
        }
        let token = self.peers.offer_token();
        let peer = self
            .send_hello(&socket, theirs.secret, token)
            .and_then(|()| self.peers.insert(&theirs, descriptors, token))
            .inspect_err(|_| self.peers.withdraw_token(token))?;
        self.watch_list.watch(socket, peer);
        Ok(())
    }

    fn send_hello(&self, socket: &OwnedFd, secret: [u8; 16], token: u32) -> Result<()> {
        let hello = Hello {
            id: self.address.id,
            secret,
            token,
            process: self.address.process,
        };
        hello::send(socket, &hello, &self.memory, &self.eventfds)
    }

    /// A peer's connection ended: its queue pairs break, whoever waits is woken.
    pub(super) fn peer_died(&self, peer: &Arc<Peer>) {
        tracing::debug!(peer = %peer.name, "a peer device is gone");
        peer.mark_dead();
        self.peers.remove(peer);
        // Pairs with the fence in `connect`: either we find its remote or it sees the death.
        fence(Ordering::SeqCst);
        for pair in self.living_pairs() {
            pair.peer_died(peer);
        }
    }

    fn living_pairs(&self) -> Vec<Arc<dyn Pair>> {
        self.pairs
            .read()
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Forgets a queue pair that is being destroyed, but not what it did.
    pub(super) fn forget_pair(&self, number: u32, counters: &Counters) {
        let mut pairs = self.pairs.write();
        pairs.remove(&number);
        self.counters.lock().merge(&counters.snapshot());
    }

    /// Of all queue pairs, the destroyed ones too.
    pub(super) fn counters(&self) -> CounterSnapshot {
        // The lock keeps a queue pair from being counted twice, or not at all.
        let pairs = self.pairs.read();
        let mut sum = *self.counters.lock();
        for pair in pairs.values().filter_map(Weak::upgrade) {
            sum.merge(&pair.counters().snapshot());
        }
        sum
    }

    /// Drops `kept`, which frees memory, as soon as nobody is inside it any more: now, or later
    /// on the device's thread.
    pub(super) fn retire(
        &self,
        visitors: Vec<Visitor>,
        claims: Vec<Claim>,
        kept: impl std::any::Any + Send,
    ) {
        let retired = Retired {
            visitors,
            claims,
            _kept: Box::new(kept),
        };
        for _ in 0..QUIESCE_SPINS {
            if retired.is_quiescent(&self.mapping, &self.peers) {
                return;
            }
            std::hint::spin_loop();
        }
        self.retired.lock().push(retired);
        self.watch_list.wake();
    }

    pub(super) fn has_retired(&self) -> bool {
        !self.retired.lock().is_empty()
    }

    /// Frees the retired memory that nobody is inside of any more.
    pub(super) fn sweep_retired(&self) {
        let done: Vec<Retired> = {
            let mut retired = self.retired.lock();
            let (done, busy) = std::mem::take(&mut *retired)
                .into_iter()
                .partition(|entry| entry.is_quiescent(&self.mapping, &self.peers));
            *retired = busy;
            done
        };
        // Outside of the lock: freeing memory may retire more.
        drop(done);
    }

    /// Whoever is inside this device's memory now, also through queue pairs that are gone here.
    /// A fence separates this from whatever shut them out.
    pub(super) fn visitors(&self) -> Vec<Visitor> {
        let mut visitors: Vec<Visitor> = self
            .living_pairs()
            .iter()
            .filter_map(|pair| pair.visitor())
            .collect();
        for retired in self.retired.lock().iter() {
            visitors.extend(retired.visitors.iter().cloned());
        }
        visitors
    }

    pub(super) fn allocate_ring(&self, bytes: usize) -> Result<u64> {
        let at = self
            .rings
            .lock()
            .take(bytes)
            .ok_or(VerbsError::DeviceLimit {
                what: "bytes of receive rings",
                requested: bytes,
                limit: SEGMENTS_AT - RINGS_AT,
            })?;
        Ok((RINGS_AT + at) as u64)
    }

    pub(super) fn free_ring(&self, at: u64, bytes: usize) {
        let at = at as usize;
        let count = (bytes / size_of::<SlotEntry>()) as u32;
        let kept = self.mapping.slots(at as u64, count);
        // Fresh zeroes: a stale claim must find nothing it knows. Most rings are short, and a hole costs
        // all cores that map it an interruption.
        match kept.filter(|_| bytes <= RING_KEPT_BYTES) {
            Some(slots) => slots.iter().for_each(SlotEntry::clear),
            None => punch_hole(&self.memory, at, bytes),
        }
        self.rings.lock().give_back(at - RINGS_AT, bytes);
    }

    /// The address of local memory, if its key covers it.
    pub(super) fn local_memory(&self, local: &RawLocal) -> Option<*mut u8> {
        let at = self.local_offset(local)?;
        self.mapping.segment_range(at, local.length)
    }

    /// What to post for a receive into local memory.
    pub(super) fn receive_memory(&self, local: &RawLocal) -> Result<Posted> {
        if local.length == 0 {
            return Ok(Posted { at: 0, length: 0 });
        }
        let at = self.local_offset(local).ok_or_else(|| {
            VerbsError::InvalidRequest("a receive into memory of another device".into())
        })?;
        let length = u32::try_from(local.length)
            .map_err(|_| VerbsError::InvalidRequest("a receive of 4 GiB or more".into()))?;
        Ok(Posted { at, length })
    }

    /// The file offset of local memory, if its key covers it.
    fn local_offset(&self, local: &RawLocal) -> Option<u64> {
        let at = self.mapping.offset_of(local.address)?;
        let (segment_at, segment_length) = *self.local_keys.read().get(&local.local_key)?;
        let end = at.checked_add(local.length as u64)?;
        (at >= segment_at && end <= segment_at + segment_length as u64).then_some(at)
    }
}

impl Drop for DeviceState {
    fn drop(&mut self) {
        // The thread holds a weak reference only: woken, it finds the device gone and ends.
        self.watch_list.wake();
    }
}

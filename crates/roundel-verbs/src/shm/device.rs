//! A shared-memory device: its memory, its peers, and the tables its objects live in.

use super::completion_queue::{ShmChannel, ShmCompletionQueue};
use super::datagram_ring::TOKENS;
use super::hello::{self, Descriptors, Hello, ShmAddress};
use super::layout::{
    CHANNELS_MAX, PAGE, QUEUE_PAIRS_MAX, QUEUES_MAX, REGIONS_MAX, RINGS_AT, SEGMENTS_AT,
};
use super::mapping::{Mapping, punch_hole};
use super::monitor::{self, Monitor};
use super::peer::{DeviceId, Peer};
use super::queue_pair::{Retired, ShmAddressHandle, ShmQueuePair};
use super::sync::Ordering;
use crate::address::{DeviceAddress, QueuePairAddress};
use crate::capabilities::{Capabilities, GRH_BYTES};
use crate::counters::Counters;
use crate::device::Device;
use crate::error::{Result, VerbsError};
use crate::memory::FreeRanges;
use crate::provider::{
    ProviderAddressHandle, ProviderChannel, ProviderCompletionQueue, ProviderDevice,
    ProviderQueuePair, ProviderSegment, RawQueuePairOptions,
};
use crate::work::INLINE_BYTES_MAX;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};

/// How a shared-memory device is opened.
#[derive(Clone, Copy, Debug)]
pub struct ShmOptions {
    /// Room for registered memory, in bytes. Only what is registered takes memory.
    pub registered_bytes_max: usize,
}

impl Default for ShmOptions {
    fn default() -> Self {
        Self {
            registered_bytes_max: 16 << 30,
        }
    }
}

/// Opens a device in shared memory. Its peers are other devices of this host, in this process or
/// in others of the same user.
pub fn open(options: ShmOptions) -> Result<Device> {
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
            queue_pairs_max: QUEUE_PAIRS_MAX - 1,
            work_requests_max: 16 << 10,
            completion_queues_max: QUEUES_MAX,
            completion_channels_max: CHANNELS_MAX,
            inline_bytes_max: INLINE_BYTES_MAX,
            rc_message_bytes_max: 1 << 30,
            ud_message_bytes_max: 4096,
            grh_bytes: GRH_BYTES,
            registered_bytes_max,
            outstanding_reads_max: 128,
            write_in_address_order: true,
            same_host_only: true,
        },
        address,
        mapping: Arc::new(mapping),
        memory,
        eventfds: Arc::new(eventfds),
        free_channels: Mutex::new((0..CHANNELS_MAX).rev().collect()),
        free_queues: Mutex::new((0..QUEUES_MAX as u32).rev().collect()),
        // Number 0 is nobody's, as on real devices.
        free_pairs: Mutex::new((1..QUEUE_PAIRS_MAX as u32).collect()),
        free_regions: Mutex::new((0..REGIONS_MAX as u32).rev().collect()),
        rings: Mutex::new(FreeRanges::whole(SEGMENTS_AT - RINGS_AT)),
        segments: Mutex::new(FreeRanges::whole(registered_bytes_max)),
        local_keys: RwLock::default(),
        incarnations: AtomicU32::new(1),
        tokens: AtomicU32::new(1),
        peers: RwLock::default(),
        pairs: RwLock::default(),
        retired: Mutex::default(),
        counters: Counters::default(),
        monitor: Monitor::new()?,
    });
    state.add_self();
    monitor::start(&state, listener)?;
    Ok(Device::new(Arc::new(ShmDevice(state))))
}

pub(super) fn eventfd() -> Result<OwnedFd> {
    use rustix::event::{EventfdFlags, eventfd};
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(VerbsError::system("eventfd"))
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
    free_regions: Mutex<Vec<u32>>,
    rings: Mutex<FreeRanges>,
    segments: Mutex<FreeRanges>,
    /// Local key to offset and length.
    local_keys: RwLock<HashMap<u32, (u64, usize)>>,
    incarnations: AtomicU32,
    tokens: AtomicU32,
    peers: RwLock<Peers>,
    /// Queue pairs by number, for those who must hear of a peer's death.
    pub pairs: RwLock<HashMap<u32, Weak<ShmQueuePair>>>,
    /// Memory of destroyed queue pairs that a peer may still be writing into.
    pub retired: Mutex<Vec<Retired>>,
    pub counters: Counters,
    pub monitor: Monitor,
}

#[derive(Default)]
struct Peers {
    by_id: HashMap<DeviceId, Arc<Peer>>,
    /// Who the claimers in our datagram rings are.
    by_token: HashMap<u32, Weak<Peer>>,
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

    /// A name for a peer in our datagram rings.
    pub(super) fn new_token(&self) -> u32 {
        self.tokens.fetch_add(1, Ordering::Relaxed) % TOKENS
    }

    fn add_self(self: &Arc<Self>) {
        let token = self.new_token();
        let peer = Arc::new(Peer::new(
            self.address.id,
            self.mapping.clone(),
            self.eventfds.clone(),
            token,
            "this process".into(),
        ));
        let mut peers = self.peers.write();
        peers.by_token.insert(token, Arc::downgrade(&peer));
        peers.by_id.insert(self.address.id, peer);
    }

    /// Takes a peer in whose hello has been checked. `token` is who it is in our rings.
    pub(super) fn add_peer(
        &self,
        theirs: Hello,
        descriptors: Descriptors,
        token: u32,
        socket: OwnedFd,
    ) -> Result<Arc<Peer>> {
        let mut peers = self.peers.write();
        let peer = match peers.by_id.get(&theirs.id) {
            // Both sides may connect at once: the mapping that is there stays.
            Some(peer) if !peer.is_dead() => peer.clone(),
            _ => {
                let mapping = Mapping::of_peer(&descriptors.memory)?;
                let peer = Arc::new(Peer::new(
                    theirs.id,
                    Arc::new(mapping),
                    Arc::new(descriptors.eventfds),
                    theirs.token,
                    format!("process {}", theirs.process),
                ));
                peers.by_id.insert(theirs.id, peer.clone());
                peer
            }
        };
        peers.by_token.insert(token, Arc::downgrade(&peer));
        drop(peers);
        self.monitor.watch(socket, peer.clone());
        Ok(peer)
    }

    /// The peer of an address, connecting to it first if need be.
    pub(super) fn peer(&self, address: &DeviceAddress) -> Result<Arc<Peer>> {
        let address = ShmAddress::decode(address)?;
        if let Some(peer) = self.peers.read().by_id.get(&address.id)
            && !peer.is_dead()
        {
            return Ok(peer.clone());
        }
        if address.host != self.address.host {
            return Err(VerbsError::PeerUnreachable {
                peer: address.name(),
                reason: "it runs on another host; shared memory joins processes of one host only"
                    .into(),
            });
        }
        let socket = hello::connect(&address)?;
        let token = self.new_token();
        hello::send(
            &socket,
            &Hello {
                id: self.address.id,
                secret: address.secret,
                token,
                process: self.address.process,
            },
            &self.memory,
            &self.eventfds,
        )?;
        let (theirs, descriptors) = hello::receive(&socket, &address.name())?;
        if theirs.id != address.id || theirs.secret != address.secret {
            return Err(VerbsError::InvalidAddress(
                "another device answered at the peer's socket".into(),
            ));
        }
        self.add_peer(theirs, descriptors, token, socket)
    }

    /// Whether the peer behind a token is gone.
    pub(super) fn token_is_dead(&self, token: u32) -> bool {
        let peers = self.peers.read();
        match peers.by_token.get(&token).map(Weak::upgrade) {
            Some(Some(peer)) => peer.is_dead(),
            // Forgotten, or a token that nobody was given.
            Some(None) | None => true,
        }
    }

    /// A peer's connection ended: its queue pairs break, whoever waits is woken.
    pub(super) fn peer_died(&self, peer: &Arc<Peer>) {
        peer.mark_dead();
        {
            let mut peers = self.peers.write();
            if peers
                .by_id
                .get(&peer.id)
                .is_some_and(|known| Arc::ptr_eq(known, peer))
            {
                peers.by_id.remove(&peer.id);
            }
        }
        let pairs: Vec<_> = self.pairs.read().values().filter_map(Weak::upgrade).collect();
        for pair in pairs {
            pair.peer_died(peer);
        }
        self.sweep_retired();
    }

    /// Frees the memory of destroyed queue pairs that nobody writes into any more.
    pub(super) fn sweep_retired(&self) {
        let done: Vec<Retired> = {
            let mut retired = self.retired.lock();
            let (done, busy) = std::mem::take(&mut *retired)
                .into_iter()
                .partition(|entry| entry.quiescent(self));
            *retired = busy;
            done
        };
        drop(done);
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
        // Fresh zeroes: a stale claim must find nothing it knows.
        punch_hole(&self.memory, at, bytes);
        self.rings.lock().give_back(at - RINGS_AT, bytes);
    }

    /// The file offset of local memory, if its key covers it.
    pub(super) fn local_offset(&self, address: u64, length: usize, key: u32) -> Option<u64> {
        let at = self.mapping.offset_of(address)?;
        let (segment_at, segment_length) = *self.local_keys.read().get(&key)?;
        let end = at.checked_add(length as u64)?;
        (at >= segment_at && end <= segment_at + segment_length as u64).then_some(at)
    }

    fn register(self: &Arc<Self>, length: usize, exposed: bool) -> Result<ShmSegment> {
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

struct ShmDevice(Arc<DeviceState>);

impl ProviderDevice for ShmDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    fn address(&self) -> DeviceAddress {
        self.0.address.encode()
    }

    fn register_segment(&self, length: usize, exposed: bool) -> Result<Box<dyn ProviderSegment>> {
        self.0.sweep_retired();
        Ok(Box::new(self.0.register(length, exposed)?))
    }

    fn create_channel(&self) -> Result<Arc<dyn ProviderChannel>> {
        Ok(Arc::new(ShmChannel::create(&self.0)?))
    }

    fn create_completion_queue(
        &self,
        _depth: usize,
        channel: Option<&Arc<dyn ProviderChannel>>,
    ) -> Result<Arc<dyn ProviderCompletionQueue>> {
        Ok(Arc::new(ShmCompletionQueue::create(&self.0, channel)?))
    }

    fn create_queue_pair(
        &self,
        options: RawQueuePairOptions,
    ) -> Result<Arc<dyn ProviderQueuePair>> {
        self.0.sweep_retired();
        Ok(ShmQueuePair::create(&self.0, options)?)
    }

    fn create_address_handle(
        &self,
        remote: &QueuePairAddress,
    ) -> Result<Arc<dyn ProviderAddressHandle>> {
        let peer = self.0.peer(&remote.device)?;
        Ok(Arc::new(ShmAddressHandle {
            peer,
            number: remote.number,
            incarnation: remote.incarnation,
            queue_key: remote.queue_key,
        }))
    }

    fn counters(&self) -> &Counters {
        &self.0.counters
    }
}

impl Drop for DeviceState {
    fn drop(&mut self) {
        // The thread holds a weak reference only: woken, it finds the device gone and ends.
        self.monitor.wake();
    }
}

struct ShmSegment {
    device: Arc<DeviceState>,
    at: u64,
    length: usize,
    region: Option<u32>,
    local_key: u32,
    remote_key: u32,
}

impl ProviderSegment for ShmSegment {
    fn base(&self) -> *mut u8 {
        self.device
            .mapping
            .segment_range(self.at, self.length)
            .expect("a segment lies inside its device's memory")
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
        if let Some(region) = self.region {
            if let Some(entry) = self.device.mapping.region(region as usize) {
                entry.incarnation.store(0, Ordering::SeqCst);
            }
            self.device.free_regions.lock().push(region);
        }
        self.device.local_keys.write().remove(&self.local_key);
        punch_hole(&self.device.memory, self.at as usize, self.length);
        self.device
            .segments
            .lock()
            .give_back(self.at as usize - SEGMENTS_AT, self.length);
    }
}

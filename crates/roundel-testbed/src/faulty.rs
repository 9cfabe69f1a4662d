//! A device that wraps another and loses, repeats and holds back what is posted to it.
//!
//! Memory stays valid without copies. What is held back has not been posted yet, and its sender keeps it until it
//! completes. What is repeated is posted before the request it repeats, so that it has completed first. A datagram
//! that is lost travels to a queue pair without receives; a WRITE that is lost goes without its bytes, and does nothing.
//!
//! Reliable connections lose and repeat nothing; what they hold back holds back what follows.
//!
//! It must not know what messages say: a [`Judge`] decides about each.
#![allow(unsafe_code)] // Implements the provider's unsafe post verbs.

use parking_lot::Mutex;
use roundel_verbs::counters::Counters;
use roundel_verbs::error::Result;
use roundel_verbs::provider::*;
use roundel_verbs::{
    Buffer, Capabilities, CompletionStatus, CounterSnapshot, Device, DeviceAddress, MulticastGroup,
    QueuePairAddress, QueuePairState, RemoteAddress, Transport,
};
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Of a repetition: nobody has this mark, so that its completion is dropped. It is the last that RDMA devices have room
/// for.
const REPEATED: u64 = (1 << 24) - 1;
/// What is held back gets a turn at least so often.
const TURN: Duration = Duration::from_millis(1);

/// What becomes of something that was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes as it is.
    Delivered,
    /// It never comes.
    Lost,
    /// Delivered twice.
    Repeated,
    /// Delivered after as many later ones, or as many milliseconds.
    HeldBack(u32),
    /// Delivered, and once more after as many later ones, or as many milliseconds.
    RepeatedLater(u32),
}

/// Something that is posted.
pub struct Posted<'a> {
    /// The service of its queue pair.
    pub transport: Transport,
    request: &'a RawSendRequest,
}

impl Posted<'_> {
    /// The first bytes of a message, as many as that or all that it has. Only of one that is sent, or written.
    pub fn first_bytes(&self, most: usize) -> &[u8] {
        let bytes = match &self.request.inline {
            Some(inline) => inline.as_slice(),
            None if self.request.local.length == 0 => &[],
            // SAFETY: whoever posts a request vouches for its memory, which nobody writes before it completes.
            None => unsafe {
                std::slice::from_raw_parts(
                    self.request.local.address as *const u8,
                    self.request.local.length,
                )
            },
        };
        &bytes[..bytes.len().min(most)]
    }
}

/// Decides what becomes of what is posted. On a reliable connection that is to be delivered, or held back.
pub type Judge = Box<dyn FnMut(&Posted<'_>) -> Fate + Send>;

/// Wraps a device.
///
/// # Panics
/// When it has no datagrams, of which it needs a queue pair.
pub fn wrap(device: &Device, judge: Judge) -> Device {
    let inner = device.provider().clone();
    let queue = inner.create_completion_queue(1, None);
    let queue = queue.expect("a device has room for a completion queue");
    let nowhere = inner.create_queue_pair(RawQueuePairOptions {
        transport: Transport::UnreliableDatagram,
        send_queue: queue.clone(),
        receive_queue: queue,
        send_depth: 1,
        receive_depth: 1,
        rnr_retry: 0,
        queue_key: 0,
        shared_receive_queue: None,
    });
    let nowhere = nowhere.expect("the device has datagrams");
    let activated = nowhere.connect(None);
    activated.expect("a queue pair for datagrams needs no peer");
    let to_nowhere = inner.create_address_handle(&nowhere.address());
    let faults = Arc::new(Faults {
        judge: Mutex::new(judge),
        to_nowhere: to_nowhere.expect("a device reaches itself"),
        nowhere,
        pairs: Mutex::default(),
    });
    let clock = Arc::downgrade(&faults);
    std::thread::spawn(move || tick(&clock));
    Device::new(Arc::new(FaultyDevice { inner, faults }))
}

/// Lets go what was held back when nothing follows it.
fn tick(clock: &Weak<Faults>) {
    while let Some(faults) = clock.upgrade() {
        let mut pairs: Vec<_> = Vec::new();
        faults.pairs.lock().retain(|pair| {
            pairs.extend(pair.upgrade());
            pair.strong_count() > 0
        });
        drop(faults);
        for pair in pairs {
            pair.age();
        }
        std::thread::sleep(TURN);
    }
}

struct Faults {
    judge: Mutex<Judge>,
    nowhere: Arc<dyn ProviderQueuePair>,
    to_nowhere: Arc<dyn ProviderAddressHandle>,
    pairs: Mutex<Vec<Weak<FaultyQueuePair>>>,
}

impl Drop for Faults {
    fn drop(&mut self) {
        self.nowhere.destroy(Vec::new());
    }
}

struct FaultyDevice {
    inner: Arc<dyn ProviderDevice>,
    faults: Arc<Faults>,
}

impl ProviderDevice for FaultyDevice {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn address(&self) -> DeviceAddress {
        self.inner.address()
    }

    fn register_segment(
        &self,
        length: usize,
        exposed: bool,
        node: Option<u32>,
    ) -> Result<Box<dyn ProviderSegment>> {
        self.inner.register_segment(length, exposed, node)
    }

    fn create_channel(&self) -> Result<Arc<dyn ProviderChannel>> {
        self.inner.create_channel()
    }

    fn create_completion_queue(
        &self,
        depth: usize,
        channel: Option<&Arc<dyn ProviderChannel>>,
    ) -> Result<Arc<dyn ProviderCompletionQueue>> {
        self.inner.create_completion_queue(depth, channel)
    }

    fn create_queue_pair(
        &self,
        options: RawQueuePairOptions,
    ) -> Result<Arc<dyn ProviderQueuePair>> {
        let pair = Arc::new(FaultyQueuePair {
            transport: options.transport,
            inner: self.inner.create_queue_pair(options)?,
            faults: self.faults.clone(),
            held: Mutex::default(),
        });
        self.faults.pairs.lock().push(Arc::downgrade(&pair));
        Ok(pair)
    }

    fn create_address_handle(
        &self,
        remote: &QueuePairAddress,
    ) -> Result<Arc<dyn ProviderAddressHandle>> {
        self.inner.create_address_handle(remote)
    }

    fn counters(&self) -> CounterSnapshot {
        self.inner.counters()
    }

    fn create_shared_receive_queue(
        &self,
        depth: usize,
    ) -> Result<Arc<dyn ProviderSharedReceiveQueue>> {
        self.inner.create_shared_receive_queue(depth)
    }

    fn create_multicast_handle(
        &self,
        group: &MulticastGroup,
    ) -> Result<Arc<dyn ProviderAddressHandle>> {
        self.inner.create_multicast_handle(group)
    }
}

struct FaultyQueuePair {
    transport: Transport,
    inner: Arc<dyn ProviderQueuePair>,
    faults: Arc<Faults>,
    held: Mutex<VecDeque<Held>>,
}

struct Held {
    request: RawSendRequest,
    turns: u32,
}

impl FaultyQueuePair {
    fn post(&self, request: &RawSendRequest) -> Result<bool> {
        // SAFETY: the request was accepted from a caller who keeps its memory until it completes.
        let posted = unsafe { self.inner.post_send(std::slice::from_ref(request)) };
        Ok(posted? == 1)
    }

    fn is_reliable(&self) -> bool {
        self.transport == Transport::ReliableConnection
    }

    /// Posts those whose time has come, as far as there is room.
    fn age(&self) {
        let mut blocked = false;
        self.held.lock().retain_mut(|held| {
            held.turns = held.turns.saturating_sub(1);
            // What broke meanwhile takes it, and says that it failed.
            let stays =
                held.turns > 0 || blocked || !self.post(&held.request).is_ok_and(|posted| posted);
            blocked |= stays && self.is_reliable();
            stays
        });
    }

    fn hold(&self, request: &RawSendRequest, turns: u32) {
        self.held.lock().push_back(Held {
            request: copy(request),
            // Posting it is itself a turn.
            turns: turns + 1,
        });
    }

    /// Whether there was room for it.
    fn accept(&self, request: &RawSendRequest) -> Result<bool> {
        let posted = Posted {
            transport: self.transport,
            request,
        };
        let fate = (self.faults.judge.lock())(&posted);
        match fate {
            Fate::Delivered if self.is_reliable() && !self.held.lock().is_empty() => {
                self.hold(request, 0);
                return Ok(true);
            }
            Fate::Delivered => return self.post(request),
            Fate::HeldBack(turns) => {
                self.hold(request, turns);
                return Ok(true);
            }
            Fate::Lost | Fate::Repeated | Fate::RepeatedLater(_) => {}
        }
        assert!(!self.is_reliable(), "{fate:?} on a reliable connection");
        match fate {
            Fate::Lost if request.destination.is_some() => self.post(&RawSendRequest {
                destination: Some(self.faults.to_nowhere.clone()),
                ..copy(request)
            }),
            Fate::Lost => self.post(&RawSendRequest {
                inline: None,
                local: RawLocal::default(),
                ..copy(request)
            }),
            _ => {
                // Where there is no room for it, it is not.
                self.post(&RawSendRequest {
                    id: REPEATED,
                    ..copy(request)
                })?;
                match fate {
                    Fate::RepeatedLater(turns) => self.hold(request, turns),
                    _ => return self.post(request),
                }
                Ok(true)
            }
        }
    }
}

fn copy(request: &RawSendRequest) -> RawSendRequest {
    RawSendRequest {
        id: request.id,
        operation: request.operation,
        inline: request.inline,
        local: request.local,
        destination: request.destination.clone(),
    }
}

impl ProviderQueuePair for FaultyQueuePair {
    fn address(&self) -> QueuePairAddress {
        self.inner.address()
    }

    fn state(&self) -> QueuePairState {
        self.inner.state()
    }

    fn connect(&self, remote: Option<&QueuePairAddress>) -> Result<()> {
        self.inner.connect(remote)
    }

    fn modify_to_error(&self) {
        self.inner.modify_to_error();
    }

    unsafe fn post_send(&self, requests: &[RawSendRequest]) -> Result<usize> {
        for (accepted, request) in requests.iter().enumerate() {
            if !self.accept(request)? {
                return Ok(accepted);
            }
            self.age();
        }
        Ok(requests.len())
    }

    unsafe fn post_receive(&self, requests: &[RawReceiveRequest]) -> Result<usize> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.post_receive(requests) }
    }

    fn read_at_once(
        &self,
        from: RemoteAddress,
        target: &mut [MaybeUninit<u8>],
    ) -> Option<CompletionStatus> {
        self.inner.read_at_once(from, target)
    }

    fn join_multicast(&self, group: &MulticastGroup) -> Result<()> {
        self.inner.join_multicast(group)
    }

    fn counters(&self) -> &Counters {
        self.inner.counters()
    }

    fn destroy(&self, posted: Vec<Buffer>) {
        // What was held back is lost: its memory is about to be freed.
        self.held.lock().clear();
        self.inner.destroy(posted);
    }
}

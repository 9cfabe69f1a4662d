//! A provider that wraps another and loses, repeats and holds back datagrams.
//!
//! Memory stays valid without copies. A message that is held back has not been posted yet, and its
//! sender keeps it until it completes. A repetition is posted before the message it repeats, so it
//! has completed first. A message that is lost travels to a queue pair without receives.
#![allow(unsafe_code)] // Implements the provider's unsafe post verbs.

use parking_lot::Mutex;
use roundel_exchange::wire::{HEADER_LENGTH, Header, Kind};
use roundel_verbs::error::Result;
use roundel_verbs::provider::*;
use roundel_verbs::{
    Buffer, Capabilities, CounterSnapshot, Device, DeviceAddress, MulticastGroup, QueuePairAddress,
    QueuePairState, Transport, counters::Counters, shm,
};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Delivered,
    Lost,
    /// Delivered twice.
    Repeated,
    /// Delivered after as many later ones, or as many milliseconds.
    HeldBack(u32),
    /// Delivered, and once more after as many later ones, or as many milliseconds.
    RepeatedLater(u32),
}

/// Decides about a message, of whose kind so many were sent before by the device.
pub type Judge = Box<dyn FnMut(&Header, u64) -> Fate + Send>;

/// A device in shared memory whose datagrams `judge` decides about. Needs a tokio runtime.
pub fn open(judge: Judge) -> Device {
    let inner = shm::open(shm::ShmOptions::default())
        .unwrap()
        .provider()
        .clone();
    let queue = inner.create_completion_queue(1, None).unwrap();
    let nowhere = inner
        .create_queue_pair(RawQueuePairOptions {
            transport: Transport::UnreliableDatagram,
            send_queue: queue.clone(),
            receive_queue: queue,
            send_depth: 1,
            receive_depth: 1,
            rnr_retry: 0,
            queue_key: 0,
            shared_receive_queue: None,
        })
        .unwrap();
    nowhere.connect(None).unwrap();
    let to_nowhere = inner.create_address_handle(&nowhere.address()).unwrap();
    let faults = Arc::new(Faults {
        judge: Mutex::new((judge, HashMap::new())),
        nowhere,
        to_nowhere,
        pairs: Mutex::default(),
    });
    tokio::spawn(clock(Arc::downgrade(&faults)));
    Device::new(Arc::new(FaultyDevice { inner, faults }))
}

/// Lets messages go that were held back when nothing follows them.
async fn clock(faults: Weak<Faults>) {
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let Some(faults) = faults.upgrade() else {
            return;
        };
        let pairs: Vec<_> = faults.pairs.lock().clone();
        for pair in pairs.iter().filter_map(Weak::upgrade) {
            pair.age();
        }
    }
}

struct Faults {
    judge: Mutex<(Judge, HashMap<Kind, u64>)>,
    nowhere: Arc<dyn ProviderQueuePair>,
    to_nowhere: Arc<dyn ProviderAddressHandle>,
    pairs: Mutex<Vec<Weak<FaultyQueuePair>>>,
}

impl Faults {
    fn judge(&self, request: &RawSendRequest) -> Fate {
        let bytes = match &request.inline {
            Some(inline) => inline.as_slice(),
            // SAFETY: whoever posts a request vouches for its memory, which nobody writes.
            None => unsafe {
                std::slice::from_raw_parts(
                    request.local.address as *const u8,
                    request.local.length.min(HEADER_LENGTH),
                )
            },
        };
        let header = Header::parse(bytes[..HEADER_LENGTH].try_into().unwrap())
            .expect("an exchange sends messages");
        let (judge, counts) = &mut *self.judge.lock();
        let count = counts.entry(header.kind()).or_default();
        *count += 1;
        judge(&header, *count - 1)
    }
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

    fn register_segment(&self, length: usize, exposed: bool) -> Result<Box<dyn ProviderSegment>> {
        self.inner.register_segment(length, exposed)
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
        let transport = options.transport;
        let inner = self.inner.create_queue_pair(options)?;
        if transport != Transport::UnreliableDatagram {
            return Ok(inner);
        }
        let pair = Arc::new(FaultyQueuePair {
            inner,
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
}

struct FaultyQueuePair {
    inner: Arc<dyn ProviderQueuePair>,
    faults: Arc<Faults>,
    held: Mutex<Vec<Held>>,
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

    /// Posts those whose time has come, as far as there is room.
    fn age(&self) {
        self.held.lock().retain_mut(|held| {
            held.turns = held.turns.saturating_sub(1);
            held.turns > 0 || !self.post(&held.request).unwrap()
        });
    }

    fn accept(&self, request: &RawSendRequest) -> Result<bool> {
        let fate = self.faults.judge(request);
        if let Fate::Repeated | Fate::RepeatedLater(_) = fate {
            // Nobody knows this mark: its completion is dropped.
            let again = RawSendRequest {
                id: u64::MAX,
                ..copy(request)
            };
            self.post(&again)?;
        }
        match fate {
            Fate::Delivered | Fate::Repeated => self.post(request),
            Fate::Lost => self.post(&RawSendRequest {
                destination: Some(self.faults.to_nowhere.clone()),
                ..copy(request)
            }),
            Fate::HeldBack(turns) | Fate::RepeatedLater(turns) => {
                self.held.lock().push(Held {
                    request: copy(request),
                    turns: turns + 1,
                });
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

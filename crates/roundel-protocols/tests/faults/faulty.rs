//! A device that wraps another and loses, repeats and holds back what is posted to it.
//!
//! Memory stays valid without copies. What is held back has not been posted yet, and its sender keeps it until it
//! completes. What is repeated is posted before the request it repeats, so that it has completed first. What is lost
//! goes without its bytes: a WRITE of none does nothing, a datagram of none says nothing.
//!
//! Reliable connections lose and repeat nothing; what they hold back holds back what follows.
#![allow(unsafe_code)] // Implements the provider's unsafe post verbs.

use parking_lot::Mutex;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use roundel_verbs::counters::Counters;
use roundel_verbs::error::Result;
use roundel_verbs::provider::*;
use roundel_verbs::{
    Buffer, Capabilities, CounterSnapshot, Device, DeviceAddress, MulticastGroup, QueuePairAddress,
    QueuePairState, Transport,
};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Most milliseconds, or requests posted meanwhile, that something is held back.
const TURNS_MAX: u32 = 8;
/// Of a repetition: nobody knows this mark, so that its completion is dropped.
const REPEATED: u64 = u64::MAX;

/// Shares of what goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lost: f64,
    pub repeated: f64,
    pub late: f64,
}

/// Wraps a device.
pub fn wrap(device: &Device, faults: Faults, seed: u64) -> Device {
    let shared = Arc::new(Shared {
        faults,
        random: Mutex::new(ChaCha8Rng::seed_from_u64(seed)),
        pairs: Mutex::default(),
    });
    let clock = Arc::downgrade(&shared);
    std::thread::spawn(move || tick(&clock));
    Device::new(Arc::new(Faulty {
        inner: device.provider().clone(),
        shared,
    }))
}

/// Lets go what was held back when nothing follows it.
fn tick(clock: &Weak<Shared>) {
    while let Some(shared) = clock.upgrade() {
        let pairs: Vec<_> = shared
            .pairs
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        drop(shared);
        for pair in pairs {
            pair.age();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Shared {
    faults: Faults,
    random: Mutex<ChaCha8Rng>,
    pairs: Mutex<Vec<Weak<Pair>>>,
}

struct Faulty {
    inner: Arc<dyn ProviderDevice>,
    shared: Arc<Shared>,
}

impl ProviderDevice for Faulty {
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
        let reliable = options.transport == Transport::ReliableConnection;
        let pair = Arc::new(Pair {
            inner: self.inner.create_queue_pair(options)?,
            shared: self.shared.clone(),
            reliable,
            held: Mutex::default(),
        });
        self.shared.pairs.lock().push(Arc::downgrade(&pair));
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

struct Pair {
    inner: Arc<dyn ProviderQueuePair>,
    shared: Arc<Shared>,
    reliable: bool,
    held: Mutex<VecDeque<Held>>,
}

struct Held {
    request: RawSendRequest,
    turns: u32,
}

impl Pair {
    fn post(&self, request: &RawSendRequest) -> Result<bool> {
        // SAFETY: the request was accepted from a caller who keeps its memory until it completes.
        let posted = unsafe { self.inner.post_send(std::slice::from_ref(request)) };
        Ok(posted? == 1)
    }

    /// Posts what was held back long enough, as far as there is room.
    fn age(&self) {
        let mut held = self.held.lock();
        let mut waits = false;
        held.retain_mut(|held| {
            held.turns = held.turns.saturating_sub(1);
            let stays = held.turns > 0 || (waits && self.reliable);
            waits |= stays || !self.post(&held.request).is_ok_and(|posted| posted);
            waits
        });
    }

    fn accept(&self, request: &RawSendRequest) -> Result<bool> {
        let Faults {
            lost,
            repeated,
            late,
        } = self.shared.faults;
        let (drawn, turns) = {
            let mut random = self.shared.random.lock();
            (random.random::<f64>(), random.random_range(1..=TURNS_MAX))
        };
        if self.reliable {
            let mut held = self.held.lock();
            if drawn < late || !held.is_empty() {
                let request = copy(request);
                held.push_back(Held { request, turns });
                return Ok(true);
            }
            return self.post(request);
        }
        if drawn < lost {
            return self.post(&RawSendRequest {
                inline: None,
                local: RawLocal::default(),
                ..copy(request)
            });
        }
        let repeats = drawn < lost + repeated;
        if repeats {
            // Where there is no room for it, it is not.
            self.post(&RawSendRequest {
                id: REPEATED,
                ..copy(request)
            })?;
        }
        // Every other repetition comes late.
        let is_late = drawn < lost + repeated + late;
        if is_late && !(repeats && turns.is_multiple_of(2)) {
            let request = copy(request);
            self.held.lock().push_back(Held { request, turns });
            return Ok(true);
        }
        self.post(request)
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

impl ProviderQueuePair for Pair {
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

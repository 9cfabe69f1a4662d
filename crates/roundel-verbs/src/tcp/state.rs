//! What the handle of a TCP device and its objects share: the tables that they live in, and their
//! numbers. Knows of queue pairs only what their traits say.

use super::address::TcpAddress;
use super::events::{Events, Timed};
use super::hello::Hello;
use super::memory::Registry;
use crate::capabilities::Capabilities;
use crate::counters::{CounterSnapshot, Counters};
use crate::error::{Result, VerbsError};
use crate::provider::{ProviderQueuePair, RawSendRequest};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Numbers below are those of datagram queue pairs: their ports.
const FIRST_STREAM: u32 = 1 << 16;

/// A connected queue pair, which peers call.
pub(super) trait Callee: ProviderQueuePair + Timed {
    fn incarnation(&self) -> u32;

    /// A peer calls.
    fn called(&self, hello: &Hello, socket: Arc<OwnedFd>, token: u64);
}

/// What the handle that users hold and the device's objects share.
pub(super) struct DeviceState {
    pub capabilities: Capabilities,
    pub address: TcpAddress,
    pub listener: OwnedFd,
    pub events: Arc<Events>,
    /// Connections whose hello has not come.
    pub incoming: Arc<AtomicUsize>,
    pub memory: Arc<Registry>,
    numbers: AtomicU32,
    incarnations: AtomicU32,
    pub streams: RwLock<HashMap<u32, Weak<dyn Callee>>>,
    pub datagrams: RwLock<HashMap<u32, Weak<dyn ProviderQueuePair>>>,
    /// Of destroyed queue pairs.
    counters: Mutex<CounterSnapshot>,
}

impl DeviceState {
    pub(super) fn create(
        capabilities: Capabilities,
        address: TcpAddress,
        listener: OwnedFd,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            capabilities,
            address,
            listener,
            events: Arc::new(Events::new()?),
            incoming: Arc::default(),
            memory: Arc::default(),
            numbers: AtomicU32::new(FIRST_STREAM),
            incarnations: AtomicU32::new(rand::random()),
            streams: RwLock::default(),
            datagrams: RwLock::default(),
            counters: Mutex::default(),
        }))
    }

    /// A number that no other queue pair has.
    pub(super) fn new_number(&self) -> u32 {
        loop {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            if number >= FIRST_STREAM && !self.streams.read().contains_key(&number) {
                return number;
            }
        }
    }

    pub(super) fn new_incarnation(&self) -> u32 {
        self.incarnations.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn stream(&self, number: u32) -> Option<Arc<dyn Callee>> {
        self.streams.read().get(&number)?.upgrade()
    }

    /// The socket of a token concerns nobody any more.
    pub(super) fn forget(&self, token: u64) {
        self.events.forget(token);
    }

    /// Forgets a queue pair that is being destroyed, but not what it did.
    pub(super) fn forget_stream(&self, number: u32, counters: &Counters) {
        let mut streams = self.streams.write();
        streams.remove(&number);
        self.counters.lock().merge(&counters.snapshot());
    }

    /// As for connected ones.
    pub(super) fn forget_datagrams(&self, number: u32, counters: &Counters) {
        let mut datagrams = self.datagrams.write();
        datagrams.remove(&number);
        self.counters.lock().merge(&counters.snapshot());
    }

    /// Of all queue pairs that are there or were.
    pub(super) fn counters(&self) -> CounterSnapshot {
        // The locks keep a queue pair from being counted twice, or not at all.
        let streams = self.streams.read();
        let datagrams = self.datagrams.read();
        let mut sum = *self.counters.lock();
        for pair in streams.values().filter_map(Weak::upgrade) {
            sum.merge(&pair.counters().snapshot());
        }
        for pair in datagrams.values().filter_map(Weak::upgrade) {
            sum.merge(&pair.counters().snapshot());
        }
        sum
    }

    pub(super) fn within_queue_pairs(&self) -> Result<()> {
        let requested = self.streams.read().len() + self.datagrams.read().len() + 1;
        if requested > self.capabilities.queue_pairs_max {
            return Err(VerbsError::DeviceLimit {
                what: "queue pairs",
                requested,
                limit: self.capabilities.queue_pairs_max,
            });
        }
        Ok(())
    }
}

impl Drop for DeviceState {
    fn drop(&mut self) {
        // The thread holds a weak reference only: woken, it finds the device gone and ends. What
        // queue pairs left behind is closed now, so that peers learn of it.
        self.events.forget_all();
        self.events.wake();
    }
}

/// Refuses messages that are too long.
pub(super) fn longer_than(limit: usize, requests: &[RawSendRequest]) -> Result<()> {
    match requests.iter().find(|request| request.local.length > limit) {
        None => Ok(()),
        Some(request) => Err(VerbsError::InvalidRequest(format!(
            "a message of {} bytes, at most {limit} fit",
            request.local.length
        ))),
    }
}

pub(super) fn no_multicast(device: &DeviceState) -> VerbsError {
    VerbsError::Unsupported {
        provider: device.capabilities.provider,
        what: "multicast",
    }
}

//! A TCP device: its listener, its thread, and the tables its objects live in.

use super::address::TcpAddress;
use super::completion_queue::{TcpChannel, TcpCompletionQueue};
use super::connection::StreamPair;
use super::datagram::{DatagramPair, TcpAddressHandle};
use super::events::{self, Events, Source, now};
use super::memory::Registry;
use super::socket;
use crate::address::{DeviceAddress, QueuePairAddress};
use crate::capabilities::{Capabilities, GRH_BYTES};
use crate::counters::{CounterSnapshot, Counters};
use crate::device::Device;
use crate::error::{Result, VerbsError};
use crate::provider::{
    ProviderAddressHandle, ProviderChannel, ProviderCompletionQueue, ProviderDevice,
    ProviderQueuePair, ProviderSegment, RawQueuePairOptions, RawSendRequest,
};
use crate::queue_pair::Transport;
use crate::work::INLINE_BYTES_MAX;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Most queue pairs at a time. Each takes a descriptor, of which the system may grant fewer.
const QUEUE_PAIRS_MAX: usize = 32 << 10;
/// Numbers below are those of datagram queue pairs: their ports.
const FIRST_STREAM: u32 = 1 << 16;

/// How a TCP device is opened.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptions {
    /// The address of this host under which peers reach it, IPv4 or IPv6. Ports are chosen by the
    /// system.
    pub address: IpAddr,
}

/// Opens a device over sockets. Its peers are other devices of this provider, on any host that
/// reaches the address.
///
/// # Errors
/// When the address is not one of this host, or is none that peers could connect to.
pub fn open(options: TcpOptions) -> Result<Device> {
    if options.address.is_unspecified() || options.address.is_multicast() {
        return Err(VerbsError::InvalidAddress(format!(
            "peers cannot connect to {}: open the device with an address of this host",
            options.address
        )));
    }
    let (listener, at) = socket::listen(options.address)?;
    let state = Arc::new(DeviceState {
        capabilities: Capabilities {
            provider: "tcp",
            device: options.address.to_string(),
            transports: Transport::ALL.to_vec(),
            queue_pairs_max: QUEUE_PAIRS_MAX,
            work_requests_max: 16 << 10,
            completion_queues_max: usize::MAX,
            completions_max: usize::MAX,
            completion_channels_max: usize::MAX,
            inline_bytes_max: INLINE_BYTES_MAX,
            rc_message_bytes_max: 1 << 30,
            ud_message_bytes_max: 4096,
            grh_bytes: GRH_BYTES,
            registered_bytes_max: usize::MAX,
            outstanding_reads_max: super::connection::RETURNING_MAX,
            reads_at_once: false,
            atomics: true,
            shared_receive_queues_max: 0,
            shared_receives_max: 0,
            multicast_groups_max: 0,
            write_in_address_order: true,
            // When the system copies from a socket, a piece may end, for a moment, within a word.
            write_whole_words: false,
            progress_without_polling: true,
            waits_for_connection: true,
            breaks_with_peer: true,
            same_host_only: false,
            networked: true,
        },
        address: TcpAddress {
            listener: at,
            id: rand::random(),
            secret: rand::random(),
        },
        listener,
        events: Arc::new(Events::new()?),
        incoming: Arc::default(),
        memory: Arc::default(),
        numbers: AtomicU32::new(FIRST_STREAM),
        incarnations: AtomicU32::new(rand::random()),
        streams: RwLock::default(),
        datagrams: RwLock::default(),
        counters: Mutex::default(),
    });
    state.events.watch(&state.listener, Source::Listener)?;
    events::start(&state)?;
    Ok(Device::new(Arc::new(TcpDevice(state))))
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
    pub streams: RwLock<HashMap<u32, Weak<StreamPair>>>,
    pub datagrams: RwLock<HashMap<u32, Weak<DatagramPair>>>,
    /// Of destroyed queue pairs.
    counters: Mutex<CounterSnapshot>,
}

impl DeviceState {
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

    pub(super) fn stream(&self, number: u32) -> Option<Arc<StreamPair>> {
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

    /// What is looked after now and then.
    pub(super) fn sweep(&self) {
        let now = now();
        for token in self.events.late(now) {
            self.forget(token);
        }
        // In case there were no descriptors when somebody connected.
        self.accept_all();
        let pairs: Vec<_> = self
            .streams
            .read()
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        for pair in pairs {
            pair.time_passed(now);
        }
    }

    fn within_queue_pairs(&self) -> Result<()> {
        let requested = self.streams.read().len() + self.datagrams.read().len() + 1;
        if requested > QUEUE_PAIRS_MAX {
            return Err(VerbsError::DeviceLimit {
                what: "queue pairs",
                requested,
                limit: QUEUE_PAIRS_MAX,
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

pub(super) fn queue_of_this_provider(
    queue: Arc<dyn ProviderCompletionQueue>,
) -> Result<Arc<TcpCompletionQueue>> {
    let any: Arc<dyn std::any::Any + Send + Sync> = queue;
    any.downcast()
        .map_err(|_| VerbsError::InvalidRequest("a completion queue of another provider".into()))
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

struct TcpDevice(Arc<DeviceState>);

impl ProviderDevice for TcpDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    fn address(&self) -> DeviceAddress {
        self.0.address.encode()
    }

    fn register_segment(
        &self,
        length: usize,
        exposed: bool,
        node: Option<u32>,
    ) -> Result<Box<dyn ProviderSegment>> {
        Ok(Box::new(self.0.memory.register(length, exposed, node)?))
    }

    fn create_channel(&self) -> Result<Arc<dyn ProviderChannel>> {
        Ok(Arc::new(TcpChannel::create()?))
    }

    fn create_completion_queue(
        &self,
        _depth: usize,
        channel: Option<&Arc<dyn ProviderChannel>>,
    ) -> Result<Arc<dyn ProviderCompletionQueue>> {
        Ok(Arc::new(TcpCompletionQueue::create(&self.0, channel)?))
    }

    fn create_queue_pair(
        &self,
        options: RawQueuePairOptions,
    ) -> Result<Arc<dyn ProviderQueuePair>> {
        self.0.within_queue_pairs()?;
        if options.shared_receive_queue.is_some() {
            return Err(self.unsupported("shared receive queues"));
        }
        Ok(match options.transport {
            Transport::UnreliableDatagram => DatagramPair::create(&self.0, options)?,
            Transport::ReliableConnection | Transport::UnreliableConnection => {
                StreamPair::create(&self.0, options)?
            }
        })
    }

    fn create_address_handle(
        &self,
        remote: &QueuePairAddress,
    ) -> Result<Arc<dyn ProviderAddressHandle>> {
        Ok(Arc::new(TcpAddressHandle::resolve(&self.0, remote)?))
    }

    fn counters(&self) -> CounterSnapshot {
        // The locks keep a queue pair from being counted twice, or not at all.
        let streams = self.0.streams.read();
        let datagrams = self.0.datagrams.read();
        let mut sum = *self.0.counters.lock();
        for pair in streams.values().filter_map(Weak::upgrade) {
            sum.merge(&pair.counters().snapshot());
        }
        for pair in datagrams.values().filter_map(Weak::upgrade) {
            sum.merge(&pair.counters().snapshot());
        }
        sum
    }
}

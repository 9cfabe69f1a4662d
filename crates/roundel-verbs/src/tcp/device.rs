//! A TCP device: how it is opened, what it can do, and the objects that it creates.

use super::address::TcpAddress;
use super::completion_queue::{TcpChannel, TcpCompletionQueue};
use super::connection::StreamPair;
use super::datagram::{DatagramPair, TcpAddressHandle};
use super::events::{self, Source, now};
use super::socket;
use super::state::DeviceState;
use crate::address::{DeviceAddress, QueuePairAddress};
use crate::capabilities::{Capabilities, GRH_BYTES};
use crate::counters::CounterSnapshot;
use crate::device::Device;
use crate::error::{Result, VerbsError};
use crate::provider::{
    ProviderAddressHandle, ProviderChannel, ProviderCompletionQueue, ProviderDevice,
    ProviderQueuePair, ProviderSegment, RawQueuePairOptions,
};
use crate::queue_pair::Transport;
use crate::work::INLINE_BYTES_MAX;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

/// Most queue pairs at a time. Each takes a descriptor, of which the system may grant fewer.
const QUEUE_PAIRS_MAX: usize = 32 << 10;

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
    let state = DeviceState::create(
        Capabilities {
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
            exposes_all_memory: false,
            atomics: true,
            immediate_data: true,
            shared_receive_queues_max: 0,
            shared_receives_max: 0,
            multicast_groups_max: 0,
            write_in_address_order: true,
            // When the system copies from a socket, a piece may end, for a moment, within a word.
            write_whole_words: false,
            progress_without_polling: true,
            waits_for_connection: true,
            waits_for_receive: true,
            completes_on_arrival: true,
            breaks_with_peer: true,
            same_host_only: false,
            networked: true,
        },
        TcpAddress {
            listener: at,
            id: rand::random(),
            secret: rand::random(),
        },
        listener,
    )?;
    let device = Arc::downgrade(&state);
    let source = Source::of(device, |device, _, _| device.accept_all());
    state.events.watch(&state.listener, source)?;
    events::start(&state.events, &state, sweep)?;
    Ok(Device::new(Arc::new(TcpDevice(state))))
}

/// What is looked after now and then.
fn sweep(device: &Arc<DeviceState>) {
    let now = now();
    for token in device.events.late(now) {
        device.forget(token);
    }
    // In case there were no descriptors when somebody connected.
    device.accept_all();
    let pairs: Vec<_> = device
        .streams
        .read()
        .values()
        .filter_map(Weak::upgrade)
        .collect();
    for pair in pairs {
        pair.time_passed(now);
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
        self.0.counters()
    }
}

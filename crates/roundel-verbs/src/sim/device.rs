//! The provider of a node, which the object model calls. All of it is one state, under one lock.
#![allow(unsafe_code)] // Implements the provider's unsafe post verbs.

use super::completions::SimChannel;
use super::events::Event;
use super::locks::Lock;
use super::memory::Segment;
use super::packet::PairId;
use super::pair::{Pair, Receive, Receiving, Request, Sending, SimAddressHandle};
use super::parameters::Parameters;
use super::state::World;
use super::time::Span;
use crate::address::{DeviceAddress, QueuePairAddress};
use crate::capabilities::{Capabilities, GRH_BYTES};
use crate::counters::{CounterSnapshot, Counters};
use crate::error::{Result, VerbsError};
use crate::memory::Buffer;
use crate::multicast::MulticastGroup;
use crate::provider::{
    ProviderAddressHandle, ProviderChannel, ProviderCompletionQueue, ProviderDevice,
    ProviderQueuePair, ProviderSegment, RawCompletion, RawQueuePairOptions, RawReceiveRequest,
    RawSendRequest,
};
use crate::queue_pair::{QueuePairState, Transport};
use crate::work::CompletionStatus;
use std::any::Any;
use std::sync::Arc;
use std::task::Waker;

/// Bytes that mark an address of this provider.
const MAGIC: &[u8; 4] = b"sim1";

/// What a NIC of these parameters can do.
pub(super) fn capabilities(parameters: &Parameters, node: usize) -> Capabilities {
    let nic = &parameters.nic;
    Capabilities {
        provider: "sim",
        device: format!("{}/{node}", parameters.name),
        transports: nic.transports.to_vec(),
        queue_pairs_max: nic.queue_pairs_max,
        work_requests_max: nic.work_requests_max,
        completion_queues_max: usize::MAX,
        completions_max: usize::MAX,
        completion_channels_max: usize::MAX,
        inline_bytes_max: nic.inline_bytes_max,
        rc_message_bytes_max: 1 << 30,
        ud_message_bytes_max: parameters.datagram_bytes_max(),
        grh_bytes: GRH_BYTES,
        registered_bytes_max: usize::MAX,
        outstanding_reads_max: nic.reads_max,
        reads_at_once: false,
        exposes_all_memory: false,
        atomics: true,
        immediate_data: true,
        shared_receive_queues_max: 0,
        shared_receives_max: 0,
        multicast_groups_max: 0,
        write_in_address_order: true,
        write_whole_words: true,
        progress_without_polling: true,
        waits_for_connection: false,
        waits_for_receive: true,
        completes_on_arrival: true,
        breaks_with_peer: false,
        same_host_only: true,
        networked: true,
    }
}

pub(super) struct SimDevice {
    world: World,
    node: usize,
    capabilities: Capabilities,
}

impl SimDevice {
    pub(super) fn new(world: &World, node: usize) -> Self {
        let capabilities = capabilities(&world.lock().parameters, node);
        Self {
            world: world.clone(),
            node,
            capabilities,
        }
    }

    fn address_of(node: usize) -> DeviceAddress {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&(node as u32).to_le_bytes());
        DeviceAddress::new(&bytes).expect("eight bytes are few")
    }

    /// The queue pair of an address.
    fn resolve(world: &World, remote: &QueuePairAddress) -> Result<PairId> {
        let node = match remote.device.as_bytes() {
            [a, b, c, d, node @ ..] if [*a, *b, *c, *d] == *MAGIC => node.try_into().ok(),
            _ => None,
        };
        let node = node.map(|node| u32::from_le_bytes(node) as usize);
        match node.filter(|node| *node < world.lock().nodes.len()) {
            Some(node) => Ok(PairId {
                node,
                number: remote.number,
                incarnation: remote.incarnation,
            }),
            None => Err(VerbsError::InvalidAddress(
                "not an address of a node of this simulation".into(),
            )),
        }
    }
}

fn queue_of(node: usize, queue: &Arc<dyn ProviderCompletionQueue>) -> Result<usize> {
    let any: &dyn Any = queue.as_ref();
    match any.downcast_ref::<SimCompletionQueue>() {
        Some(queue) if queue.node == node => Ok(queue.number),
        _ => Err(VerbsError::InvalidRequest(
            "a completion queue of another device".into(),
        )),
    }
}

impl ProviderDevice for SimDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn address(&self) -> DeviceAddress {
        Self::address_of(self.node)
    }

    fn register_segment(
        &self,
        length: usize,
        exposed: bool,
        _node: Option<u32>,
    ) -> Result<Box<dyn ProviderSegment>> {
        let mut state = self.world.lock();
        let cpu = &state.parameters.cpu;
        let pages = state.length_of(length).div_ceil(4096) as u64;
        let cost = cpu.register + cpu.register_page * pages;
        state.charge(cost);
        let segment = state.nodes[self.node].segments.register(length, exposed)?;
        Ok(Box::new(SimSegment {
            world: self.world.clone(),
            node: self.node,
            segment,
        }))
    }

    fn create_channel(&self) -> Result<Arc<dyn ProviderChannel>> {
        Ok(Arc::new(SimChannel::create()?))
    }

    fn create_completion_queue(
        &self,
        _depth: usize,
        channel: Option<&Arc<dyn ProviderChannel>>,
    ) -> Result<Arc<dyn ProviderCompletionQueue>> {
        let channel = channel.map(|channel| {
            let any: Arc<dyn Any + Send + Sync> = channel.clone();
            any.downcast::<SimChannel>()
                .map_err(|_| VerbsError::InvalidRequest("a channel of another provider".into()))
        });
        let channel = channel.transpose()?;
        let number = self.world.lock().nodes[self.node].queues.create(channel);
        Ok(Arc::new(SimCompletionQueue {
            world: self.world.clone(),
            node: self.node,
            number,
        }))
    }

    fn create_queue_pair(
        &self,
        options: RawQueuePairOptions,
    ) -> Result<Arc<dyn ProviderQueuePair>> {
        if options.shared_receive_queue.is_some() {
            return Err(self.unsupported("shared receive queues"));
        }
        let send_queue = queue_of(self.node, &options.send_queue)?;
        let receive_queue = queue_of(self.node, &options.receive_queue)?;
        let counters = Arc::new(Counters::default());
        let mut state = self.world.lock();
        let cost = state.parameters.cpu.queue_pair;
        state.charge(cost);
        let most = state.parameters.nic.queue_pairs_max;
        let node = &mut state.nodes[self.node];
        let number = match node.free_numbers.pop_front() {
            Some(number) => number,
            None if node.pairs.len() >= most => {
                return Err(VerbsError::DeviceLimit {
                    what: "queue pairs",
                    requested: node.pairs.len() + 1,
                    limit: most,
                });
            }
            None => {
                node.pairs.push(None);
                node.pairs.len() as u32 - 1
            }
        };
        node.incarnations += 1;
        let id = PairId {
            node: self.node,
            number,
            incarnation: node.incarnations,
        };
        node.pairs[number as usize] = Some(Box::new(Pair {
            id,
            transport: options.transport,
            queue_key: options.queue_key,
            state: QueuePairState::Init,
            remote: None,
            send_queue,
            receive_queue,
            send_depth: options.send_depth,
            receive_depth: options.receive_depth,
            rnr_retry: options.rnr_retry,
            sending: Sending::default(),
            receiving: Receiving::default(),
            send_lock: Lock::default(),
            receive_lock: Lock::default(),
            active: false,
            requester: None,
            responder: None,
            counters: counters.clone(),
        }));
        drop(state);
        Ok(Arc::new(SimQueuePair {
            world: self.world.clone(),
            id,
            queue_key: options.queue_key,
            counters,
        }))
    }

    fn create_address_handle(
        &self,
        remote: &QueuePairAddress,
    ) -> Result<Arc<dyn ProviderAddressHandle>> {
        Ok(Arc::new(SimAddressHandle {
            pair: Self::resolve(&self.world, remote)?,
            queue_key: remote.queue_key,
        }))
    }

    fn counters(&self) -> CounterSnapshot {
        let state = self.world.lock();
        let node = &state.nodes[self.node];
        let mut sum = node.counters;
        for pair in node.pairs.iter().flatten() {
            sum.merge(&pair.counters.snapshot());
        }
        sum
    }
}

struct SimSegment {
    world: World,
    node: usize,
    segment: Segment,
}

impl ProviderSegment for SimSegment {
    fn base(&self) -> *mut u8 {
        self.segment.pages.base()
    }

    fn remote_base(&self) -> u64 {
        self.segment.remote_base()
    }

    fn len(&self) -> usize {
        self.segment.pages.len()
    }

    fn local_key(&self) -> u32 {
        self.segment.local_key()
    }

    fn remote_key(&self) -> u32 {
        self.segment.remote_key()
    }
}

impl Drop for SimSegment {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        let number = self.segment.number;
        state.nodes[self.node].segments.deregister(number);
    }
}

struct SimCompletionQueue {
    world: World,
    node: usize,
    number: usize,
}

impl ProviderCompletionQueue for SimCompletionQueue {
    fn poll(&self, completions: &mut Vec<RawCompletion>, limit: usize) -> usize {
        let mut state = self.world.lock();
        let (poll, each) = (state.parameters.cpu.poll, state.parameters.cpu.poll_each);
        let found = &mut state.nodes[self.node].queues.at(self.number).completions;
        let count = found.len().min(limit);
        completions.extend(found.drain(..count));
        state.charge_under(poll + each * count as u64, |state| {
            Some(&mut state.nodes[self.node].queues.at(self.number).lock)
        });
        count
    }

    fn arm(&self) -> bool {
        let mut state = self.world.lock();
        let queue = state.nodes[self.node].queues.at(self.number);
        std::mem::replace(&mut queue.armed, true)
    }

    fn armed(&self) -> bool {
        let mut state = self.world.lock();
        state.nodes[self.node].queues.at(self.number).armed
    }

    fn wake_when_new(&self, waker: &Waker) -> bool {
        let mut state = self.world.lock();
        let queue = state.nodes[self.node].queues.at(self.number);
        queue.wake_when_new(waker);
        true
    }
}

impl Drop for SimCompletionQueue {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        state.nodes[self.node].queues.destroy(self.number);
    }
}

struct SimQueuePair {
    world: World,
    id: PairId,
    queue_key: u32,
    counters: Arc<Counters>,
}

impl ProviderQueuePair for SimQueuePair {
    fn address(&self) -> QueuePairAddress {
        QueuePairAddress {
            device: SimDevice::address_of(self.id.node),
            number: self.id.number,
            incarnation: self.id.incarnation,
            queue_key: self.queue_key,
        }
    }

    fn state(&self) -> QueuePairState {
        self.world.lock().state_of(self.id)
    }

    fn connect(&self, remote: Option<&QueuePairAddress>) -> Result<()> {
        let remote = remote.map(|remote| SimDevice::resolve(&self.world, remote));
        let remote = remote.transpose()?;
        let mut state = self.world.lock();
        if remote.is_some() {
            let cost = state.parameters.cpu.connect;
            state.charge(cost);
        }
        let now = state.state_of(self.id);
        match state.pair(self.id) {
            Some(pair) if pair.state == QueuePairState::Init => {
                pair.remote = remote;
                pair.state = QueuePairState::ReadyToSend;
                Ok(())
            }
            _ => Err(VerbsError::InvalidState {
                verb: "connecting",
                state: now,
            }),
        }
    }

    fn modify_to_error(&self) {
        self.world.lock().break_pair(self.id, None);
    }

    unsafe fn post_send(&self, requests: &[RawSendRequest]) -> Result<usize> {
        let mut state = self.world.lock();
        let most = match state.pair(self.id).map(|pair| pair.transport) {
            Some(Transport::UnreliableDatagram) => state.parameters.datagram_bytes_max(),
            _ => 1 << 30,
        };
        let Some(pair) = state.pair(self.id) else {
            return Ok(0);
        };
        if pair.state == QueuePairState::Init {
            return Err(VerbsError::InvalidState {
                verb: "posting to the send queue",
                state: QueuePairState::Init,
            });
        }
        let long = requests.iter().find(|request| request.local.length > most);
        if let Some(request) = long {
            return Err(VerbsError::InvalidRequest(format!(
                "a message of {} bytes, at most {most} fit",
                request.local.length
            )));
        }
        let broken = pair.state == QueuePairState::Error;
        let room = pair.send_depth - pair.sending.requests.len().min(pair.send_depth);
        let taken = requests
            .len()
            .min(if broken { requests.len() } else { room });
        let (queue, number) = (pair.send_queue, self.id.number);
        if broken {
            for request in requests {
                let completion = flushed(number, request);
                state.nodes[self.id.node].queues.at(queue).push(completion);
            }
            return Ok(taken);
        }
        pair.sending
            .requests
            .extend(requests.iter().take(taken).map(Request::from));
        let up_to = pair.sending.first + pair.sending.requests.len() as u64;
        let fetched = requests
            .iter()
            .take(taken)
            .any(|request| request.local.length > 0);
        let cpu = &state.parameters.cpu;
        let cost = cpu.post + cpu.post_each * taken as u64;
        let id = self.id;
        state.charge_under(cost, |state| state.pair(id).map(|pair| &mut pair.send_lock));
        let nic = &state.parameters.nic;
        let fetch = if fetched { nic.fetch } else { Span::ZERO };
        let at = state.now() + nic.doorbell + fetch;
        state.events.add(at, Event::Doorbell(self.id, up_to));
        Ok(taken)
    }

    unsafe fn post_receive(&self, requests: &[RawReceiveRequest]) -> Result<usize> {
        let mut state = self.world.lock();
        let cpu = &state.parameters.cpu;
        let cost = cpu.post + cpu.post_each * requests.len() as u64;
        let id = self.id;
        state.charge_under(cost, |state| {
            state.pair(id).map(|pair| &mut pair.receive_lock)
        });
        let Some(pair) = state.pair(self.id) else {
            return Ok(0);
        };
        if pair.state == QueuePairState::Error {
            let queue = pair.receive_queue;
            let ended: Vec<_> = requests
                .iter()
                .map(|request| pair.receive_completion(request.id, CompletionStatus::Flushed))
                .collect();
            for completion in ended {
                state.nodes[self.id.node].queues.at(queue).push(completion);
            }
            return Ok(requests.len());
        }
        let room = pair.receive_depth - pair.receiving.posted.len().min(pair.receive_depth);
        let taken = requests.len().min(room);
        let receives = requests.iter().take(taken).map(|request| Receive {
            id: request.id,
            local: request.local,
        });
        pair.receiving.posted.extend(receives);
        Ok(taken)
    }

    fn join_multicast(&self, _group: &MulticastGroup) -> Result<()> {
        Err(VerbsError::Unsupported {
            provider: "sim",
            what: "multicast",
        })
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn destroy(&self, posted: Vec<Buffer>) {
        let mut state = self.world.lock();
        state.acknowledge_at_last(self.id);
        let node = &mut state.nodes[self.id.node];
        if let Some(pair) = node.pairs[self.id.number as usize].take() {
            node.counters.merge(&pair.counters.snapshot());
            node.nic.reads -= pair.sending.taken_up;
            node.queues.at(pair.send_queue).detach(self.id.number);
            node.queues.at(pair.receive_queue).detach(self.id.number);
            node.free_numbers.push_back(self.id.number);
        }
        drop(state);
        // From here on nothing touches them.
        drop(posted);
    }
}

fn flushed(queue_pair: u32, request: &RawSendRequest) -> RawCompletion {
    RawCompletion {
        id: request.id,
        queue_pair,
        status: CompletionStatus::Flushed,
        opcode: request.operation.opcode(),
        bytes: 0,
        written: false,
        immediate: None,
        source_queue_pair: 0,
    }
}

//! Queue pairs: creation, the way to RTS, and posting.
#![allow(unsafe_code)] // Calls the library, and implements the provider's unsafe post verbs.

use super::address::{Party, RdmaAddress};
use super::address_handle::unreachable;
use super::bindings::*;
use super::completion_queue::{RdmaCompletionQueue, Room};
use super::device_state::DeviceState;
use super::library::last_error;
use super::link::{Link, Mailbox, Queue, TELLINGS, Words};
use super::memory::RdmaSegment;
use super::multicast::Membership;
use super::pair_state::PairState;
use super::shared_receive::RdmaSharedReceiveQueue;
use super::work::{post_receives, post_sends};
use crate::address::QueuePairAddress;
use crate::counters::Counters;
use crate::error::{Result, VerbsError};
use crate::memory::{Buffer, ProviderSegment, RemoteAddress};
use crate::multicast::MulticastGroup;
use crate::provider::{
    ProviderCompletionQueue, ProviderQueuePair, RawQueuePairOptions, RawReceiveRequest,
    RawSendRequest,
};
use crate::queue_pair::{QueuePairState, Transport};
use crate::work::INLINE_BYTES_MAX;
use parking_lot::Mutex;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Waiting time for an acknowledgement: 4.096 µs × 2^16 = 268 ms. Devices may take four times that.
/// With less, Soft-RoCE on a busy host sends again what was only late.
const TIMEOUT: u8 = 16;
/// How often an unacknowledged packet is sent again: a peer that is gone is noticed within 1.9 s to
/// 7.5 s. The field goes up to 7, which Soft-RoCE takes for "without end".
const RETRIES: u8 = 6;
/// How long a sender waits whose receiver was not ready: code 18 is 5.1 ms.
const RECEIVER_NOT_READY_TIMER: u8 = 18;
/// Packet sequence numbers have 24 bits.
const SEQUENCE_MASK: u32 = 0xff_ffff;

pub(super) struct RdmaQueuePair {
    device: Arc<DeviceState>,
    raw: *mut ibv_qp,
    state: Arc<PairState>,
    transport: Transport,
    rnr_retry: u8,
    queue_key: u32,
    /// Where this side's packets begin to count; random, so that a peer of an earlier queue pair
    /// of this number is not heard.
    sequence: u32,
    memberships: Mutex<Vec<Membership>>,
    send_queue: Arc<RdmaCompletionQueue>,
    receive_queue: Arc<RdmaCompletionQueue>,
    /// On iWARP, the memory of its link's words.
    _words: Option<RdmaSegment>,
    /// For its completions, given back after it is destroyed.
    _rooms: (Room, Arc<Room>),
}

// SAFETY: the library's calls on a queue pair are thread safe; all else is behind locks.
unsafe impl Send for RdmaQueuePair {}
// SAFETY: as above.
unsafe impl Sync for RdmaQueuePair {}

fn queue_of(queue: &Arc<dyn ProviderCompletionQueue>) -> Result<Arc<RdmaCompletionQueue>> {
    let any: Arc<dyn std::any::Any + Send + Sync> = queue.clone();
    any.downcast().map_err(|_| {
        VerbsError::InvalidRequest("a completion queue of another provider".to_owned())
    })
}

/// What the device calls a queue pair of a transport.
pub(super) fn queue_pair_type(transport: Transport) -> u32 {
    match transport {
        Transport::ReliableConnection => IBV_QPT_RC,
        Transport::UnreliableConnection => IBV_QPT_UC,
        Transport::UnreliableDatagram => IBV_QPT_UD,
    }
}

impl RdmaQueuePair {
    pub(super) fn create(device: &Arc<DeviceState>, options: &RawQueuePairOptions) -> Result<Self> {
        let send_queue = queue_of(&options.send_queue)?;
        let receive_queue = queue_of(&options.receive_queue)?;
        let shared = options
            .shared_receive_queue
            .clone()
            .map(RdmaSharedReceiveQueue::of)
            .transpose()?;
        // A device may use both queues for errors of either direction; depths are never 0.
        let iwarp = device.context.iwarp;
        // On iWARP some sends are the provider's own.
        let own_sends = if iwarp { TELLINGS as usize } else { 0 };
        let send_depth = options.send_depth.max(1) + own_sends;
        let sends = Room::reserve(&send_queue, send_depth)?;
        let receives = match &shared {
            Some(shared) => shared.room_in(&receive_queue)?,
            None => Arc::new(Room::reserve(&receive_queue, options.receive_depth.max(1))?),
        };
        // SAFETY: the struct holds numbers and pointers, for which zero is valid.
        let mut initial: ibv_qp_init_attr = unsafe { zeroed() };
        initial.send_cq = sends.raw;
        initial.recv_cq = receives.raw;
        initial.srq = shared.as_ref().map_or(null_mut(), |shared| shared.raw());
        initial.sq_sig_all = 1;
        initial.qp_type = queue_pair_type(options.transport);
        initial.cap = ibv_qp_cap {
            max_send_wr: send_depth as u32,
            max_recv_wr: match shared {
                Some(_) => 0,
                None => options.receive_depth.max(1) as u32,
            },
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: device.capabilities.inline_bytes_max.min(INLINE_BYTES_MAX) as u32,
        };
        let words = iwarp
            .then(|| RdmaSegment::register(device, 2 * size_of::<u64>(), true, None))
            .transpose()?;
        // SAFETY: domain and queues are alive, and the queue pair keeps them so; the object model's keeps the shared
        // receive queue.
        let raw = unsafe { (device.verbs().ibv_create_qp)(device.domain, &mut initial) };
        if raw.is_null() {
            return Err(last_error("ibv_create_qp"));
        }
        let verbs = device.verbs();
        let sequence = rand::random::<u32>() & SEQUENCE_MASK;
        let link = words.as_ref().map(|words| {
            let own = Party {
                device: device.address,
                // SAFETY: the queue pair was created just now.
                number: unsafe { (*raw).qp_num },
                incarnation: sequence,
            };
            let context = device.context.raw;
            let queue = Queue {
                context,
                pair: raw,
                post: post_sends,
            };
            let bells = [&send_queue.bell, &receive_queue.bell];
            let (mailbox, words) = link_words(words);
            Link::new(own, mailbox, words, queue, bells, shared.is_none())
        });
        let abandoned = shared.map(|shared| shared.abandoned.clone());
        let transport = options.transport;
        let state = Arc::new(PairState::new(verbs, transport, raw, abandoned, link));
        send_queue.attach(&state);
        receive_queue.attach(&state);
        device.pairs.add(&state);
        // From here on, dropping it destroys it.
        let pair = Self {
            device: device.clone(),
            raw,
            state,
            transport,
            rnr_retry: options.rnr_retry.min(7),
            queue_key: options.queue_key,
            sequence,
            memberships: Mutex::default(),
            send_queue,
            receive_queue,
            _words: words,
            _rooms: (sends, receives),
        };
        pair.initialise()
            .inspect_err(|_| pair.destroy(Vec::new()))?;
        Ok(pair)
    }

    /// RESET → INIT.
    fn initialise(&self) -> Result<()> {
        // SAFETY: the struct holds numbers only.
        let mut attributes: ibv_qp_attr = unsafe { zeroed() };
        attributes.qp_state = IBV_QPS_INIT;
        attributes.port_num = self.device.port_number;
        let mut mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
        if self.transport == Transport::UnreliableDatagram {
            attributes.qkey = self.queue_key;
            mask |= IBV_QP_QKEY;
        } else {
            attributes.qp_access_flags = match self.transport {
                Transport::ReliableConnection => {
                    (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
                        as u32
                }
                _ => IBV_ACCESS_REMOTE_WRITE as u32,
            };
            mask |= IBV_QP_ACCESS_FLAGS;
        }
        self.state.modify(&mut attributes, mask)
    }

    /// On iWARP devices make the connection, and move the queue pair on themselves.
    fn connect_by_manager(&self, link: &Link, remote: &QueuePairAddress) -> Result<()> {
        let peer = Party::of(remote)?;
        if peer == *link.own() {
            return Err(VerbsError::Unsupported {
                provider: self.device.capabilities.provider,
                what: "connection of a queue pair to itself on iWARP: take two",
            });
        }
        let connected = link.connect(peer)?;
        self.state.mark_ready();
        match &self.device.connections {
            Some(connections) if connected => connections.connect(&self.state, peer),
            _ => self.state.break_off(),
        }
        Ok(())
    }

    /// INIT → RTR: from now on it receives.
    fn ready_to_receive(&self, remote: Option<(&QueuePairAddress, &RdmaAddress)>) -> Result<()> {
        // SAFETY: the struct holds numbers only.
        let mut attributes: ibv_qp_attr = unsafe { zeroed() };
        attributes.qp_state = IBV_QPS_RTR;
        let mut mask = IBV_QP_STATE;
        if let Some((pair, device)) = remote {
            attributes.ah_attr = self.device.route(device);
            attributes.path_mtu = u32::from(device.mtu.min(self.device.address.mtu));
            attributes.dest_qp_num = pair.number;
            attributes.rq_psn = pair.incarnation & SEQUENCE_MASK;
            mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
            if self.transport == Transport::ReliableConnection {
                attributes.max_dest_rd_atomic = self.device.address.answered_reads;
                attributes.min_rnr_timer = RECEIVER_NOT_READY_TIMER;
                mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
            }
        }
        let modified = self.state.modify(&mut attributes, mask);
        match remote {
            Some((_, device)) => modified.map_err(|error| unreachable(device, error)),
            None => modified,
        }
    }

    /// RTR → RTS: from now on it sends.
    fn ready_to_send(&self, remote: Option<&RdmaAddress>) -> Result<()> {
        // SAFETY: the struct holds numbers only.
        let mut attributes: ibv_qp_attr = unsafe { zeroed() };
        attributes.qp_state = IBV_QPS_RTS;
        attributes.sq_psn = self.sequence;
        let mut mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
        if self.transport == Transport::ReliableConnection {
            attributes.timeout = TIMEOUT;
            attributes.retry_cnt = RETRIES;
            attributes.rnr_retry = self.rnr_retry;
            attributes.max_rd_atomic = remote
                .map_or(1, |remote| remote.answered_reads)
                .min(self.device.asked_reads);
            mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        }
        self.state.modify(&mut attributes, mask)
    }

    /// Most bytes of a message.
    fn message_bytes_max(&self) -> usize {
        match self.transport {
            Transport::UnreliableDatagram => self.device.capabilities.ud_message_bytes_max,
            _ => self.device.capabilities.rc_message_bytes_max,
        }
    }
}

/// The words of a link, and where its peer writes to.
fn link_words(memory: &RdmaSegment) -> (Mailbox, Words) {
    let heard: *const AtomicU64 = memory.base().cast();
    let mailbox = Mailbox {
        at: RemoteAddress {
            address: memory.remote_base(),
            remote_key: memory.remote_key(),
        },
        // New memory is zero, which must not pass for the peer's word.
        token: rand::random::<u64>() | 1,
    };
    let words = Words {
        heard,
        told: heard.wrapping_add(1),
        local_key: memory.local_key(),
    };
    (mailbox, words)
}

impl ProviderQueuePair for RdmaQueuePair {
    fn address(&self) -> QueuePairAddress {
        QueuePairAddress {
            device: self.device.address.encode(),
            number: self.state.number(),
            incarnation: self.sequence,
            queue_key: self.queue_key,
        }
    }

    fn state(&self) -> QueuePairState {
        self.state.now()
    }

    fn connect(&self, remote: Option<&QueuePairAddress>) -> Result<()> {
        let state = self.state.known();
        if state != QueuePairState::Init {
            return Err(VerbsError::InvalidState {
                verb: "connecting",
                state,
            });
        }
        let device = remote
            .map(|remote| RdmaAddress::decode(&remote.device))
            .transpose()?;
        if let Some(device) = &device {
            self.device.check_peer(device)?;
        }
        if let (Some(link), Some(remote)) = (&self.state.link, remote) {
            return self.connect_by_manager(link, remote);
        }
        self.ready_to_receive(remote.zip(device.as_ref()))?;
        self.ready_to_send(device.as_ref())?;
        self.state.mark_ready();
        Ok(())
    }

    fn modify_to_error(&self) {
        self.state.break_off();
    }

    unsafe fn post_send(&self, requests: &[RawSendRequest]) -> Result<usize> {
        let state = self.state.known();
        if state == QueuePairState::Init {
            return Err(VerbsError::InvalidState {
                verb: "posting to the send queue",
                state,
            });
        }
        let limit = self.message_bytes_max();
        if let Some(request) = requests.iter().find(|request| request.local.length > limit) {
            return Err(VerbsError::InvalidRequest(format!(
                "a message of {} bytes, at most {limit} fit",
                request.local.length
            )));
        }
        if let Some(link) = &self.state.link {
            if state == QueuePairState::Error {
                // So that the link knows it, whoever has broken it: then it ends what is posted.
                self.state.break_off();
            }
            // SAFETY: as the caller promises.
            return unsafe { link.post_sends(requests) };
        }
        // SAFETY: the object model destroys a queue pair after its last post, and keeps the memory
        // as the caller promises.
        let posted = unsafe { post_sends(self.device.context.raw, self.raw, requests) };
        if state == QueuePairState::Error {
            self.state.break_off();
        }
        posted
    }

    unsafe fn post_receive(&self, requests: &[RawReceiveRequest]) -> Result<usize> {
        // SAFETY: the operations table of an open context does not change.
        let post = unsafe { (*self.device.context.raw).ops.post_recv };
        let post = |work: *mut ibv_recv_wr, refused: *mut *mut ibv_recv_wr| match post {
            // SAFETY: the object model destroys a queue pair after its last post.
            Some(post) => unsafe { post(self.raw, work, refused) },
            None => rustix::io::Errno::NOSYS.raw_os_error(),
        };
        if let Some(link) = &self.state.link {
            if self.state.known() == QueuePairState::Error {
                self.state.break_off();
            }
            // SAFETY: as the caller promises.
            return link.post_receives(requests, || unsafe { post_receives(requests, 1, post) });
        }
        // SAFETY: as above.
        let posted = unsafe { post_receives(requests, 0, post) };
        if self.state.known() == QueuePairState::Error {
            self.state.break_off();
        }
        posted
    }

    fn join_multicast(&self, group: &MulticastGroup) -> Result<()> {
        let mut memberships = self.memberships.lock();
        if !memberships.iter().any(|member| member.group == *group) {
            memberships.push(Membership::join(&self.device, self.raw, group)?);
        }
        Ok(())
    }

    fn counters(&self) -> &Counters {
        &self.state.counters
    }

    fn destroy(&self, posted: Vec<Buffer>) {
        self.memberships.lock().clear();
        if let (Some(link), Some(connections)) = (&self.state.link, &self.device.connections) {
            // Nobody connects to it from now on, and nothing is left that names it when its number is free.
            link.retire();
            connections.forget(self.state.number());
        }
        if !self.state.destroy() {
            // The device may write into them at any time.
            std::mem::forget(posted);
        }
        self.send_queue.detach(&self.state);
        self.receive_queue.detach(&self.state);
        self.device.pairs.remove(&self.state);
    }
}

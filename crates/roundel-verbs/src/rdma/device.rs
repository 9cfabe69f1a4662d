//! An open RDMA device: its context and protection domain, its limits, its address.
#![allow(unsafe_code)] // Calls the library.

use super::address::{RdmaAddress, mtu_bytes};
use super::address_handle::{Path, RdmaAddressHandle};
use super::bindings::*;
use super::channel::RdmaChannel;
use super::choice::{Choice, RdmaOptions, choose};
use super::completion_queue::RdmaCompletionQueue;
use super::context::Context;
use super::events::Events;
use super::library::{Verbs, last_error};
use super::memory::RdmaSegment;
use super::pairs::Pairs;
use super::queue_pair::{RdmaQueuePair, queue_pair_type};
use super::shared_receive::RdmaSharedReceiveQueue;
use super::sysfs::{self, DeviceFiles};
use crate::address::{DeviceAddress, QueuePairAddress};
use crate::capabilities::{Capabilities, GRH_BYTES};
use crate::counters::CounterSnapshot;
use crate::device::Device;
use crate::error::Result;
use crate::multicast::MulticastGroup;
use crate::numa::Placement;
use crate::provider::{
    ProviderAddressHandle, ProviderChannel, ProviderCompletionQueue, ProviderDevice,
    ProviderQueuePair, ProviderSegment, ProviderSharedReceiveQueue, RawQueuePairOptions,
};
use crate::queue_pair::Transport;
use crate::work::INLINE_BYTES_MAX;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::{Arc, Weak};

/// The queue pair number that stands for all members of a multicast group.
const MULTICAST_NUMBER: u32 = 0xff_ffff;

/// Opens an RDMA device through libibverbs.
///
/// # Errors
/// When the library is missing, when there is no such device, or its port is not active; the
/// error says what to do.
pub fn open(options: &RdmaOptions) -> Result<Device> {
    let choice = choose(options)?;
    let placement = Placement::near(DeviceFiles::of(&choice.device).numa_node());
    open_chosen(choice, placement)
}

/// Opens that device, whose registered memory is to lie there.
pub(super) fn open_chosen(choice: Choice, placement: Option<Placement>) -> Result<Device> {
    let domain = choice.context.allocate_protection_domain()?;
    let pairs = Arc::new(Pairs::default());
    // From here on, dropping it closes everything.
    let mut state = DeviceState::new(choice, domain, placement, &pairs);
    (
        state.capabilities.transports,
        state.capabilities.inline_bytes_max,
    ) = state.probe()?;
    state.events = Some(Events::watch(
        &state.context,
        &state.capabilities.device,
        &pairs,
    )?);
    tracing::debug!(
        capabilities = ?state.capabilities,
        address = %state.address.name(),
        numa_node = state.placement.as_ref().map(Placement::node),
        "opened"
    );
    Ok(Device::new(Arc::new(RdmaDevice(Arc::new(state)))))
}

/// What the handle that users hold and the device's objects share.
pub(super) struct DeviceState {
    pub capabilities: Capabilities,
    pub address: RdmaAddress,
    pub port_number: u8,
    pub gid_index: u8,
    /// The network interface of the port; none on InfiniBand.
    pub interface_index: Option<u32>,
    /// READs and atomics that a queue pair may have outstanding as the one who asks.
    pub asked_reads: u8,
    /// Where registered memory is wanted that is wanted nowhere else; none where the kernel chooses.
    pub placement: Option<Placement>,
    pub pairs: Arc<Pairs>,
    paths: Mutex<HashMap<RdmaAddress, Weak<Path>>>,
    events: Option<Events>,
    pub domain: *mut ibv_pd,
    /// The last field: closed after all else.
    pub context: Context,
}

// SAFETY: the library's calls on a protection domain are thread safe; all else is too.
unsafe impl Send for DeviceState {}
// SAFETY: as above.
unsafe impl Sync for DeviceState {}

fn count(limit: i32) -> usize {
    usize::try_from(limit).unwrap_or(0)
}

impl DeviceState {
    fn new(
        choice: Choice,
        domain: *mut ibv_pd,
        placement: Option<Placement>,
        pairs: &Arc<Pairs>,
    ) -> Self {
        let Choice {
            context,
            device,
            attributes,
            port_number,
            port,
            gid_index,
            gid,
            interface,
        } = choice;
        let ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
        let reads = |limit: i32| limit.clamp(0, u8::MAX.into()) as u8;
        let asked_reads = reads(attributes.max_qp_init_rd_atom).max(1);
        Self {
            capabilities: Capabilities {
                provider: "rdma",
                device: format!("{device}/{port_number}"),
                transports: Vec::new(),
                queue_pairs_max: count(attributes.max_qp),
                // All of a queue's requests may be on a completion queue at a time.
                work_requests_max: count(attributes.max_qp_wr).min(count(attributes.max_cqe)),
                completion_queues_max: count(attributes.max_cq),
                completions_max: count(attributes.max_cqe),
                completion_channels_max: 1024,
                inline_bytes_max: 0,
                rc_message_bytes_max: port.max_msg_sz as usize,
                ud_message_bytes_max: mtu_bytes(port.active_mtu),
                grh_bytes: GRH_BYTES,
                registered_bytes_max: usize::try_from(attributes.max_mr_size).unwrap_or(usize::MAX),
                outstanding_reads_max: asked_reads.into(),
                reads_at_once: false,
                atomics: attributes.atomic_cap != IBV_ATOMIC_NONE,
                shared_receive_queues_max: count(attributes.max_srq),
                shared_receives_max: count(attributes.max_srq_wr).min(count(attributes.max_cqe)),
                // On InfiniBand a group is joined through the subnet manager, which needs rdma_cm.
                multicast_groups_max: if ethernet {
                    count(attributes.max_mcast_grp)
                } else {
                    0
                },
                // iWARP does not promise it (RFC 5040).
                write_in_address_order: context.infiniband_transport,
                // Soft-RoCE copies bytes; hardware mostly writes words, but nobody promises it.
                write_whole_words: false,
                progress_without_polling: true,
                waits_for_connection: false,
                breaks_with_peer: false,
                same_host_only: false,
                networked: true,
            },
            address: RdmaAddress {
                link_layer: port.link_layer,
                mtu: port.active_mtu as u8,
                answered_reads: reads(attributes.max_qp_rd_atom).max(1),
                lid: if ethernet { 0 } else { port.lid },
                gid,
            },
            port_number,
            gid_index,
            interface_index: interface.as_deref().and_then(sysfs::interface_index),
            asked_reads,
            placement,
            pairs: pairs.clone(),
            paths: Mutex::default(),
            events: None,
            domain,
            context,
        }
    }

    pub(super) fn verbs(&self) -> &'static Verbs {
        self.context.verbs
    }

    /// The transports, and the longest inline payload up to what this crate has room for: devices
    /// do not tell, they refuse to create a queue pair.
    fn probe(&self) -> Result<(Vec<Transport>, usize)> {
        let verbs = self.verbs();
        // SAFETY: the context is open; queue and queue pairs are destroyed before they are
        // forgotten; the struct holds numbers and pointers, for which zero is valid.
        unsafe {
            let queue = (verbs.ibv_create_cq)(self.context.raw, 2, null_mut(), null_mut(), 0);
            if queue.is_null() {
                return Err(last_error("ibv_create_cq"));
            }
            let accepted = |kind: u32, inline_bytes: usize| {
                let mut initial: ibv_qp_init_attr = zeroed();
                (initial.send_cq, initial.recv_cq) = (queue, queue);
                initial.qp_type = kind;
                initial.cap = ibv_qp_cap {
                    max_send_wr: 1,
                    max_recv_wr: 1,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: inline_bytes as u32,
                };
                let pair = (verbs.ibv_create_qp)(self.domain, &mut initial);
                if pair.is_null() {
                    return None;
                }
                (verbs.ibv_destroy_qp)(pair);
                Some(inline_bytes.min(initial.cap.max_inline_data as usize))
            };
            let transports = Transport::ALL
                .into_iter()
                .filter(|transport| accepted(queue_pair_type(*transport), 0).is_some())
                .collect();
            let inline_bytes = [INLINE_BYTES_MAX, 64, 32, 16]
                .into_iter()
                .find_map(|bytes| accepted(IBV_QPT_RC, bytes));
            (verbs.ibv_destroy_cq)(queue);
            Ok((transports, inline_bytes.unwrap_or(0)))
        }
    }

    /// The path to an address, resolved at its first use.
    fn path(self: &Arc<Self>, to: &RdmaAddress) -> Result<Arc<Path>> {
        if let Some(path) = self.paths.lock().get(to).and_then(Weak::upgrade) {
            return Ok(path);
        }
        // Without the lock: resolving may block. Two at once are two paths, which does no harm.
        let path = Arc::new(Path::resolve(self, to)?);
        let mut paths = self.paths.lock();
        paths.retain(|_, path| path.strong_count() > 0);
        paths.insert(*to, Arc::downgrade(&path));
        Ok(path)
    }
}

impl Drop for DeviceState {
    fn drop(&mut self) {
        // The thread reads from the context.
        self.events = None;
        // SAFETY: everything created in the domain is gone, for it keeps this state.
        let code = unsafe { (self.context.verbs.ibv_dealloc_pd)(self.domain) };
        if code != 0 {
            tracing::warn!(code, "a protection domain could not be freed");
        }
    }
}

struct RdmaDevice(Arc<DeviceState>);

impl ProviderDevice for RdmaDevice {
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
        Ok(Box::new(RdmaSegment::register(
            &self.0, length, exposed, node,
        )?))
    }

    fn create_channel(&self) -> Result<Arc<dyn ProviderChannel>> {
        Ok(Arc::new(RdmaChannel::create(&self.0)?))
    }

    fn create_completion_queue(
        &self,
        depth: usize,
        channel: Option<&Arc<dyn ProviderChannel>>,
    ) -> Result<Arc<dyn ProviderCompletionQueue>> {
        let queue = RdmaCompletionQueue::create(&self.0, depth, channel)?;
        Ok(Arc::new(queue))
    }

    fn create_queue_pair(
        &self,
        options: RawQueuePairOptions,
    ) -> Result<Arc<dyn ProviderQueuePair>> {
        Ok(Arc::new(RdmaQueuePair::create(&self.0, &options)?))
    }

    fn create_address_handle(
        &self,
        remote: &QueuePairAddress,
    ) -> Result<Arc<dyn ProviderAddressHandle>> {
        let to = RdmaAddress::decode(&remote.device)?;
        self.0.check_peer(&to)?;
        if to.mtu < self.0.address.mtu {
            return Err(crate::VerbsError::PeerUnreachable {
                peer: to.name(),
                reason: format!(
                    "its port takes datagrams of {} bytes, this one sends {}: set the same MTU at \
                     both ends",
                    mtu_bytes(to.mtu.into()),
                    self.0.capabilities.ud_message_bytes_max
                ),
            });
        }
        Ok(Arc::new(RdmaAddressHandle {
            path: self.0.path(&to)?,
            number: remote.number,
            queue_key: remote.queue_key,
        }))
    }

    fn counters(&self) -> CounterSnapshot {
        self.0.pairs.counters()
    }

    fn create_shared_receive_queue(
        &self,
        depth: usize,
    ) -> Result<Arc<dyn ProviderSharedReceiveQueue>> {
        Ok(Arc::new(RdmaSharedReceiveQueue::create(&self.0, depth)?))
    }

    fn create_multicast_handle(
        &self,
        group: &MulticastGroup,
    ) -> Result<Arc<dyn ProviderAddressHandle>> {
        let to = RdmaAddress {
            gid: group.gid().into(),
            lid: 0,
            ..self.0.address
        };
        Ok(Arc::new(RdmaAddressHandle {
            path: self.0.path(&to)?,
            number: MULTICAST_NUMBER,
            queue_key: group.queue_key,
        }))
    }
}

//! Opens RDMA devices, and creates what users ask of them.
#![allow(unsafe_code)] // Calls the library.

use super::address::{RdmaAddress, mtu_bytes};
use super::address_handle::{Path, RdmaAddressHandle};
use super::bindings::*;
use super::channel::RdmaChannel;
use super::choice::{Choice, RdmaOptions, choose};
use super::completion_queue::RdmaCompletionQueue;
use super::device_state::DeviceState;
use super::library::last_error;
use super::memory::RdmaSegment;
use super::queue_pair::{RdmaQueuePair, queue_pair_type};
use super::shared_receive::RdmaSharedReceiveQueue;
use super::sysfs::DeviceFiles;
use crate::address::{DeviceAddress, QueuePairAddress};
use crate::capabilities::Capabilities;
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
    // From here on, dropping it closes everything.
    let mut state = DeviceState::new(choice, domain, placement);
    (
        state.capabilities.transports,
        state.capabilities.inline_bytes_max,
    ) = state.probe()?;
    state.watch_events()?;
    state.serve_connections()?;
    tracing::debug!(
        capabilities = ?state.capabilities,
        address = %state.address.name(),
        numa_node = state.placement.as_ref().map(Placement::node),
        "opened"
    );
    Ok(Device::new(Arc::new(RdmaDevice {
        state: Arc::new(state),
        paths: Mutex::default(),
    })))
}

impl DeviceState {
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
}

struct RdmaDevice {
    state: Arc<DeviceState>,
    paths: Mutex<HashMap<RdmaAddress, Weak<Path>>>,
}

impl RdmaDevice {
    /// The path to an address, resolved at its first use.
    fn path(&self, to: &RdmaAddress) -> Result<Arc<Path>> {
        if let Some(path) = self.paths.lock().get(to).and_then(Weak::upgrade) {
            return Ok(path);
        }
        // Without the lock: resolving may block. Two at once are two paths, which does no harm.
        let path = Arc::new(Path::resolve(&self.state, to)?);
        let mut paths = self.paths.lock();
        paths.retain(|_, path| path.strong_count() > 0);
        paths.insert(*to, Arc::downgrade(&path));
        Ok(path)
    }
}

impl ProviderDevice for RdmaDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.state.capabilities
    }

    fn address(&self) -> DeviceAddress {
        self.state.address.encode()
    }

    fn register_segment(
        &self,
        length: usize,
        exposed: bool,
        node: Option<u32>,
    ) -> Result<Box<dyn ProviderSegment>> {
        Ok(Box::new(RdmaSegment::register(
            &self.state,
            length,
            exposed,
            node,
        )?))
    }

    fn create_channel(&self) -> Result<Arc<dyn ProviderChannel>> {
        Ok(Arc::new(RdmaChannel::create(&self.state)?))
    }

    fn create_completion_queue(
        &self,
        depth: usize,
        channel: Option<&Arc<dyn ProviderChannel>>,
    ) -> Result<Arc<dyn ProviderCompletionQueue>> {
        let queue = RdmaCompletionQueue::create(&self.state, depth, channel)?;
        Ok(Arc::new(queue))
    }

    fn create_queue_pair(
        &self,
        options: RawQueuePairOptions,
    ) -> Result<Arc<dyn ProviderQueuePair>> {
        Ok(Arc::new(RdmaQueuePair::create(&self.state, &options)?))
    }

    fn create_address_handle(
        &self,
        remote: &QueuePairAddress,
    ) -> Result<Arc<dyn ProviderAddressHandle>> {
        let to = RdmaAddress::decode(&remote.device)?;
        self.state.check_peer(&to)?;
        if to.mtu < self.state.address.mtu {
            return Err(crate::VerbsError::PeerUnreachable {
                peer: to.name(),
                reason: format!(
                    "its port takes datagrams of {} bytes, this one sends {}: set the same MTU at \
                     both ends",
                    mtu_bytes(to.mtu.into()),
                    self.state.capabilities.ud_message_bytes_max
                ),
            });
        }
        Ok(Arc::new(RdmaAddressHandle {
            path: self.path(&to)?,
            number: remote.number,
            queue_key: remote.queue_key,
        }))
    }

    fn counters(&self) -> CounterSnapshot {
        self.state.pairs.counters()
    }

    fn create_shared_receive_queue(
        &self,
        depth: usize,
    ) -> Result<Arc<dyn ProviderSharedReceiveQueue>> {
        Ok(Arc::new(RdmaSharedReceiveQueue::create(
            &self.state,
            depth,
        )?))
    }

    fn create_multicast_handle(
        &self,
        group: &MulticastGroup,
    ) -> Result<Arc<dyn ProviderAddressHandle>> {
        let to = RdmaAddress {
            gid: group.gid().into(),
            lid: 0,
            ..self.state.address
        };
        Ok(Arc::new(RdmaAddressHandle {
            path: self.path(&to)?,
            number: MULTICAST_NUMBER,
            queue_key: group.queue_key,
        }))
    }
}

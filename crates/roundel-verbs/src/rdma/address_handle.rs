//! Where datagrams go: paths to devices and multicast groups, shared by the queue pairs there.
#![allow(unsafe_code)] // Calls the library.

use super::address::RdmaAddress;
use super::bindings::*;
use super::device_state::DeviceState;
use super::library::last_error;
use crate::error::{Result, VerbsError};
use crate::provider::ProviderAddressHandle;
use std::mem::zeroed;
use std::net::Ipv6Addr;
use std::sync::Arc;

/// Hops that a packet may take between routers.
const HOP_LIMIT: u8 = 64;

/// A path to a device, or to a multicast group.
pub(super) struct Path {
    pub raw: *mut ibv_ah,
    device: Arc<DeviceState>,
}

// SAFETY: the library's address handles are not changed after they were created.
unsafe impl Send for Path {}
// SAFETY: as above.
unsafe impl Sync for Path {}

impl Path {
    /// Resolves a path. Blocks for about a second when nobody answers for the address.
    pub(super) fn resolve(device: &Arc<DeviceState>, to: &RdmaAddress) -> Result<Self> {
        let mut attributes = device.route(to);
        // SAFETY: the domain is alive as long as the device state.
        let raw = unsafe { (device.verbs().ibv_create_ah)(device.domain, &mut attributes) };
        if raw.is_null() {
            return Err(unreachable(to, last_error("ibv_create_ah")));
        }
        Ok(Self {
            raw,
            device: device.clone(),
        })
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        // SAFETY: no request names it any more, for requests in flight keep their destination.
        unsafe { (self.device.verbs().ibv_destroy_ah)(self.raw) };
    }
}

/// A UD destination: a path and the queue pair at its end.
pub(super) struct RdmaAddressHandle {
    pub path: Arc<Path>,
    pub number: u32,
    pub queue_key: u32,
}

impl ProviderAddressHandle for RdmaAddressHandle {}

impl DeviceState {
    /// How packets get to an address.
    pub(super) fn route(&self, to: &RdmaAddress) -> ibv_ah_attr {
        // SAFETY: the struct holds numbers only.
        let mut attributes: ibv_ah_attr = unsafe { zeroed() };
        attributes.port_num = self.port_number;
        attributes.dlid = to.lid;
        let infiniband = to.link_layer == IBV_LINK_LAYER_INFINIBAND;
        // Within an InfiniBand subnet the LID is enough; RoCE and multicast need the global header.
        if !infiniband || to.gid.is_multicast() || !self.same_subnet(to.gid) {
            attributes.is_global = 1;
            attributes.grh = ibv_global_route {
                dgid: ibv_gid(to.gid.octets()),
                flow_label: 0,
                sgid_index: self.gid_index,
                hop_limit: HOP_LIMIT,
                traffic_class: 0,
            };
        }
        attributes
    }

    /// Whether a GID has this port's subnet prefix.
    fn same_subnet(&self, gid: Ipv6Addr) -> bool {
        gid.octets()[..8] == self.address.gid.octets()[..8]
    }

    /// Whether this port and a peer's go together.
    pub(super) fn check_peer(&self, peer: &RdmaAddress) -> Result<()> {
        let reason = if peer.link_layer != self.address.link_layer {
            "one end is InfiniBand, the other Ethernet"
        } else if peer.is_iwarp() != self.address.is_iwarp() {
            "one end is iWARP, the other RoCE"
        } else {
            return Ok(());
        };
        Err(VerbsError::PeerUnreachable {
            peer: peer.name(),
            reason: reason.to_owned(),
        })
    }
}

/// The error of a path that could not be resolved, or of a connection over it.
pub(super) fn unreachable(peer: &RdmaAddress, error: VerbsError) -> VerbsError {
    VerbsError::PeerUnreachable {
        peer: peer.name(),
        reason: format!(
            "{error}; see that the addresses are in one network and `ping` gets through"
        ),
    }
}

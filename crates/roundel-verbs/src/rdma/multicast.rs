//! Membership in multicast groups: the queue pair at the device, the interface in the network.
#![allow(unsafe_code)] // Calls the library.

use super::bindings::{ibv_gid, ibv_qp};
use super::device_state::DeviceState;
use super::library::{Verbs, check};
use crate::error::{Result, VerbsError};
use crate::multicast::MulticastGroup;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;

/// A queue pair's membership, which ends when it is dropped: a queue pair that is still a member
/// cannot be destroyed. The group's datagrams reach the port only while the network interface is
/// a member too, which it is as long as this socket is open.
pub(super) struct Membership {
    pub group: MulticastGroup,
    verbs: &'static Verbs,
    pair: *mut ibv_qp,
    _interface: OwnedFd,
}

impl Membership {
    pub(super) fn join(
        device: &DeviceState,
        pair: *mut ibv_qp,
        group: &MulticastGroup,
    ) -> Result<Self> {
        let interface = device.interface_index.ok_or(VerbsError::Unsupported {
            provider: device.capabilities.provider,
            what: "multicast without a network interface",
        })?;
        let interface = join_interface(interface, group.gid().into())
            .map_err(VerbsError::system("joining a multicast group"))?;
        // SAFETY: the queue pair is alive, for its owner joins; the call copies the address.
        let code = unsafe { (device.verbs().ibv_attach_mcast)(pair, &ibv_gid(group.gid()), 0) };
        check("ibv_attach_mcast", code)?;
        Ok(Self {
            group: *group,
            verbs: device.verbs(),
            pair,
            _interface: interface,
        })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let gid = ibv_gid(self.group.gid());
        // SAFETY: the queue pair drops its memberships before it is destroyed.
        let code = unsafe { (self.verbs.ibv_detach_mcast)(self.pair, &gid, 0) };
        if code != 0 {
            tracing::warn!(code, group = ?self.group, "a multicast group could not be left");
        }
    }
}

fn join_interface(interface: u32, group: Ipv6Addr) -> rustix::io::Result<OwnedFd> {
    use rustix::net::sockopt::{set_ip_add_membership_with_ifindex, set_ipv6_add_membership};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let open = |family| socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    match group.to_ipv4_mapped() {
        Some(group) => {
            let socket = open(AddressFamily::INET)?;
            let any = std::net::Ipv4Addr::UNSPECIFIED;
            set_ip_add_membership_with_ifindex(&socket, &group, &any, interface)?;
            Ok(socket)
        }
        None => {
            let socket = open(AddressFamily::INET6)?;
            set_ipv6_add_membership(&socket, &group, interface)?;
            Ok(socket)
        }
    }
}

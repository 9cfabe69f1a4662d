//! An open RDMA device: its context and protection domain, its limits, its address.
#![allow(unsafe_code)] // Calls the library.

use super::address::{RdmaAddress, mtu_bytes};
use super::bindings::*;
use super::choice::Choice;
use super::context::Context;
use super::events::Events;
use super::iwarp::Connections;
use super::library::Verbs;
use super::link::TELLINGS;
use super::pairs::Pairs;
use super::sysfs;
use crate::capabilities::{Capabilities, GRH_BYTES};
use crate::error::Result;
use crate::numa::Placement;
use std::sync::Arc;

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
    events: Option<Events>,
    /// On iWARP, who makes connections.
    pub connections: Option<Connections>,
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
    pub(super) fn new(choice: Choice, domain: *mut ibv_pd, placement: Option<Placement>) -> Self {
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
        let iwarp = context.iwarp;
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
                // On iWARP some are the provider's own.
                work_requests_max: count(attributes.max_qp_wr)
                    .min(count(attributes.max_cqe))
                    .saturating_sub(if iwarp { TELLINGS as usize } else { 0 }),
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
                exposes_all_memory: iwarp,
                atomics: attributes.atomic_cap != IBV_ATOMIC_NONE,
                immediate_data: !iwarp,
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
                waits_for_receive: !iwarp,
                completes_on_arrival: !iwarp,
                // iWARP runs over TCP, whose end tells the peer.
                breaks_with_peer: iwarp,
                same_host_only: false,
                networked: true,
            },
            address: RdmaAddress {
                link_layer: port.link_layer,
                mtu: port.active_mtu as u8,
                answered_reads: reads(attributes.max_qp_rd_atom).max(1),
                lid: if ethernet { 0 } else { port.lid },
                gid,
                // Told by the connection manager, on iWARP.
                port: 0,
            },
            port_number,
            gid_index,
            interface_index: interface.as_deref().and_then(sysfs::interface_index),
            asked_reads,
            placement,
            pairs: Arc::default(),
            events: None,
            connections: None,
            domain,
            context,
        }
    }

    pub(super) fn verbs(&self) -> &'static Verbs {
        self.context.verbs
    }

    /// Starts the thread that reads the device's events.
    pub(super) fn watch_events(&mut self) -> Result<()> {
        let device = &self.capabilities.device;
        self.events = Some(Events::watch(&self.context, device, &self.pairs)?);
        Ok(())
    }

    /// On iWARP, starts the thread that makes connections.
    pub(super) fn serve_connections(&mut self) -> Result<()> {
        if self.context.iwarp {
            let reads = self.asked_reads;
            let connections =
                Connections::serve(&self.context, &mut self.address, reads, &self.pairs)?;
            self.connections = Some(connections);
        }
        Ok(())
    }
}

impl Drop for DeviceState {
    fn drop(&mut self) {
        // The threads use the context.
        self.connections = None;
        self.events = None;
        // SAFETY: everything created in the domain is gone, for it keeps this state.
        let code = unsafe { (self.context.verbs.ibv_dealloc_pd)(self.domain) };
        if code != 0 {
            tracing::warn!(code, "a protection domain could not be freed");
        }
    }
}

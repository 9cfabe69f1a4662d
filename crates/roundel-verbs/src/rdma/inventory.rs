//! What there is of RDMA devices: all that libibverbs and the kernel tell of each one and of its
//! ports, also of those that cannot be used now. Opens every device for a moment and changes
//! nothing.

use super::address::mtu_bytes;
use super::bindings::*;
use super::context::{self, Context, port_state_name};
use super::sysfs::{self, DeviceFiles, Gid, Interface, PcieLink};
use crate::error::{Result, VerbsError};
use serde::Serialize;
use std::collections::BTreeSet;

/// A device of the host, and what is known of it.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// Its name: `mlx5_0`, `rxe0`.
    pub name: String,
    /// Its GUID, four groups of four hexadecimal digits.
    pub node_guid: Option<String>,
    /// Version of its firmware.
    pub firmware: Option<String>,
    /// The network interface that a device in software (Soft-RoCE, Soft-iWARP) sits on.
    pub software_on: Option<String>,
    /// The NUMA node it is attached to, or that of the network card below one in software, where the system says.
    pub numa_node: Option<u32>,
    /// The address of its PCI function, `0000:3b:00.0`.
    pub pci_address: Option<String>,
    /// Its PCIe link.
    pub pcie: Option<PcieLink>,
    /// What it told when it was opened; none when it could not be.
    pub opened: Option<OpenedDevice>,
    /// Why it could not be opened, and what to do.
    pub problem: Option<String>,
}

/// What a device tells when it is open.
#[derive(Clone, Debug, Serialize)]
pub struct OpenedDevice {
    /// The family of protocols: `InfiniBand` (also of RoCE), `iWARP` or `other`.
    pub transport: &'static str,
    /// Number of its vendor.
    pub vendor_id: u32,
    /// The vendor's number of the part.
    pub vendor_part_id: u32,
    /// The vendor's number of the hardware's version.
    pub hardware_version: u32,
    /// How many objects of each kind it can have.
    pub limits: Limits,
    /// Its ports, in the order of their numbers.
    pub ports: Vec<PortReport>,
}

/// The limits of a device. How many bytes it takes inline shows when it is opened for use: see
/// [`Capabilities`](crate::Capabilities).
#[derive(Clone, Debug, Serialize)]
pub struct Limits {
    /// Most queue pairs.
    pub queue_pairs_max: i32,
    /// Most work requests posted and not completed, per send or receive queue.
    pub work_requests_max: i32,
    /// Most pieces of memory that a work request may name.
    pub scatter_gather_max: i32,
    /// Most completion queues.
    pub completion_queues_max: i32,
    /// Most completions in a queue.
    pub completion_queue_depth_max: i32,
    /// Most memory regions.
    pub memory_regions_max: i32,
    /// Most bytes of a memory region.
    pub registered_bytes_max: u64,
    /// Most READs and atomics outstanding that a queue pair asks for.
    pub reads_asked_max: i32,
    /// Most READs and atomics outstanding that a queue pair answers.
    pub reads_answered_max: i32,
    /// Atomics: `none`, `device` (atomic among queue pairs of this device) or `host` (also with
    /// the processors).
    pub atomics: &'static str,
    /// Most shared receive queues.
    pub shared_receive_queues_max: i32,
    /// Most receives in a shared receive queue.
    pub shared_receive_depth_max: i32,
    /// Most multicast groups.
    pub multicast_groups_max: i32,
    /// Most address handles.
    pub address_handles_max: i32,
}

/// A port of an open device.
#[derive(Clone, Debug, Serialize)]
pub struct PortReport {
    /// Its number, from 1.
    pub number: u8,
    /// `down`, `initialising`, `armed` or `active`; only an active one carries data.
    pub state: &'static str,
    /// What its link does: `link up`, `polling` (no cable, or nobody at its end), `disabled`, …
    pub physical_state: &'static str,
    /// `InfiniBand`, `Ethernet` or `unknown`.
    pub link_layer: &'static str,
    /// The link's rate, as the kernel words it: `100 Gb/sec (4X EDR)`.
    pub rate: Option<String>,
    /// Bytes of payload of a packet, and so of a datagram.
    pub active_mtu_bytes: usize,
    /// The most that the port could do.
    pub max_mtu_bytes: usize,
    /// Local identifier on InfiniBand, else 0.
    pub lid: u16,
    /// Bytes of the longest message.
    pub message_bytes_max: u32,
    /// Its network interface.
    pub interface: Option<Interface>,
    /// The valid entries of its GID table.
    pub gids: Vec<Gid>,
}

impl PortReport {
    /// Whether it carries data.
    pub fn is_active(&self) -> bool {
        self.state == port_state_name(IBV_PORT_ACTIVE)
    }

    /// Whether it is Ethernet, so that RDMA on it is RoCE or iWARP.
    pub fn is_ethernet(&self) -> bool {
        self.link_layer == link_layer_name(IBV_LINK_LAYER_ETHERNET)
    }
}

/// Every device that libibverbs or the kernel knows, sorted by name.
///
/// # Errors
/// When the library is missing or cannot list devices. A device that cannot be opened is no error:
/// its report says why.
pub fn devices() -> Result<Vec<DeviceReport>> {
    let known: BTreeSet<String> = context::names()?.into_iter().collect();
    let all: BTreeSet<String> = known.iter().cloned().chain(sysfs::device_names()).collect();
    let report = |name: String| {
        let opened = if known.contains(&name) {
            OpenedDevice::open(&name)
        } else {
            Err(VerbsError::NoDevice(format!(
                "the kernel has RDMA device {name}, libibverbs does not list it: its character \
                 device needs the module ib_uverbs (`modprobe ib_uverbs`), and its driver the \
                 package ibverbs-providers (`apt-get install ibverbs-providers`)"
            )))
        };
        DeviceReport::new(name, opened)
    };
    Ok(all.into_iter().map(report).collect())
}

impl DeviceReport {
    fn new(name: String, opened: Result<OpenedDevice>) -> Self {
        let files = DeviceFiles::of(&name);
        let (opened, problem) = match opened {
            Ok(opened) => (Some(opened), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            node_guid: files.node_guid(),
            firmware: files.firmware(),
            software_on: files.parent_interface(),
            numa_node: files.numa_node(),
            pci_address: files.pci_address(),
            pcie: files.pcie(),
            name,
            opened,
            problem,
        }
    }
}

impl OpenedDevice {
    fn open(name: &str) -> Result<Self> {
        let context = Context::open(name)?;
        let attributes = context.device_attributes()?;
        let files = DeviceFiles::of(name);
        let ports = (1..=attributes.phys_port_cnt)
            .map(|number| {
                Ok(PortReport::new(
                    number,
                    &context.port_attributes(number)?,
                    &files,
                ))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            transport: match context.transport_type() {
                IBV_TRANSPORT_IB => "InfiniBand",
                IBV_TRANSPORT_IWARP => "iWARP",
                _ => "other",
            },
            vendor_id: attributes.vendor_id,
            vendor_part_id: attributes.vendor_part_id,
            hardware_version: attributes.hw_ver,
            limits: Limits::new(&attributes),
            ports,
        })
    }
}

impl Limits {
    fn new(attributes: &ibv_device_attr) -> Self {
        Self {
            queue_pairs_max: attributes.max_qp,
            work_requests_max: attributes.max_qp_wr,
            scatter_gather_max: attributes.max_sge,
            completion_queues_max: attributes.max_cq,
            completion_queue_depth_max: attributes.max_cqe,
            memory_regions_max: attributes.max_mr,
            registered_bytes_max: attributes.max_mr_size,
            reads_asked_max: attributes.max_qp_init_rd_atom,
            reads_answered_max: attributes.max_qp_rd_atom,
            atomics: match attributes.atomic_cap {
                IBV_ATOMIC_HCA => "device",
                IBV_ATOMIC_GLOB => "host",
                _ => "none",
            },
            shared_receive_queues_max: attributes.max_srq,
            shared_receive_depth_max: attributes.max_srq_wr,
            multicast_groups_max: attributes.max_mcast_grp,
            address_handles_max: attributes.max_ah,
        }
    }
}

impl PortReport {
    fn new(number: u8, port: &ibv_port_attr, files: &DeviceFiles) -> Self {
        Self {
            number,
            state: port_state_name(port.state),
            physical_state: physical_state_name(port.phys_state),
            link_layer: link_layer_name(port.link_layer),
            rate: files.rate(number),
            active_mtu_bytes: mtu_bytes(port.active_mtu),
            max_mtu_bytes: mtu_bytes(port.max_mtu),
            lid: port.lid,
            message_bytes_max: port.max_msg_sz,
            interface: files.interface(number).as_deref().map(Interface::of),
            // A table that cannot be read has no entry that could be used.
            gids: files.gids(number).unwrap_or_default(),
        }
    }
}

fn link_layer_name(link_layer: u8) -> &'static str {
    match link_layer {
        IBV_LINK_LAYER_INFINIBAND => "InfiniBand",
        IBV_LINK_LAYER_ETHERNET => "Ethernet",
        _ => "unknown",
    }
}

/// The states of a link that the InfiniBand architecture numbers.
fn physical_state_name(state: u8) -> &'static str {
    match state {
        1 => "sleep",
        2 => "polling",
        3 => "disabled",
        4 => "training",
        5 => "link up",
        6 => "error recovery",
        7 => "test",
        _ => "unknown",
    }
}

//! Which device, port and GID to use: what the user said, and what is usable.

use super::bindings::{IBV_LINK_LAYER_INFINIBAND, IBV_PORT_ACTIVE, ibv_device_attr, ibv_port_attr};
use super::context::{self, Context};
use super::interface;
use super::sysfs::{DeviceFiles, Gid, GidType};
use crate::error::{Result, VerbsError};
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Which device to open: `device[/port[/gid]]`, each part optional from the right.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RdmaOptions {
    /// Name of the device, `mlx5_0`; the first that is usable if none.
    pub device: Option<String>,
    /// Its port, counted from 1; the first that is active if none.
    pub port: Option<u8>,
    /// Index in the port's GID table; if none, an address of RoCE v2 that is routable.
    pub gid_index: Option<u8>,
}

impl FromStr for RdmaOptions {
    type Err = VerbsError;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = || {
            VerbsError::NoDevice(format!(
                "{text:?} names no RDMA device: write device[/port[/gid]], for instance mlx5_0/1/3"
            ))
        };
        let mut parts = text.split('/');
        let device = parts
            .next()
            .filter(|name| !name.is_empty())
            .ok_or_else(invalid)?;
        let mut number = || {
            parts
                .next()
                .map(str::parse)
                .transpose()
                .map_err(|_| invalid())
        };
        let options = Self {
            device: Some(device.to_owned()),
            port: number()?,
            gid_index: number()?,
        };
        if parts.next().is_some() || options.port == Some(0) {
            return Err(invalid());
        }
        Ok(options)
    }
}

impl std::fmt::Display for RdmaOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.device.as_deref().unwrap_or("any device"))?;
        if let Some(port) = self.port {
            write!(f, "/{port}")?;
        }
        if let Some(gid) = self.gid_index {
            write!(f, "/{gid}")?;
        }
        Ok(())
    }
}

/// An open device with the port and the GID to use.
pub(super) struct Choice {
    pub context: Context,
    pub device: String,
    pub attributes: ibv_device_attr,
    pub port_number: u8,
    pub port: ibv_port_attr,
    pub gid_index: u8,
    /// On iWARP the IP address of the interface, mapped if it is of version 4.
    pub gid: Ipv6Addr,
    /// The network interface of the GID; none on InfiniBand.
    pub interface: Option<String>,
}

/// Opens what the options name, or the first device that is usable.
pub(super) fn choose(options: &RdmaOptions) -> Result<Choice> {
    let names = context::names()?;
    if names.is_empty() {
        return Err(VerbsError::NoDevice(
            "this host has no RDMA device, or its driver is not loaded; `roundel doctor` says more"
                .to_owned(),
        ));
    }
    let wanted: Vec<&String> = match &options.device {
        None => names.iter().collect(),
        Some(device) => names.iter().filter(|name| *name == device).collect(),
    };
    if wanted.is_empty() {
        return Err(VerbsError::NoDevice(format!(
            "there is no RDMA device {options}; there is {}",
            names.join(", ")
        )));
    }
    // The error names the first problem when nothing is usable.
    let mut problem = None;
    for name in wanted {
        match on_device(name, options) {
            Ok(choice) => return Ok(choice),
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    Err(problem.unwrap_or_else(|| VerbsError::NoDevice("no RDMA device is usable".to_owned())))
}

fn on_device(name: &str, options: &RdmaOptions) -> Result<Choice> {
    let context = Context::open(name)?;
    let attributes = context.device_attributes()?;
    let ports = match options.port {
        Some(port) if port > attributes.phys_port_cnt => {
            return Err(VerbsError::NoDevice(format!(
                "{name} has no port {port}: it has {}",
                attributes.phys_port_cnt
            )));
        }
        Some(port) => port..=port,
        None => 1..=attributes.phys_port_cnt,
    };
    let mut down = None;
    for port_number in ports {
        let port = context.port_attributes(port_number)?;
        if port.state != IBV_PORT_ACTIVE {
            down = down.or(Some((port_number, port.state)));
            continue;
        }
        let mut gid = choose_gid(name, port_number, &port, options.gid_index)?;
        if context.iwarp {
            gid.interface = DeviceFiles::of(name)
                .interface(port_number)
                .or_else(|| interface::of_gid(gid.address));
            let address = gid.interface.as_deref().and_then(interface::address_of);
            gid.address = address.ok_or_else(|| no_address(name, port_number))?;
        }
        return Ok(Choice {
            context,
            device: name.to_owned(),
            attributes,
            port_number,
            port,
            gid_index: u8::try_from(gid.index).map_err(|_| {
                VerbsError::NoDevice(format!("GID {} of {name} is beyond 255", gid.index))
            })?,
            gid: gid.address,
            interface: gid.interface,
        });
    }
    let (port, state) = down.unwrap_or((1, 0));
    Err(VerbsError::NoDevice(format!(
        "port {port} of RDMA device {name} is {}: bring its link up (`rdma link` names the \
         interface, `ip link set INTERFACE up`), on InfiniBand see that a subnet manager runs",
        context::port_state_name(state)
    )))
}

fn choose_gid(
    device: &str,
    port_number: u8,
    port: &ibv_port_attr,
    index: Option<u8>,
) -> Result<Gid> {
    let failed = |source| VerbsError::System {
        call: "reading the GIDs of an RDMA device",
        source,
    };
    let gids = DeviceFiles::of(device).gids(port_number).map_err(failed)?;
    let infiniband = port.link_layer == IBV_LINK_LAYER_INFINIBAND;
    best_gid(gids, infiniband, index).ok_or_else(|| {
        VerbsError::NoDevice(match index {
            Some(index) => format!("port {port_number} of {device} has no GID with index {index}"),
            None => return no_address(device, port_number),
        })
    })
}

fn no_address(device: &str, port_number: u8) -> VerbsError {
    VerbsError::NoDevice(format!(
        "port {port_number} of RDMA device {device} has no address yet: give its network interface one (`ip address \
         add`)"
    ))
}

/// The GID of that index, or else the best: on RoCE version 2 before 1, IPv4 before IPv6, routable
/// before link-local.
fn best_gid(gids: Vec<Gid>, infiniband: bool, index: Option<u8>) -> Option<Gid> {
    match index {
        Some(index) => gids.into_iter().find(|gid| gid.index == u32::from(index)),
        None if infiniband => gids.into_iter().next(),
        None => gids.into_iter().min_by_key(|gid| {
            (
                gid.kind != GidType::RoceV2,
                gid.is_link_local(),
                gid.address.to_ipv4_mapped().is_none(),
                gid.index,
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(index: u32, address: &str, kind: GidType) -> Gid {
        Gid {
            index,
            address: address.parse().unwrap(),
            kind,
            interface: None,
        }
    }

    #[test]
    fn names_of_devices() {
        let all: RdmaOptions = "mlx5_0/1/3".parse().unwrap();
        assert_eq!(all.device.as_deref(), Some("mlx5_0"));
        assert_eq!((all.port, all.gid_index), (Some(1), Some(3)));
        assert_eq!(all.to_string(), "mlx5_0/1/3");
        let device: RdmaOptions = "rxe0".parse().unwrap();
        assert_eq!((device.port, device.gid_index), (None, None));
        for wrong in ["", "/1", "a/0", "a/x", "a/1/2/3", "a/1/256"] {
            assert!(wrong.parse::<RdmaOptions>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_routable_address_of_roce_v2_is_best() {
        use GidType::{InfiniBandOrRoceV1, RoceV2};
        let gids = vec![
            gid(0, "fe80::1", InfiniBandOrRoceV1),
            gid(1, "fe80::1", RoceV2),
            gid(2, "::ffff:10.9.0.1", InfiniBandOrRoceV1),
            gid(3, "2001:db8::1", RoceV2),
            gid(4, "::ffff:10.9.0.1", RoceV2),
        ];
        let best = |count: usize| best_gid(gids[..count].to_vec(), false, None).unwrap().index;
        assert_eq!(
            [best(1), best(2), best(3), best(4), best(5)],
            [0, 1, 1, 3, 4]
        );
        assert_eq!(best_gid(gids.clone(), true, None).unwrap().index, 0);
        assert_eq!(best_gid(gids.clone(), false, Some(2)).unwrap().index, 2);
        assert!(best_gid(gids, false, Some(9)).is_none());
        assert!(best_gid(Vec::new(), false, None).is_none());
    }
}

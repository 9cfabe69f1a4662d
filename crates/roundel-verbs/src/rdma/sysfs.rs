//! What the kernel tells of RDMA devices in `/sys/class/infiniband`: GIDs with their types and
//! interfaces, rates, places on the host. Opens no device, needs no library.

use serde::Serialize;
use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

/// Where the kernel shows its RDMA devices.
const ROOT: &str = "/sys/class/infiniband";

/// Where it shows its network interfaces.
const INTERFACES: &str = "/sys/class/net";

/// So many unused entries in a row end a GID table: the kernel fills the first that is free, tables
/// have up to a thousand entries, and each is a file to read.
const UNUSED_GIDS_MAX: u32 = 64;

/// How a GID travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GidType {
    /// InfiniBand, or RoCE version 1: the files do not tell them apart, the link layer does.
    InfiniBandOrRoceV1,
    /// RoCE version 2, over UDP: the only one that is routed.
    RoceV2,
}

/// An entry of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gid {
    /// Its index in the table.
    pub index: u32,
    /// The address; an IPv4 address is mapped into IPv6.
    pub address: Ipv6Addr,
    /// How it travels.
    pub kind: GidType,
    /// The network interface it belongs to.
    pub interface: Option<String>,
}

impl Gid {
    /// Whether it reaches no further than the link.
    pub fn is_link_local(&self) -> bool {
        self.address.is_unicast_link_local()
    }
}

/// The directory of a device.
pub struct DeviceFiles(PathBuf);

impl DeviceFiles {
    /// Of the device of this name.
    pub fn of(device: &str) -> Self {
        Self(Path::new(ROOT).join(device))
    }

    /// The valid entries of a port's GID table, up to where it seems to end.
    pub fn gids(&self, port: u8) -> io::Result<Vec<Gid>> {
        let port = self.0.join(format!("ports/{port}"));
        let mut indices: Vec<u32> = Vec::new();
        for entry in fs::read_dir(port.join("gids"))? {
            let name = entry?.file_name();
            indices.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
        }
        indices.sort_unstable();
        let mut gids: Vec<Gid> = Vec::new();
        for index in indices {
            if index > gids.last().map_or(0, |gid| gid.index) + UNUSED_GIDS_MAX {
                break;
            }
            let name = index.to_string();
            // An entry that is not in use reads as zeroes, or its attributes cannot be read.
            let Some(address) = read(&port.join("gids").join(&name))
                .and_then(|text| text.parse::<Ipv6Addr>().ok())
                .filter(|address| !address.is_unspecified())
            else {
                continue;
            };
            // Before Linux 4.x, and on InfiniBand, there may be no types.
            let kind = match read(&port.join("gid_attrs/types").join(&name)).as_deref() {
                Some("RoCE v2") => GidType::RoceV2,
                _ => GidType::InfiniBandOrRoceV1,
            };
            let interface = read(&port.join("gid_attrs/ndevs").join(&name));
            gids.push(Gid {
                index,
                address,
                kind,
                interface,
            });
        }
        Ok(gids)
    }

    /// The link's rate, as the kernel words it: `100 Gb/sec (4X EDR)`.
    pub fn rate(&self, port: u8) -> Option<String> {
        read(&self.0.join(format!("ports/{port}/rate")))
    }

    /// Version of its firmware.
    pub fn firmware(&self) -> Option<String> {
        read(&self.0.join("fw_ver"))
    }

    /// Its node GUID, as the kernel writes it: `0011:22ff:fe33:4455`.
    pub fn node_guid(&self) -> Option<String> {
        read(&self.0.join("node_guid"))
    }

    /// The network interface that a device in software sits on; none for one in hardware.
    pub fn parent_interface(&self) -> Option<String> {
        read(&self.0.join("parent"))
    }

    /// The network interface of a port; none on InfiniBand without IPoIB.
    pub fn interface(&self, port: u8) -> Option<String> {
        if let Some(parent) = self.parent_interface() {
            return Some(parent);
        }
        let attributes = self.0.join(format!("ports/{port}/gid_attrs/ndevs"));
        let of_gid = |entry: io::Result<fs::DirEntry>| read(&entry.ok()?.path());
        if let Some(interface) = fs::read_dir(attributes).ok()?.find_map(of_gid) {
            return Some(interface);
        }
        // A port that is down may have no GID: then by number, as the kernel counts, from 0.
        let interfaces = self.0.join("device/net");
        fs::read_dir(&interfaces).ok()?.find_map(|entry| {
            let entry = entry.ok()?;
            let number: u8 = read(&entry.path().join("dev_port"))?.parse().ok()?;
            (number + 1 == port).then(|| entry.file_name().into_string().ok())?
        })
    }

    /// The address of its PCI function, `0000:3b:00.0`; none for a device in software.
    pub fn pci_address(&self) -> Option<String> {
        let device = fs::canonicalize(self.0.join("device")).ok()?;
        let on_pci = fs::canonicalize(device.join("subsystem")).ok()?;
        if on_pci.file_name()? != "pci" {
            return None;
        }
        device.file_name()?.to_str().map(str::to_owned)
    }

    /// The NUMA node that the device is attached to, or that of the network card below one in software.
    /// None when the system does not say.
    pub fn numa_node(&self) -> Option<u32> {
        numa_node(&self.0)
            .or_else(|| numa_node(&Path::new(INTERFACES).join(self.parent_interface()?)))
    }

    /// Speed and width of its PCIe link now and at most: (`16.0 GT/s PCIe`, 16). None for a device
    /// in software.
    pub fn pcie(&self) -> Option<PcieLink> {
        let of = |name: &str| read(&self.0.join("device").join(name));
        Some(PcieLink {
            speed: of("current_link_speed")?,
            width: of("current_link_width")?.parse().ok()?,
            speed_max: of("max_link_speed")?,
            width_max: of("max_link_width")?.parse().ok()?,
        })
    }
}

/// A PCIe link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PcieLink {
    /// Transfer rate of a lane, as the kernel words it.
    pub speed: String,
    /// Lanes in use.
    pub width: u32,
    /// The device's best transfer rate.
    pub speed_max: String,
    /// The device's most lanes.
    pub width_max: u32,
}

/// Names of the devices that the kernel has, sorted; none when it has no RDMA subsystem.
pub fn device_names() -> Vec<String> {
    let Ok(entries) = fs::read_dir(ROOT) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// The file through which programs reach a device; none when the module ib_uverbs is not loaded.
pub fn character_device(device: &str) -> Option<PathBuf> {
    let entries = fs::read_dir("/sys/class/infiniband_verbs").ok()?;
    entries.filter_map(Result::ok).find_map(|entry| {
        let of = read(&entry.path().join("ibdev"))?;
        (of == device).then(|| Path::new("/dev/infiniband").join(entry.file_name()))
    })
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Bytes of its largest packet.
    pub mtu: Option<u32>,
    /// Whether it is switched on (`ip link set … up`), whatever its link does.
    pub enabled: bool,
}

impl Interface {
    /// What the kernel tells of the interface of this name.
    pub fn of(name: &str) -> Self {
        /// `IFF_UP` of the kernel's flags.
        const UP: u32 = 1;
        let files = Path::new(INTERFACES).join(name);
        let flags = read(&files.join("flags"))
            .and_then(|flags| u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok());
        Self {
            name: name.to_owned(),
            mtu: read(&files.join("mtu")).and_then(|mtu| mtu.parse().ok()),
            enabled: flags.is_some_and(|flags| flags & UP != 0),
        }
    }
}

/// The index of a network interface.
pub fn interface_index(name: &str) -> Option<u32> {
    read(&Path::new(INTERFACES).join(name).join("ifindex"))?
        .parse()
        .ok()
}

/// The NUMA node of the hardware behind an entry of `/sys/class`. Where the firmware does not tell,
/// the kernel says -1, which is none.
fn numa_node(entry: &Path) -> Option<u32> {
    read(&entry.join("device/numa_node"))?.parse().ok()
}

fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device's files as a kernel shows them: three GIDs in use, one not, one behind a gap, and
    /// one far behind.
    fn device() -> (tempfile::TempDir, DeviceFiles) {
        let root = tempfile::tempdir().unwrap();
        let port = root.path().join("ports/1");
        for (name, text) in [
            ("gids/0", "fe80:0000:0000:0000:0011:22ff:fe33:4455\n"),
            ("gids/1", "0000:0000:0000:0000:0000:ffff:0a09:0001\n"),
            ("gids/2", "0000:0000:0000:0000:0000:ffff:0a09:0001\n"),
            ("gids/3", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
            ("gids/40", "fe80:0000:0000:0000:0011:22ff:fe33:4455\n"),
            ("gids/900", "fe80:0000:0000:0000:0011:22ff:fe33:4455\n"),
            ("gid_attrs/types/0", "RoCE v2\n"),
            ("gid_attrs/types/1", "IB/RoCE v1\n"),
            ("gid_attrs/types/2", "RoCE v2\n"),
            ("gid_attrs/ndevs/0", "v0\n"),
            ("gid_attrs/ndevs/2", "v0\n"),
            ("rate", "100 Gb/sec (4X EDR)\n"),
        ] {
            let path = port.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let files = DeviceFiles(root.path().to_owned());
        (root, files)
    }

    #[test]
    fn gids_have_types_and_interfaces() {
        let (_root, files) = device();
        let gids = files.gids(1).unwrap();
        let indices: Vec<u32> = gids.iter().map(|gid| gid.index).collect();
        assert_eq!(indices, [0, 1, 2, 40]);
        assert!(gids[0].is_link_local());
        assert_eq!(gids[0].interface.as_deref(), Some("v0"));
        assert_eq!(gids[1].kind, GidType::InfiniBandOrRoceV1);
        assert_eq!(gids[1].interface, None);
        assert_eq!(gids[2].kind, GidType::RoceV2);
        assert_eq!(
            gids[2].address.to_ipv4_mapped(),
            Some("10.9.0.1".parse().unwrap())
        );
        assert!(files.gids(2).is_err());
    }

    #[test]
    fn a_node_below_zero_is_none() {
        let (root, files) = device();
        fs::create_dir(root.path().join("device")).unwrap();
        for (text, node) in [("-1\n", None), ("0\n", Some(0)), ("1\n", Some(1))] {
            fs::write(root.path().join("device/numa_node"), text).unwrap();
            assert_eq!(files.numa_node(), node);
        }
    }

    #[test]
    fn what_a_device_in_software_lacks_is_none() {
        let (_root, files) = device();
        assert_eq!(files.rate(1).as_deref(), Some("100 Gb/sec (4X EDR)"));
        assert_eq!(files.numa_node(), None);
        assert_eq!(files.pcie(), None);
    }
}

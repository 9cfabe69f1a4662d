//! An RDMA device and its ports.

use roundel_verbs::rdma::inventory::{DeviceReport, Limits, OpenedDevice, PortReport};
use roundel_verbs::rdma::sysfs::{Gid, GidType};

use super::{Finding, Level, listed};
use crate::doctor::host::Host;

/// Bytes of a packet's payload that a datagram needs to be as long as it may be.
const MTU_BEST: usize = 4096;
/// What an interface's packets must have room for then, headers included.
const INTERFACE_MTU_BEST: usize = 4200;

pub(super) fn judge(device: &DeviceReport, host: &Host) -> Vec<Finding> {
    let section = format!("Device {}", device.name);
    let mut findings = vec![identity(&section, device)];
    findings.extend(pcie(&section, device));
    findings.extend(numa(&section, device, host));
    if let Some(opened) = &device.opened {
        findings.push(limits(&section, &opened.limits));
        for port in &opened.ports {
            findings.extend(judge_port(&section, device, opened, port));
        }
    }
    findings
}

fn identity(section: &str, device: &DeviceReport) -> Finding {
    if let Some(problem) = &device.problem {
        return Finding::new(section, "device", Level::Problem, problem);
    }
    let mut parts = Vec::new();
    match (&device.software_on, &device.opened) {
        (Some(interface), _) => parts.push(format!("in software, on {interface}")),
        (None, Some(opened)) => parts.push(format!(
            "vendor {:#06x}, part {}",
            opened.vendor_id, opened.vendor_part_id
        )),
        (None, None) => {}
    }
    if let Some(firmware) = &device.firmware {
        parts.push(format!("firmware {firmware}"));
    }
    if let Some(guid) = &device.node_guid {
        parts.push(format!("GUID {guid}"));
    }
    Finding::new(section, "device", Level::Ok, parts.join(", "))
}

fn pcie(section: &str, device: &DeviceReport) -> Option<Finding> {
    const ABOUT: &str = "PCIe";
    let link = device.pcie.as_ref()?;
    let now = format!("{} x{}", link.speed, link.width);
    if (&link.speed, link.width) == (&link.speed_max, link.width_max) {
        return Some(Finding::new(section, ABOUT, Level::Ok, now));
    }
    let text = format!(
        "{now}, of {} x{} that it can",
        link.speed_max, link.width_max
    );
    let address = device.pci_address.as_deref().unwrap_or_default();
    Some(Finding::new(section, ABOUT, Level::Note, text).step(format!(
        "put it into a slot with as many lanes of that speed; `lspci -vv -s {address}` (LnkSta) \
         tells what the slot gives"
    )))
}

fn numa(section: &str, device: &DeviceReport, host: &Host) -> Option<Finding> {
    const ABOUT: &str = "NUMA";
    let number = device.numa_node?;
    let node = host.numa_nodes.iter().find(|node| node.node == number)?;
    if host.numa_nodes.len() == 1 || host.cpus.is_subset(&node.cpus) {
        return Some(Finding::new(
            section,
            ABOUT,
            Level::Ok,
            format!("node {number}"),
        ));
    }
    let text = if host.cpus.is_disjoint(&node.cpus) {
        format!("node {number}, but this process runs on others")
    } else {
        format!("node {number}, but this process may run on others, too")
    };
    Some(
        Finding::new(section, ABOUT, Level::Note, text).step(format!(
            "keep workers near: `numactl --cpunodebind={number} --membind={number} roundel …`"
        )),
    )
}

fn limits(section: &str, limits: &Limits) -> Finding {
    let text = format!(
        "{} queue pairs, {} work requests each, {} completions per queue, {} READs outstanding",
        limits.queue_pairs_max,
        limits.work_requests_max,
        limits.completion_queue_depth_max,
        limits.reads_asked_max,
    );
    Finding::new(section, "limits", Level::Ok, text)
}

fn judge_port(
    section: &str,
    device: &DeviceReport,
    opened: &OpenedDevice,
    port: &PortReport,
) -> Vec<Finding> {
    let about = format!("port {}", port.number);
    let protocol = match (port.is_ethernet(), opened.transport) {
        (true, "InfiniBand") => "RoCE",
        (_, transport) => transport,
    };
    let mut text = format!("{}, {protocol}", port.state);
    if let Some(interface) = &port.interface {
        text += &format!(" on {}", interface.name);
    }
    if !port.is_active() {
        text += &format!(", link: {}", port.physical_state);
        return vec![bring_up(
            Finding::new(section, &about, Level::Problem, text),
            port,
        )];
    }
    // A device in software tells a rate that it has made up.
    if let (None, Some(rate)) = (&device.software_on, &port.rate) {
        text += &format!(", {rate}");
    }
    if port.lid != 0 {
        text += &format!(", LID {}", port.lid);
    }
    vec![
        Finding::new(section, &about, Level::Ok, text),
        mtu(section, port),
        gids(section, port),
    ]
}

fn bring_up(finding: Finding, port: &PortReport) -> Finding {
    match &port.interface {
        Some(interface) if !interface.enabled => {
            finding.step(format!("as root: `ip link set {} up`", interface.name))
        }
        Some(interface) => finding.step(format!(
            "see to cable and switch; `ethtool {}` tells what the link does",
            interface.name
        )),
        None if port.is_ethernet() => {
            finding.step("`rdma link` names its interface; as root: `ip link set INTERFACE up`")
        }
        // The link is there, the subnet manager has not been.
        None if port.physical_state == "link up" => finding
            .step("start a subnet manager, on a switch or one host: `systemctl start opensm`"),
        None => finding.step("see to cable and switch; `ibstat` tells what the link does"),
    }
}

fn mtu(section: &str, port: &PortReport) -> Finding {
    const ABOUT: &str = "MTU";
    let active = port.active_mtu_bytes;
    if active >= MTU_BEST.min(port.max_mtu_bytes) {
        return Finding::new(section, ABOUT, Level::Ok, format!("{active}"));
    }
    let text = format!(
        "{active} of {}: datagrams are that short",
        port.max_mtu_bytes
    );
    let finding = Finding::new(section, ABOUT, Level::Note, text);
    match &port.interface {
        Some(interface) if port.is_ethernet() => finding.step(format!(
            "as root, on every host, and as much on the switches: `ip link set {} mtu \
             {INTERFACE_MTU_BEST}`{}",
            interface.name,
            interface
                .mtu
                .map_or(String::new(), |mtu| format!(" (it is {mtu})"))
        )),
        _ => finding.step("raise the MTU of the partition in the subnet manager's configuration"),
    }
}

fn gids(section: &str, port: &PortReport) -> Finding {
    const ABOUT: &str = "addresses";
    let interface = port.interface.as_ref().map_or("INTERFACE", |one| &one.name);
    let give = format!("as root: `ip address add ADDRESS/24 dev {interface}`");
    let name = |gid: &Gid| {
        let kind = match (gid.kind, port.is_ethernet()) {
            (GidType::RoceV2, _) => " (RoCE v2)",
            (GidType::InfiniBandOrRoceV1, true) => " (RoCE v1)",
            (GidType::InfiniBandOrRoceV1, false) => "",
        };
        format!("{} {}{kind}", gid.index, gid.address.to_canonical())
    };
    let all: Vec<String> = port.gids.iter().map(name).collect();
    if all.is_empty() {
        return Finding::new(section, ABOUT, Level::Problem, "none").step(give);
    }
    let text = format!("GID {}", listed(&all));
    if !port.is_ethernet() {
        return Finding::new(section, ABOUT, Level::Ok, text);
    }
    let routable = |gid: &&Gid| gid.kind == GidType::RoceV2 && !gid.is_link_local();
    if port.gids.iter().any(|gid| routable(&gid)) {
        return Finding::new(section, ABOUT, Level::Ok, text);
    }
    let text = format!("{text}: none that is of RoCE v2 and reaches further than the link");
    Finding::new(section, ABOUT, Level::Note, text).step(give)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::tests::facts;
    use roundel_verbs::rdma::sysfs::PcieLink;
    use std::collections::BTreeSet;

    fn device() -> (DeviceReport, Host) {
        let mut facts = facts();
        (facts.devices.remove(0), facts.host)
    }

    fn port(device: &mut DeviceReport) -> &mut PortReport {
        &mut device.opened.as_mut().unwrap().ports[0]
    }

    fn found(device: &DeviceReport, host: &Host, about: &str) -> Finding {
        let mut findings = judge(device, host);
        findings.retain(|finding| finding.about == about);
        findings.remove(0)
    }

    #[test]
    fn a_healthy_device_has_nothing_to_do() {
        let (device, host) = device();
        let findings = judge(&device, &host);
        assert!(
            findings
                .iter()
                .all(|one| one.level == Level::Ok && one.to_do.is_empty())
        );
        assert!(
            found(&device, &host, "port 1")
                .text
                .contains("RoCE on eth0, 100 Gb/sec")
        );
    }

    #[test]
    fn a_slow_slot_is_noted() {
        let (mut device, host) = device();
        device.pci_address = Some("0000:3b:00.0".to_owned());
        device.pcie = Some(PcieLink {
            speed: "8.0 GT/s PCIe".to_owned(),
            width: 8,
            speed_max: "16.0 GT/s PCIe".to_owned(),
            width_max: 16,
        });
        let found = found(&device, &host, "PCIe");
        assert_eq!(found.level, Level::Note);
        assert!(found.to_do[0].contains("lspci -vv -s 0000:3b:00.0"));
    }

    #[test]
    fn a_device_on_another_node_is_noted() {
        let (mut device, mut host) = device();
        device.numa_node = Some(1);
        for (cpus, level) in [
            ([2, 3], Level::Ok),
            ([1, 2], Level::Note),
            ([0, 1], Level::Note),
        ] {
            host.cpus = BTreeSet::from(cpus);
            assert_eq!(found(&device, &host, "NUMA").level, level, "{cpus:?}");
        }
        let found = found(&device, &host, "NUMA");
        assert!(found.text.ends_with("runs on others"), "{}", found.text);
        assert!(found.to_do[0].contains("--cpunodebind=1 --membind=1"));
    }

    #[test]
    fn a_port_that_is_down_says_how_to_bring_it_up() {
        let (mut device, host) = device();
        port(&mut device).state = "down";
        let steps = |device: &DeviceReport| found(device, &host, "port 1").to_do;
        assert!(steps(&device)[0].contains("ethtool eth0"));
        port(&mut device).interface.as_mut().unwrap().enabled = false;
        assert_eq!(steps(&device), ["as root: `ip link set eth0 up`"]);
        port(&mut device).interface = None;
        port(&mut device).link_layer = "InfiniBand";
        port(&mut device).physical_state = "link up";
        assert!(steps(&device)[0].contains("opensm"));
    }

    #[test]
    fn a_small_mtu_and_missing_addresses_are_told() {
        let (mut device, host) = device();
        port(&mut device).active_mtu_bytes = 1024;
        port(&mut device).interface.as_mut().unwrap().mtu = Some(1500);
        let of_mtu = found(&device, &host, "MTU");
        assert_eq!(of_mtu.level, Level::Note);
        assert!(of_mtu.to_do[0].contains("ip link set eth0 mtu 4200` (it is 1500)"));
        port(&mut device).gids[0].address = "fe80::1".parse().unwrap();
        assert_eq!(found(&device, &host, "addresses").level, Level::Note);
        port(&mut device).gids.clear();
        assert_eq!(found(&device, &host, "addresses").level, Level::Problem);
    }
}

//! The inventory and the loopback on RDMA devices.

use roundel_testbed::{Machine, Place, in_machine};
use roundel_verbs::loopback::{self, Verdict};
use roundel_verbs::rdma::{self, inventory};

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn every_device_tells_what_it_is_and_every_verb_works_on_it() {
    let test = "every_device_tells_what_it_is_and_every_verb_works_on_it";
    let Place::Machine(names) = in_machine(test, Machine::default()) else {
        return;
    };
    let devices = inventory::devices().unwrap();
    let found: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(found, names);
    for (number, device) in devices.iter().enumerate() {
        println!("{device:#?}");
        let interface = format!("v{number}");
        assert_eq!(device.software_on.as_deref(), Some(interface.as_str()));
        assert_eq!(
            (device.problem.as_deref(), device.pcie.as_ref()),
            (None, None)
        );
        let opened = device.opened.as_ref().unwrap();
        assert_eq!(opened.transport, "InfiniBand");
        assert!(opened.limits.queue_pairs_max > 0 && opened.limits.work_requests_max > 0);
        let [port] = &opened.ports[..] else {
            panic!("Soft-RoCE devices have one port");
        };
        assert!(port.is_active() && port.is_ethernet());
        assert_eq!(
            (port.active_mtu_bytes, port.physical_state),
            (4096, "link up")
        );
        let of_port = port.interface.as_ref().unwrap();
        assert_eq!(
            (of_port.name.as_str(), of_port.mtu),
            (interface.as_str(), Some(9000))
        );
        assert!(of_port.enabled);
        assert!(
            port.gids
                .iter()
                .any(|gid| gid.address.to_ipv4_mapped().is_some())
        );

        let opened = rdma::open(&device.name.parse().unwrap()).unwrap();
        for outcome in loopback::run(&opened) {
            println!("{}: {:?}", outcome.check.name(), outcome.verdict);
            assert_eq!(outcome.verdict, Verdict::Works, "{}", outcome.check.name());
        }
    }
}

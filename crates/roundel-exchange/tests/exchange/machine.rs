//! The tests of this directory again, on Soft-RoCE devices in the VM test bed, with and without
//! loss on the wire. `faults` and `repair` stay out: they make their own loss, on shared memory.

use roundel_testbed::{Machine, tests_in_machine};

/// Loses so many percent of the frames on the wire.
fn in_machine(test: &str, modules: &[&str], percent: &str) {
    let machine = Machine {
        devices: 4,
        options: &["--loss", percent],
        // Six designs through multiplexers are among the ways: on a slow host all take over eight minutes.
        timeout_seconds: 1200,
        ..Machine::default()
    };
    tests_in_machine(test, modules, machine);
}

/// What is right with loss, too: connections, and datagrams that are repaired or noticed.
const WITH_LOSS: [&str; 3] = [
    "designs::repartition_with_messages_of_one_packet",
    "multicast::",
    "restart::",
];

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn on_rdma() {
    let modules = [
        "designs::",
        "broadcast::messages_are_filled_once_for_all",
        "multiplexer::",
        "types::",
        "cancel::",
        "memory::",
        "order::",
        "multicast::",
        "restart::",
    ];
    in_machine("machine::on_rdma", &modules, "0");
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn on_iwarp() {
    let machine = Machine {
        devices: 4,
        kind: "siw",
        timeout_seconds: 900,
        ..Machine::default()
    };
    // Tests with more queue pairs meet one that the kernel's module fails to make (vm/README.md).
    let modules = [
        "designs::partitions",
        "designs::a_string",
        "designs::tiny",
        "types::",
        "cancel::",
        "memory::",
    ];
    tests_in_machine("machine::on_iwarp", &modules, machine);
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn on_rdma_with_a_loss_of_a_thousandth() {
    let test = "machine::on_rdma_with_a_loss_of_a_thousandth";
    in_machine(test, &WITH_LOSS, "0.1");
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn on_rdma_with_a_loss_of_a_hundredth() {
    let test = "machine::on_rdma_with_a_loss_of_a_hundredth";
    in_machine(test, &WITH_LOSS, "1");
}

//! The tests of this directory again, on Soft-RoCE devices in the VM test bed, with and without
//! loss on the wire. `faults` and `repair` stay out: they make their own loss, on shared memory.

use roundel_testbed::{Machine, tests_in_machine};

#[test]
fn on_rdma() {
    let modules = ["designs::", "types::", "cancel::", "memory::", "order::"];
    tests_in_machine("machine::on_rdma", &modules, Machine::default());
}

/// Loses so many percent of the frames on the wire: connections are right, and datagrams are
/// repaired.
fn with_loss(test: &str, percent: &str) {
    let machine = Machine {
        options: &["--loss", percent],
        ..Machine::default()
    };
    let tests = ["designs::repartition_with_messages_of_one_packet"];
    tests_in_machine(test, &tests, machine);
}

#[test]
fn on_rdma_with_a_loss_of_a_thousandth() {
    with_loss("machine::on_rdma_with_a_loss_of_a_thousandth", "0.1");
}

#[test]
fn on_rdma_with_a_loss_of_a_hundredth() {
    with_loss("machine::on_rdma_with_a_loss_of_a_hundredth", "1");
}

fn multicast(test: &str, options: &[&str]) {
    let machine = Machine {
        devices: 4,
        options,
        ..Machine::default()
    };
    tests_in_machine(test, &["multicast::"], machine);
}

#[test]
fn multicast_on_rdma() {
    multicast("machine::multicast_on_rdma", &[]);
}

#[test]
fn multicast_on_rdma_with_a_loss_of_a_hundredth() {
    multicast(
        "machine::multicast_on_rdma_with_a_loss_of_a_hundredth",
        &["--loss", "1"],
    );
}

//! The tests of this directory again, on Soft-RoCE devices in the VM test bed, with and without
//! loss on the wire. `faults` stays out: it makes its own loss, on shared memory.

use roundel_testbed::{Machine, tests_in_machine};

/// All but the random order of consumption, which takes long in emulation.
const MODULES: &[&str] = &["designs::", "types::", "cancel::", "memory::", "order::"];

#[test]
fn on_rdma() {
    tests_in_machine("machine::on_rdma", MODULES, Machine::default());
}

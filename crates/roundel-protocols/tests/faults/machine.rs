//! The same on Soft-RoCE devices, in the virtual machine: every protocol in every paradigm with every fault. Beside
//! devices that lose what is posted there are cables that lose frames, which reliable connections have to send again.

use crate::nodes::Fault;
use crate::real::Provider;
use crate::{killed, real};
use roundel_testbed::{Machine, Place, in_machine};

/// As many devices as a conversation has nodes at most.
const MACHINE: Machine<'_> = Machine {
    devices: 3,
    kind: "rxe",
    memory_mib: 1024,
    timeout_seconds: 240,
    options: &[],
};

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
#[ignore = "needs the virtual machine: vm/run prepare"]
async fn each_call_ends_once_on_rdma() {
    let test = "machine::each_call_ends_once_on_rdma";
    if let Place::Machine(_) = in_machine(test, MACHINE) {
        real::every_case(Provider::Rdma).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
#[ignore = "needs the virtual machine: vm/run prepare"]
async fn each_call_ends_once_on_rdma_with_a_loss_of_a_twentieth() {
    let test = "machine::each_call_ends_once_on_rdma_with_a_loss_of_a_twentieth";
    let machine = Machine {
        options: &["--loss", "5"],
        ..MACHINE
    };
    if let Place::Machine(_) = in_machine(test, machine) {
        real::every_protocol(Provider::Rdma, Fault::Nothing).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
#[ignore = "needs the virtual machine: vm/run prepare"]
async fn calls_to_killed_processes_end_on_rdma() {
    let test = "machine::calls_to_killed_processes_end_on_rdma";
    if let Place::Machine(_) = in_machine(test, MACHINE) {
        killed::every_case(Provider::Rdma).await;
    }
}

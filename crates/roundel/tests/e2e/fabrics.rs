//! `roundel tpch` in machines where something that RDMA needs is missing: `--fabric rdma` says what,
//! and without it the query runs over shared memory.

use std::process::Output;

use crate::common::{stderr, stdout};
use roundel_testbed::{Machine, command};

/// Asserts both in a machine with these options; `told` is how the error begins.
fn assert_falls_back(devices: usize, options: &[&str], told: &str) {
    let machine = Machine {
        devices,
        options,
        memory_mib: 2048,
        ..Machine::default()
    };
    let roundel = env!("CARGO_BIN_EXE_roundel");
    let tpch = format!("{roundel} tpch --scale 0.01 --queries 6");
    // What a run leaves behind would keep the other from ending as it should.
    let script = format!(
        "{tpch} --fabric rdma; echo exit $? >&2; {tpch} && ls /tmp /dev/shm && ! pidof roundel"
    );
    let output: Output = command(machine)
        .args(["--", "sh", "-c", &script])
        .output()
        .unwrap();
    let (said, errors) = (stdout(&output), stderr(&output));
    assert!(output.status.success(), "{said}\n{errors}");
    let lines: Vec<&str> = errors.lines().collect();
    let [error, exit] = lines[..] else {
        panic!("more than one line, or fewer: {errors}");
    };
    assert!(error.starts_with(&format!("error: {told}")), "{error}");
    assert_eq!(exit, "exit 1");
    assert!(said.contains("auto over shm"), "{said}");
    assert!(said.contains("1 of 1 verified"), "{said}");
    assert!(!said.contains("roundel-"), "left behind: {said}");
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn without_the_library() {
    assert_falls_back(
        1,
        &["--without-libibverbs"],
        "no rdma: libibverbs.so.1 cannot be loaded",
    );
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn without_a_device() {
    let told = "no rdma: this host has no RDMA device, or its driver is not loaded";
    assert_falls_back(0, &[], told);
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn with_a_device_that_is_down() {
    let told = "no rdma: port 1 of RDMA device rxe0 is down: bring its link up";
    let options = ["--link-down", "rxe0"];
    assert_falls_back(1, &options, told);
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn as_a_user_who_may_lock_little_memory() {
    let told =
        "no rdma: cannot pin 268435456 bytes for the device: this process may lock 65536 bytes";
    let options = ["--user", "1000", "--memlock", "64"];
    assert_falls_back(1, &options, told);
}

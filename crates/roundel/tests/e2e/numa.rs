//! `roundel tpch` through multiplexers, in a machine with two NUMA nodes.

use crate::common::{stderr, stdout};
use roundel_testbed::{Machine, command};

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn threads_stay_in_regions_and_rows_are_right() {
    let machine = Machine {
        devices: 1,
        memory_mib: 2048,
        options: &[
            "--numa",
            "2",
            "--cpus",
            "2",
            "--env",
            "RUST_LOG=roundel_engine=debug,roundel_verbs=debug",
        ],
        ..Machine::default()
    };
    for fabric in ["shm", "rdma"] {
        let settings = ["--exchange", "multiplexer", "--fabric", fabric];
        let cluster = ["--workers", "2", "--threads", "2"];
        let queries = ["--scale", "0.01", "--queries", "1,3"];
        let output = command(machine)
            .args(["--", env!("CARGO_BIN_EXE_roundel"), "tpch"])
            .args([&settings[..], &cluster, &queries].concat())
            .output()
            .unwrap();
        let (said, log) = (stdout(&output), stderr(&output));
        assert!(output.status.success(), "{said}\n{log}");
        assert!(said.contains("2 of 2 verified"), "{said}");
        let times = |text: &str| log.matches(text).count();
        // Two workers and the coordinator.
        assert_eq!(times("NUMA regions of this process regions=2"), 3, "{log}");
        for region in [0, 1] {
            let bound = format!("a thread is bound to its region region={region}");
            assert!(times(&bound) >= 3, "{log}");
        }
        assert_eq!(times("not where it is wanted"), 0, "{log}");
    }
}

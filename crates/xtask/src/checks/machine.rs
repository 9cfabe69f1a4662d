//! Checks on Soft-RoCE and Soft-iWARP devices, in virtual machines (see vm/README.md).

use std::path::Path;

use xshell::cmd;

use super::{DESIGNS, VARIANTS};
use crate::Result;
use crate::places::{Places, run};

/// Tests that need the virtual machine, of those targets of the workspace, with such names.
fn in_machine(places: &Places, targets: &[&str], names: &[&str]) -> Result {
    // Of the workspace, as `tests` has built them: by themselves their dependencies have fewer features.
    let what = [
        &["test", "--release", "--workspace"],
        targets,
        &["--"],
        names,
    ]
    .concat();
    places.cargo(
        &[
            &what[..],
            &["--ignored", "--nocapture", "--test-threads", "1"],
        ]
        .concat(),
    )
}

/// Runs one of our programs in a virtual machine with Soft-RoCE devices.
fn exec_in_machine(places: &Places, program: &Path, arguments: &str) -> Result {
    let arguments = arguments.split(' ');
    let machine = ["--memory", "3072", "--timeout", "400"];
    run(cmd!(
        places.shell,
        "vm/run exec {machine...} -- {program} {arguments...}"
    ))
}

pub fn rdma() -> Result {
    let places = Places::with_programs()?;
    run(cmd!(places.shell, "vm/run prepare"))?;
    in_machine(&places, &["--test", "conformance"], &["--exact", "rdma"])?;
    in_machine(
        &places,
        &["--test", "exchange"],
        &["--exact", "machine::on_rdma"],
    )?;
    exec_in_machine(
        &places,
        &places.roundel,
        "tpch --scale 0.01 --workers 2 --fabric rdma",
    )
}

pub fn rdma_all() -> Result {
    let places = Places::with_programs()?;
    run(cmd!(places.shell, "vm/run prepare"))?;
    in_machine(&places, &[], &["--skip", "iwarp"])?;
    exec_in_machine(
        &places,
        &places.roundel,
        "tpch --scale 0.01 --workers 3 --fabric rdma --join cyclo",
    )?;
    exec_in_machine(
        &places,
        &places.lab,
        "perf protocols --fabric rdma --seconds 0.3 --pending 4",
    )
}

pub fn iwarp() -> Result {
    let places = Places::find()?;
    run(cmd!(places.shell, "vm/run prepare"))?;
    let targets = ["--lib", "--test", "conformance", "--test", "exchange"];
    in_machine(&places, &targets, &["iwarp"])
}

/// TPC-H by each design, each query compared and each verb counted.
pub fn rdma_designs() -> Result {
    let places = Places::with_programs()?;
    let (shell, roundel) = (&places.shell, &places.roundel);
    run(cmd!(shell, "vm/run prepare"))?;
    for design in DESIGNS.iter().chain(&VARIANTS) {
        let json = places.result(&format!(
            "tpch-rdma-{}.json",
            design.replace(['/', ':'], "-")
        ));
        let share = format!("{}:rw", json.parent().unwrap_or(Path::new(".")).display());
        let machine = ["--memory", "3072", "--timeout", "900", "--share", &share];
        let cluster = ["--scale", "0.01", "--workers", "2", "--fabric", "rdma"];
        run(cmd!(
            shell,
            "vm/run exec {machine...} -- {roundel} tpch {cluster...} --design {design} --json {json}"
        ))?;
        run(cmd!(shell, "python3 .ci/check_report.py {json}"))?;
    }
    Ok(())
}

pub fn rdma_faults() -> Result {
    let places = Places::with_programs()?;
    let (shell, roundel) = (&places.shell, &places.roundel);
    run(cmd!(shell, "vm/run prepare"))?;
    run(cmd!(shell, "python3 .ci/two_hosts.py {roundel} 0"))?;
    let repair = [
        "--scale",
        "0.01",
        "--design",
        "MESQ/SR",
        "--on-loss",
        "repair",
    ];
    run(cmd!(
        shell,
        "python3 .ci/two_hosts.py {roundel} 1 {repair...}"
    ))?;
    let restart = [
        "--scale",
        "0.01",
        "--queries",
        "1,3,5",
        "--design",
        "MESQ/SR",
        "--on-loss",
        "restart",
    ];
    run(cmd!(
        shell,
        "python3 .ci/two_hosts.py {roundel} 1 {restart...}"
    ))?;
    run(cmd!(shell, "python3 .ci/lost_host.py {roundel}"))
}

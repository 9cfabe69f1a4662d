//! What tests of several crates share: they run, as does any command, in the VM test bed (`vm/run`), where there are
//! RDMA devices; [`program`](mod@program) watches what a program does; and [`faulty`] devices lose and delay what is
//! posted to them.
//!
//! A test that needs such a device is ignored, with the reason, so that a run which leaves it out says so;
//! `cargo xtask rdma` runs it. It calls [`in_machine`] first. On the host that boots a machine and runs this very test
//! in it; in the machine it returns [`Place::Machine`] with the names of the devices, and the test goes on.

pub mod faulty;
pub mod program;

use std::path::PathBuf;
use std::process::Command;

/// Names of the devices in the machine, separated by commas.
const DEVICES: &str = "ROUNDEL_TEST_DEVICES";

/// Variables that tests in the machine have from the host.
const PASSED_ON: [&str; 6] = [
    "RUST_BACKTRACE",
    "RUST_LOG",
    "CONFORMANCE",
    "ROUNDEL_KILLS",
    "ROUNDEL_SEED",
    "ROUNDEL_UPDATE_DOCS",
];

/// Where a test runs.
#[derive(Debug)]
pub enum Place {
    /// In the machine: these are its devices.
    Machine(Vec<String>),
    /// On the host: the machine has run the test. Nothing is left to do.
    Done,
}

/// How the machine is started.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// RDMA devices.
    pub devices: usize,
    /// Their driver, after which they are named: `rxe` is Soft-RoCE, `siw` is Soft-iWARP.
    pub kind: &'a str,
    /// Memory in MiB.
    pub memory_mib: usize,
    /// Seconds that the whole run may take.
    pub timeout_seconds: u64,
    /// Further options of `vm/run exec`.
    pub options: &'a [&'a str],
}

impl Default for Machine<'_> {
    fn default() -> Self {
        Self {
            devices: 2,
            kind: "rxe",
            memory_mib: 1024,
            timeout_seconds: 240,
            options: &[],
        }
    }
}

/// The devices of the machine; none on the host.
pub fn devices() -> Option<Vec<String>> {
    let names = std::env::var(DEVICES).ok()?;
    Some(names.split(',').map(str::to_owned).collect())
}

/// Runs the test of this name, which is the caller, in a machine.
///
/// # Panics
/// When the test fails in the machine, or the machine itself fails.
pub fn in_machine(test: &str, machine: Machine<'_>) -> Place {
    if let Some(devices) = devices() {
        return Place::Machine(devices);
    }
    tests_in_machine(test, &["--exact", test], machine);
    Place::Done
}

/// Runs those tests of the calling executable in a machine that its arguments select; `test` is the
/// caller, which does nothing when it is itself in a machine.
///
/// # Panics
/// As [`in_machine`].
pub fn tests_in_machine(test: &str, arguments: &[&str], machine: Machine<'_>) {
    if devices().is_some() {
        return;
    }
    let own = std::env::current_exe().expect("a test has an executable");
    let status = command(machine)
        .arg("--")
        .arg(own)
        .args(arguments)
        .args(["--include-ignored", "--nocapture", "--test-threads", "1"])
        .status()
        .expect("vm/run can be started");
    assert!(status.success(), "{test} in the machine: {status}");
}

/// `vm/run exec` with the machine's options; the command to run follows `--`.
pub fn command(machine: Machine<'_>) -> Command {
    let kind = machine.kind;
    let devices: Vec<String> = (0..machine.devices).map(|n| format!("{kind}{n}")).collect();
    let mut command = Command::new(program());
    command
        .arg("exec")
        .args(["--devices", &machine.devices.to_string()])
        .args(["--kind", kind])
        .args(["--memory", &machine.memory_mib.to_string()])
        .args(["--timeout", &machine.timeout_seconds.to_string()])
        .args(["--env", &format!("{DEVICES}={}", devices.join(","))])
        .args(machine.options);
    for name in PASSED_ON {
        if let Ok(value) = std::env::var(name) {
            command.args(["--env", &format!("{name}={value}")]);
        }
    }
    command
}

/// `vm/run` of this repository.
pub fn program() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vm/run"))
}

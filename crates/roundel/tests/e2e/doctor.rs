//! `roundel doctor`, on this host and on machines that have, or lack, RDMA devices.

use std::process::Output;

use roundel_testbed::{Machine, command};
use serde_json::Value;

use crate::common::{program, stderr, stdout};

const SHM_TOO: &str = "shared memory works: queries run on this host";

/// What the doctor said in a machine: its exit code, the JSON, and the text for people.
struct Said {
    code: Option<i32>,
    report: Value,
    text: String,
}

impl Said {
    fn new(output: &Output) -> Self {
        let report = serde_json::from_slice(&output.stdout);
        Self {
            code: output.status.code(),
            report: report.unwrap_or_else(|e| panic!("{e}: {}", stderr(output))),
            text: stderr(output),
        }
    }

    fn summary(&self) -> &str {
        let summary = self.report["summary"].as_str().unwrap();
        let line = format!("{summary}.");
        assert!(self.text.lines().any(|one| one == line), "{}", self.text);
        summary
    }

    /// The first finding about something, such as `port 1`, whose section ends so.
    fn finding(&self, section: &str, about: &str) -> &Value {
        let findings = self.report["findings"].as_array().unwrap();
        let of = |finding: &&Value| {
            finding["section"].as_str().unwrap().starts_with(section) && finding["about"] == about
        };
        findings
            .iter()
            .find(of)
            .unwrap_or_else(|| panic!("nothing about {about}: {}", self.text))
    }

    /// Asserts what was found, and that people and machines read this step to take.
    fn assert_finding(&self, section: &str, about: &str, level: &str, step: &str) {
        let finding = self.finding(section, about);
        assert_eq!(finding["level"], level, "{finding}");
        let steps = finding["to_do"].as_array().unwrap();
        let is_it = |one: &Value| one.as_str().unwrap().contains(step);
        assert!(steps.iter().any(is_it), "{finding}");
        assert!(self.text.contains(step), "{}", self.text);
    }

    fn fabric(&self, name: &str) -> &Value {
        let fabrics = self.report["fabrics"].as_array().unwrap();
        let found = fabrics.iter().find(|fabric| fabric["name"] == name);
        found.unwrap_or_else(|| panic!("no fabric {name}: {}", self.text))
    }

    /// Asserts that every design runs on a fabric, or none.
    fn assert_designs(&self, fabric: &str, run: bool) {
        let fabric = self.fabric(fabric);
        assert_eq!(fabric["works"], run, "{fabric}");
        let designs = fabric["designs"].as_array().unwrap();
        assert_eq!(designs.len(), 8);
        assert!(
            designs.iter().all(|design| design["runs"] == run),
            "{fabric}"
        );
    }

    fn assert_no_problem(&self) {
        let findings = self.report["findings"].as_array().unwrap();
        let problems: Vec<_> = findings
            .iter()
            .filter(|one| one["level"] == "problem")
            .collect();
        assert!(problems.is_empty(), "{problems:#?}");
    }
}

/// Runs `roundel doctor --json` with more arguments in a machine.
fn in_machine(devices: usize, options: &[&str], arguments: &[&str]) -> Said {
    let machine = Machine {
        devices,
        options,
        ..Machine::default()
    };
    let output = command(machine)
        .arg("--")
        .args([env!("CARGO_BIN_EXE_roundel"), "doctor", "--json"])
        .args(arguments)
        .output()
        .unwrap();
    Said::new(&output)
}

#[test]
fn it_is_useful_on_this_host() {
    let roundel = program();
    let output = roundel.run(&["doctor"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("MESQ/SR, SESQ/SR, MEMQ/SR, SEMQ/SR, MEMQ/RD, SEMQ/RD, MEMQ/WR")
    );
    assert!(
        !stdout(&output).contains('\u{1b}'),
        "colours without a terminal"
    );

    let file = roundel.temp().join("report.json");
    let output = roundel.run(&["doctor", "--json", file.to_str().unwrap()]);
    assert!(output.status.success() && output.stdout.is_empty());
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let said = Said {
        code: output.status.code(),
        report,
        text: stderr(&output),
    };
    assert!(
        said.summary().contains("hared memory works"),
        "{}",
        said.text
    );
    said.assert_designs("shm", true);
    assert_eq!(said.fabric("grpc")["works"], true);
    std::fs::remove_file(file).unwrap();
    roundel.assert_nothing_left();
}

#[test]
fn a_fabric_can_be_asked_for() {
    let roundel = program();
    let output = roundel.run(&["doctor", "--fabric", "shm", "--json"]);
    assert!(output.status.success());
    let said = Said::new(&output);
    assert_eq!(said.report["fabrics"].as_array().unwrap().len(), 1);
    assert!(!said.text.contains("RDMA"), "{}", said.text);

    let output = roundel.run(&["doctor", "--fabric", "rdma:nobody0", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let said = Said::new(&output);
    assert_eq!(said.report["works"], false);
    let told = "error: fabric rdma:nobody0 does not work here: rdma:nobody0: ";
    assert!(
        said.text.lines().last().unwrap().starts_with(told),
        "{}",
        said.text
    );
    said.assert_designs("rdma:nobody0", false);

    let output = roundel.run(&["doctor", "--fabric", "pigeon"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty() && stderr(&output).contains("unknown fabric"));
    roundel.assert_nothing_left();
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn two_healthy_devices() {
    let said = in_machine(2, &[], &[]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    assert_eq!(
        said.summary(),
        "RDMA works on rxe0 and rxe1; shared memory works, too"
    );
    said.assert_no_problem();
    for device in ["rdma:rxe0", "rdma:rxe1"] {
        said.assert_designs(device, true);
        let verbs = said.fabric(device)["verbs"].as_array().unwrap();
        assert!(verbs.len() > 10 && verbs.iter().all(|one| one["verdict"] == "works"));
    }
    assert_eq!(said.report["devices"][1]["software_on"], "v1");
    let port = &said.report["devices"][1]["opened"]["ports"][0];
    assert_eq!(
        (&port["state"], &port["active_mtu_bytes"]),
        (&"active".into(), &4096.into())
    );
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn one_of_two_devices_is_down() {
    let said = in_machine(2, &["--link-down", "rxe0"], &[]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    assert_eq!(
        said.summary(),
        "RDMA works on rxe1, not on rxe0 (port 1 is down); shared memory works, too"
    );
    said.assert_finding("Device rxe0", "port 1", "problem", "ip link set v0 up");
    assert_eq!(said.finding("Device rxe1", "port 1")["level"], "ok");
    said.assert_designs("rdma:rxe0", false);
    said.assert_designs("rdma:rxe1", true);
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn without_the_library() {
    let said = in_machine(1, &["--without-libibverbs"], &[]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    let told = format!("RDMA: libibverbs is not installed; {SHM_TOO}");
    assert_eq!(said.summary(), told);
    said.assert_finding(
        "RDMA",
        "libibverbs",
        "problem",
        "apt-get install libibverbs1",
    );
    assert_eq!(said.report["kernel_devices"][0], "rxe0");
    said.assert_designs("rdma", false);
    said.assert_designs("shm", true);
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn without_the_modules() {
    let said = in_machine(0, &["--no-rdma-modules"], &[]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    let told = format!("RDMA: no device (the kernel's RDMA modules are not loaded); {SHM_TOO}");
    assert_eq!(said.summary(), told);
    said.assert_finding("RDMA", "modules", "note", "modprobe ib_uverbs");
    said.assert_finding(
        "RDMA",
        "devices",
        "note",
        "rdma link add rxe0 type rxe netdev",
    );
    said.assert_no_problem();
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn without_a_device_where_rdma_is_asked_for() {
    let said = in_machine(0, &[], &["--fabric", "rdma"]);
    assert_eq!(said.code, Some(1), "{}", said.text);
    assert_eq!(said.summary(), "RDMA: no device");
    said.assert_finding("RDMA", "devices", "problem", "modprobe rdma_rxe");
    let last = said.text.lines().last().unwrap();
    assert_eq!(
        last,
        "error: fabric rdma does not work here: rdma: no device"
    );
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn an_ordinary_user_who_may_lock_little_memory() {
    let options = ["--user", "1000", "--memlock", "64"];
    let said = in_machine(1, &options, &["--fabric", "rdma:rxe0"]);
    assert_eq!(said.code, Some(1), "{}", said.text);
    assert_eq!(
        said.summary(),
        "RDMA does not work on rxe0 (this process may lock only 64.0 KiB of memory)"
    );
    said.assert_finding("Host", "locked memory", "problem", "sudo prlimit --pid $$");
    said.assert_designs("rdma:rxe0", false);
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn a_device_file_that_this_user_may_not_open() {
    let roundel = env!("CARGO_BIN_EXE_roundel");
    let script = format!(
        "chmod 600 /dev/infiniband/uverbs0; su -s /bin/sh user -c '{roundel} doctor --json'"
    );
    let machine = Machine {
        devices: 1,
        ..Machine::default()
    };
    let output = command(machine).args(["--", "sh", "-c", &script]).output();
    let said = Said::new(&output.unwrap());
    assert_eq!(said.code, Some(0), "{}", said.text);
    let told = format!("RDMA does not work on rxe0 (it cannot be opened); {SHM_TOO}");
    assert_eq!(said.summary(), told);
    let step = "chmod 666 /dev/infiniband/uverbs0";
    said.assert_finding("RDMA", "device files", "problem", step);
    let device = said.finding("Device rxe0", "device");
    assert!(
        device["text"]
            .as_str()
            .unwrap()
            .contains("may not be opened by this user")
    );
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn a_short_mtu_and_two_nodes() {
    let options = ["--mtu", "1500", "--numa", "2"];
    let said = in_machine(1, &options, &["--fabric", "rdma:rxe0/1"]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    assert_eq!(said.summary(), "RDMA works on rxe0/1");
    said.assert_finding("Device rxe0", "MTU", "note", "ip link set v0 mtu 4200");
    said.assert_finding(
        "Host",
        "NUMA",
        "note",
        "numactl --cpunodebind=0 --membind=0",
    );
    assert_eq!(
        said.report["host"]["numa_nodes"].as_array().unwrap().len(),
        2
    );
    said.assert_designs("rdma:rxe0/1", true);
}

/// What joins cost is measured, shown, and kept where queries look for it.
#[test]
fn rates_are_measured_and_kept() {
    let roundel = program();
    let kept = roundel.temp().join("rates");
    let calibrate = |fabric: &str| {
        let arguments = ["doctor", "--calibrate", "--fabric", fabric, "--json"];
        let mut command = roundel.command(arguments);
        command.env("ROUNDEL_RATES", &kept);
        command.output().unwrap()
    };
    let output = calibrate("shm");
    assert!(output.status.success(), "{}", stderr(&output));
    let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(measured["fabric"], "shm");
    assert!(measured["rates"]["probe"].as_f64().unwrap() > 0.0);
    assert!(measured["rates"]["link"].as_f64().unwrap() > 0.0);
    let file = std::fs::read(kept.join("rates-shm.json")).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    assert_eq!(file["rates"], measured["rates"]);
    assert!(stderr(&output).contains("a link"), "{}", stderr(&output));
    let output = calibrate("grpc");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    roundel.assert_nothing_left();
}

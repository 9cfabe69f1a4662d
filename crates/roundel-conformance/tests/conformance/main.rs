//! The conformance suite on every provider, and what docs/design/verbs.md says of it.

mod documentation;

use roundel_conformance::{Provider, Report};
use roundel_testbed::{Machine, Place, in_machine};
use roundel_verbs::sim::{Parameters, Simulation};
use roundel_verbs::{Device, VerbsError, rdma, shm, tcp};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

/// Runs the suite; `column` is what the document calls the provider.
fn run(provider: &dyn Provider, column: &str) {
    let mut report = Report::observed(|finding| println!("{finding}"));
    let filter = std::env::var("CONFORMANCE").unwrap_or_default();
    roundel_conformance::run_matching(provider, &filter, &mut report);
    println!("\n{report}");
    assert!(!report.findings().is_empty(), "no case matches");
    let failed: Vec<_> = report.failures().map(|finding| finding.case).collect();
    assert!(
        failed.is_empty(),
        "{} cases failed: {failed:#?}",
        failed.len()
    );
    if filter.is_empty() {
        let device = provider.open().unwrap();
        documentation::check(column, device.capabilities(), &report);
    }
}

#[test]
fn shm() {
    run(&|| shm::open(shm::ShmOptions::default()), "`shm`");
}

/// A provider that opens devices at an address of this host.
fn tcp_at(address: &str) -> impl Fn() -> Result<Device, VerbsError> {
    let address = address.parse().unwrap();
    move || tcp::open(tcp::TcpOptions { address })
}

#[test]
fn tcp() {
    run(&tcp_at("127.0.0.1"), "`tcp`");
}

#[test]
fn tcp_over_ipv6() {
    if std::fs::read_to_string("/proc/net/if_inet6").is_ok_and(|all| all.contains(" lo")) {
        run(&tcp_at("::1"), "`tcp`");
    } else {
        // To the terminal also when the test passes.
        let text = b"SKIPPED tcp_over_ipv6: this host has no IPv6 loopback address\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), text);
    }
}

/// A cluster on virtual time, which passes as time does.
struct Simulated {
    simulation: Arc<Simulation>,
    ended: Arc<AtomicBool>,
    clock: Option<JoinHandle<()>>,
}

impl Simulated {
    fn start() -> Self {
        let simulation = Arc::new(Simulation::new(Parameters::edr(), 1));
        let ended = Arc::new(AtomicBool::new(false));
        let (running, end) = (simulation.clone(), ended.clone());
        let clock = std::thread::spawn(move || {
            let start = Instant::now();
            while !end.load(Ordering::Relaxed) {
                running.advance(start.elapsed());
                std::thread::yield_now();
            }
        });
        Self {
            simulation,
            ended,
            clock: Some(clock),
        }
    }
}

impl Provider for Simulated {
    fn open(&self) -> Result<Device, VerbsError> {
        Ok(self.simulation.add_node(1).device())
    }

    fn slowness(&self) -> u64 {
        10
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(clock) = self.clock.take() {
            let _ = clock.join();
        }
    }
}

#[test]
fn sim() {
    run(&Simulated::start(), "`sim`");
}

/// The devices in turn, so that nodes of a case reach each other over the wire.
struct Devices {
    options: Vec<rdma::RdmaOptions>,
    next: Cell<usize>,
}

impl Provider for Devices {
    fn open(&self) -> Result<Device, VerbsError> {
        let next = self.next.get();
        self.next.set(next + 1);
        rdma::open(&self.options[next % self.options.len()])
    }

    fn slowness(&self) -> u64 {
        40
    }
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn rdma() {
    on_devices("rdma", "rxe", "Soft-RoCE");
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn iwarp() {
    on_devices("iwarp", "siw", "Soft-iWARP");
}

/// Runs the suite, for the test of this name, in a machine with devices of this kind.
fn on_devices(test: &str, kind: &str, column: &str) {
    let documents = format!("{}:rw", documentation::directory().display());
    let writable = ["--share", &documents];
    let machine = Machine {
        kind,
        options: match std::env::var_os(documentation::UPDATE) {
            Some(_) => &writable,
            None => &[],
        },
        ..Machine::default()
    };
    let Place::Machine(names) = in_machine(test, machine) else {
        return;
    };
    let devices = Devices {
        options: names.iter().map(|name| name.parse().unwrap()).collect(),
        next: Cell::new(0),
    };
    run(&devices, column);
}

//! The conformance suite on every provider.

use roundel_testbed::{Machine, Place, in_machine};
use roundel_verbs::conformance::{self, Provider, Report};
use roundel_verbs::{Device, VerbsError, rdma, shm};
use std::cell::Cell;

fn run(provider: &dyn Provider) {
    let mut report = Report::observed(|finding| println!("{finding}"));
    let filter = std::env::var("CONFORMANCE").unwrap_or_default();
    conformance::run_matching(provider, &filter, &mut report);
    println!("\n{report}");
    assert!(report.findings().iter().any(|_| true), "no case matches");
    let failed: Vec<_> = report.failures().map(|finding| finding.case).collect();
    assert!(
        failed.is_empty(),
        "{} cases failed: {failed:#?}",
        failed.len()
    );
}

#[test]
fn shm() {
    run(&|| shm::open(shm::ShmOptions::default()));
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
        20
    }
}

#[test]
fn rdma() {
    let Place::Machine(names) = in_machine("rdma", Machine::default()) else {
        return;
    };
    run(&Devices {
        options: names.iter().map(|name| name.parse().unwrap()).collect(),
        next: Cell::new(0),
    });
}

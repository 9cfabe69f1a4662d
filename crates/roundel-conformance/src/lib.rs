//! The conformance suite: what real verbs do, asserted on any provider.
//!
//! It is a library function so that every provider, also one of somebody else, runs the very
//! same cases. A case either passes, fails, or *differs*: the provider says through its
//! [`Capabilities`](roundel_verbs::Capabilities) that it cannot behave so, and the report names the
//! difference.
//!
//! The suite knows nothing of any provider: it opens devices through [`Provider`] and uses the
//! public object model only.

mod fixture;
mod lacking;
mod report;

mod accounting;
mod arming;
mod atomics;
mod channels;
mod completion_queues;
mod datagrams;
mod flow;
mod inlining;
mod load;
mod memory;
mod messages;
mod multicast;
mod permissions;
mod remote_memory;
mod shared_receives;
mod state;
mod unreliable;

pub use report::{Finding, Report, Verdict};

use roundel_verbs::device::Device;
use roundel_verbs::error::Result;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Opens devices of the provider under test. Each call gives a new device; all of them reach
/// each other.
pub trait Provider {
    /// A new device.
    fn open(&self) -> Result<Device>;

    /// Called when the suite polls and there is nothing: a simulated provider moves its clock on.
    fn idle(&self) {
        std::thread::yield_now();
    }

    /// How many times slower than memory it moves messages: rounds that only repeat are that many
    /// times fewer.
    fn slowness(&self) -> u64 {
        1
    }
}

impl<F: Fn() -> Result<Device>> Provider for F {
    fn open(&self) -> Result<Device> {
        self()
    }
}

/// One case of the suite.
struct Case {
    /// `concern: what happens`.
    name: &'static str,
    /// What real verbs do.
    verbs: &'static str,
    run: fn(&dyn Provider) -> report::CaseResult,
}

/// Runs every case on the provider and adds what was found to the report.
pub fn run(provider: &dyn Provider, report: &mut Report) {
    run_matching(provider, "", report);
}

/// Runs the cases whose name contains `filter`.
pub fn run_matching(provider: &dyn Provider, filter: &str, report: &mut Report) {
    let concerns = [
        messages::CASES,
        state::CASES,
        flow::CASES,
        inlining::CASES,
        remote_memory::CASES,
        permissions::CASES,
        atomics::CASES,
        unreliable::CASES,
        datagrams::CASES,
        multicast::CASES,
        shared_receives::CASES,
        completion_queues::CASES,
        channels::CASES,
        arming::CASES,
        accounting::CASES,
        memory::CASES,
        load::CASES,
    ];
    for case in concerns.into_iter().flatten() {
        if !case.name.contains(filter) {
            continue;
        }
        tracing::debug!(case = case.name, "conformance");
        let start = fixture::now();
        let verdict = match catch_unwind(AssertUnwindSafe(|| (case.run)(provider))) {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(report::Failure(text))) => Verdict::Failed(text),
            Err(panic) => Verdict::Failed(format!("panicked: {}", report::panic_text(&*panic))),
        };
        report.add(Finding {
            case: case.name,
            verbs: case.verbs,
            verdict,
            took: start.elapsed(),
        });
    }
}

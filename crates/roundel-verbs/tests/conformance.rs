//! The conformance suite on the `shm` provider.

use roundel_verbs::conformance::{self, Report};
use roundel_verbs::shm;

#[test]
fn shm() {
    let open = || shm::open(shm::ShmOptions::default());
    let mut report = Report::default();
    let filter = std::env::var("CONFORMANCE").unwrap_or_default();
    conformance::run_matching(&open, &filter, &mut report);
    println!("{report}");
    assert!(report.findings().iter().any(|_| true), "no case matches");
    let failed = report.failures().count();
    assert!(failed == 0, "{failed} cases failed:\n{report}");
}

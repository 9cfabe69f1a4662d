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
    let failed: Vec<_> = report.failures().map(|finding| finding.case).collect();
    assert!(
        failed.is_empty(),
        "{} cases failed: {failed:#?}",
        failed.len()
    );
}

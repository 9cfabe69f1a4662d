//! The report: all facts, what they mean, and one sentence that says it. The names of the fields
//! are those of the JSON, which programs rely on.

use roundel_engine::FabricChoice;
use serde::Serialize;

use super::fabrics::FabricReport;
use super::facts::Facts;
use super::findings::{self, Finding, listed};
use super::kernel::ModuleState;
use roundel_terminal::Failure;
use roundel_verbs::one_line;

/// Everything that was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of Roundel.
    pub version: &'static str,
    /// One sentence that says what works.
    pub summary: String,
    /// Whether the fabric that was asked for works, or any, when none was.
    pub works: bool,
    /// All facts.
    #[serde(flatten)]
    pub facts: Facts,
    /// The facts, judged, with what to do.
    pub findings: Vec<Finding>,
}

impl Facts {
    fn summary(&self) -> String {
        let rdma: Vec<&FabricReport> = self
            .fabrics
            .iter()
            .filter(|fabric| fabric.name.starts_with("rdma"))
            .collect();
        let shm = self.fabrics.iter().find(|fabric| fabric.name == "shm");
        let grpc = self.fabrics.iter().find(|fabric| fabric.name == "grpc");
        let rdma_works = rdma.iter().any(|fabric| fabric.works);
        let mut parts = Vec::new();
        if !rdma.is_empty() {
            parts.push(self.rdma_summary(&rdma));
        }
        parts.extend(shm.map(|shm| match (shm.works, rdma_works) {
            (true, true) => "shared memory works, too".to_owned(),
            (true, false) => "shared memory works: queries run on this host".to_owned(),
            (false, _) => format!("shared memory does not work ({})", self.reason(shm)),
        }));
        // Where rows travel over it, or it was asked for.
        if !rdma_works && shm.is_none_or(|shm| !shm.works) {
            parts.extend(grpc.map(|grpc| match grpc.works {
                true => "queries run over gRPC".to_owned(),
                false => format!("gRPC does not work ({})", self.reason(grpc)),
            }));
        }
        let mut text = parts.join("; ");
        if let Some(first) = text.get(..1).map(str::to_uppercase) {
            text.replace_range(..1, &first);
        }
        text
    }

    fn rdma_summary(&self, rdma: &[&FabricReport]) -> String {
        let device = |fabric: &FabricReport| fabric.name.strip_prefix("rdma:").map(str::to_owned);
        let works: Vec<String> = rdma
            .iter()
            .filter(|fabric| fabric.works)
            .filter_map(|fabric| device(fabric))
            .collect();
        let broken: Vec<String> = rdma
            .iter()
            .filter(|fabric| !fabric.works)
            .map(|fabric| match device(fabric) {
                Some(device) => format!("{device} ({})", self.reason(fabric)),
                None => self.reason(fabric),
            })
            .collect();
        match (&works[..], &broken[..]) {
            ([], [only]) if rdma[0].name == "rdma" => {
                let core = self.kernel.state("ib_core");
                let more = match core {
                    _ if only != "no device" => "",
                    ModuleState::Absent => " (this kernel has no RDMA)",
                    ModuleState::Available => " (the kernel's RDMA modules are not loaded)",
                    _ => "",
                };
                format!("RDMA: {only}{more}")
            }
            ([], broken) => format!("RDMA does not work on {}", listed(broken)),
            (works, []) => format!("RDMA works on {}", listed(works)),
            (works, broken) => {
                format!("RDMA works on {}, not on {}", listed(works), listed(broken))
            }
        }
    }
}

impl Report {
    /// Looks at the host, tries the fabric that was asked for, or every one, and judges.
    pub fn collect(asked: &FabricChoice) -> Result<Self, Failure> {
        let facts = Facts::collect(asked)?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            summary: facts.summary(),
            works: facts.works(),
            findings: findings::judge(&facts),
            facts,
        })
    }

    /// The failure of the command, if the fabric that was asked for does not work.
    pub fn failure(&self) -> Result<(), Failure> {
        if self.works {
            return Ok(());
        }
        let what = match self.facts.asked.fabric() {
            Some(_) => format!("fabric {}", self.facts.asked),
            None => "any fabric".to_owned(),
        };
        let reasons: Vec<String> = self
            .facts
            .fabrics
            .iter()
            .map(|fabric| format!("{}: {}", fabric.name, one_line(&self.facts.reason(fabric))))
            .collect();
        Err(Failure::Run(format!(
            "{what} does not work here: {}",
            reasons.join("; ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::tests::{fabric, facts};

    fn summary(fabrics: Vec<FabricReport>) -> String {
        let facts = Facts { fabrics, ..facts() };
        facts.summary()
    }

    #[test]
    fn one_sentence_says_what_works() {
        let (shm, down) = (|| fabric("shm", None), Some("port 1 is down"));
        for (fabrics, wanted) in [
            (
                vec![shm(), fabric("rdma", Some("no device"))],
                "RDMA: no device; shared memory works: queries run on this host",
            ),
            (
                vec![shm(), fabric("rdma:a", None), fabric("rdma:b/2", None)],
                "RDMA works on a and b/2; shared memory works, too",
            ),
            (
                vec![shm(), fabric("rdma:a", down), fabric("rdma:b", None)],
                "RDMA works on b, not on a (port 1 is down); shared memory works, too",
            ),
            (
                vec![fabric("rdma:a", down)],
                "RDMA does not work on a (port 1 is down)",
            ),
            (vec![shm()], "Shared memory works: queries run on this host"),
            (vec![fabric("grpc", None)], "Queries run over gRPC"),
            (
                vec![
                    fabric("shm", Some("no memfd")),
                    fabric("rdma", Some("no device")),
                    fabric("grpc", None),
                ],
                "RDMA: no device; shared memory does not work (no memfd); queries run over gRPC",
            ),
        ] {
            assert_eq!(summary(fabrics), wanted);
        }
    }
}

//! The verbs of each fabric, which designs can run on it, and what is taken by default.

use bytesize::ByteSize;
use roundel_verbs::loopback::{Check, Verdict};

use super::{Finding, Level, counted, listed};
use crate::doctor::fabrics::{DesignReport, FabricReport};
use crate::doctor::facts::Facts;

const VERBS: &str = "Verbs, tried between two queue pairs of a device";
const FABRICS: &str = "Fabrics, and the designs that can run";

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for fabric in &facts.fabrics {
        findings.extend(verbs(fabric));
    }
    for fabric in &facts.fabrics {
        findings.push(designs(fabric, facts));
    }
    findings.extend(by_default(facts));
    findings
}

fn verbs(fabric: &FabricReport) -> Vec<Finding> {
    let names = |wanted: fn(&Verdict) -> bool| -> Vec<&str> {
        let chosen = fabric
            .verbs
            .iter()
            .filter(|outcome| wanted(&outcome.verdict));
        chosen.map(|outcome| outcome.check.name()).collect()
    };
    let mut findings = Vec::new();
    let works = names(|verdict| *verdict == Verdict::Works);
    if !works.is_empty() {
        let text = format!("works: {}", listed(&works));
        findings.push(Finding::new(VERBS, &fabric.name, Level::Ok, text));
    }
    for outcome in &fabric.verbs {
        let Verdict::Failed(reason) = &outcome.verdict else {
            continue;
        };
        let text = format!("{}: {reason}", outcome.check.name());
        let finding = Finding::new(VERBS, &fabric.name, Level::Problem, text);
        findings.push(match outcome.check {
            // The reason says what to do.
            Check::RegisteredMemory => finding,
            _ => finding.step(
                "the kernel's log may say why: `dmesg | tail`; RoCE v2 needs UDP port 4791 open \
                 in firewalls",
            ),
        });
    }
    let not_tried = names(|verdict| matches!(verdict, Verdict::NotTried(_)));
    if !not_tried.is_empty() {
        let text = format!("not tried: {}", listed(&not_tried));
        findings.push(Finding::new(VERBS, &fabric.name, Level::Note, text));
    }
    let lacking = names(|verdict| *verdict == Verdict::NotSupported);
    if !lacking.is_empty() {
        let text = format!("not there, and no design needs it: {}", listed(&lacking));
        findings.push(Finding::new(VERBS, &fabric.name, Level::Ok, text));
    }
    findings
}

fn designs(fabric: &FabricReport, facts: &Facts) -> Finding {
    if !fabric.works {
        let level = match fabric.name == "rdma" && !facts.expects_rdma() {
            true => Level::Note,
            false => Level::Problem,
        };
        let text = format!("none: {}", facts.reason(fabric));
        return Finding::new(FABRICS, &fabric.name, level, text);
    }
    let (run, cannot): (Vec<&DesignReport>, Vec<&DesignReport>) =
        fabric.designs.iter().partition(|design| design.runs);
    let names = |designs: &[&DesignReport]| -> String {
        let names: Vec<&str> = designs.iter().map(|one| one.design.as_str()).collect();
        listed(&names)
    };
    match cannot.first() {
        _ if fabric.designs.is_empty() => {
            let text = "works, over TCP; it has no designs";
            Finding::new(FABRICS, &fabric.name, Level::Ok, text)
        }
        None => match facts.locked_memory_below_need(fabric) {
            None => Finding::new(FABRICS, &fabric.name, Level::Ok, names(&run)),
            Some(limit) => {
                let text = format!("{}, but with {limit} of memory only", names(&run));
                Finding::new(FABRICS, &fabric.name, Level::Problem, text).step(format!(
                    "see locked memory; or `--registered-memory {}`",
                    half(limit)
                ))
            }
        },
        Some(first) => {
            let why = first.problem.as_deref().unwrap_or_default();
            let text = format!("{}; not {}: {why}", names(&run), names(&cannot));
            Finding::new(FABRICS, &fabric.name, Level::Problem, text)
        }
    }
}

/// What of a limit can be registered: queues of the device need some, too.
fn half(limit: ByteSize) -> String {
    format!("{}KiB", limit.as_u64() / 2048)
}

fn by_default(facts: &Facts) -> Option<Finding> {
    const ABOUT: &str = "by default";
    let run = &facts.default_run;
    let takes = run.takes.as_deref()?;
    let text = format!(
        "`roundel tpch` starts {} of {} and sends over {takes} with design {}",
        counted(run.workers.into(), "worker"),
        counted(run.threads.into(), "thread"),
        run.design,
    );
    let taken = facts.fabrics.iter().find(|fabric| fabric.name == takes)?;
    if taken.works {
        return Some(Finding::new(FABRICS, ABOUT, Level::Ok, text));
    }
    let text = format!("{text}, which does not work");
    let finding = Finding::new(FABRICS, ABOUT, Level::Problem, text);
    let other = facts.fabrics.iter().find(|fabric| fabric.works);
    Some(match other {
        Some(other) => finding.step(format!("meanwhile: `roundel tpch --fabric {}`", other.name)),
        None => finding,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::tests::{fabric, facts};
    use roundel_verbs::loopback::Outcome;

    #[test]
    fn what_is_taken_by_default_must_work() {
        let mut facts = facts();
        facts.fabrics = vec![fabric("shm", None), fabric("rdma:a", Some("no memory"))];
        for (takes, level) in [("shm", Level::Ok), ("rdma:a", Level::Problem)] {
            facts.default_run.takes = Some(takes.to_owned());
            assert_eq!(by_default(&facts).unwrap().level, level, "{takes}");
        }
        let steps = by_default(&facts).unwrap().to_do;
        assert_eq!(steps, ["meanwhile: `roundel tpch --fabric shm`"]);
    }

    #[test]
    fn a_failed_verb_is_told_with_its_reason() {
        let mut rdma = fabric("rdma:a", None);
        let outcome = |check, verdict| Outcome { check, verdict };
        rdma.verbs = vec![
            outcome(Check::RcSend, Verdict::Works),
            outcome(Check::UdSend, Verdict::Failed("nothing arrived".to_owned())),
            outcome(Check::Multicast, Verdict::NotTried("x".to_owned())),
            outcome(Check::Atomics, Verdict::NotSupported),
        ];
        let found: Vec<(Level, String)> = verbs(&rdma)
            .into_iter()
            .map(|finding| (finding.level, finding.text))
            .collect();
        let wanted = [
            (Level::Ok, "works: RC SEND"),
            (Level::Problem, "UD SEND: nothing arrived"),
            (Level::Note, "not tried: multicast"),
            (Level::Ok, "not there, and no design needs it: atomics"),
        ]
        .map(|(level, text)| (level, text.to_owned()));
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_low_limit_of_locked_memory_is_told_with_the_designs() {
        let mut facts = facts();
        let mut rdma = fabric("rdma:a", None);
        rdma.designs = vec![DesignReport {
            design: "MESQ/SR".to_owned(),
            runs: true,
            problem: None,
        }];
        assert_eq!(designs(&rdma, &facts).level, Level::Ok);
        facts.host.locked_memory.limit_bytes = Some(8 << 20);
        let found = designs(&rdma, &facts);
        assert_eq!(found.level, Level::Problem);
        assert!(found.to_do[0].contains("--registered-memory 4096KiB"));
    }
}

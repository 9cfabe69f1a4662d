//! The verbs of each fabric, which designs can run on it, and what is taken by default.

use bytesize::ByteSize;
use roundel_verbs::loopback::{Outcome, Verdict};

use super::{Finding, Level, counted, listed};
use crate::doctor::fabrics::{DesignReport, FabricReport};
use crate::doctor::report::{DefaultRun, Facts};

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
    findings.push(by_default(&facts.default_run));
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
        let text = format!("{} work", listed(&works));
        findings.push(Finding::new(VERBS, &fabric.name, Level::Ok, text));
    }
    let failure = |outcome: &Outcome| match &outcome.verdict {
        Verdict::Failed(reason) => Some(format!("{}: {reason}", outcome.check.name())),
        _ => None,
    };
    for text in fabric.verbs.iter().filter_map(failure) {
        let finding = Finding::new(VERBS, &fabric.name, Level::Problem, text);
        findings.push(finding.to_do(
            "the kernel's log may say why: `dmesg | tail`; RoCE v2 needs UDP port 4791 open in \
             firewalls",
        ));
    }
    let not_tried = names(|verdict| matches!(verdict, Verdict::NotTried(_)));
    if !not_tried.is_empty() {
        let text = format!("not tried: {}", listed(&not_tried));
        findings.push(Finding::new(VERBS, &fabric.name, Level::Note, text));
    }
    let lacking = names(|verdict| *verdict == Verdict::NotSupported);
    if !lacking.is_empty() {
        let text = format!(
            "{} are not there, and no design needs them",
            listed(&lacking)
        );
        findings.push(Finding::new(VERBS, &fabric.name, Level::Ok, text));
    }
    findings
}

fn designs(fabric: &FabricReport, facts: &Facts) -> Finding {
    if let Some(problem) = &fabric.problem {
        let level = if fabric.name == "rdma" && !facts.asks_for_rdma() {
            Level::Note
        } else {
            Level::Problem
        };
        return Finding::new(FABRICS, &fabric.name, level, format!("none: {problem}"));
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
                Finding::new(FABRICS, &fabric.name, Level::Problem, text).to_do(format!(
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

fn by_default(run: &DefaultRun) -> Finding {
    let text = format!(
        "`roundel tpch` starts {} of {} and sends with {} over {}",
        counted(run.workers.into(), "worker"),
        counted(run.threads.into(), "thread"),
        run.design,
        run.fabric
    );
    Finding::new(FABRICS, "by default", Level::Ok, text)
}

//! Processors, memory and limits.

use bytesize::ByteSize;

use super::{Finding, Level, counted};
use crate::doctor::facts::Facts;
use crate::doctor::host::Host;

const SECTION: &str = "Host";

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let host = &facts.host;
    let mut findings = vec![system(host), memory(facts)];
    if host.numa_nodes.len() > 1 {
        findings.push(numa(host));
    }
    findings.push(memfd(host));
    if facts.looks_at_rdma() {
        findings.push(locked_memory(facts));
        findings.push(huge_pages(facts));
    }
    findings
}

fn system(host: &Host) -> Finding {
    let cpus = counted(host.cpus.len(), "processor");
    Finding::new(
        SECTION,
        "system",
        Level::Ok,
        format!("Linux {}, {cpus}", host.kernel),
    )
}

/// What the workers of `roundel tpch` register at most, by default.
fn registered_by_all(facts: &Facts) -> u64 {
    facts.default_run.registered_memory_bytes * u64::from(facts.default_run.workers)
}

fn memory(facts: &Facts) -> Finding {
    let host = &facts.host;
    let mut text = match (host.memory_bytes, host.memory_available_bytes) {
        (Some(all), Some(available)) => {
            format!("{}, {} available", ByteSize(all), ByteSize(available))
        }
        _ => "the kernel does not say".to_owned(),
    };
    if let Some(limit) = host.cgroup_memory_limit_bytes {
        text += &format!("; the control group allows {}", ByteSize(limit));
    }
    let least = host.memory_available_bytes.unwrap_or(u64::MAX);
    let least = least.min(host.cgroup_memory_limit_bytes.unwrap_or(u64::MAX));
    let needed = registered_by_all(facts);
    if least >= needed {
        return Finding::new(SECTION, "memory", Level::Ok, text);
    }
    text += &format!(
        "; {} may register {}",
        counted(facts.default_run.workers.into(), "worker"),
        ByteSize(needed)
    );
    Finding::new(SECTION, "memory", Level::Note, text)
        .step("start fewer workers, or give each less: `--registered-memory 64MiB`")
}

fn numa(host: &Host) -> Finding {
    let nodes: Vec<String> = host
        .numa_nodes
        .iter()
        .map(|node| {
            let memory = node.memory_bytes.unwrap_or(0);
            let cpus = counted(node.cpus.len(), "processor");
            format!("node {}: {cpus}, {}", node.node, ByteSize(memory))
        })
        .collect();
    let text = format!("{} nodes; {}", nodes.len(), nodes.join("; "));
    let used: Vec<u32> = host
        .numa_nodes
        .iter()
        .filter(|node| !node.cpus.is_disjoint(&host.cpus))
        .map(|node| node.node)
        .collect();
    match used[..] {
        [only] => Finding::new(
            SECTION,
            "NUMA",
            Level::Ok,
            format!("{text}; this process runs on node {only} only"),
        ),
        _ => Finding::new(SECTION, "NUMA", Level::Note, text).step(
            "workers are not bound to a node; for one worker per node: \
             `numactl --cpunodebind=0 --membind=0 roundel worker …`",
        ),
    }
}

fn memfd(host: &Host) -> Finding {
    if host.memfd {
        let text = "memfd works, and shm needs nothing else";
        return Finding::new(SECTION, "shared memory", Level::Ok, text);
    }
    let text = "memfd_create is refused, and shm needs it";
    Finding::new(SECTION, "shared memory", Level::Problem, text)
        .step("allow memfd_create in the seccomp profile of the container")
}

fn locked_memory(facts: &Facts) -> Finding {
    const ABOUT: &str = "locked memory";
    let limit = &facts.host.locked_memory;
    let per_worker = facts.default_run.registered_memory_bytes;
    let size =
        |bytes: Option<u64>| bytes.map_or("no limit".to_owned(), |b| ByteSize(b).to_string());
    let text = size(limit.limit_bytes);
    if limit.exempt {
        let text = format!("{text}; this process may exceed it");
        return Finding::new(SECTION, ABOUT, Level::Ok, text);
    }
    if limit.allows(per_worker) {
        return Finding::new(SECTION, ABOUT, Level::Ok, text);
    }
    let needed = ByteSize(per_worker);
    let text = format!("{text} per process; a worker registers up to {needed} with an RDMA device");
    let level = if facts.devices.is_empty() {
        Level::Note
    } else {
        Level::Problem
    };
    let for_this_shell = match limit.hard_limit_bytes {
        None => "for this shell: `ulimit -l unlimited`".to_owned(),
        Some(hard) if hard >= per_worker => format!("for this shell: `ulimit -l {}`", hard / 1024),
        Some(_) => {
            "for this shell: `sudo prlimit --pid $$ --memlock=unlimited:unlimited`".to_owned()
        }
    };
    Finding::new(SECTION, ABOUT, level, text)
        .step(for_this_shell)
        .step(
            "for good: `echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/rdma.conf`, \
             then log in anew; for a service `LimitMEMLOCK=infinity`",
        )
}

fn huge_pages(facts: &Facts) -> Finding {
    const ABOUT: &str = "huge pages";
    let host = &facts.host;
    let reserved: Vec<String> = host
        .huge_pages
        .iter()
        .filter(|pool| pool.total > 0)
        .map(|pool| {
            let size = ByteSize(pool.page_bytes);
            format!("{} of {size}, {} free", pool.total, pool.free)
        })
        .collect();
    if !reserved.is_empty() {
        return Finding::new(SECTION, ABOUT, Level::Ok, reserved.join("; "));
    }
    match host.transparent_huge_pages.as_deref() {
        Some(policy @ ("always" | "madvise")) => {
            let text = format!("none reserved; transparent ones serve ({policy})");
            Finding::new(SECTION, ABOUT, Level::Ok, text)
        }
        _ => {
            let pages = registered_by_all(facts) >> 21;
            let text = "none, so an RDMA device has more addresses to look up";
            Finding::new(SECTION, ABOUT, Level::Note, text)
                .step(format!("as root: `sysctl vm.nr_hugepages={pages}`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::tests::facts;

    #[test]
    fn a_low_limit_of_locked_memory_is_a_problem_only_with_a_device() {
        let mut facts = facts();
        facts.host.locked_memory.limit_bytes = Some(64 << 10);
        facts.host.locked_memory.hard_limit_bytes = Some(64 << 10);
        facts.host.locked_memory.exempt = false;
        let found = locked_memory(&facts);
        assert_eq!(found.level, Level::Problem);
        assert!(
            found.text.starts_with("64.0 KiB per process"),
            "{}",
            found.text
        );
        assert!(found.to_do[0].contains("sudo prlimit --pid $$"));
        facts.host.locked_memory.hard_limit_bytes = None;
        assert_eq!(
            locked_memory(&facts).to_do[0],
            "for this shell: `ulimit -l unlimited`"
        );
        facts.devices.clear();
        assert_eq!(locked_memory(&facts).level, Level::Note);
        facts.host.locked_memory.exempt = true;
        assert_eq!(locked_memory(&facts).level, Level::Ok);
    }

    #[test]
    fn little_memory_is_noted() {
        let mut facts = facts();
        assert_eq!(memory(&facts).level, Level::Ok);
        facts.host.cgroup_memory_limit_bytes = Some(256 << 20);
        let found = memory(&facts);
        assert_eq!(found.level, Level::Note);
        assert!(found.text.contains("512.0 MiB"), "{}", found.text);
    }

    #[test]
    fn huge_pages_are_wanted_where_there_are_no_transparent_ones() {
        let mut facts = facts();
        facts.host.transparent_huge_pages = Some("madvise".to_owned());
        assert_eq!(huge_pages(&facts).level, Level::Ok);
        facts.host.transparent_huge_pages = Some("never".to_owned());
        let found = huge_pages(&facts);
        assert_eq!(found.level, Level::Note);
        assert_eq!(found.to_do, ["as root: `sysctl vm.nr_hugepages=256`"]);
    }
}

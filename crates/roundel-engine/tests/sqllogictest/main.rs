//! DataFusion's own suite of statements, through a session over three worker processes.
//!
//! Each file runs in this process first, as DataFusion's own runner does it; what passes there has to pass through the
//! cluster, too: the same rows, types and errors. Rows may come in another order where the statement allows that. Plans
//! differ by right, and are not compared. Each file runs to its end.
//!
//! `ROUNDEL_SLT=all` runs all files, `ROUNDEL_SLT=name,name` those with a name in their paths; else a fixed sixth runs,
//! as far as it comes. Failures are written to `target/tmp/sqllogictest.json`; `exceptions.txt` lists those that may stay.

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "rows are compared by the suite's own rules here")]
mod common;

mod db;
mod exceptions;
mod file;
mod judge;
mod lacking;
mod order;
mod setup;
mod shards;
mod suite;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use roundel_engine::{Cluster, ClusterOptions};
use twox_hash::XxHash64;

use exceptions::Exceptions;
use file::Tally;
use judge::Kind;
use suite::Suite;

const WORKERS: usize = 3;
const THREADS: usize = 2;

/// Which of the files always run: one in so many.
const SHARE: u64 = 6;
/// When only a share runs, no file is begun after this time.
const TIME_MAX: Duration = Duration::from_secs(90);
/// Files that run at the same time, each on a cluster of its own.
const LANES: usize = 2;

/// What is to run.
struct Selection {
    names: Option<Vec<String>>,
}

impl Selection {
    fn asked() -> Self {
        let asked = std::env::var("ROUNDEL_SLT").ok();
        let names = asked.map(|names| names.split(',').map(str::to_owned).collect());
        Self { names }
    }

    fn has(&self, file: &Path) -> bool {
        match &self.names {
            Some(names) => {
                let path = file.to_string_lossy();
                let named = |name: &String| name == "all" || path.contains(name.as_str());
                names.iter().any(named)
            }
            None => {
                // The same files on every machine.
                let hash = XxHash64::oneshot(0, file.as_os_str().as_encoded_bytes());
                hash.is_multiple_of(SHARE)
            }
        }
    }

    fn goes_on(&self, start: Instant) -> bool {
        self.names.is_some() || start.elapsed() < TIME_MAX
    }
}

/// How much was run, and what became of it.
#[derive(Default)]
struct Done {
    files: usize,
    tally: Tally,
}

#[test]
fn datafusions_own_suite_through_a_cluster() {
    // A stack as large as that of a worker's thread.
    let runtime = roundel_engine::runtime(Some(4)).expect("a runtime");
    let suite = Suite::enter();
    let selection = Selection::asked();
    let files = suite.files.iter().filter(|file| selection.has(file));
    let files: Mutex<VecDeque<PathBuf>> = Mutex::new(files.cloned().collect());
    assert!(!files.lock().is_empty(), "no file of the suite is so named");
    let done = Mutex::new(Done::default());
    let start = Instant::now();
    runtime.block_on(async {
        let lanes = (0..LANES).map(|_| lane(&files, &done, &selection, start));
        futures::future::join_all(lanes).await
    });
    let done = done.into_inner();
    report(&done, start.elapsed());
    check(&done);
}

/// Runs files as long as there are any.
async fn lane(
    files: &Mutex<VecDeque<PathBuf>>,
    done: &Mutex<Done>,
    selection: &Selection,
    start: Instant,
) {
    let options = || ClusterOptions {
        threads: THREADS,
        ..common::options(WORKERS)
    };
    let mut cluster = Cluster::start(options()).await.expect("starts");
    while selection.goes_on(start) {
        let Some(file) = files.lock().pop_front() else {
            break;
        };
        let Some(tally) = file::run(&file, &cluster).await else {
            continue;
        };
        let broken = tally.count(&[Kind::Hang, Kind::Crash]) > 0;
        let [alone, here] = tally.took.map(|took| took.as_secs_f64());
        println!(
            "{}: {} of {} pass, {} distributed, {} fail; {alone:.1} s in one process, {here:.1} s here",
            file.display(),
            tally.passed,
            tally.passed_in_one,
            tally.distributed,
            tally.failures.len()
        );
        {
            let mut done = done.lock();
            done.files += 1;
            done.tally.add(tally);
        }
        if broken {
            // A statement that hangs still runs in the workers.
            drop(cluster.stop().await);
            cluster = Cluster::start(options()).await.expect("starts");
        }
    }
    drop(cluster.stop().await);
}

fn report(done: &Done, took: Duration) {
    let tally = &done.tally;
    let failures = serde_json::to_string_pretty(&tally.failures).expect("JSON");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sqllogictest.json");
    std::fs::write(&path, failures).expect("a report");
    for kind in Kind::ALL {
        println!("{kind}: {}", tally.count(&[kind]));
    }
    println!(
        "{} files in {:.1} min; {} plans asked for; {} statements fail in one process; {} need data that the \
         package lacks; failures in {}",
        done.files,
        took.as_secs_f64() / 60.0,
        tally.plans,
        tally.failed_in_one,
        tally.lacking,
        path.display()
    );
    println!(
        "sqllogictest: {} statements pass in one process, {} of them here ({:.2} %), {} distributed, \
         {} wrong rows, {} hangs, {} errors",
        tally.passed_in_one,
        tally.passed,
        100.0 * tally.passed as f64 / tally.passed_in_one.max(1) as f64,
        tally.distributed,
        tally.count(&[Kind::Rows, Kind::Order, Kind::Types, Kind::Accepted]),
        tally.count(&[Kind::Hang]),
        tally.count(&[Kind::Error, Kind::Message, Kind::Crash]),
    );
}

fn check(done: &Done) {
    let exceptions = Exceptions::read();
    let failures = &done.tally.failures;
    let new = failures.iter().filter(|f| !exceptions.allow(f));
    let new: Vec<String> = new.map(|f| format!("{} | {}", f.place, f.kind)).collect();
    let stale = exceptions.stale(&done.tally.passes);
    assert!(done.tally.distributed > 0, "no query was distributed");
    assert!(new.is_empty(), "these fail:\n{}", new.join("\n"));
    assert!(
        stale.is_empty(),
        "these are exceptions, but pass:\n{}",
        stale.join("\n")
    );
}

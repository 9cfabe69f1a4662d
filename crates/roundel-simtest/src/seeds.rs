//! Runs seeds, on as many threads as there are cores.

use crate::plan::Plan;
use crate::run::{Broken, run};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Broken seeds after which no more are run.
const BROKEN_MAX: usize = 10;

/// Which seeds to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// These, in this order, as far as there is time.
    pub seeds: Range<u64>,
    /// How long at most.
    pub time: Option<Duration>,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Seeds that were run.
    pub ran: u64,
    /// Of those, seeds that ended with an error that may come.
    pub errors: u64,
    /// Real seconds of all threads together.
    pub busy_seconds: f64,
    /// Broken seeds, ascending.
    pub broken: Vec<(u64, Broken)>,
}

impl Found {
    /// Mean real time of a seed, in seconds of one core.
    pub fn seconds_per_seed(&self) -> f64 {
        self.busy_seconds / self.ran.max(1) as f64
    }
}

/// Runs seeds until they, or the time, are used up, or many are broken. `ran` is called after each.
#[expect(
    clippy::disallowed_methods,
    reason = "real time, and each thread runs simulations of its own"
)]
pub fn search(search: &Search, ran: &(dyn Fn() + Sync)) -> Found {
    let started = Instant::now();
    let next = AtomicU64::new(search.seeds.start);
    let over = AtomicBool::new(false);
    let found = Mutex::new(Found::default());
    let work = || {
        while !over.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let late = search.time.is_some_and(|time| started.elapsed() >= time);
            // Past the end numbers may wrap around.
            if late || !search.seeds.contains(&seed) {
                over.store(true, Ordering::Relaxed);
                return;
            }
            let begun = Instant::now();
            let ended = run(&Plan::draw(seed));
            let mut found = found.lock();
            found.busy_seconds += begun.elapsed().as_secs_f64();
            found.ran += 1;
            match ended {
                Ok(ended) => found.errors += u64::from(ended.error.is_some()),
                Err(broken) => found.broken.push((seed, broken)),
            }
            if found.broken.len() >= BROKEN_MAX {
                over.store(true, Ordering::Relaxed);
            }
            drop(found);
            ran();
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 1..cores {
            scope.spawn(work);
        }
        work();
    });
    let mut found = found.into_inner();
    found.broken.sort_by_key(|(seed, _)| *seed);
    found
}

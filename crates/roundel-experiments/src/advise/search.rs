//! In which order candidates are run: every design once and briefly; then, of the best, step by step with other
//! messages and buffers, for longer.

use super::candidate::{Candidate, Step};
use super::limit::Hardware;
use super::tried::Tried;
use super::{AS_GOOD, LeftOut, Run, Said, ShuffleWish};
use crate::error::Result;
use crate::figure::Unit;
use crate::parallel;
use crate::report::quantity;
use roundel_exchange::Design;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Designs of which more than one candidate is run, at a time.
const FINALISTS: usize = 2;
/// Runs of each of them, as far as can be said before.
const STEPS: usize = 4;
/// How often all buffers are sent in a run in which designs are compared, and in one that decides: that it ends with
/// some under way must not matter.
const BRIEF: f64 = 1.5;
const DECIDING: f64 = 3.0;
/// Of more buffers than so many, not all have to be filled before a run tells.
const FILLED: usize = 4;
/// Fewest seconds of a simulated run, many times a trip through the network.
const SIMULATED_SECONDS: f64 = 0.0005;
/// Seconds of a run that is measured.
const MEASURED_SECONDS: f64 = 0.25;

/// How a search is done.
pub(super) struct Search<'a> {
    wish: &'a ShuffleWish,
    hardware: Option<Hardware>,
    jobs: usize,
    run: &'a Run<'a>,
    said: &'a Said<'a>,
    done: AtomicUsize,
    total: AtomicUsize,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The last word on each candidate, those of designs that did not come further included.
    pub tried: Vec<Tried>,
    /// Those that register too much.
    pub too_large: Vec<Tried>,
    pub left_out: Vec<LeftOut>,
}

impl Found {
    /// Takes what was measured; whether it may be used.
    fn take(&mut self, wish: &ShuffleWish, tried: Tried) -> bool {
        let fits = wish.allows(tried.registered_bytes);
        let those = match fits {
            true => &mut self.tried,
            false => &mut self.too_large,
        };
        // It may have been run before, and not for so long.
        those.retain(|one| one.candidate != tried.candidate);
        those.push(tried);
        fits
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(
        wish: &'a ShuffleWish,
        jobs: usize,
        run: &'a Run<'a>,
        said: &'a Said<'a>,
    ) -> Self {
        Self {
            wish,
            hardware: Hardware::of(&wish.fabric),
            jobs: jobs.max(1),
            run,
            said,
            done: AtomicUsize::new(0),
            total: AtomicUsize::new(Design::every().count() + FINALISTS * STEPS),
        }
    }

    pub(super) fn hardware(&self) -> Option<&Hardware> {
        self.hardware.as_ref()
    }

    /// Finds what there is to say.
    ///
    /// # Errors
    /// When the wish makes no sense, or the best designs fail when they are run for longer.
    pub(super) fn find(&self) -> Result<Found> {
        let sensible = Candidate::starts(Design::default())[0].setting(self.wish, 0.0);
        sensible.check()?;
        let designs: Vec<_> = Design::every().collect();
        let first = parallel::each(self.jobs, &designs, |_, design| self.first(*design));
        let mut found = Found::default();
        for one in first {
            found.tried.extend(one.tried);
            found.too_large.extend(one.too_large);
            found.left_out.extend(one.left_out);
        }
        let mut decided = Vec::new();
        loop {
            let next = self.undecided(&found, &decided);
            for climbed in parallel::each(self.jobs, &next, |_, from| self.climb(*from)) {
                let climbed = climbed?;
                for tried in climbed.tried.into_iter().chain(climbed.too_large) {
                    found.take(self.wish, tried);
                }
            }
            decided.extend(next.iter().map(|one| one.design));
            let best = self.wish.best(&found.tried);
            // A brief run may have promised too much: then the next best is looked at too.
            if best.is_none_or(|at| decided.contains(&found.tried[at].candidate.design)) {
                break;
            }
        }
        Ok(found)
    }

    /// The best designs that have been run briefly only.
    fn undecided(&self, found: &Found, decided: &[Design]) -> Vec<Candidate> {
        let mut left = found.tried.clone();
        left.retain(|one| !decided.contains(&one.candidate.design));
        let mut best = Vec::new();
        while best.len() < FINALISTS
            && let Some(at) = self.wish.best(&left)
        {
            best.push(left.remove(at).candidate);
        }
        best
    }

    /// The first candidate of a design that fits.
    fn first(&self, design: Design) -> Found {
        let mut found = Found::default();
        let starts = Candidate::starts(design);
        let last = starts.len() - 1;
        for (at, start) in starts.into_iter().enumerate() {
            let hopeless = !self.wish.allows(start.registered_at_least(self.wish));
            if hopeless && at < last {
                continue;
            }
            match self.try_out(start, BRIEF) {
                Ok(tried) => {
                    if found.take(self.wish, tried) {
                        return found;
                    }
                }
                Err(error) => {
                    let reason = error.to_string();
                    found.left_out.push(LeftOut { design, reason });
                    return found;
                }
            }
        }
        let least = found.too_large.iter().map(|one| one.registered_bytes).min();
        let least = quantity(least.unwrap_or_default() as f64, Unit::Bytes);
        let reason = format!("it registers {least} at least");
        found.left_out.push(LeftOut { design, reason });
        found
    }

    /// Goes from a candidate to better ones of the same design: messages first, then buffers.
    ///
    /// # Errors
    /// When the first one fails, which did not before.
    fn climb(&self, from: Candidate) -> Result<Found> {
        let mut found = Found::default();
        found.take(self.wish, self.try_out(from, DECIDING)?);
        self.walk(&mut found, Candidate::resized, false);
        self.walk(&mut found, Candidate::resized, true);
        self.walk(&mut found, Candidate::buffered, false);
        self.walk(&mut found, Candidate::buffered, true);
        Ok(found)
    }

    /// Goes on in one direction from the best so far: towards less memory as long as it is as good, towards more as
    /// long as that is better.
    fn walk(&self, found: &mut Found, step: Step, up: bool) {
        while let Some(best) = self.wish.best(&found.tried) {
            let best = found.tried[best].clone();
            let Some(next) = step(&best.candidate, up) else {
                return;
            };
            let known = found.tried.iter().any(|one| one.candidate == next);
            let enough = up && self.is_most(&best);
            if known || enough || !self.wish.allows(next.registered_at_least(self.wish)) {
                return;
            }
            // A device that has no room for so many buffers refuses them: it stays at those before.
            let Ok(tried) = self.try_out(next, DECIDING) else {
                return;
            };
            if !found.take(self.wish, tried) {
                return;
            }
            let now = self.wish.best(&found.tried);
            if now.is_none_or(|at| found.tried[at].candidate != next) {
                return;
            }
        }
    }

    /// Whether nothing can be better by more than what is as good.
    fn is_most(&self, tried: &Tried) -> bool {
        self.hardware.as_ref().is_some_and(|hardware| {
            tried.bytes_per_second >= AS_GOOD * hardware.most(self.wish.threads)
        })
    }

    fn try_out(&self, candidate: Candidate, times: f64) -> Result<Tried> {
        let done = self.done.fetch_add(1, Ordering::Relaxed);
        let total = self.total.fetch_max(done + 1, Ordering::Relaxed);
        (self.said)(done, total.max(done + 1), &candidate.to_string());
        let setting = candidate.setting(self.wish, self.seconds(&candidate, times));
        let measured = (self.run)(&setting)?;
        let hardware = self.hardware.as_ref();
        Ok(Tried::new(candidate, &setting, &measured, hardware))
    }

    /// How long a candidate is run: all buffers of a node, so many times.
    fn seconds(&self, candidate: &Candidate, times: f64) -> f64 {
        let Some(hardware) = &self.hardware else {
            return MEASURED_SECONDS;
        };
        let wish = self.wish;
        let round = (wish.nodes * wish.threads * candidate.bytes()) as f64;
        let rounds = times * (2 + candidate.buffers.min(FILLED)) as f64;
        (rounds * round / hardware.most(wish.threads)).max(SIMULATED_SECONDS)
    }
}

//! Which design of the shuffle to use, with which messages and how many buffers, and why: candidates are run for a
//! moment each, and what they measured decides.
//!
//! ```text
//!   wish ──► every design once ──► the best of them, with other messages and buffers ──► advice
//!                 │                                │
//!                 └──────────── run ◄──────────────┘       in simulation, on this host, in a test
//! ```
//!
//! * `candidate`: what there is to choose from; `tried`: what was measured of it, and what held it up.
//! * `search`: in which order, and when enough is known.
//! * `limit`: what can hold a candidate up.
//! * `reasons`: the advice in words.
//!
//! Buffers are a fixed number: those that adapt take what the load asks for, and nothing could be promised of them
//! under a limit. This knows neither how a setting is run, which its caller says, nor what is asked of it on a command
//! line.

mod candidate;
mod limit;
mod reasons;
mod search;
mod tried;

pub use candidate::Candidate;
pub use limit::Limit;
pub use tried::Tried;

use crate::error::{Error, Result};
use crate::fabric::FabricChoice;
use crate::measured::Measured;
use crate::setting::{Pattern, Setting};
use roundel_exchange::Design;
use roundel_simtest::as_text;
use roundel_verbs::Transport;
use search::{Found, Search};
use serde::Serialize;

/// Less memory is as good when it reaches so much of the best.
const AS_GOOD: f64 = 0.98;
/// What datagrams count for where rows have an order: putting them back in sequence is not measured, and is not
/// worth a few percent.
const IN_SEQUENCE: f64 = 0.9;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShuffleWish {
    /// What it runs over.
    pub fabric: FabricChoice,
    /// Nodes that shuffle, each with all.
    pub nodes: usize,
    /// Threads of each.
    pub threads: usize,
    /// Who gets which rows.
    pub pattern: Pattern,
    /// Most bytes that a node may register.
    pub memory_limit_bytes: Option<u64>,
    /// Whether rows must come out in their order.
    pub ordered: bool,
}

/// What to use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShuffleAdvice {
    /// What was asked for.
    pub wish: ShuffleWish,
    /// What to use, and what was measured of it.
    pub advised: Tried,
    /// Buffers of a link of an endpoint, which threads may share: what an exchange is given as `fixed:N`.
    pub link_buffers: usize,
    /// Whether the exchange has to put rows back in sequence.
    pub in_sequence: bool,
    /// Why, in sentences, the most important first.
    pub reasons: Vec<String>,
    /// The best of each other design that can be used, best first.
    pub others: Vec<Tried>,
    /// The designs that cannot.
    pub left_out: Vec<LeftOut>,
}

/// A design that cannot be used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOut {
    /// The design.
    #[serde(serialize_with = "as_text::serialize")]
    pub design: Design,
    /// Why, in words.
    pub reason: String,
}

/// Runs a setting.
pub type Run<'a> = dyn Fn(&Setting) -> Result<Measured> + Sync + 'a;
/// Is told before each run how many are done, how many there are as far as that is known, and what is next.
pub type Said<'a> = dyn Fn(usize, usize, &str) + Sync + 'a;

/// Says what to use. Settings are run by `run`, so many at a time: several in simulation, one where they are measured.
///
/// # Errors
/// When the wish makes no sense, nothing can be run, or nothing fits into the memory.
pub fn advise_shuffle(
    wish: &ShuffleWish,
    jobs: usize,
    run: &Run<'_>,
    said: &Said<'_>,
) -> Result<ShuffleAdvice> {
    let search = Search::new(wish, jobs, run, said);
    let found = search.find()?;
    let mut designs: Vec<Tried> = Vec::new();
    let mut all = found.tried.clone();
    while let Some(at) = wish.best(&all) {
        let best = all.remove(at);
        all.retain(|one| one.candidate.design != best.candidate.design);
        designs.push(best);
    }
    if designs.is_empty() {
        return Err(nothing(wish, &found));
    }
    let advised = designs.remove(0);
    let design = advised.candidate.design;
    Ok(ShuffleAdvice {
        link_buffers: advised.candidate.buffers * wish.threads / design.endpoints(wish.threads),
        in_sequence: wish.ordered && is_datagrams(design),
        reasons: reasons::reasons(wish, &advised, &designs, &found, search.hardware()),
        left_out: found.left_out,
        others: designs,
        wish: wish.clone(),
        advised,
    })
}

fn nothing(wish: &ShuffleWish, found: &Found) -> Error {
    let why = found.left_out.iter();
    let why: Vec<_> = why
        .map(|one| format!("{}: {}", one.design, one.reason))
        .collect();
    Error::Setting(format!(
        "no design can be used on {} with {} nodes of {} threads ({})",
        wish.fabric,
        wish.nodes,
        wish.threads,
        why.join("; ")
    ))
}

fn is_datagrams(design: Design) -> bool {
    design.transport() == Transport::UnreliableDatagram
}

impl ShuffleWish {
    /// What the throughput of a candidate counts for.
    fn worth(&self, tried: &Tried) -> f64 {
        match self.ordered && is_datagrams(tried.candidate.design) {
            true => IN_SEQUENCE * tried.bytes_per_second,
            false => tried.bytes_per_second,
        }
    }

    /// Where the best is: of those that are as good as each other, the one that registers least, then the one with
    /// the fewest queue pairs.
    fn best(&self, tried: &[Tried]) -> Option<usize> {
        let most = tried.iter().map(|one| self.worth(one)).fold(0.0, f64::max);
        let good = |at: &usize| self.worth(&tried[*at]) >= AS_GOOD * most;
        let cost = |at: &usize| (tried[*at].registered_bytes, tried[*at].queue_pairs);
        (0..tried.len()).filter(good).min_by_key(cost)
    }

    /// Whether a node may register so much.
    fn allows(&self, bytes: u64) -> bool {
        self.memory_limit_bytes.is_none_or(|most| bytes <= most)
    }
}

#[cfg(test)]
mod tests;

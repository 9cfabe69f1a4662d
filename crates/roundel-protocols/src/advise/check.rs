//! Whether advice is good: settings drawn from a seed, each measured with every protocol.

use super::choice::{Wish, advise};
use super::model::Predict;
use crate::error::Result;
use crate::paradigm::{Measured, Paradigm, Setting};
use crate::protocol::Protocol;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// Advice is good when it reaches so much of the best that was measured.
pub const GOOD: f64 = 0.9;

/// What settings are drawn from.
#[derive(Clone, Debug)]
pub struct Range {
    /// Nodes of M:1 and 1:M, and of M:M.
    pub nodes: Vec<usize>,
    /// See [`nodes`](Self::nodes).
    pub all_nodes: Vec<usize>,
    /// Threads of a node.
    pub threads: Vec<usize>,
    /// Calls pending on a connection.
    pub pending: Vec<usize>,
    /// Bytes of a response.
    pub response_bytes: Vec<usize>,
    /// Bytes of a request.
    pub request_bytes: Vec<usize>,
}

impl Range {
    /// Of a cluster: up to 28 nodes of up to 16 threads.
    pub fn cluster() -> Self {
        Self {
            nodes: vec![1, 2, 4, 8, 16, 28],
            all_nodes: vec![2, 3, 4, 8],
            threads: vec![1, 2, 4, 8, 16],
            pending: vec![1, 4, 16, 64],
            response_bytes: vec![32, 128, 365, 1024, 4096, 16384],
            request_bytes: vec![16, 36, 96],
        }
    }

    /// Of this host, where all nodes share a few processors.
    pub fn host() -> Self {
        Self {
            nodes: vec![1],
            all_nodes: vec![2],
            threads: vec![1],
            pending: vec![1, 2, 4, 8, 16, 64],
            response_bytes: vec![32, 64, 128, 365, 1024, 4096],
            request_bytes: vec![36],
        }
    }

    /// Wishes drawn from a seed.
    pub fn draw(&self, count: usize, seed: u64, protocols: &[Protocol]) -> Vec<Wish> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let wish = |_| {
            let paradigm = *Paradigm::ALL.choose(&mut random).expect("there are three");
            let nodes = match paradigm {
                Paradigm::ManyToMany => &self.all_nodes,
                _ => &self.nodes,
            };
            let mut draw = |from: &[usize]| from.choose(&mut random).copied().unwrap_or(1);
            let setting = Setting {
                threads: draw(&self.threads),
                pending: draw(&self.pending),
                response_bytes: draw(&self.response_bytes),
                request_bytes: draw(&self.request_bytes),
                ..Setting::new(paradigm, Protocol::SendSend, draw(nodes))
            };
            Wish {
                setting,
                protocols: protocols.to_vec(),
                writes: random.random(),
                may_use_less: false,
            }
        };
        (0..count).map(wish).collect()
    }
}

/// How good the advice for a wish is.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// What was asked for, with the protocol that was advised.
    pub advised: Setting,
    /// Whether READ was left out.
    pub writes: bool,
    /// Calls in a second that were predicted, and measured.
    pub predicted: f64,
    /// See [`predicted`](Self::predicted).
    pub measured: f64,
    /// The protocol that was the fastest, and its calls in a second.
    pub best: Protocol,
    /// See [`best`](Self::best).
    pub best_measured: f64,
    /// Calls in a second of every protocol that could be measured, best first.
    pub all: Vec<(Protocol, f64)>,
}

impl Verdict {
    /// What the advice reaches of the best.
    pub fn reached(&self) -> f64 {
        self.measured / self.best_measured
    }

    /// Whether that is enough.
    pub fn is_good(&self) -> bool {
        self.reached() >= GOOD
    }
}

/// Asks for advice and measures all protocols. Those that the device cannot carry at this setting are left out of
/// both.
///
/// # Errors
/// When the advice cannot be given, or what was advised cannot be measured.
pub fn check(
    wish: &Wish,
    model: &impl Predict,
    mut run: impl FnMut(&Setting) -> Result<Measured>,
) -> Result<Verdict> {
    let advice = advise(wish, model)?;
    let eligible = wish
        .protocols
        .iter()
        .filter(|protocol| protocol.can_write() || !wish.writes);
    let mut all = Vec::new();
    for protocol in eligible {
        let setting = Setting {
            protocol: *protocol,
            ..wish.setting.clone()
        };
        match run(&setting) {
            Ok(measured) => all.push((*protocol, measured.calls_per_second)),
            // Only what nobody would be advised may fail.
            Err(error) if *protocol == advice.setting.protocol => return Err(error),
            Err(_) => {}
        }
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let advised = all.iter().find(|(one, _)| *one == advice.setting.protocol);
    let measured = advised.map_or(0.0, |(_, calls)| *calls);
    let (best, best_measured) = all[0];
    Ok(Verdict {
        writes: wish.writes,
        predicted: advice.prediction.calls_per_second,
        measured,
        best,
        best_measured,
        all,
        advised: advice.setting,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Model;
    use super::*;
    use crate::paradigm::simulate;
    use roundel_verbs::sim::Parameters;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const SEED: u64 = 7;

    fn simulated() -> Vec<Protocol> {
        let all = Protocol::ALL.into_iter();
        all.filter(|one| *one != Protocol::Tcp).collect()
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let range = Range::cluster();
        let draw = |seed| range.draw(20, seed, &simulated());
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    /// A few of the grid that `roundel advise check` goes through.
    #[test]
    fn advice_for_simulated_hardware_is_good() {
        let count = std::env::var("ROUNDEL_ADVICE_SETTINGS");
        let count = count.ok().and_then(|count| count.parse().ok()).unwrap_or(8);
        let range = match count > 8 {
            true => Range::cluster(),
            false => Range {
                nodes: vec![1, 4, 8],
                all_nodes: vec![2, 3],
                threads: vec![1, 4],
                ..Range::cluster()
            },
        };
        let parameters = Parameters::fdr();
        let model = Model::new(parameters.clone());
        let wishes = range.draw(count, SEED, &simulated());
        let (next, good) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(wish) = wishes.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let run =
                            |setting: &Setting| simulate(&setting.for_simulation(), &parameters);
                        let verdict = check(wish, &model, run).unwrap();
                        let s = &verdict.advised;
                        println!(
                            "{:.2} {:.2} {} n{} S{} R{} L{} V{} w{} advised {} best {:?}",
                            verdict.reached(),
                            verdict.predicted / verdict.measured,
                            s.paradigm,
                            s.nodes,
                            s.threads,
                            s.pending,
                            s.request_bytes,
                            s.response_bytes,
                            verdict.writes,
                            s.protocol,
                            verdict
                                .all
                                .iter()
                                .map(|(p, c)| format!(
                                    "{p} {:.2} ({:.2})",
                                    c / 1e6,
                                    model
                                        .predict(&Setting {
                                            protocol: *p,
                                            ..s.clone()
                                        })
                                        .unwrap()
                                        .calls_per_second
                                        / 1e6
                                ))
                                .collect::<Vec<_>>(),
                        );
                        good.fetch_add(usize::from(verdict.is_good()), Ordering::Relaxed);
                    }
                });
            }
        });
        let good = good.into_inner();
        println!("{good} of {count}");
        assert!(good * 10 >= count * 8, "{good} of {count}");
    }
}

//! Whether advice is good: settings drawn from a seed, each measured with every protocol.

use super::choice::{Wish, advise};
use super::model::Predict;
use crate::error::{ProtocolError, Result};
use crate::paradigm::{Measured, Paradigm, Setting};
use crate::protocol::Protocol;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// Advice is good when it reaches this share of the best rate that was measured.
pub const GOOD: f64 = 0.9;

/// What settings are drawn from.
#[derive(Clone, Debug)]
pub struct Range {
    /// Nodes of M:1 and 1:M, besides the one.
    pub nodes: Vec<usize>,
    /// Nodes of M:M.
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
    /// The range of a cluster: up to 28 nodes of up to 16 threads.
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
            response_bytes: vec![32, 64, 128, 365, 1024, 3072],
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
    /// Calls in a second that were predicted.
    pub predicted: f64,
    /// Calls in a second that were measured.
    pub measured: f64,
    /// The protocol that was the fastest.
    pub best: Protocol,
    /// Its calls in a second.
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

/// Asks for advice and measures all protocols that it could be, in turn, so many times each; the median counts.
///
/// # Errors
/// When the advice cannot be given, or a protocol cannot be measured that the model has a prediction of.
pub async fn check<E: From<ProtocolError>>(
    wish: &Wish,
    model: &impl Predict,
    rounds: usize,
    mut run: impl AsyncFnMut(&Setting) -> Result<Measured, E>,
) -> Result<Verdict, E> {
    let advice = advise(wish, model)?;
    let others = advice.others.iter().map(|(setting, _)| setting);
    let settings: Vec<_> = [&advice.setting].into_iter().chain(others).collect();
    let mut rates = vec![Vec::new(); settings.len()];
    for _ in 0..rounds.max(1) {
        for (setting, rates) in settings.iter().zip(&mut rates) {
            rates.push(run(setting).await?.calls_per_second);
        }
    }
    let median = |mut rates: Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[(rates.len() - 1) / 2]
    };
    let rates = rates.into_iter().map(median);
    let protocols = settings.iter().map(|setting| setting.protocol);
    let mut all: Vec<_> = protocols.zip(rates).collect();
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

    /// A few of the grid that `roundel-lab advise check` goes through.
    #[tokio::test]
    async fn advice_for_simulated_hardware_is_good() {
        const SETTINGS: usize = 12;
        let range = Range {
            nodes: vec![1, 4, 8],
            all_nodes: vec![2, 3],
            threads: vec![1, 4],
            ..Range::cluster()
        };
        let parameters = Parameters::fdr();
        let model = Model::new(parameters.clone());
        let mut bad = Vec::new();
        for wish in range.draw(SETTINGS, SEED, &simulated()) {
            let run = async |setting: &Setting| simulate(&setting.for_simulation(), &parameters, 1);
            let verdict = check(&wish, &model, 1, run).await.unwrap();
            if !verdict.is_good() {
                bad.push(verdict);
            }
        }
        assert!(bad.len() <= SETTINGS / 6, "{bad:?}");
    }
}

//! The best of what is predicted, with the fewest threads and pending calls that reach it.

use super::model::{Predict, Prediction};
use crate::error::{ProtocolError, Result};
use crate::paradigm::Setting;
use crate::protocol::Protocol;
use serde::Serialize;

/// A protocol that uses less is as good when it reaches this share of the best rate.
const AS_GOOD: f64 = 0.98;

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// The conversation: its protocol does not matter, its threads and pending calls are the most that there can be.
    pub setting: Setting,
    /// Protocols to choose from.
    pub protocols: Vec<Protocol>,
    /// Whether requests tell the responder something: READ is not for them.
    pub writes: bool,
    /// Whether its threads and pending calls can be fewer.
    pub may_use_less: bool,
}

/// What to use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The setting with the protocol, the threads and the pending calls to use.
    pub setting: Setting,
    /// What is predicted of it.
    pub prediction: Prediction,
    /// The best of each other protocol, best first.
    pub others: Vec<(Setting, Prediction)>,
}

/// Chooses the protocol with the most predicted calls per second, and the fewest threads and pending calls that reach
/// about as many.
///
/// # Errors
/// When nothing can be predicted for any of the protocols.
pub fn advise(wish: &Wish, model: &impl Predict) -> Result<Advice> {
    let eligible = wish
        .protocols
        .iter()
        .filter(|protocol| protocol.can_write() || !wish.writes);
    let mut best = Vec::new();
    let mut refused = None;
    for protocol in eligible {
        match best_of(*protocol, wish, model) {
            Ok(found) => best.push(found),
            Err(error) => refused = Some(error),
        }
    }
    let calls = |one: &(Setting, Prediction)| one.1.calls_per_second;
    best.sort_by(|a, b| calls(b).total_cmp(&calls(a)));
    if best.is_empty() {
        let nothing = "there is no protocol to choose from".to_owned();
        return Err(refused.unwrap_or(ProtocolError::Unsupported(nothing)));
    }
    let (setting, prediction) = best.remove(0);
    Ok(Advice {
        setting,
        prediction,
        others: best,
    })
}

/// The best use of a protocol.
fn best_of(protocol: Protocol, wish: &Wish, model: &impl Predict) -> Result<(Setting, Prediction)> {
    let most = Setting {
        protocol,
        ..wish.setting.clone()
    };
    if !wish.may_use_less {
        let prediction = model.predict(&most)?;
        return Ok((most, prediction));
    }
    let mut all = Vec::new();
    for threads in up_to(most.threads) {
        for pending in up_to(most.pending) {
            let setting = Setting {
                threads,
                pending,
                ..most.clone()
            };
            let prediction = model.predict(&setting)?;
            all.push((setting, prediction));
        }
    }
    let rate = |one: &(Setting, Prediction)| one.1.calls_per_second;
    let best = all.iter().map(rate).fold(0.0, f64::max);
    let enough = all.into_iter().filter(|one| rate(one) >= AS_GOOD * best);
    let least = enough.min_by_key(|(setting, _)| setting.threads * setting.pending);
    Ok(least.expect("the best is as good as itself"))
}

/// Powers of 2, and the most.
fn up_to(most: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1_usize), |one| one.checked_mul(2));
    let mut all: Vec<_> = powers.take_while(|one| *one < most).collect();
    all.push(most);
    all
}

#[cfg(test)]
mod tests {
    use super::super::Model;
    use super::super::model::Limit;
    use super::*;
    use crate::paradigm::Paradigm;
    use roundel_verbs::sim::Parameters;

    fn wish(paradigm: Paradigm, threads: usize, pending: usize) -> Wish {
        Wish {
            setting: Setting {
                threads,
                pending,
                ..Setting::new(paradigm, Protocol::Read, 28)
            },
            protocols: Protocol::OF_THE_PAPER.to_vec(),
            writes: false,
            may_use_less: false,
        }
    }

    fn advice(wish: &Wish) -> Advice {
        advise(wish, &Model::new(Parameters::fdr())).unwrap()
    }

    #[test]
    fn reads_are_not_for_those_that_write() {
        let wish = Wish {
            writes: true,
            ..wish(Paradigm::ManyToOne, 16, 16)
        };
        let advice = advice(&wish);
        let all = advice.others.iter().map(|(setting, _)| setting.protocol);
        assert!(
            !all.chain([advice.setting.protocol])
                .any(|one| one == Protocol::Read)
        );
    }

    #[test]
    fn many_queue_pairs_are_said_to_be_too_many() {
        let advice = advice(&wish(Paradigm::OneToMany, 16, 128));
        let reads = advice
            .others
            .iter()
            .find(|(one, _)| one.protocol == Protocol::Read);
        let (_, prediction) = reads.expect("READ is not the best here");
        assert_eq!(prediction.limit, Limit::OutstandingReads);
    }

    #[test]
    fn fewer_threads_are_advised_where_more_are_slower() {
        let wish = Wish {
            may_use_less: true,
            ..wish(Paradigm::OneToMany, 16, 128)
        };
        let advice = advice(&wish);
        assert!(advice.setting.threads < 16, "{advice:?}");
    }

    #[test]
    fn what_is_tried_ends_at_the_most() {
        assert_eq!(up_to(1), [1]);
        assert_eq!(up_to(12), [1, 2, 4, 8, 12]);
        assert_eq!(up_to(16), [1, 2, 4, 8, 16]);
    }
}

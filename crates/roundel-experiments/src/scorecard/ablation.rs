//! What each mechanism of the simulated hardware does to the verdicts on a paper: they are judged once with all of them, and
//! once without each.

use super::{Judging, Scorecard, Verdict, judge};
use roundel_verbs::sim::Mechanism;
use serde::{Deserialize, Serialize};
use strum::VariantNames as _;

/// The verdicts without one mechanism, and those that are other ones than with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Without {
    /// The mechanism, by its name.
    pub mechanism: String,
    /// All verdicts without it.
    pub scorecard: Scorecard,
    /// Names of the parts that it decides: whether they hold is another answer without it.
    pub decides: Vec<String>,
    /// Names of the other parts of which something else is seen without it.
    pub touches: Vec<String>,
}

/// Verdicts with all mechanisms, and without each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ablation {
    /// With all of them.
    pub scorecard: Scorecard,
    /// Without each.
    pub without: Vec<Without>,
}

/// Judges claims with all mechanisms but those that are to be left out, and without each of the others, on so many threads of
/// this host. It says before each claim how many are done, how many there are, and which is next.
pub fn ablate(
    judging: &Judging,
    threads: usize,
    said: &(dyn Fn(usize, usize, &str) + Sync),
) -> Ablation {
    let mechanisms = Mechanism::VARIANTS.iter();
    let mechanisms = mechanisms.filter_map(|name| Some((*name, name.parse::<Mechanism>().ok()?)));
    let mechanisms: Vec<_> = mechanisms
        .filter(|(_, mechanism)| !judging.without.contains(mechanism))
        .collect();
    let rounds = 1 + mechanisms.len();
    let round = |number: usize, judging: &Judging, name: &str| {
        judge(judging, threads, &|done, total, next| {
            said(
                number * total + done,
                rounds * total,
                &format!("{next} {name}"),
            );
        })
    };
    let scorecard = round(0, judging, "with all mechanisms");
    let without = mechanisms
        .into_iter()
        .enumerate()
        .map(|(at, (name, mechanism))| {
            let mut less = judging.clone();
            less.without.push(mechanism);
            let other = round(1 + at, &less, &format!("without {name}"));
            Without::new(name, &scorecard, other)
        });
    Ablation {
        without: without.collect(),
        scorecard,
    }
}

impl Without {
    fn new(mechanism: &str, with: &Scorecard, scorecard: Scorecard) -> Self {
        let names = |differ: fn(&Verdict, &Verdict) -> bool| {
            let pairs = with.claims.iter().zip(&scorecard.claims);
            let some = pairs.filter(|(with, without)| differ(with, without));
            some.map(|(with, _)| with.id.clone()).collect()
        };
        Self {
            mechanism: mechanism.to_owned(),
            decides: names(|with, without| with.holds != without.holds),
            touches: names(|with, without| {
                with.holds == without.holds && with.seen != without.seen
            }),
            scorecard,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::Paper;

    #[test]
    fn what_a_mechanism_decides_and_what_it_touches_are_told_apart() {
        let judging = Judging {
            rows: vec!["SH35".into()],
            ..Judging::of(Paper::Shuffle)
        };
        let with = judge(&judging, 1, &|_, _, _| {});
        let mut other = with.clone();
        other.claims[0].holds = other.claims[0].holds.map(|holds| !holds);
        other.claims[1].seen = "something else".into();
        let without = Without::new("luck", &with, other);
        assert_eq!(without.decides, [with.claims[0].id.as_str()]);
        assert_eq!(without.touches, [with.claims[1].id.as_str()]);
    }
}

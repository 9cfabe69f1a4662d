//! The scorecard: claims of a paper that a simulation can test, each judged by runs on simulated hardware whose
//! constants are frozen ([`Parameters`](roundel_verbs::sim::Parameters)).
//!
//! A claim with several numbers is judged part by part. A part that cannot be judged does not hold, and says why.

mod buffers;
mod compute;
mod credit;
mod hybrid;
mod lab;
mod protocols;
mod queries;
mod ring;
mod scale;
mod setup;
mod size;
mod tcp;

pub use crate::claims::Test;
use crate::claims::claim;
use crate::conversation::Conversation;
use crate::error::Result;
pub use crate::paper::Paper;
use crate::parallel;
use lab::Lab;
use serde::{Deserialize, Serialize};

/// What judges a claim, by the name of its row.
type Judge = (&'static str, fn(&Lab) -> Result<Seen>);

/// What was seen of a claim.
struct Seen {
    seen: String,
    holds: bool,
    /// Whether its numbers are the paper's within a quarter, where it is told.
    near: Option<bool>,
    why: String,
}

/// The verdict on a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Its name: `SH15`, and `SH15a` for a part.
    pub id: String,
    /// How much of it a simulation tests.
    pub test: Test,
    /// What the paper saw.
    pub paper: String,
    /// What was seen here.
    pub seen: String,
    /// Whether both agree.
    pub holds: bool,
    /// Of papers whose claims hold by order and crossover: whether the numbers of this one are the paper's within 25 %. None
    /// where the claim has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_25_percent: Option<bool>,
    /// Why, or why not.
    pub why: String,
}

/// All verdicts on a paper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scorecard {
    /// In the order of the paper.
    pub claims: Vec<Verdict>,
}

impl Paper {
    /// What judges its claims, by their names.
    fn judges(self) -> Vec<Judge> {
        let judges: &[&[Judge]] = match self {
            Self::Shuffle => &[
                credit::JUDGES,
                size::JUDGES,
                scale::JUDGES,
                tcp::JUDGES,
                setup::JUDGES,
                compute::JUDGES,
                buffers::JUDGES,
                queries::JUDGES,
            ],
            Self::Ring => ring::JUDGES,
            Self::Protocols => protocols::JUDGES,
            Self::Hybrid => &[hybrid::JUDGES],
        };
        let mut judges = judges.concat();
        judges.sort_by_key(|(claim, _)| *claim);
        judges
    }

    /// Of so many threads of this host, those that judge claims side by side, and those that each of them runs settings on:
    /// claims about conversations are judged by the same curves, which would be run twice.
    fn share(self, threads: usize) -> (usize, usize) {
        match self {
            Self::Shuffle | Self::Ring | Self::Hybrid => (threads, 1),
            Self::Protocols => (1, threads),
        }
    }
}

/// Judges the claims of a paper whose names begin with one of `rows`, or all if there are none, on so many threads of this
/// host, and says before each how many are done, how many there are, and which is next.
pub fn judge(
    paper: Paper,
    rows: &[String],
    threads: usize,
    said: &(dyn Fn(usize, usize, &str) + Sync),
) -> Scorecard {
    let mut judges = paper.judges();
    if !rows.is_empty() {
        judges.retain(|(claim, _)| rows.iter().any(|row| claim.starts_with(row.as_str())));
    }
    let (threads, for_each) = paper.share(threads.max(1));
    let lab = Lab::new(for_each);
    let claims = parallel::each(threads, &judges, |number, judge| {
        said(number, judges.len(), judge.0);
        verdict(judge, &lab)
    });
    Scorecard { claims }
}

/// Judges the claims about conversations whose names begin with one of `rows` by what is known of conversations, in gigabits
/// per second. Those of which not all is known are left open.
pub fn judge_known(rows: &[&str], known: &[(Conversation, f64)]) -> Vec<(Verdict, bool)> {
    let lab = Lab::knowing(known);
    let judges = Paper::Protocols.judges().into_iter();
    let wanted = judges.filter(|(claim, _)| rows.iter().any(|row| claim.starts_with(row)));
    wanted
        .map(|judge| (verdict(&judge, &lab), (judge.1)(&lab).is_ok()))
        .collect()
}

fn verdict((id, judge): &Judge, lab: &Lab) -> Verdict {
    let claim = claim(id);
    let seen = judge(lab).unwrap_or_else(|error| Seen {
        seen: "nothing".into(),
        holds: false,
        near: None,
        why: format!("it could not be run: {error}"),
    });
    Verdict {
        id: claim.id.into(),
        test: claim.test,
        paper: claim.says.into(),
        seen: seen.seen,
        holds: seen.holds,
        within_25_percent: seen.near,
        why: seen.why,
    }
}

impl Seen {
    /// A claim with its reasons where it holds, and where it does not.
    fn new(seen: impl Into<String>, holds: bool, yes: &str, no: &str) -> Result<Self> {
        Ok(Self {
            seen: seen.into(),
            holds,
            near: None,
            why: if holds { yes } else { no }.into(),
        })
    }

    /// With its numbers, each beside the paper's.
    fn beside(self, numbers: &[(f64, f64)]) -> Self {
        let near = numbers
            .iter()
            .all(|(seen, paper)| lab::is_near(*seen, *paper));
        Self {
            near: Some(near),
            ..self
        }
    }
}

impl Scorecard {
    /// How many claims of a kind hold, of how many.
    pub fn holding(&self, test: Test) -> (usize, usize) {
        let of_kind = || self.claims.iter().filter(|claim| claim.test == test);
        let holding = of_kind().filter(|claim| claim.holds).count();
        (holding, of_kind().count())
    }

    /// How many claims have the numbers of the paper within 25 %, of how many that have numbers.
    pub fn within_25_percent(&self) -> (usize, usize) {
        let told = || {
            self.claims
                .iter()
                .filter_map(|claim| claim.within_25_percent)
        };
        (told().filter(|near| *near).count(), told().count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::CLAIMS;
    use std::collections::HashSet;

    /// The rows of the claims of a paper that a simulation tests, in whole or in part.
    fn rows(paper: Paper) -> (&'static str, [&'static [u32]; 2]) {
        match paper {
            Paper::Shuffle => (
                "SH",
                [
                    &[
                        1, 2, 3, 5, 8, 10, 11, 13, 16, 17, 18, 19, 22, 24, 26, 27, 30, 31, 32, 34,
                        35, 36, 37,
                    ],
                    &[6, 7, 14, 15, 20, 21, 23, 25, 28, 29, 33, 38, 39, 40],
                ],
            ),
            Paper::Ring => ("CJ", [&[1, 3, 5, 6, 8], &[2, 4, 7, 9, 10, 11]]),
            Paper::Protocols => (
                "MP",
                [&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], &[]],
            ),
            Paper::Hybrid => ("HY", [&[1, 2, 4], &[3]]),
        }
    }

    #[test]
    fn every_row_is_there_and_no_other() {
        for paper in [Paper::Shuffle, Paper::Ring, Paper::Protocols, Paper::Hybrid] {
            let judged: Vec<_> = paper.judges().iter().map(|(id, _)| *id).collect();
            let (letters, rows) = rows(paper);
            let told = CLAIMS
                .iter()
                .filter(|claim| claim.id.starts_with(letters) && claim.test != Test::Not);
            assert_eq!(judged, told.map(|claim| claim.id).collect::<Vec<_>>());
            for (test, rows) in [Test::Fully, Test::Partly].into_iter().zip(rows) {
                let of_kind = judged.iter().filter(|id| claim(id).test == test);
                let seen: HashSet<u32> = of_kind
                    .map(|id| {
                        let number = id.trim_start_matches(letters);
                        let number =
                            number.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
                        number.parse().unwrap()
                    })
                    .collect();
                assert_eq!(seen, rows.iter().copied().collect(), "{paper} {test}");
            }
        }
    }
}

//! The scorecard: claims of a paper that a simulation can test, each judged by runs on simulated hardware whose
//! constants are frozen ([`Parameters`](roundel_verbs::sim::Parameters)).
//!
//! A claim with several numbers is judged part by part, and holds as a whole when all its parts do. A part that cannot be
//! judged says why. A part that follows from what was put in is shown, and not judged.

mod ablation;
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
use crate::claims::{claim, claim_of, is_held_out};
use crate::conversation::Conversation;
use crate::error::Result;
pub use crate::paper::Paper;
use crate::parallel;
pub use ablation::{Ablation, Without, ablate};
use lab::Lab;
use roundel_verbs::sim::Mechanism;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use strum::{Display, EnumString, VariantNames};

/// What judges a claim, by the name of its row.
type Judge = (&'static str, fn(&Lab) -> Result<Seen>);

/// What was seen of a claim.
struct Seen {
    seen: String,
    /// None where it cannot be judged.
    holds: Option<bool>,
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
    /// Whether both agree; none where that was not judged.
    pub holds: Option<bool>,
    /// Of papers whose claims hold by order and crossover: whether the numbers of this one are the paper's within 25 %. None
    /// where the claim has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_25_percent: Option<bool>,
    /// Why, or why not.
    pub why: String,
    /// Whether nobody looked at it while the simulator gained its mechanisms.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held_out: bool,
    /// What several seeds say of it, where there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeds: Option<Seeds>,
}

/// What several seeds say of a claim. It holds where it does with each of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seeds {
    /// Those with which it holds.
    pub holding: usize,
    /// Those with which it was judged.
    pub judged: usize,
    /// Of the numbers that were measured for it, the largest standard deviation, in percent of its mean.
    pub deviation_percent: f64,
}

/// A share of the claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Share {
    /// Those that everybody may look at, always.
    Open,
    /// Those that nobody looks at while the simulator gains a mechanism.
    HeldOut,
}

/// Which claims are judged, and on which hardware.
#[derive(Clone, Debug)]
pub struct Judging {
    /// The paper.
    pub paper: Paper,
    /// What names of claims begin with; all if there are none.
    pub rows: Vec<String>,
    /// The share of them; all if there is none.
    pub only: Option<Share>,
    /// How many seeds there are, at least one.
    pub seeds: u64,
    /// What does not hold the hardware up.
    pub without: Vec<Mechanism>,
}

impl Judging {
    /// All claims of a paper, by one seed.
    pub fn of(paper: Paper) -> Self {
        Self {
            paper,
            rows: Vec::new(),
            only: None,
            seeds: 1,
            without: Vec::new(),
        }
    }

    /// How many parts of claims that is.
    pub fn parts(&self) -> usize {
        self.judges().len()
    }

    fn judges(&self) -> Vec<Judge> {
        let mut judges = self.paper.judges();
        judges.retain(|(claim, _)| {
            let named = self.rows.iter().any(|row| claim.starts_with(row.as_str()));
            (self.rows.is_empty() || named) && self.only.is_none_or(|only| only == Share::of(claim))
        });
        judges
    }
}

impl Share {
    /// The one that a claim is in.
    fn of(claim: &str) -> Self {
        match is_held_out(claim) {
            true => Self::HeldOut,
            false => Self::Open,
        }
    }
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

/// Judges claims on so many threads of this host, and says before each how many are done, how many there are, and which is next.
pub fn judge(
    judging: &Judging,
    threads: usize,
    said: &(dyn Fn(usize, usize, &str) + Sync),
) -> Scorecard {
    let judges = judging.judges();
    let (threads, for_each) = judging.paper.share(threads.max(1));
    let lab = Lab::new(for_each);
    let claims = parallel::each(threads, &judges, |number, judge| {
        said(number, judges.len(), judge.0);
        let seeds = 1..=judging.seeds.max(1);
        let labs: Vec<_> = seeds
            .map(|seed| lab.varied(seed, &judging.without))
            .collect();
        verdict(judge, &labs)
    });
    Scorecard { claims }
}

/// Judges the claims about conversations whose names begin with one of `rows` by what is known of conversations, in gigabits
/// per second. Those of which not all is known are left open.
pub fn judge_known(rows: &[&str], known: &[(Conversation, f64)]) -> Vec<Verdict> {
    let lab = Lab::knowing(known);
    let judges = Paper::Protocols.judges().into_iter();
    let wanted = judges.filter(|(claim, _)| rows.iter().any(|row| claim.starts_with(row)));
    wanted
        .map(|judge| verdict(&judge, slice::from_ref(&lab)))
        .collect()
}

/// What labs say of a claim together, each by a seed.
fn verdict((id, judge): &Judge, labs: &[Lab]) -> Verdict {
    let claim = claim(id);
    let (all, asked): (Vec<_>, Vec<_>) = labs
        .iter()
        .map(|lab| {
            let seen = judge(lab);
            let open = |error| Seen::open(format!("it could not be run: {error}"));
            (seen.unwrap_or_else(open), lab.asked())
        })
        .unzip();
    let count = |holds| all.iter().filter(|seen| seen.holds == holds).count();
    let seeds = Seeds {
        holding: count(Some(true)),
        judged: all.len() - count(None),
        deviation_percent: deviation_percent(&asked),
    };
    let of_several = all.len() > 1 && claim.test != Test::Given;
    // The first that it does not hold with, or that cannot judge it.
    let against = |seen: &Seen| {
        [Some(false), None, Some(true)]
            .iter()
            .position(|holds| *holds == seen.holds)
    };
    let near = all.iter().map(|seen| seen.near).min().flatten();
    let told = all
        .into_iter()
        .min_by_key(against)
        .expect("a seed at least");
    Verdict {
        id: claim.id.into(),
        test: claim.test,
        paper: claim.says.into(),
        seen: told.seen,
        holds: told.holds.filter(|_| claim.test != Test::Given),
        within_25_percent: near,
        why: told.why,
        held_out: is_held_out(id),
        seeds: of_several.then_some(seeds),
    }
}

/// Of numbers that several measured, each by its name, the largest standard deviation in percent of its mean.
fn deviation_percent(all: &[BTreeMap<String, f64>]) -> f64 {
    let names = all.iter().flat_map(BTreeMap::keys).collect::<BTreeSet<_>>();
    let deviations = names.into_iter().map(|name| {
        let values: Vec<f64> = all
            .iter()
            .filter_map(|one| one.get(name).copied())
            .collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares = values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>();
        match mean == 0.0 || values.len() < 2 {
            true => 0.0,
            false => 100.0 * (squares / (count - 1.0)).sqrt() / mean,
        }
    });
    deviations.fold(0.0, f64::max)
}

impl Seen {
    /// A claim with its reasons where it holds, and where it does not.
    fn new(seen: impl Into<String>, holds: bool, yes: &str, no: &str) -> Result<Self> {
        Ok(Self {
            seen: seen.into(),
            holds: Some(holds),
            near: None,
            why: if holds { yes } else { no }.into(),
        })
    }

    /// A claim that cannot be judged, with the reason.
    fn open(why: String) -> Self {
        Self {
            seen: "nothing".into(),
            holds: None,
            near: None,
            why,
        }
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

/// How many of something hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Those that hold.
    pub holding: usize,
    /// Those that were judged.
    pub judged: usize,
    /// All of them.
    pub all: usize,
}

impl Tally {
    fn add(&mut self, holds: Option<bool>) {
        self.all += 1;
        self.judged += usize::from(holds.is_some());
        self.holding += usize::from(holds == Some(true));
    }
}

impl Scorecard {
    /// A share of it.
    pub fn of(&self, share: Share) -> Self {
        let all = self.claims.iter();
        let some = all.filter(|part| Share::of(&part.id) == share);
        Self {
            claims: some.cloned().collect(),
        }
    }

    /// How many parts of a kind hold.
    pub fn parts(&self, test: Test) -> Tally {
        let mut tally = Tally::default();
        let of_kind = self.claims.iter().filter(|part| part.test == test);
        of_kind.for_each(|part| tally.add(part.holds));
        tally
    }

    /// How many whole claims hold: all their parts were judged, and hold. A claim of which a part does not hold does not; any
    /// other is open. Parts that follow from what was put in count for neither.
    pub fn whole(&self) -> Tally {
        let mut wholes: Vec<(&str, Option<bool>)> = Vec::new();
        for part in self.claims.iter().filter(|part| part.test != Test::Given) {
            let claim = claim_of(&part.id);
            match wholes.last_mut() {
                Some((last, holds)) if *last == claim => {
                    *holds = match (*holds, part.holds) {
                        (Some(false), _) | (_, Some(false)) => Some(false),
                        (None, _) | (_, None) => None,
                        (Some(true), Some(true)) => Some(true),
                    }
                }
                _ => wholes.push((claim, part.holds)),
            }
        }
        let mut tally = Tally::default();
        wholes.iter().for_each(|(_, holds)| tally.add(*holds));
        tally
    }

    /// How many parts that are judged have the numbers of the paper within 25 %, of those that have numbers.
    pub fn within_25_percent(&self) -> (usize, usize) {
        let judged = self.claims.iter().filter(|part| part.holds.is_some());
        let told = || judged.clone().filter_map(|part| part.within_25_percent);
        (told().filter(|near| *near).count(), told().count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::CLAIMS;
    use std::collections::HashSet;

    /// The rows of the claims of a paper: those that a simulation tests, in whole and in part, those that are counted, and those
    /// that follow from what is put in.
    fn rows(paper: Paper) -> (&'static str, [&'static [u32]; 4]) {
        match paper {
            Paper::Shuffle => (
                "SH",
                [
                    &[
                        1, 2, 3, 5, 8, 10, 11, 13, 16, 17, 18, 19, 22, 24, 26, 27, 30, 31, 32, 34,
                        35, 36, 37,
                    ],
                    &[6, 7, 14, 15, 20, 21, 23, 25, 28, 29, 31, 33, 38, 39, 40],
                    &[27, 35],
                    &[],
                ],
            ),
            Paper::Ring => (
                "CJ",
                [&[1, 3, 5, 6, 8], &[7, 9, 10, 11], &[], &[2, 3, 4, 5, 10]],
            ),
            Paper::Protocols => (
                "MP",
                [
                    &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
                    &[],
                    &[],
                    &[],
                ],
            ),
            Paper::Hybrid => ("HY", [&[1, 4], &[3], &[2, 4], &[]]),
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
            let kinds = [Test::Fully, Test::Partly, Test::Counted, Test::Given];
            for (test, rows) in kinds.into_iter().zip(rows) {
                let of_kind = judged.iter().filter(|id| claim(id).test == test);
                let seen: HashSet<u32> = of_kind
                    .map(|id| {
                        let number = claim_of(id).trim_start_matches(letters);
                        number.parse().unwrap()
                    })
                    .collect();
                assert_eq!(seen, rows.iter().copied().collect(), "{paper} {test}");
            }
        }
    }

    fn part(id: &str, test: Test, holds: Option<bool>) -> Verdict {
        Verdict {
            id: id.into(),
            test,
            paper: String::new(),
            seen: String::new(),
            holds,
            within_25_percent: Some(true),
            why: String::new(),
            held_out: false,
            seeds: None,
        }
    }

    #[test]
    fn a_claim_holds_when_all_its_parts_do() {
        let scorecard = Scorecard {
            claims: vec![
                part("SH01a", Test::Fully, Some(true)),
                part("SH01b", Test::Fully, Some(true)),
                part("SH02a", Test::Fully, Some(true)),
                part("SH02b", Test::Partly, Some(false)),
                part("SH03a", Test::Fully, None),
                part("SH03b", Test::Fully, Some(true)),
                part("SH04", Test::Given, None),
            ],
        };
        let tally = |holding, judged, all| Tally {
            holding,
            judged,
            all,
        };
        assert_eq!(scorecard.whole(), tally(1, 2, 3));
        assert_eq!(scorecard.parts(Test::Fully), tally(4, 4, 5));
        assert_eq!(scorecard.parts(Test::Given), tally(0, 0, 1));
        assert_eq!(scorecard.within_25_percent(), (5, 5));
    }

    #[test]
    fn what_is_put_in_and_what_cannot_be_run_are_not_judged() {
        let holds: fn(&Lab) -> Result<Seen> = |_| Seen::new("it", true, "so it is", "");
        let fails: fn(&Lab) -> Result<Seen> = |_| Err(crate::error::Error::Wrong("no".into()));
        let lab = Lab::knowing(&[]);
        let of = |id, judge| verdict(&(id, judge), slice::from_ref(&lab)).holds;
        assert_eq!(of("CJ02", holds), None);
        assert_eq!(of("CJ06", holds), Some(true));
        assert_eq!(of("CJ06", fails), None);
    }
}

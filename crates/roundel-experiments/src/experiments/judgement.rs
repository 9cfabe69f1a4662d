//! What measured values say of a claim, with the threshold that they are held against: both come from one number, so that a report
//! cannot name another than was used.

use crate::figure::Verdict;
use std::ops::RangeInclusive;

/// Short of a claimed ratio by less than this share, a measurement does not tell.
const NEAR: f64 = 0.85;

/// A verdict, and what it takes for a claim to hold.
pub struct Judgement {
    pub verdict: Verdict,
    pub threshold: String,
}

/// Whether something holds, in words.
pub fn holds(agrees: bool, threshold: impl Into<String>) -> Judgement {
    Judgement {
        verdict: match agrees {
            true => Verdict::Agrees,
            false => Verdict::Differs,
        },
        threshold: threshold.into(),
    }
}

pub fn at_least(value: f64, limit: f64) -> Judgement {
    holds(value >= limit, format!("at least {limit}"))
}

pub fn at_most(value: f64, limit: f64) -> Judgement {
    holds(value <= limit, format!("at most {limit}"))
}

pub fn above(value: f64, limit: f64) -> Judgement {
    holds(value > limit, format!("more than {limit}"))
}

pub fn below(value: f64, limit: f64) -> Judgement {
    holds(value < limit, format!("less than {limit}"))
}

pub fn within(value: f64, range: RangeInclusive<f64>) -> Judgement {
    let threshold = format!("{} to {}", range.start(), range.end());
    holds(range.contains(&value), threshold)
}

/// Whether a value is a claimed one but for a share of it.
pub fn near(value: f64, claimed: f64, share: f64) -> Judgement {
    let threshold = format!("{claimed}, with {} % more or less", 100.0 * share);
    holds((value / claimed - 1.0).abs() <= share, threshold)
}

/// Whether a value reaches a claimed one. What is a little short of it does not tell.
pub fn reaches(value: f64, claimed: f64) -> Judgement {
    let enough = NEAR * claimed;
    let judged = at_least(value, claimed);
    Judgement {
        threshold: format!("{}; from {enough:.2} on it cannot tell", judged.threshold),
        ..judged.if_told(value >= claimed || value < enough)
    }
}

/// Whether a value stays below a limit. What is below another one does not tell.
pub fn stays_below(value: f64, limit: f64, doubtful: f64) -> Judgement {
    let judged = below(value, limit);
    Judgement {
        threshold: format!("{}; below {doubtful} it cannot tell", judged.threshold),
        ..judged.if_told(value < limit || value >= doubtful)
    }
}

impl Judgement {
    /// The same where it can be told at all.
    pub fn if_told(self, told: bool) -> Self {
        match told {
            true => self,
            false => Self {
                verdict: Verdict::CannotTell,
                ..self
            },
        }
    }

    /// Whether this and another hold.
    pub fn and(self, other: Self) -> Self {
        let both = self.verdict == Verdict::Agrees && other.verdict == Verdict::Agrees;
        holds(both, format!("{}, and {}", self.threshold, other.threshold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(judgement: &Judgement) -> (Verdict, &str) {
        (judgement.verdict, &judgement.threshold)
    }

    #[test]
    fn what_is_near_a_claim_does_not_tell() {
        let threshold = "at least 2; from 1.70 on it cannot tell";
        assert_eq!(told(&reaches(2.0, 2.0)), (Verdict::Agrees, threshold));
        assert_eq!(told(&reaches(1.8, 2.0)), (Verdict::CannotTell, threshold));
        assert_eq!(told(&reaches(1.0, 2.0)), (Verdict::Differs, threshold));
        assert_eq!(stays_below(0.2, 0.15, 0.3).verdict, Verdict::CannotTell);
        assert_eq!(stays_below(0.3, 0.15, 0.3).verdict, Verdict::Differs);
    }

    #[test]
    fn what_is_no_number_holds_nothing() {
        let none = f64::NAN;
        let all = [
            at_least(none, 1.0),
            at_most(none, 1.0),
            above(none, 1.0),
            below(none, 1.0),
            within(none, 0.0..=1.0),
            near(none, 1.0, 0.1),
        ];
        assert!(all.iter().all(|one| one.verdict == Verdict::Differs));
    }

    #[test]
    fn a_judgement_says_what_it_took() {
        let both = at_least(2.0, 1.5).and(near(5.5, 5.0, 0.05));
        let threshold = "at least 1.5, and 5, with 5 % more or less";
        assert_eq!(told(&both), (Verdict::Differs, threshold));
        let untold = within(3.0, 2.0..=4.0).if_told(false);
        assert_eq!(told(&untold), (Verdict::CannotTell, "2 to 4"));
    }
}

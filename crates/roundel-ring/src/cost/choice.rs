//! Which way to do a join: what each is estimated to cost, and the one that is chosen.

use super::{Estimate, Method, Rates, Shape};
use std::fmt;
use std::time::Duration;

/// A join that can also be partitioned by its keys runs on a ring only if that is estimated to take less than this part
/// of the time: estimates may be wrong.
const GAIN: f64 = 0.8;
/// Any other join runs on a ring unless that is estimated to take more than so many times as long as without one, that
/// is, with all rows of one side sent to each host.
const LOSS: f64 = 1.25;

/// A way to do a join of rows that are on several hosts.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Way {
    /// The one relation spins past the other, which stays.
    Cyclo,
    /// Both are partitioned by their keys.
    Repartition,
    /// The one is sent to all hosts.
    Broadcast,
}

/// What each way to do a join is estimated to cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ways {
    /// On a ring.
    pub cyclo: Estimate,
    /// Of joins with keys that all rows can be partitioned by.
    pub repartition: Option<Estimate>,
    /// With the smaller side on all hosts.
    pub broadcast: Estimate,
}

impl Ways {
    /// Those of a join, whose pairs a ring finds by this method.
    pub fn of(rates: &Rates, join: &Shape, method: Method) -> Self {
        Self {
            cyclo: rates.cyclo(join, method),
            repartition: (method == Method::Hash).then(|| rates.repartition(join)),
            broadcast: rates.broadcast(join, method),
        }
    }

    /// The way to take.
    pub fn choice(&self) -> Way {
        let (other, without_ring) = self.without_ring();
        let bound = match self.repartition {
            Some(_) => GAIN,
            None => LOSS,
        };
        match self.cyclo.total() <= without_ring.mul_f64(bound) {
            true => Way::Cyclo,
            false => other,
        }
    }

    /// The best of those that need no ring, and what it takes.
    fn without_ring(&self) -> (Way, Duration) {
        let broadcast = self.broadcast.total();
        match self.repartition.map(|way| way.total()) {
            Some(repartition) if repartition <= broadcast => (Way::Repartition, repartition),
            _ => (Way::Broadcast, broadcast),
        }
    }
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Estimate {
            set_up,
            join,
            synchronisation,
            ..
        } = self.cyclo;
        write!(
            f,
            "cyclo {} (set-up {}, join {}, synchronisation {})",
            Seconds(self.cyclo.total()),
            Seconds(set_up),
            Seconds(join),
            Seconds(synchronisation)
        )?;
        if let Some(repartition) = &self.repartition {
            write!(f, ", repartition {}", Seconds(repartition.total()))?;
        }
        write!(f, ", broadcast {}", Seconds(self.broadcast.total()))
    }
}

/// With two digits.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        match seconds {
            10.0.. => write!(f, "{seconds:.0} s"),
            1.0.. => write!(f, "{seconds:.1} s"),
            0.1.. => write!(f, "{seconds:.2} s"),
            0.01.. => write!(f, "{:.0} ms", seconds * 1e3),
            _ => write!(f, "{:.1} ms", seconds * 1e3),
        }
    }
}

//! What joins cost: set-up, join, network and synchronisation, by the sizes of the relations and the rates of a host.
//!
//! ```text
//!              set-up             join                          network, at the same time
//!   cyclo      both sides / n     all of R, against S / n       R, on each link
//!   repartition                   both sides / n                both sides / n, before the join
//!   broadcast  all of R           S / n                         R to each host, before the join
//! ```
//!
//! Rates are measured ([`calibrate()`]) or, of simulated hosts, given. Knows no plan.

mod calibrate;
mod choice;

pub use calibrate::{calibrate, calibrate_link};
pub use choice::{Way, Ways};

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a thread of a host needs, in nanoseconds, and what a link carries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Opens a ring.
    pub open: f64,
    /// Hash join: puts a stationary row into the table.
    pub build: f64,
    /// Hash join: puts a spinning row in the order of the table.
    pub cluster: f64,
    /// Hash join: looks a spinning row up.
    pub probe: f64,
    /// Sort-merge join: sorts a row, for each time that the number of rows doubles.
    pub sort: f64,
    /// Sort-merge join: goes past a row of either side.
    pub pass: f64,
    /// Tests a pair against a predicate. Nested loops test all of them, others those that can match.
    pub test: f64,
    /// Makes a row of the result.
    pub emit: f64,
    /// Makes a byte of an element of rows, or rows of it.
    pub code: f64,
    /// Bytes that a link carries in a second, each way.
    pub link: f64,
}

/// What is known of a relation before it is joined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Its rows, on all hosts.
    pub rows: f64,
    /// Bytes of a row.
    pub width: f64,
}

/// A join on several hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Number of hosts.
    pub hosts: f64,
    /// Threads of each that join.
    pub threads: f64,
    /// The relation that spins, or is sent to all, or of which the table is built when both are partitioned.
    pub spinning: Size,
    /// The other one.
    pub stationary: Size,
    /// Pairs whose keys match, or are as near as they must be.
    pub found: f64,
    /// Whether those are tested against a predicate.
    pub tested: bool,
    /// Rows of the result.
    pub result: f64,
}

/// How a host finds pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// By tables of hashes.
    Hash,
    /// By their order.
    Merge,
    /// All of them.
    NestedLoops,
}

/// Where the time of a join goes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Setting up the rows of both relations.
    pub set_up: Duration,
    /// Joining the rows, once they are set up.
    pub join: Duration,
    /// What the busiest link needs for its bytes. On a ring it works while hosts join.
    pub network: Duration,
    /// Waiting for the network.
    pub synchronisation: Duration,
}

impl Estimate {
    /// From the beginning to the end.
    pub fn total(&self) -> Duration {
        self.set_up + self.join + self.synchronisation
    }
}

fn nanoseconds(count: f64) -> Duration {
    // An estimate may be of a join that never ends.
    Duration::from_secs_f64((count / 1e9).clamp(0.0, 1e9))
}

/// All pairs of rows.
fn all_pairs(join: &Shape) -> f64 {
    join.spinning.rows * join.stationary.rows
}

impl Rates {
    /// Whether they can be rates at all: whoever reads some from a file asks.
    pub fn are_sound(&self) -> bool {
        let Self {
            open,
            build,
            cluster,
            probe,
            sort,
            pass,
            test,
            emit,
            code,
            link,
        } = *self;
        let costs = [open, build, cluster, probe, sort, pass, test, emit, code];
        costs.iter().all(|cost| cost.is_finite() && *cost >= 0.0) && link > 0.0
    }

    /// A cyclo-join: each host joins all elements with its part of the stationary relation, and passes them on meanwhile.
    pub fn cyclo(&self, join: &Shape, method: Method) -> Estimate {
        let Shape {
            hosts,
            threads,
            spinning,
            stationary,
            ..
        } = *join;
        let (own_spinning, own_stationary) = (spinning.rows / hosts, stationary.rows / hosts);
        let open = if hosts > 1.0 { self.open } else { 0.0 };
        // Both sides are set up at once, and share the threads.
        let set_up = open + self.set_up(method, own_spinning, own_stationary) / threads;
        let local = match method {
            Method::Hash => spinning.rows * self.probe + self.pairs(join, join.found),
            // Elements of a host come in its order: the stationary rows are gone past once for each host.
            Method::Merge => {
                (spinning.rows + stationary.rows) * self.pass + self.pairs(join, join.found)
            }
            Method::NestedLoops => self.pairs(join, all_pairs(join)),
        };
        // Each element is made at its origin, and read by all others.
        let coded = spinning.width * spinning.rows * self.code;
        let bytes = spinning.width * spinning.rows * (hosts - 1.0) / hosts;
        self.estimate(set_up, (local + coded) / threads, bytes, true)
    }

    /// Both relations partitioned by their keys, then joined by hashes.
    pub fn repartition(&self, join: &Shape) -> Estimate {
        let Shape {
            hosts,
            threads,
            spinning,
            stationary,
            ..
        } = *join;
        let (build, probe) = (spinning.rows / hosts, stationary.rows / hosts);
        // A row is put where its partition is sent from, which is what clustering does, and taken.
        let scattered = (build + probe) * self.cluster
            + (build * spinning.width + probe * stationary.width) * self.code;
        let set_up = (scattered + build * self.build) / threads;
        let local = probe * self.probe + self.pairs(join, join.found);
        let bytes = (build * spinning.width + probe * stationary.width) * (hosts - 1.0) / hosts;
        self.estimate(set_up, local / threads, bytes, false)
    }

    /// The one relation sent to all hosts, each of which joins it with its part of the other: by hashes, or else pair by
    /// pair.
    pub fn broadcast(&self, join: &Shape, method: Method) -> Estimate {
        let Shape {
            hosts,
            threads,
            spinning,
            stationary,
            ..
        } = *join;
        let probe = stationary.rows / hosts;
        let build = match method {
            Method::Hash => self.build,
            Method::Merge | Method::NestedLoops => 0.0,
        };
        // One thread builds the table; all take what comes.
        let taken = spinning.rows * spinning.width * self.code / threads;
        let set_up = taken + spinning.rows * build;
        let local = match method {
            Method::Hash => probe * self.probe + self.pairs(join, join.found),
            Method::Merge | Method::NestedLoops => self.pairs(join, all_pairs(join)),
        };
        let bytes = spinning.rows * spinning.width * (hosts - 1.0) / hosts;
        self.estimate(set_up, local / threads, bytes, false)
    }

    fn set_up(&self, method: Method, spinning: f64, stationary: f64) -> f64 {
        let sort = |rows: f64| rows * rows.max(2.0).log2() * self.sort;
        match method {
            Method::Hash => spinning * self.cluster + stationary * self.build,
            Method::Merge => sort(spinning) + sort(stationary),
            Method::NestedLoops => 0.0,
        }
    }

    /// What a host needs for its share of the pairs that all of them find.
    fn pairs(&self, join: &Shape, found: f64) -> f64 {
        let test = if join.tested { self.test } else { 0.0 };
        (found * test + join.result * self.emit) / join.hosts
    }

    /// `overlaps`: bytes are on their way while hosts join.
    fn estimate(&self, set_up: f64, join: f64, bytes: f64, overlaps: bool) -> Estimate {
        let network = bytes / self.link * 1e9;
        let hidden = if overlaps { join } else { 0.0 };
        Estimate {
            set_up: nanoseconds(set_up),
            join: nanoseconds(join),
            network: nanoseconds(network),
            synchronisation: nanoseconds(network - hidden),
        }
    }
}

#[cfg(test)]
mod tests;

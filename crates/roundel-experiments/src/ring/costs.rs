//! What rows cost, in nanoseconds of a thread: to set them up, to send them, to join them. Knows no time and no simulation.

use super::keys::Distribution;
use super::{Carrier, Program, RelationRows, RingJoin, rates};
use roundel_ring::cost::{Method, Rates};
use roundel_verbs::sim::Parameters;

/// What the rows of a join cost.
pub(super) struct Costs {
    rates: Rates,
    method: Method,
    carrier: Carrier,
    parameters: Parameters,
    keys: Distribution,
    predicate: Option<f64>,
    row_bytes: usize,
    /// Rows that a host has.
    own: RelationRows,
}

impl Costs {
    pub(super) fn new(join: &RingJoin, parameters: &Parameters) -> Self {
        Self {
            rates: match join.program {
                Program::Paper => rates::of_paper(parameters),
                Program::Roundel => rates::of_roundel(parameters),
            },
            method: join.method,
            carrier: join.carrier,
            parameters: parameters.clone(),
            keys: Distribution::new(join.keys, join.rows.spinning, join.seed),
            predicate: join.predicate,
            row_bytes: join.row_bytes,
            own: join.rows.of_host(join.hosts),
        }
    }

    /// To set up what a host of a ring has of the relation that spins, and of the other.
    pub(super) fn set_up(&self) -> [f64; 2] {
        let (spinning, stationary) = (self.own.spinning as f64, self.own.stationary as f64);
        let sort = |rows: f64| rows * rows.max(2.0).log2() * self.rates.sort;
        match self.method {
            Method::Hash => [spinning * self.rates.cluster, self.build(stationary)],
            Method::Merge => [sort(spinning), sort(stationary)],
            Method::NestedLoops => [0.0, 0.0],
        }
    }

    /// To join spinning rows with what stays on a host: those between two shares of their origin's.
    pub(super) fn join(&self, from: f64, to: f64) -> f64 {
        let (spinning, stationary) = (self.own.spinning as f64, self.own.stationary as f64);
        let share = to - from;
        let all = spinning * stationary;
        let near = self.keys.found(from, to) * all;
        match self.method {
            Method::Hash => share * spinning * self.rates.probe + self.pairs(near, near),
            // Of those that stay, the ones that are between the same keys.
            Method::Merge => {
                share * (spinning + stationary) * self.rates.pass + self.pairs(near, near)
            }
            Method::NestedLoops => self.pairs(share * all, share * all),
        }
    }

    /// To put rows where they are sent from.
    pub(super) fn scatter(&self, rows: f64) -> f64 {
        rows * self.rates.cluster
    }

    /// To put rows into a table, where there is one.
    pub(super) fn build(&self, rows: f64) -> f64 {
        match self.method {
            Method::Hash => rows * self.rates.build,
            Method::Merge | Method::NestedLoops => 0.0,
        }
    }

    /// To find the partners of so many rows among so many of the other relation: in a table, or else one by one.
    pub(super) fn probe(&self, rows: f64, others: f64) -> f64 {
        let all = rows * others;
        let near = self.keys.found(0.0, 1.0) * all;
        match self.method {
            Method::Hash => rows * self.rates.probe + self.pairs(near, near),
            Method::Merge => self.pairs(all, near),
            Method::NestedLoops => self.pairs(all, all),
        }
    }

    /// To look at pairs, of which some are near enough for the predicate to say whether they match.
    fn pairs(&self, looked_at: f64, near: f64) -> f64 {
        let tested = self.predicate.map_or(0.0, |_| looked_at * self.rates.test);
        tested + near * self.predicate.unwrap_or(1.0) * self.rates.emit
    }

    /// To make what is sent of so many bytes of rows, or rows of it.
    pub(super) fn code(&self, bytes: usize) -> f64 {
        bytes as f64 * self.rates.code / 2.0
    }

    /// To take an element from the kernel, or to give it one.
    pub(super) fn kernel(&self, bytes: usize) -> f64 {
        match self.carrier {
            Carrier::Rdma => 0.0,
            Carrier::Tcp => self.parameters.cpu.tcp.time(bytes).as_picos() as f64 / 1e3,
        }
    }

    /// Bytes of so many rows.
    pub(super) fn bytes(&self, rows: u64) -> usize {
        rows as usize * self.row_bytes
    }
}

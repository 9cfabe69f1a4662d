//! What a host of the ring has to do, in nanoseconds of a thread: set its relations up, join an element, and move one
//! through the kernel. Knows no time and no simulation.

use super::keys::Distribution;
use super::{Carrier, RingJoin, rates};
use roundel_ring::cost::{Method, Rates, Shape, Size};
use roundel_verbs::sim::Parameters;
use std::time::Duration;

/// The rows of a host, and what they cost.
pub(super) struct Costs {
    rates: Rates,
    method: Method,
    threads: usize,
    carrier: Carrier,
    parameters: Parameters,
    keys: Distribution,
    row_bytes: usize,
    /// Rows of each relation that a host has; what cannot be dealt evenly is left out.
    own: u64,
    rows_of_element: u64,
}

impl Costs {
    /// Of elements that have room for so many bytes of rows.
    pub(super) fn new(join: &RingJoin, parameters: &Parameters, room: usize) -> Self {
        Self {
            rates: rates::of_paper(parameters),
            method: join.method,
            threads: join.threads,
            carrier: join.carrier,
            parameters: parameters.clone(),
            keys: Distribution::new(join.keys, join.rows, join.seed),
            row_bytes: join.row_bytes,
            own: (join.rows / join.hosts as u64).max(1),
            rows_of_element: (room / join.row_bytes).max(1) as u64,
        }
    }

    /// Elements that begin on a host.
    pub(super) fn elements(&self) -> u64 {
        self.own.div_ceil(self.rows_of_element)
    }

    /// Bytes of rows of an element, by its number on the host where it begins.
    pub(super) fn bytes(&self, number: u64) -> usize {
        let (from, to) = self.rows(number);
        (to - from) as usize * self.row_bytes
    }

    fn rows(&self, number: u64) -> (u64, u64) {
        let from = (number * self.rows_of_element).min(self.own);
        (from, (from + self.rows_of_element).min(self.own))
    }

    /// To set up one relation: the one that spins, or the other.
    pub(super) fn set_up(&self, spins: bool) -> f64 {
        let own = self.own as f64;
        let (spinning, stationary) = if spins { (own, 0.0) } else { (0.0, own) };
        let shape = alone(spinning, stationary, 0.0);
        nanoseconds(self.rates.cyclo(&shape, self.method).set_up)
    }

    /// To join a thread's part of an element with what stays on a host.
    pub(super) fn join(&self, number: u64, part: usize) -> f64 {
        let (from, to) = self.rows(number);
        let at = |part: usize| from as f64 + (to - from) as f64 * part as f64 / self.threads as f64;
        let own = self.own as f64;
        let (from, to) = (at(part), at(part + 1));
        let share = (to - from) / own;
        let stationary = match self.method {
            // Those that are between the same keys.
            Method::Merge => own * share,
            Method::Hash | Method::NestedLoops => own,
        };
        let found = self.keys.found(from / own, to / own) * own * own;
        let shape = alone(to - from, stationary, found);
        nanoseconds(self.rates.cyclo(&shape, self.method).join)
    }

    /// To take an element from the kernel, or to give it one.
    pub(super) fn kernel(&self, bytes: usize) -> f64 {
        match self.carrier {
            Carrier::Rdma => 0.0,
            Carrier::Tcp => self.parameters.cpu.tcp.time(bytes).as_picos() as f64 / 1e3,
        }
    }
}

/// One thread that joins so many rows.
fn alone(spinning: f64, stationary: f64, found: f64) -> Shape {
    let size = |rows| Size { rows, width: 0.0 };
    Shape {
        hosts: 1.0,
        threads: 1.0,
        spinning: size(spinning),
        stationary: size(stationary),
        found,
        tested: false,
        result: found,
    }
}

fn nanoseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e9
}

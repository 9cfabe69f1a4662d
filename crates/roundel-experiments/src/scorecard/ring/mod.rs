//! Joins on a ring (Frey et al. 2010). What joining costs is from one place of the paper for each rate
//! ([`rates`]); claims are about other sizes, hosts, threads and keys, and about the network.

mod network;
mod phases;
mod speeds;

use super::Judge;
use crate::fabric::FabricChoice;
use crate::ring::{Method, RelationRows, RingJoin, rates};

/// Times that differ by no more than this share are the same, and waiting for no longer than it is none.
const SAME: f64 = 0.05;
const NONE: f64 = 0.02;

pub(super) const JUDGES: &[&[Judge]] = &[network::JUDGES, phases::JUDGES, speeds::JUDGES];

fn fabric() -> FabricChoice {
    "sim:iwarp10".parse().expect("a generation")
}

/// A join of as many rows on each host as in the paper.
fn growing(method: Method, hosts: usize) -> RingJoin {
    RingJoin::new(fabric(), method, hosts)
}

/// A join of as many rows on all hosts together.
fn fixed(method: Method, hosts: usize) -> RingJoin {
    RingJoin {
        rows: RelationRows::alike(rates::ROWS_OF_HOST),
        ..growing(method, hosts)
    }
}

//! Joins on a ring of hosts (Frey et al. 2010, section V).

mod carriers;
mod scale_out;
mod sizes;
mod skew;
mod unit;

pub use carriers::EXPERIMENT as CARRIERS;
pub use scale_out::EXPERIMENT as SCALE_OUT;
pub use sizes::{FIXED, GROWING};
pub use skew::EXPERIMENT as SKEW;
pub use unit::EXPERIMENT as UNIT;
pub(crate) use {
    carriers::carried,
    scale_out::large,
    skew::skewed,
    unit::{by_element, raw},
};

use super::{Case, Options, Work};
use crate::figure::X;
use crate::ring::{Method, RingJoin, rates};

const HASH: &str = "hash join";
const MERGE: &str = "sort-merge join";
const METHODS: [(&str, Method); 2] = [(HASH, Method::Hash), (MERGE, Method::Merge)];

/// A join of the paper on these hosts.
fn join(options: &Options, method: Method, hosts: usize) -> RingJoin {
    RingJoin {
        threads: options.threads.unwrap_or(rates::CORES),
        ..RingJoin::new(options.fabric.clone(), method, hosts)
    }
}

/// Hosts of a ring that is not varied.
fn hosts(options: &Options) -> usize {
    options.nodes.last().copied().unwrap_or(rates::HOSTS)
}

fn case(series: impl Into<String>, x: f64, join: RingJoin) -> Case {
    Case {
        series: series.into(),
        x: X::Number(x),
        work: Work::Ring(Box::new(join)),
    }
}

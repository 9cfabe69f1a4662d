//! Joins on a ring of hosts (Frey et al. 2010, section V).

mod carriers;
mod choice;
mod scale_out;
mod sizes;
mod skew;
mod unit;

pub use carriers::EXPERIMENT as CARRIERS;
pub use choice::EXPERIMENT as CHOICE;
pub use scale_out::EXPERIMENT as SCALE_OUT;
pub use sizes::{FIXED, GROWING};
pub use skew::EXPERIMENT as SKEW;
pub use unit::EXPERIMENT as UNIT;

use super::judgement::Judgement;
use super::{Case, Options, Results, Work};
use crate::figure::X;
use crate::ring::{Method, RelationRows, RingJoin, rates};

const HASH: &str = "hash join";
const MERGE: &str = "sort-merge join";
const METHODS: [(&str, Method); 2] = [(HASH, Method::Hash), (MERGE, Method::Merge)];

/// A join of the paper on these hosts.
fn join(options: &Options, method: Method, hosts: usize) -> RingJoin {
    let threads = match options.fabric.is_simulated() {
        true => rates::CORES,
        false => 1,
    };
    RingJoin {
        threads: options.threads.unwrap_or(threads),
        rows: RelationRows::alike(rows_of_host(options) * hosts as u64),
        ..RingJoin::new(options.fabric.clone(), method, hosts)
    }
}

/// Hosts of a ring that is not varied.
fn hosts(options: &Options) -> usize {
    let own = if options.fabric.is_simulated() {
        rates::HOSTS
    } else {
        2
    };
    options.fixed_nodes_or(own)
}

/// Rows of each relation on a host: the paper's, or what a host has room for that is all of them.
fn rows_of_host(options: &Options) -> u64 {
    match (options.fabric.is_simulated(), options.quick) {
        (true, _) => rates::ROWS_OF_HOST,
        (false, true) => 200_000,
        (false, false) => 2_000_000,
    }
}

/// Whether what was seen agrees. Processes that share the cores of one host cannot tell.
fn judged(results: &Results, judgement: Judgement) -> Judgement {
    judgement.if_told(results.options.fabric.is_simulated())
}

fn case(series: impl Into<String>, x: f64, join: RingJoin) -> Case {
    Case {
        series: series.into(),
        x: X::Number(x),
        work: Work::Ring(Box::new(join)),
    }
}

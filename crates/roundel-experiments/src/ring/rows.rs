//! Relations of joins between processes: each host makes its own, from the join and its number, and whoever judges the
//! join makes all of them again.

use super::keys::Keys;
use super::{HostPhases, RelationRows, RingJoin, Way, rates};
use crate::error::{Error, Result};
use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use roundel_simtest::zipf::Zipf;
use std::collections::HashMap;
use std::sync::Arc;

/// A relation of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Spinning,
    Stationary,
}

/// Draws keys.
pub(super) struct Draw {
    /// None where all numbers are alike.
    zipf: Option<Zipf>,
    seed: u64,
    own: RelationRows,
}

impl Draw {
    pub(super) fn new(join: &RingJoin) -> Self {
        Self {
            zipf: match join.keys {
                Keys::Uniform => None,
                Keys::Zipf(exponent) => Some(Zipf::new(join.rows.spinning, exponent)),
            },
            seed: join.seed,
            own: join.rows.of_host(join.hosts),
        }
    }

    /// Rows of a host.
    fn own(&self, side: Side) -> u64 {
        match side {
            Side::Spinning => self.own.spinning,
            Side::Stationary => self.own.stationary,
        }
    }

    /// The keys of a host.
    fn keys(&self, side: Side, host: usize) -> impl Iterator<Item = i32> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        // Streams of a generator have nothing to do with each other.
        random.set_stream(2 * host as u64 + u64::from(side == Side::Stationary));
        (0..self.own(side)).map(move |_| match &self.zipf {
            None => random.random(),
            Some(zipf) => zipf.draw(&mut random) as i32,
        })
    }

    /// The rows of a host: a key of 4 bytes, and 8 others.
    pub(super) fn rows(&self, side: Side, host: usize) -> Result<RecordBatch> {
        let keys: ArrayRef = Arc::new(Int32Array::from_iter_values(self.keys(side, host)));
        let values = (0..self.own(side) as i64).map(|row| row + ((host as i64) << 40));
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        let names = match side {
            Side::Spinning => ["r", "r_value"],
            Side::Stationary => ["s", "s_value"],
        };
        RecordBatch::try_from_iter(names.into_iter().zip([keys, values]))
            .map_err(|error| Error::Wrong(format!("rows of a relation: {error}")))
    }
}

/// Whether a join can be run between processes.
pub(super) fn check(join: &RingJoin) -> Result<()> {
    let wrong = if join.row_bytes != rates::ROW_BYTES {
        format!("rows between processes have {} bytes", rates::ROW_BYTES)
    } else if join.carrier != super::Carrier::Rdma || !join.stalls.is_empty() {
        "kernels that carry elements, and hosts that stand still, are simulated only".into()
    } else if join.way != Way::Cyclo || join.predicate.is_some() {
        "joins without a ring, and those with predicates, are simulated only".into()
    } else if join.rows.spinning.max(join.rows.stationary) > 1 << 28 {
        "there are 2^28 rows at most between processes".into()
    } else {
        return Ok(());
    };
    Err(Error::Setting(wrong))
}

/// Whether hosts have found all pairs, and no others.
///
/// # Errors
/// When they have not.
pub(crate) fn verify(join: &RingJoin, hosts: &[HostPhases]) -> Result<()> {
    let draw = Draw::new(join);
    let mut counts = HashMap::<i32, u64>::new();
    for key in (0..join.hosts).flat_map(|host| draw.keys(Side::Stationary, host)) {
        *counts.entry(key).or_default() += 1;
    }
    let spinning = (0..join.hosts).flat_map(|host| draw.keys(Side::Spinning, host));
    let expected: u64 = spinning.filter_map(|key| counts.get(&key)).sum();
    let found: u64 = hosts.iter().map(|host| host.pairs).sum();
    match found == expected {
        true => Ok(()),
        false => Err(Error::Wrong(format!(
            "hosts of the ring found {found} pairs instead of {expected}"
        ))),
    }
}

//! How keys are distributed, and what that means for a join: how many partners a row has, by where it lies among the rows
//! of its relation, which are in the order of their hashes. Knows neither hosts nor costs.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use roundel_simtest::zipf::power_sum;
use serde::{Deserialize, Serialize};

/// Most keys of which each is looked at by itself; what the others have is spread evenly over the hashes.
const HEAVY_KEYS: u64 = 1 << 16;
/// Different keys of 4 bytes.
const DOMAIN: f64 = (1u64 << 32) as f64;

/// Which keys there are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keys {
    /// All numbers of 4 bytes, alike.
    Uniform,
    /// As many as a relation has rows, the k-th of which is as frequent as k to the power of minus this.
    Zipf(f64),
}

/// The shares of keys of a relation whose rows are in the order of their hashes. Both relations have the same.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// Runs of rows, by their ends as shares of the relation.
    runs: Vec<Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    end: f64,
    /// The share of the other relation that a row of the run finds.
    found: f64,
    /// The sum over all rows before the end, each of which is a share of the relation.
    found_before_end: f64,
}

impl Distribution {
    /// Of relations with so many rows each, whose hashes are drawn from a seed.
    pub fn new(keys: Keys, rows: u64, seed: u64) -> Self {
        let (domain, exponent) = match keys {
            Keys::Uniform => (DOMAIN, 0.0),
            Keys::Zipf(exponent) => (rows.max(1) as f64, exponent),
        };
        let sum = power_sum(domain, exponent);
        let heavy = match exponent > 0.0 {
            true => HEAVY_KEYS.min(domain as u64),
            false => 0,
        };
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut placed: Vec<(f64, f64)> = (1..=heavy)
            .map(|rank| (random.random(), (rank as f64).powf(-exponent) / sum))
            .collect();
        placed.sort_by(|one, other| one.0.total_cmp(&other.0));
        let heavy_share: f64 = placed.iter().map(|(_, share)| share).sum();
        let heavy_squares: f64 = placed.iter().map(|(_, share)| share * share).sum();
        let light_share = (1.0 - heavy_share).max(0.0);
        let squares = power_sum(domain, 2.0 * exponent) / (sum * sum);
        let light = match light_share > 0.0 {
            true => (squares - heavy_squares).max(0.0) / light_share,
            false => 0.0,
        };
        let (mut runs, mut end, mut total) = (Vec::new(), 0.0, 0.0);
        let mut add = |share: f64, found: f64| {
            end += share;
            total += share * found;
            runs.push(Run {
                end,
                found,
                found_before_end: total,
            });
        };
        let mut hash = 0.0;
        for (at, share) in placed {
            add(light_share * (at - hash), light);
            add(share, share);
            hash = at;
        }
        add(light_share * (1.0 - hash), light);
        Self { runs }
    }

    /// The pairs of the rows between two shares of a relation, of all pairs that there could be with the other one.
    pub fn found(&self, from: f64, to: f64) -> f64 {
        (self.found_before(to) - self.found_before(from)).max(0.0)
    }

    fn found_before(&self, share: f64) -> f64 {
        let at = self.runs.partition_point(|run| run.end < share);
        match self.runs.get(at).or(self.runs.last()) {
            Some(run) => run.found_before_end - (run.end - share).max(0.0) * run.found,
            None => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(one: f64, other: f64) -> bool {
        (one / other - 1.0).abs() < 0.01
    }

    #[test]
    fn uniform_keys_find_as_many_everywhere() {
        let keys = Distribution::new(Keys::Uniform, 1 << 20, 1);
        assert!(near(keys.found(0.0, 1.0), 1.0 / DOMAIN));
        assert!(near(keys.found(0.25, 0.5), 0.25 / DOMAIN));
        // A domain as large as the relation: each row finds one.
        let keys = Distribution::new(Keys::Zipf(0.0), 1 << 20, 1);
        assert!(near(keys.found(0.0, 1.0) * f64::from(1 << 20), 1.0));
    }

    #[test]
    fn skewed_keys_find_the_sum_of_their_squares() {
        for (rows, exponent) in [(1000, 0.9), (1 << 20, 0.5), (300_000, 0.7)] {
            let weights: Vec<f64> = (1..=rows).map(|k| f64::from(k).powf(-exponent)).collect();
            let sum: f64 = weights.iter().sum();
            let squares: f64 = weights.iter().map(|weight| weight * weight).sum();
            let keys = Distribution::new(Keys::Zipf(exponent), rows as u64, 7);
            let found = keys.found(0.0, 1.0);
            assert!(
                near(found, squares / (sum * sum)),
                "{rows} {exponent}: {found}"
            );
            // Parts add up.
            let parts: f64 = (0..64)
                .map(|part| keys.found(f64::from(part) / 64.0, f64::from(part + 1) / 64.0))
                .sum();
            assert!(near(parts, found));
        }
    }
}

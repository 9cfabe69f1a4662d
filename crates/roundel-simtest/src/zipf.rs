//! Zipf's law.

use rand::Rng;

/// The sum of k to the power of minus `exponent`, for k from 1 to `count`: the first ones by themselves, and the others as
/// an integral.
pub fn power_sum(count: f64, exponent: f64) -> f64 {
    let exact = count.min(1e5).floor();
    let first: f64 = (1..=exact as u64)
        .map(|rank| (rank as f64).powf(-exponent))
        .sum();
    let (from, to) = (exact + 0.5, count + 0.5);
    let rest = match (exponent - 1.0).abs() < 1e-9 {
        true => (to / from).ln(),
        false => (to.powf(1.0 - exponent) - from.powf(1.0 - exponent)) / (1.0 - exponent),
    };
    first + rest.max(0.0)
}

/// Keys from 0 on, by Zipf's law.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Of all keys but the last, which has what rounding leaves, added up.
    shares: Vec<f64>,
}

impl Zipf {
    /// Of so many keys; the k-th is as frequent as k to the power of minus `exponent`.
    pub fn new(keys: u64, exponent: f64) -> Self {
        let sum = power_sum(keys as f64, exponent);
        let mut share = 0.0;
        let mut add = |rank: u64| {
            share += (rank as f64).powf(-exponent) / sum;
            share
        };
        Self {
            shares: (1..keys).map(&mut add).collect(),
        }
    }

    /// A key.
    pub fn draw(&self, random: &mut impl Rng) -> usize {
        let share: f64 = random.random();
        self.shares.partition_point(|up_to| *up_to < share)
    }
}

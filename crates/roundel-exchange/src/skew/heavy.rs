//! Which keys are heavy, and how to tell quickly.

use super::sample::HEAVY_SHARE;
use std::collections::HashMap;

/// A sample of fewer rows says nothing, and so few rows overload nobody.
const SAMPLE_ROWS_LEAST: u64 = 1024;
/// The count of a key that is expected fewer times than this is mostly chance.
const COUNT_LEAST: u64 = 16;
/// Most heavy keys of one input: the heaviest.
pub const HEAVY_MAX: usize = 128;

/// The hashes of heavy keys, by the input whose rows are spread, left first. No hash is in both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision(pub [Vec<u64>; 2]);

/// What was seen of one input.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    pub(super) rows: u64,
    /// How many of the rows had a key of this hash, for those that had many.
    pub(super) counts: HashMap<u64, u64>,
}

impl Sum {
    /// The heaviest first.
    fn heavy(&self, partitions: u64) -> Vec<(u64, u64)> {
        if self.rows < SAMPLE_ROWS_LEAST {
            return Vec::new();
        }
        let least = self
            .rows
            .div_ceil(HEAVY_SHARE.saturating_mul(partitions.max(1)));
        let least = least.max(COUNT_LEAST);
        let counts = self.counts.iter().map(|(hash, count)| (*hash, *count));
        let mut heavy: Vec<_> = counts.filter(|(_, count)| *count >= least).collect();
        heavy.sort_unstable_by_key(|(hash, count)| (std::cmp::Reverse(*count), *hash));
        heavy.truncate(HEAVY_MAX);
        heavy
    }
}

/// The heavy keys of a join's inputs, of which so many rows are expected. A key that is heavy in both is spread where
/// it has more rows: those of the other side are what is copied.
pub(super) fn decide(seen: &[Sum; 2], partitions: u64, expected: [Option<u64>; 2]) -> Decision {
    let [left, right] = seen.each_ref().map(|seen| seen.heavy(partitions));
    let expected = match expected {
        [Some(left), Some(right)] => [left.max(1) as f64, right.max(1) as f64],
        _ => [1.0, 1.0],
    };
    // Only of inputs with heavy keys, which have rows.
    let weight = |side: usize, count: u64| count as f64 / seen[side].rows as f64 * expected[side];
    let count_in = |side: &[(u64, u64)], hash: u64| {
        let found = side.iter().find(|(other, _)| *other == hash);
        found.map(|(_, count)| *count)
    };
    let left_wins = |hash: u64, count: u64| match count_in(&right, hash) {
        Some(other) => weight(0, count) > weight(1, other),
        None => true,
    };
    let spread_left: Vec<u64> = left
        .iter()
        .filter(|(hash, count)| left_wins(*hash, *count))
        .map(|(hash, _)| *hash)
        .collect();
    let spread_right = right
        .iter()
        .map(|(hash, _)| *hash)
        .filter(|hash| !spread_left.contains(hash))
        .collect();
    Decision([spread_left, spread_right])
}

impl Decision {
    /// What to do with the rows of one of the inputs, 0 or 1; nothing special where no key is heavy.
    pub fn routes(&self, side: usize) -> Option<Routes> {
        let [left, right] = &self.0;
        let (own, other) = match side {
            0 => (left, right),
            _ => (right, left),
        };
        (!own.is_empty() || !other.is_empty()).then(|| Routes::new(own, other))
    }
}

/// Where rows of heavy keys go.
#[derive(Clone, Debug)]
pub struct Routes {
    /// To any partition, in turn.
    pub spread: HeavyKeys,
    /// To all partitions.
    pub to_all: HeavyKeys,
}

impl Routes {
    /// Routes for keys with these hashes: the first [`HEAVY_MAX`] of each list count.
    pub fn new(spread: &[u64], to_all: &[u64]) -> Self {
        Self {
            spread: HeavyKeys::new(spread),
            to_all: HeavyKeys::new(to_all),
        }
    }
}

/// A set of hashes, asked once for each row.
#[derive(Clone, Debug)]
pub struct HeavyKeys {
    /// Each hash is in its place or, where that is taken, in the next one that is free.
    places: Box<[u64; PLACES]>,
    count: usize,
}

/// Eight times as many as there can be hashes, so that few are not in their place.
const PLACES: usize = 8 * HEAVY_MAX;
/// What a place holds that is free. A key of this hash is never heavy.
const FREE: u64 = u64::MAX;

impl HeavyKeys {
    fn new(hashes: &[u64]) -> Self {
        let mut keys = Self {
            places: Box::new([FREE; PLACES]),
            count: 0,
        };
        // Were there more, a search might find no free place.
        for hash in hashes.iter().take(HEAVY_MAX) {
            let (place, is_new) = keys.place_of(*hash);
            if is_new && *hash != FREE {
                keys.places[place] = *hash;
                keys.count += 1;
            }
        }
        keys
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether that is the hash of a heavy key.
    pub fn contains(&self, hash: u64) -> bool {
        // One of the two sets of an input is mostly empty.
        !self.is_empty() && !self.place_of(hash).1
    }

    /// Where a hash is, or would be, and whether that is free.
    fn place_of(&self, hash: u64) -> (usize, bool) {
        // Partitions are told by the hash's remainder, which says little of its highest bits.
        let mut place = (hash >> (u64::BITS - PLACES.ilog2())) as usize;
        loop {
            let held = self.places[place];
            // One branch for both ends of the search: which one it is, nobody can predict.
            if (held == hash) | (held == FREE) {
                return (place, held == FREE);
            }
            place = (place + 1) % PLACES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rows: u64, counts: &[(u64, u64)]) -> Sum {
        Sum {
            rows,
            counts: counts.iter().copied().collect(),
        }
    }

    #[test]
    fn a_key_is_heavy_from_an_eighth_of_a_partitions_share_on() {
        let left = seen(64_000, &[(1, 30_000), (2, 1_000), (3, 999)]);
        let decided = decide(&[left, Sum::default()], 8, [None, None]);
        assert_eq!(decided.0, [vec![1, 2], vec![]]);
    }

    #[test]
    fn few_rows_have_no_heavy_keys() {
        let left = seen(1000, &[(1, 1000)]);
        let right = seen(2000, &[(1, 15)]);
        assert_eq!(
            decide(&[left, right], 1000, [None, None]),
            Decision::default()
        );
    }

    #[test]
    fn a_key_that_is_heavy_on_both_sides_is_spread_where_it_has_more_rows() {
        let sides = [
            seen(10_000, &[(1, 5000), (2, 1000)]),
            seen(10_000, &[(1, 2000), (2, 2000), (3, 500)]),
        ];
        let by = |expected| decide(&sides, 8, expected).0;
        assert_eq!(by([None, None]), [vec![1], vec![2, 3]]);
        assert_eq!(by([Some(100), Some(1000)]), [vec![], vec![1, 2, 3]]);
        assert_eq!(by([Some(1000), Some(100)]), [vec![1, 2], vec![3]]);
        // As many rows: those of the right side, which is the one that is probed.
        let same = [seen(10_000, &[(1, 5000)]), seen(10_000, &[(1, 5000)])];
        assert_eq!(decide(&same, 8, [None, None]).0, [vec![], vec![1]]);
    }

    #[test]
    fn the_heaviest_are_kept() {
        let counts: Vec<_> = (0..1000).map(|key| (key, 100 + key)).collect();
        let decided = decide(
            &[seen(600_000, &counts), Sum::default()],
            1000,
            [None, None],
        );
        let expected: Vec<u64> = (1000 - HEAVY_MAX as u64..1000).rev().collect();
        assert_eq!(decided.0[0], expected);
    }

    #[test]
    fn hashes_are_found_and_others_are_not() {
        let hashes: Vec<u64> = (1..100_u64)
            .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect();
        let heavy = HeavyKeys::new(&hashes);
        assert_eq!(heavy.len(), 99);
        for hash in hashes {
            assert!(heavy.contains(hash));
            assert!(!heavy.contains(hash ^ 1));
            assert!(!heavy.contains(!hash));
        }
        assert!(HeavyKeys::new(&[]).is_empty() && !HeavyKeys::new(&[]).contains(0));
        // All in one place, the last one, and some that are no more than others.
        let last: Vec<u64> = (0..4).map(|n| FREE - n).chain([0, 0]).collect();
        let heavy = HeavyKeys::new(&last);
        assert_eq!(heavy.len(), 4);
        assert!(
            last.iter()
                .all(|hash| heavy.contains(*hash) == (*hash != FREE))
        );
        assert!(!heavy.contains(FREE - 4) && !heavy.contains(1));
    }

    #[test]
    fn what_one_side_spreads_the_other_sends_to_all() {
        let decision = Decision([vec![1], vec![2]]);
        let (left, right) = (decision.routes(0).unwrap(), decision.routes(1).unwrap());
        assert!(left.spread.contains(1) && left.to_all.contains(2) && !left.spread.contains(2));
        assert!(right.spread.contains(2) && right.to_all.contains(1) && !right.to_all.contains(2));
        assert!(Decision::default().routes(0).is_none());
    }
}

//! Where each row of an input goes, by the hash of its key.

use super::heavy::Routes;
use strength_reduce::StrengthReducedU64;

/// The partitions of a task's rows. Tasks of one input may begin at different partitions.
#[derive(Debug)]
pub struct Router {
    partitions: StrengthReducedU64,
    routes: Option<Routes>,
    /// Where the row that was spread last went.
    last: u32,
}

/// Rows of heavy keys among those that were routed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routed {
    /// Rows that were spread.
    pub spread: usize,
    /// Rows for all partitions.
    pub to_all: usize,
}

impl Router {
    /// Routes rows to so many partitions, at least one. Rows that are spread go to the partition after `first`, then to
    /// the next one, and so on.
    pub fn new(partitions: usize, routes: Option<Routes>, first: usize) -> Self {
        Self {
            partitions: StrengthReducedU64::new(partitions.max(1) as u64),
            routes,
            last: (first % partitions.max(1)) as u32,
        }
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> usize {
        self.partitions.get() as usize
    }

    /// Whether there may be rows for all of them.
    pub fn has_rows_for_all(&self) -> bool {
        let routes = self.routes.as_ref();
        routes.is_some_and(|routes| !routes.to_all.is_empty())
    }

    /// Adds the partition of each row; one more than there are for all of them.
    pub fn route(&mut self, hashes: &[u64], targets: &mut Vec<u32>) -> Routed {
        let partitions = self.partitions;
        let Some(routes) = &self.routes else {
            targets.extend(hashes.iter().map(|hash| (*hash % partitions) as u32));
            return Routed::default();
        };
        let count = partitions.get() as u32;
        let mut routed = Routed::default();
        targets.extend(hashes.iter().map(|hash| {
            // No branches: a key with half of the rows defies prediction.
            let is_spread = routes.spread.contains(*hash);
            let is_for_all = routes.to_all.contains(*hash);
            let next = if self.last + 1 < count {
                self.last + 1
            } else {
                0
            };
            self.last = if is_spread { next } else { self.last };
            routed.spread += usize::from(is_spread);
            routed.to_all += usize::from(is_for_all);
            let of_hash = (*hash % partitions) as u32;
            let target = if is_spread { next } else { of_hash };
            if is_for_all { count } else { target }
        }));
        routed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_heavy_keys_go_everywhere() {
        let hashes: Vec<u64> = (0..600).map(|row| row % 3).collect();
        let mut router = Router::new(4, Some(Routes::new(&[0], &[1])), 0);
        assert!(router.has_rows_for_all());
        let mut targets = Vec::new();
        let routed = router.route(&hashes, &mut targets);
        let of_key = |key: usize| targets.iter().skip(key).step_by(3);
        for partition in 0..4 {
            assert_eq!(of_key(0).filter(|target| **target == partition).count(), 50);
        }
        assert!(of_key(1).all(|target| *target == 4));
        assert!(of_key(2).all(|target| *target == 2));
        let expected = Routed {
            spread: 200,
            to_all: 200,
        };
        assert_eq!(routed, expected);
    }

    #[test]
    fn without_heavy_keys_all_rows_go_where_their_hash_says() {
        let mut router = Router::new(3, None, 7);
        let mut targets = Vec::new();
        assert_eq!(router.route(&[0, 1, 5], &mut targets), Routed::default());
        assert_eq!((targets, router.has_rows_for_all()), (vec![0, 1, 2], false));
    }
}

//! The queue pairs of a device: for events that concern them, and for counts over all of them.

use super::pair_state::PairState;
use crate::counters::CounterSnapshot;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

#[derive(Default)]
pub(super) struct Pairs(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    living: HashMap<u32, Weak<PairState>>,
    /// Counts of those that are destroyed.
    destroyed: CounterSnapshot,
}

impl Pairs {
    pub(super) fn add(&self, state: &Arc<PairState>) {
        let mut inner = self.0.lock();
        inner.living.insert(state.number(), Arc::downgrade(state));
    }

    /// Forgets a queue pair, but not what it did.
    pub(super) fn remove(&self, state: &Arc<PairState>) {
        let mut inner = self.0.lock();
        let number = state.number();
        // The device may have given the number to another one already.
        let own = inner.living.get(&number).map(Weak::as_ptr) == Some(Arc::as_ptr(state));
        if own {
            inner.living.remove(&number);
        }
        inner.destroyed.merge(&state.counters.snapshot());
    }

    pub(super) fn get(&self, number: u32) -> Option<Arc<PairState>> {
        self.0.lock().living.get(&number).and_then(Weak::upgrade)
    }

    pub(super) fn all(&self) -> Vec<Arc<PairState>> {
        let inner = self.0.lock();
        inner.living.values().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn counters(&self) -> CounterSnapshot {
        // The lock keeps a queue pair from being counted twice, or not at all.
        let inner = self.0.lock();
        let mut sum = inner.destroyed;
        for state in inner.living.values().filter_map(Weak::upgrade) {
            sum.merge(&state.counters.snapshot());
        }
        sum
    }
}

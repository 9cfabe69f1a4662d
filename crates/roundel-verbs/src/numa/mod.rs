//! NUMA regions: processors, and the memory that is near them. Says which regions a process may use and in which one
//! a thread is, has threads stay in one and memory lie in one. Knows nothing of devices, nor of what the memory is for.
//!
//! Where there is one region, or the user has said where memory is to lie, nothing is bound and nothing placed.

#[cfg(all(test, not(roundel_loom)))]
pub(crate) mod pages_of;
mod placement;
mod system;

pub(crate) use placement::{Placement, forget};

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// The region that this thread stays in.
    static STAYS_IN: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A region: its number among those of the process, from 0, and the node that has its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    number: usize,
    node: Option<u32>,
}

impl Region {
    /// Its number among the regions of the process.
    pub fn number(self) -> usize {
        self.number
    }

    /// The node of the system; none where memory lies as the system likes.
    pub(crate) fn node(self) -> Option<u32> {
        self.node
    }
}

/// The regions of a process, of which there is always one. Clones share them.
#[derive(Clone, Debug)]
pub struct Regions(Arc<[Place]>);

/// What a region is made of.
#[derive(Clone)]
struct Place {
    node: Option<u32>,
    processors: CpuSet,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = (0..CpuSet::MAX_CPU).filter(|one| self.processors.is_set(*one));
        write!(
            f,
            "node {:?}, processors {:?}",
            self.node,
            Vec::from_iter(all)
        )
    }
}

impl Regions {
    /// Those that this process may use, as the system and whoever started the process have it: its main thread's
    /// processors, and its nodes.
    pub fn of_this_process() -> Self {
        let places = match placement::has_policy() {
            // The user has chosen where memory lies.
            true => Vec::new(),
            false => system::places(),
        };
        match places.len() {
            0 | 1 => Self::one(),
            _ => Self(places.into()),
        }
    }

    /// One, which all threads are in.
    pub fn one() -> Self {
        Self::made_up(1)
    }

    /// As many as are wanted, without processors or memory of their own, for hosts and simulations that have fewer: a
    /// thread is in the one that it is [bound](Self::bind) to, others in the first.
    ///
    /// # Panics
    /// When none are wanted.
    pub fn made_up(count: usize) -> Self {
        assert!(count > 0, "a process is in some region");
        let nowhere = Place {
            node: None,
            processors: CpuSet::new(),
        };
        Self(vec![nowhere; count].into())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// One after the other, round and round.
    pub fn in_turn(&self, number: usize) -> Region {
        let number = number % self.count();
        Region {
            number,
            node: self.0[number].node,
        }
    }

    /// The number of the region that the calling thread is in.
    pub fn current(&self) -> usize {
        if self.count() == 1 {
            return 0;
        }
        match STAYS_IN.get() {
            Some(number) => number % self.count(),
            None => self.of_processor(sched_getcpu()),
        }
    }

    fn of_processor(&self, processor: usize) -> usize {
        let has = |place: &Place| processor < CpuSet::MAX_CPU && place.processors.is_set(processor);
        // One that came later than the regions were looked up may be in none.
        self.0.iter().position(has).unwrap_or(0)
    }

    /// Has the calling thread stay in a region, by turns, and those that it starts. It may run on all processors of the
    /// region. Where the system refuses, it goes on as it was.
    pub fn bind(&self, number: usize) {
        let number = number % self.count();
        let processors = &self.0[number].processors;
        if processors.count() > 0
            && let Err(error) = sched_setaffinity(None, processors)
        {
            tracing::debug!(region = number, %error, "a thread is not bound to its region");
            return;
        }
        tracing::debug!(region = number, "a thread is bound to its region");
        STAYS_IN.set(Some(number));
    }
}

/// Does something as a thread of a simulation would that stays in the region of this number.
pub(crate) fn within<T>(number: usize, act: impl FnOnce() -> T) -> T {
    let before = STAYS_IN.replace(Some(number));
    let done = act();
    STAYS_IN.set(before);
    done
}

#[cfg(all(test, not(roundel_loom)))]
mod tests;

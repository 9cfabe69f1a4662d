//! Processors for threads that never sleep: each stays on one, as in the paper (section 4), or two of them may share
//! one while another is idle.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that this process may use, handed out one after the other.
pub(super) struct Processors {
    all: Vec<usize>,
    next: usize,
}

impl Processors {
    /// Beginning after so many threads of others.
    pub(super) fn from(taken: usize) -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let all = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        Self {
            all: all.collect(),
            next: taken,
        }
    }

    /// The next one, round and round; none where nobody knows which there are.
    pub(super) fn next(&mut self) -> Option<usize> {
        let at = self.next.checked_rem(self.all.len())?;
        self.next += 1;
        Some(self.all[at])
    }
}

/// Has this thread stay on a processor.
pub(super) fn stay_on(processor: Option<usize>) {
    if let Some(processor) = processor {
        let mut only = CpuSet::new();
        only.set(processor);
        // Where it is not allowed, threads are where the system puts them.
        let _ = sched_setaffinity(None, &only);
    }
}

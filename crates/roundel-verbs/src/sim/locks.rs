//! Locks that threads of a node spin on: those of send queues, of receive queues and of completion queues.
//! Handing one over takes the longer the more threads want it, since each of them looks at it again (Boyd-Wickizer,
//! Kaashoek, Morris and Zeldovich, "Non-scalable locks are dangerous", Linux Symposium 2012).

use super::device::World;
use super::events::Cpu;
use super::time::{Span, Time};
use crate::guarded::VirtualLock;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// A lock.
#[derive(Default)]
pub(super) struct Lock {
    /// Who had it last.
    holder: Option<Cpu>,
    /// When those that have it, or wait for it, give it back.
    ends: VecDeque<Time>,
}

impl Lock {
    /// A thread wants it at `now`; returns how long it takes until it has it. To hand it to another thread takes
    /// `transfer` for each thread that looks at it.
    pub(super) fn enter(&mut self, now: Time, cpu: Cpu, transfer: Span) -> Span {
        while self.ends.front().is_some_and(|end| *end <= now) {
            self.ends.pop_front();
        }
        let before = self.ends.len() as u64;
        let transfer = match self.holder.replace(cpu) {
            Some(holder) if holder != cpu => transfer * before.max(1),
            _ => Span::ZERO,
        };
        let free = self.ends.back().copied().unwrap_or(now).max(now);
        free + transfer - now
    }

    /// The thread gives it back.
    pub(super) fn leave(&mut self, now: Time) {
        self.ends.push_back(now);
    }

    /// Takes it at `now` for as long as `work` takes; returns how long that is from now, waiting included.
    pub(super) fn hold(&mut self, now: Time, cpu: Cpu, work: Span, transfer: Span) -> Span {
        let took = self.enter(now, cpu, transfer) + work;
        self.leave(now + took);
        took
    }
}

/// A lock of a simulated node.
pub(super) struct SimLock {
    world: World,
    lock: Mutex<Lock>,
}

impl SimLock {
    pub(super) fn new(world: &World) -> Self {
        Self {
            world: world.clone(),
            lock: Mutex::default(),
        }
    }
}

impl VirtualLock for SimLock {
    fn enter(&self) {
        let mut state = self.world.lock();
        let Some((cpu, _)) = state.running else {
            return;
        };
        let (now, transfer) = (state.now(), state.parameters.cpu.lock);
        let waited = self.lock.lock().enter(now, cpu, transfer);
        state.charge(waited);
    }

    fn leave(&self) {
        let state = self.world.lock();
        if state.running.is_some() {
            self.lock.lock().leave(state.now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Span = Span::nanos(70);
    const TRANSFER: Span = Span::nanos(50);

    fn thread(index: usize) -> Cpu {
        Cpu { node: 0, index }
    }

    #[test]
    fn a_lock_of_one_thread_costs_nothing() {
        let (mut lock, mut now) = (Lock::default(), Time::default());
        for _ in 0..3 {
            assert_eq!(lock.hold(now, thread(0), WORK, TRANSFER), WORK);
            now = now + WORK;
        }
    }

    #[test]
    fn threads_that_want_it_at_once_wait_for_each_other_and_disturb_each_other() {
        let (mut lock, now) = (Lock::default(), Time::default());
        let took: Vec<_> = (0..4)
            .map(|index| lock.hold(now, thread(index), WORK, TRANSFER).as_picos() / 1000)
            .collect();
        assert_eq!(took, [70, 190, 360, 580]);
        let later = now + Span::micros(1);
        assert_eq!(lock.hold(later, thread(0), WORK, TRANSFER), WORK + TRANSFER);
    }
}

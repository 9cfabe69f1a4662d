//! Locks that threads of a node spin on: those of send queues, of receive queues and of completion queues.
//! Handing one over takes the longer the more threads want it, since each of them looks at it again (Boyd-Wickizer,
//! Kaashoek, Morris and Zeldovich, "Non-scalable locks are dangerous", Linux Symposium 2012), and longer between the
//! two processors of a node, which its threads are spread over in turn.

use super::events::Cpu;
use super::parameters::Handover;
use super::time::{Span, Time};
use std::collections::VecDeque;

/// A lock of the threads of a node, in virtual time.
#[derive(Default)]
pub(super) struct Lock {
    /// The thread that had it last.
    holder: Option<Cpu>,
    /// Those that have it, or wait for it, and when they give it back.
    ends: VecDeque<(Time, Cpu)>,
}

impl Cpu {
    /// Time that a cache line takes from another thread of the node.
    fn takes_from(self, other: Self, handover: Handover) -> Span {
        match self.index % 2 == other.index % 2 {
            true => handover.within,
            false => handover.across,
        }
    }
}

impl Lock {
    /// A thread wants it at `now`; returns how long it takes until it has it. It is handed over once for each thread
    /// that looks at it.
    pub(super) fn enter(&mut self, now: Time, cpu: Cpu, handover: Handover) -> Span {
        while self.ends.front().is_some_and(|(end, _)| *end <= now) {
            self.ends.pop_front();
        }
        let looks = self.ends.iter().fold(Span::ZERO, |sum, (_, other)| {
            sum + cpu.takes_from(*other, handover)
        });
        let transfer = match self.holder.replace(cpu) {
            Some(holder) if holder != cpu => looks.max(cpu.takes_from(holder, handover)),
            _ => Span::ZERO,
        };
        let free = self.ends.back().map_or(now, |(end, _)| *end).max(now);
        free + transfer - now
    }

    /// The thread gives it back.
    pub(super) fn leave(&mut self, now: Time, cpu: Cpu) {
        self.ends.push_back((now, cpu));
    }

    /// Takes it at `now` for as long as `work` takes; returns how long that is from now, waiting included.
    pub(super) fn hold(&mut self, now: Time, cpu: Cpu, work: Span, handover: Handover) -> Span {
        let took = self.enter(now, cpu, handover) + work;
        self.leave(now + took, cpu);
        took
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Span = Span::nanos(70);
    const HANDOVER: Handover = Handover {
        within: Span::nanos(50),
        across: Span::nanos(100),
    };

    fn thread(index: usize) -> Cpu {
        Cpu { node: 0, index }
    }

    #[test]
    fn a_lock_of_one_thread_costs_nothing() {
        let (mut lock, mut now) = (Lock::default(), Time::default());
        for _ in 0..3 {
            assert_eq!(lock.hold(now, thread(0), WORK, HANDOVER), WORK);
            now = now + WORK;
        }
    }

    #[test]
    fn threads_that_want_it_at_once_wait_for_each_other_and_disturb_each_other() {
        let (mut lock, now) = (Lock::default(), Time::default());
        let nanos = |span: Span| span.as_picos() / 1000;
        let took: Vec<_> = [0, 2, 4, 1]
            .map(|index| nanos(lock.hold(now, thread(index), WORK, HANDOVER)))
            .to_vec();
        // 50 ns of one, of two, and 100 ns of each of three.
        assert_eq!(took, [70, 190, 360, 730]);
        let later = now + Span::micros(1);
        assert_eq!(nanos(lock.hold(later, thread(3), WORK, HANDOVER)), 120);
    }
}

//! Everything that the simulated hardware holds. It knows of threads only how busy they are, and the numbers of tasks
//! that wait for them; the executor knows the tasks.

use super::completions::Queues;
use super::events::{Cpu, Event, Events};
use super::faults::{FaultState, Faults, Health, Trouble};
use super::locks::Lock;
use super::memory::Segments;
use super::packet::{Packet, PairId};
use super::pair::{Pair, Side};
use super::parameters::Parameters;
use super::switch::Switch;
use super::time::{Span, Time};
use super::trace::Trace;
use super::translations::Translations;
use crate::counters::CounterSnapshot;
use crate::queue_pair::QueuePairState;
use parking_lot::Mutex;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What everything in one simulation shares.
pub(super) type World = Arc<Mutex<State>>;

/// The simulated hardware.
pub(super) struct State {
    pub parameters: Parameters,
    pub clock: Time,
    pub events: Events,
    pub nodes: Vec<Node>,
    pub switch: Switch,
    pub random: ChaCha8Rng,
    pub faults: FaultState,
    /// What must not happen where endpoints keep to their credit.
    pub unwanted: Unwanted,
    /// The thread that runs now, and what it has done since the clock moved.
    pub running: Option<(Cpu, Span)>,
    /// [`now`](Self::now), for those who are woken while the state is locked.
    pub shown: Arc<Shown>,
    /// Of everything that has happened.
    pub trace: Trace,
}

/// A time that is read without a lock.
#[derive(Default)]
pub(super) struct Shown(AtomicU64);

impl Shown {
    fn show(&self, time: Time) {
        self.0.store(time.picos(), Ordering::Relaxed);
    }

    pub(super) fn time(&self) -> Time {
        Time::default() + Span::picos(self.0.load(Ordering::Relaxed))
    }
}

/// Messages that came where there was no receive for them, in the whole cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwanted {
    /// On reliable connections: they are sent again. Not those without payload, with which endpoints wake each
    /// other.
    pub requests: u64,
    /// Datagrams: they are lost.
    pub datagrams: u64,
}

/// A node's hardware.
#[derive(Default)]
pub(super) struct Node {
    /// Queue pairs by number.
    pub pairs: Vec<Option<Box<Pair>>>,
    pub free_numbers: VecDeque<u32>,
    pub incarnations: u32,
    pub queues: Queues,
    pub segments: Segments,
    pub nic: Nic,
    pub cpus: Vec<Thread>,
    pub health: Health,
    /// Of destroyed queue pairs.
    pub counters: CounterSnapshot,
}

/// What a NIC is doing.
#[derive(Default)]
pub(super) struct Nic {
    /// What goes ahead of requests.
    pub control: VecDeque<Box<Packet>>,
    /// Queue pairs that may have something to send.
    pub active: VecDeque<u32>,
    /// Whether it is due to send, or waits for room in the switch.
    pub emitting: bool,
    pub waits_for_room: bool,
    /// When its link is free.
    pub link_free: Time,
    /// When the engine that looks at what comes in is free.
    pub input_free: Time,
    /// When what has come in is in the host's memory.
    pub host_free: Time,
    /// When the engine that sends is free.
    pub engine_free: Time,
    /// READs and atomics that it has taken up and that have no answer.
    pub reads: u64,
    /// Requests and bytes that the first of the active queue pairs has sent in its turn.
    pub turn: (usize, usize),
    /// The contexts that it holds.
    pub contexts: Vec<(u32, Side)>,
    /// The lines of its table of addresses that it holds.
    pub translations: Translations,
}

/// How busy a thread is.
pub(super) struct Thread {
    /// How many times as long as others it takes for everything.
    pub times_as_slow: u64,
    pub busy_until: Time,
    /// How long it has worked in all.
    pub worked: Span,
    pub waiting: Waiting,
}

/// The tasks of a thread that wait for it, by number.
#[derive(Default)]
pub(super) struct Waiting {
    pub tasks: VecDeque<usize>,
    pub due: bool,
}

impl Default for Thread {
    fn default() -> Self {
        Self {
            times_as_slow: 1,
            busy_until: Time::default(),
            worked: Span::ZERO,
            waiting: Waiting::default(),
        }
    }
}

impl State {
    pub(super) fn new(parameters: Parameters, seed: u64) -> Self {
        Self {
            parameters,
            clock: Time::default(),
            events: Events::default(),
            nodes: Vec::new(),
            switch: Switch::default(),
            random: ChaCha8Rng::seed_from_u64(seed),
            faults: FaultState::default(),
            unwanted: Unwanted::default(),
            running: None,
            shown: Arc::default(),
            trace: Trace::default(),
        }
    }

    /// Another node, with so many threads.
    pub(super) fn add_node(&mut self, threads: usize) -> usize {
        let mut node = Node::default();
        node.cpus.resize_with(threads, Thread::default);
        self.nodes.push(node);
        self.switch.add_port(&self.parameters);
        self.nodes.len() - 1
    }

    /// The time as the running thread has it.
    pub(super) fn now(&self) -> Time {
        match self.running {
            Some((_, done)) => self.clock + done,
            None => self.clock,
        }
    }

    /// Moves the clock.
    pub(super) fn set_clock(&mut self, clock: Time) {
        self.clock = clock;
        self.shown.show(self.now());
    }

    /// A thread runs, and has done nothing yet.
    pub(super) fn begin(&mut self, cpu: Cpu) {
        self.running = Some((cpu, Span::ZERO));
        self.shown.show(self.now());
    }

    /// No thread runs any more. Returns what the one has done that did.
    pub(super) fn end(&mut self) -> Span {
        let done = self.running.take().map_or(Span::ZERO, |(_, done)| done);
        self.shown.show(self.now());
        done
    }

    /// The running thread does something that takes a processor of usual speed so long.
    pub(super) fn charge(&mut self, span: Span) {
        if let Some((cpu, _)) = self.running {
            self.occupy(self.on(cpu, span));
        }
    }

    /// The running thread has something take so long.
    pub(super) fn occupy(&mut self, span: Span) {
        if let Some((_, done)) = &mut self.running {
            *done += span;
        }
        self.shown.show(self.now());
    }

    /// How long a thread takes for what takes others so long.
    fn on(&self, cpu: Cpu, span: Span) -> Span {
        span * self.nodes[cpu.node].cpus[cpu.index].times_as_slow
    }

    /// The same, under a lock.
    pub(super) fn charge_under(
        &mut self,
        span: Span,
        lock: impl FnOnce(&mut Self) -> Option<&mut Lock>,
    ) {
        let Some((cpu, _)) = self.running else { return };
        let (now, handover) = (self.now(), self.parameters.cpu.handover);
        let span = self.on(cpu, span);
        let took = match lock(self) {
            Some(lock) => lock.hold(now, cpu, span, handover),
            None => span,
        };
        self.occupy(took);
    }

    /// Bytes that a message has on the link.
    pub(super) fn length_of(&self, bytes: usize) -> usize {
        self.parameters.length_of(bytes)
    }

    pub(super) fn pair(&mut self, id: PairId) -> Option<&mut Pair> {
        let pairs = &mut self.nodes.get_mut(id.node)?.pairs;
        let pair = pairs.get_mut(id.number as usize)?.as_deref_mut()?;
        (pair.id == id).then_some(pair)
    }

    /// The state of a queue pair; one that is gone is broken.
    pub(super) fn state_of(&mut self, id: PairId) -> QueuePairState {
        self.pair(id)
            .map_or(QueuePairState::Error, |pair| pair.state)
    }

    /// Has things go wrong from here on.
    pub(super) fn set_faults(&mut self, faults: Faults) {
        for moment in &faults.moments {
            let at = Time::default() + Span::from(moment.at);
            self.events
                .add(at.max(self.clock), Event::Trouble(moment.node, moment.what));
        }
        self.faults = FaultState::new(faults);
    }

    /// Something happens to a node's hardware. The executor does what happens to its tasks.
    pub(super) fn befall(&mut self, node: usize, what: Trouble) {
        let clock = self.clock;
        let Some(node) = self.nodes.get_mut(node) else {
            return;
        };
        match what {
            Trouble::Crash | Trouble::DeadNic => node.health.dead = true,
            Trouble::Cut(duration) => node.health.cut_until = clock + duration.into(),
            Trouble::SlowNic(times) => node.health.slowness = times,
            Trouble::Pause(duration) => {
                for cpu in &mut node.cpus {
                    cpu.busy_until = cpu.busy_until.max(clock) + duration.into();
                }
            }
        }
    }

    /// How long a node's NIC takes for what should take so long.
    pub(super) fn as_slow_as(&self, node: usize, span: Span) -> Span {
        span * u64::from(self.nodes[node].health.slowness.max(1))
    }

    /// Whether packets of a node go nowhere, and none comes to it.
    pub(super) fn is_cut_off(&self, node: usize) -> bool {
        let health = &self.nodes[node].health;
        health.dead || health.cut_until > self.clock
    }

    /// Moves the clock to what happens next.
    pub(super) fn next(&mut self) -> Option<Event> {
        let (at, event) = self.events.next()?;
        self.set_clock(at);
        self.trace.add(at, &event);
        Some(event)
    }
}

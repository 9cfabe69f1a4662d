//! The `sim` provider: nodes, NICs and a switch in one process, on virtual time, from a seed.
//!
//! ```text
//!   task ──post──► NIC ──packets──► switch ──packets──► NIC ──completion──► task
//!    │              engine, contexts,   queues, room      engine, contexts,
//!    │              translations                          translations
//!    └─ charged to its thread: posting, polling, hashing, copying
//! ```
//!
//! Everything that happens is an event at a moment of virtual time (module `events`), and moves one state
//! (module `state`); tasks run on the threads of their nodes (module `executor`). The same seed gives the same
//! events. Endpoints and operators run on it unchanged: they know a device and a [`Context`].
//!
//! Payload of reliable connections stays where it was posted from until it has come, and is copied once: that of
//! WRITEs packet by packet, all other with the last packet of its message. [`Parameters`] say what the hardware can do.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))] // See clippy.toml.

#[cfg(test)]
mod calibration;
mod completions;
mod contexts;
mod device;
mod emission;
mod events;
mod executor;
mod faults;
mod locks;
mod mechanisms;
mod memory;
mod packet;
mod pair;
mod parameters;
mod presets;
mod progress;
mod requester;
mod responder;
mod state;
mod switch;
mod time;
mod trace;
mod translating;
mod translations;

pub use faults::{Faults, Moment, PacketFault, PacketKind, Trouble, What};
pub use mechanisms::Mechanism;
pub use parameters::{Handover, Link, Nic, Parameters, Processor, Switch};
pub use state::Unwanted;
pub use time::{Rate, Span};

use crate::completion_queue::BoxFuture;
use crate::context::Context;
use crate::device::Device;
use device::SimDevice;
use events::{Cpu, Event};
use executor::{SimContext, Tasks};
use parking_lot::Mutex;
use state::{State, World};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use time::Time;

/// A cluster on virtual time.
pub struct Simulation {
    world: World,
    tasks: Arc<Tasks>,
}

/// Why a simulation ended before what it was to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Nothing is going to happen any more, and tasks still wait.
    NoProgress,
    /// So much time has passed.
    OutOfTime,
}

impl Simulation {
    /// Without nodes yet.
    pub fn new(parameters: Parameters, seed: u64) -> Self {
        Self {
            world: Arc::new(Mutex::new(State::new(parameters, seed))),
            tasks: Arc::default(),
        }
    }

    /// Has things go wrong from here on.
    pub fn set_faults(&self, faults: Faults) {
        self.world.lock().set_faults(faults);
    }

    /// Messages so far that came where no receive was posted.
    pub fn unwanted(&self) -> Unwanted {
        self.world.lock().unwanted
    }

    /// Adds a node with so many threads, at least one.
    pub fn add_node(&self, threads: usize) -> SimNode {
        SimNode {
            world: self.world.clone(),
            tasks: self.tasks.clone(),
            node: self.world.lock().add_node(threads.max(1)),
        }
    }

    /// Virtual time since the start.
    pub fn now(&self) -> Duration {
        self.world.lock().clock.since_start()
    }

    /// A hash of everything that has happened so far, and when. The same program, parameters and seed have
    /// the same.
    pub fn trace(&self) -> u64 {
        self.world.lock().trace.hash()
    }

    /// Has the next thing happen; false when there is none.
    pub fn step(&self) -> bool {
        self.next().is_some()
    }

    /// The same; when it happened.
    fn next(&self) -> Option<Time> {
        self.tasks.line_up(&self.world);
        let mut state = self.world.lock();
        let event = state.next()?;
        let at = state.clock;
        match event {
            Event::Run(cpu) => {
                drop(state);
                self.tasks.run(&self.world, cpu);
            }
            event => {
                let crashed = match event {
                    Event::Trouble(node, Trouble::Crash) => Some(node),
                    _ => None,
                };
                state.happen(event);
                drop(state);
                if let Some(node) = crashed {
                    self.tasks.crash(node);
                }
            }
        }
        Some(at)
    }

    /// Has everything happen that is due until a moment, and moves the clock there.
    pub fn advance(&self, until: Duration) {
        let until = Time::default() + Span::from(until);
        loop {
            self.tasks.line_up(&self.world);
            let mut state = self.world.lock();
            if state.events.next_at().is_none_or(|at| at > until) {
                let clock = state.clock.max(until);
                state.set_clock(clock);
                return;
            }
            drop(state);
            self.step();
        }
    }

    /// Runs a task on the first thread of a node until it has ended, for at most so much virtual time. Other
    /// tasks go on meanwhile.
    ///
    /// # Errors
    /// When it has not ended.
    pub fn run<T: Send + 'static>(
        &self,
        node: &SimNode,
        limit: Duration,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Stopped> {
        let ended = self.run_until(node, limit, task, || false)?;
        ended.ok_or(Stopped::NoProgress)
    }

    /// The same, unless something else happens before it has ended; then the answer is `None`.
    ///
    /// # Errors
    /// When neither happens before the simulation has to stop.
    pub fn run_until<T: Send + 'static>(
        &self,
        node: &SimNode,
        limit: Duration,
        task: impl Future<Output = T> + Send + 'static,
        otherwise: impl Fn() -> bool,
    ) -> Result<Option<T>, Stopped> {
        let result = Arc::new(Mutex::new(None));
        let ended = Arc::new(AtomicBool::new(false));
        let (into, end) = (result.clone(), ended.clone());
        node.spawn(
            0,
            Box::pin(async move {
                let value = task.await;
                *into.lock() = Some(value);
                end.store(true, Ordering::Release);
            }),
        );
        let end = self.world.lock().clock + Span::from(limit);
        while !ended.load(Ordering::Acquire) && !otherwise() {
            match self.next() {
                None => return Err(Stopped::NoProgress),
                Some(at) if at > end => return Err(Stopped::OutOfTime),
                Some(_) => {}
            }
        }
        let value = result.lock().take();
        Ok(value)
    }
}

impl State {
    /// What an event does to the hardware. Those of threads are the executor's.
    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake(waker) => waker.wake(),
            Event::Run(_) => {}
            Event::Doorbell(pair, up_to) => self.ring(pair, up_to),
            Event::Emit(node) => self.emit(node),
            Event::Left(pair, message) => self.left(pair, message),
            Event::Arrive(input, packet) => {
                self.switch
                    .arrive(input, packet, self.clock, &mut self.events);
            }
            Event::Passed(input, packet) => self.passed(input, packet),
            Event::Received(packet) => self.received(*packet),
            Event::Trouble(node, what) => self.befall(node, what),
            Event::Resume(pair) => self.resume(pair),
            Event::Timeout(pair) => self.timeout(pair),
        }
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        self.tasks.end();
    }
}

/// A node of a simulation. Clones share it.
#[derive(Clone)]
pub struct SimNode {
    world: World,
    tasks: Arc<Tasks>,
    node: usize,
}

impl SimNode {
    /// A device of this node: its simulated NIC.
    pub fn device(&self) -> Device {
        Device::new(Arc::new(SimDevice::new(&self.world, self.node)))
    }

    /// Its time, tasks and randomness. Tasks begin on the thread of the one that begins them, and others on its
    /// first.
    pub fn context(&self) -> Arc<dyn Context> {
        self.context_of(0)
    }

    /// The same, where others begin on this thread, counted round and round.
    pub fn context_of(&self, thread: usize) -> Arc<dyn Context> {
        let shown = self.world.lock().shown.clone();
        Arc::new(SimContext {
            world: self.world.clone(),
            shown,
            tasks: self.tasks.clone(),
            cpu: self.cpu(thread),
        })
    }

    /// How long its threads have worked so far, added up.
    pub fn worked(&self) -> Duration {
        let state = self.world.lock();
        let cpus = state.nodes[self.node].cpus.iter();
        let picos = cpus.map(|cpu| cpu.worked.as_picos()).sum::<u64>();
        Duration::from_nanos(picos / 1000)
    }

    /// Has one of its threads, counted round and round, take so many times as long as others for everything.
    pub fn slow_down(&self, thread: usize, times: u32) {
        let cpu = self.cpu(thread);
        let mut state = self.world.lock();
        state.nodes[cpu.node].cpus[cpu.index].times_as_slow = u64::from(times.max(1));
    }

    fn cpu(&self, thread: usize) -> Cpu {
        let threads = self.world.lock().nodes[self.node].cpus.len();
        Cpu {
            node: self.node,
            index: thread % threads,
        }
    }

    /// Starts a task on one of its threads, counted round and round.
    pub fn spawn(&self, thread: usize, task: BoxFuture<'static, ()>) {
        self.tasks.begin(self.cpu(thread), task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Work;

    #[test]
    fn a_thread_that_is_slowed_down_takes_so_many_times_as_long() {
        let simulation = Simulation::new(Parameters::edr(), 1);
        let worked = [1, 10].map(|times| {
            let node = simulation.add_node(2);
            node.slow_down(1, times);
            let context = node.context();
            let work = async move { context.charge(Work::Cycles(1000)) };
            node.spawn(1, Box::pin(work));
            simulation.advance(Duration::from_millis(1));
            node.worked()
        });
        assert!(!worked[0].is_zero());
        assert_eq!(worked[1], 10 * worked[0]);
    }
}

//! Tasks on the threads of simulated nodes. A thread runs one task at a time, and what a task does takes as
//! long as it is charged; the next one runs afterwards.

use super::events::{Cpu, Event};
use super::locks::Lock;
use super::state::{Shown, World};
use super::time::Span;
use crate::completion_queue::BoxFuture;
use crate::context::{Context, VirtualLock, Work};
use crate::numa::within;
use parking_lot::Mutex;
use rand::RngCore as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

/// Tasks, and who is to run.
#[derive(Default)]
pub(super) struct Tasks {
    tasks: Mutex<Vec<Task>>,
    /// Woken, and not yet waiting for their thread.
    woken: Mutex<Vec<usize>>,
    /// Begun, and not yet among the tasks.
    begun: Mutex<Vec<(Cpu, BoxFuture<'static, ()>)>>,
    /// Whether there are any of both.
    any: AtomicBool,
}

struct Task {
    cpu: Cpu,
    /// `None` while it runs, and when it has ended.
    future: Option<BoxFuture<'static, ()>>,
    waker: Waker,
    woken: Arc<Woken>,
}

/// Wakes a task, once until it runs.
struct Woken {
    tasks: Weak<Tasks>,
    task: usize,
    already: AtomicBool,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.already.swap(true, Ordering::AcqRel)
            && let Some(tasks) = self.tasks.upgrade()
        {
            tasks.woken.lock().push(self.task);
            tasks.any.store(true, Ordering::Release);
        }
    }
}

impl Tasks {
    /// Begins a task.
    pub(super) fn begin(&self, cpu: Cpu, future: BoxFuture<'static, ()>) {
        self.begun.lock().push((cpu, future));
        self.any.store(true, Ordering::Release);
    }

    /// Has those that were woken wait for their threads.
    pub(super) fn line_up(self: &Arc<Self>, world: &World) {
        if !self.any.swap(false, Ordering::AcqRel) {
            return;
        }
        for (cpu, future) in std::mem::take(&mut *self.begun.lock()) {
            let mut tasks = self.tasks.lock();
            let task = tasks.len();
            let woken = Arc::new(Woken {
                tasks: Arc::downgrade(self),
                task,
                already: AtomicBool::new(true),
            });
            tasks.push(Task {
                cpu,
                future: Some(future),
                waker: woken.clone().into(),
                woken,
            });
            self.woken.lock().push(task);
        }
        let tasks = self.tasks.lock();
        let state = &mut *world.lock();
        for task in self.woken.lock().drain(..) {
            let cpu = tasks[task].cpu;
            let thread = &mut state.nodes[cpu.node].cpus[cpu.index];
            thread.waiting.tasks.push_back(task);
            if !std::mem::replace(&mut thread.waiting.due, true) {
                let at = state.clock.max(thread.busy_until);
                state.events.add(at, Event::Run(cpu));
            }
        }
    }

    /// Runs the next task of a thread.
    pub(super) fn run(&self, world: &World, cpu: Cpu) {
        let next = {
            let state = &mut *world.lock();
            let thread = &mut state.nodes[cpu.node].cpus[cpu.index];
            if thread.busy_until > state.clock {
                // It stands still.
                state.events.add(thread.busy_until, Event::Run(cpu));
                return;
            }
            thread.waiting.due = false;
            let next = thread.waiting.tasks.pop_front();
            state.begin(cpu);
            next
        };
        let taken = next.and_then(|number| {
            let mut tasks = self.tasks.lock();
            let task = &mut tasks[number];
            task.woken.already.store(false, Ordering::Release);
            let future = task.future.take()?;
            Some((number, future, task.waker.clone()))
        });
        if let Some((number, mut future, waker)) = taken
            && within(cpu.index, || poll(future.as_mut(), &waker)).is_pending()
        {
            self.tasks.lock()[number].future = Some(future);
        }
        let state = &mut *world.lock();
        let done = state.end();
        let thread = &mut state.nodes[cpu.node].cpus[cpu.index];
        thread.busy_until = state.clock + done;
        thread.worked += done;
        if !thread.waiting.tasks.is_empty() {
            thread.waiting.due = true;
            state.events.add(thread.busy_until, Event::Run(cpu));
        }
    }

    /// Ends the tasks of a node, as far as they are not running.
    pub(super) fn crash(&self, node: usize) {
        let ended: Vec<_> = {
            let mut tasks = self.tasks.lock();
            let own = tasks.iter_mut().filter(|task| task.cpu.node == node);
            own.filter_map(|task| task.future.take()).collect()
        };
        // Outside the lock: values that they drop may wake others.
        drop(ended);
    }

    /// Ends all tasks, which may hold devices and with them the simulation.
    pub(super) fn end(&self) {
        let begun = std::mem::take(&mut *self.begun.lock());
        let tasks = std::mem::take(&mut *self.tasks.lock());
        // Outside the locks: values that they drop may wake others.
        drop((begun, tasks));
    }
}

fn poll(future: Pin<&mut (dyn Future<Output = ()> + Send)>, waker: &Waker) -> Poll<()> {
    future.poll(&mut TaskContext::from_waker(waker))
}

/// Virtual time, on a node.
pub(super) struct SimContext {
    pub world: World,
    pub shown: Arc<Shown>,
    pub tasks: Arc<Tasks>,
    /// Where tasks begin that none of the node's begins.
    pub cpu: Cpu,
}

impl Context for SimContext {
    fn now(&self) -> Duration {
        self.shown.time().since_start()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let until = self.world.lock().now() + Span::from(duration);
        let world = self.world.clone();
        let mut asked = false;
        Box::pin(std::future::poll_fn(move |cx| {
            let mut state = world.lock();
            if state.now() >= until {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut asked, true) {
                state.events.add(until, Event::Wake(cx.waker().clone()));
            }
            Poll::Pending
        }))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let running = self.world.lock().running;
        let cpu = match running {
            Some((cpu, _)) if cpu.node == self.cpu.node => cpu,
            _ => self.cpu,
        };
        self.tasks.begin(cpu, task);
    }

    fn random(&self) -> u64 {
        self.world.lock().random.next_u64()
    }

    fn charge(&self, work: Work) {
        let mut state = self.world.lock();
        let cpu = &state.parameters.cpu;
        let cost = match work {
            Work::Hash(bytes) => cpu.hash.time(bytes),
            Work::Copy(bytes) => cpu.copy.time(bytes),
            Work::Tcp(bytes) => cpu.tcp.time(bytes),
            Work::Looks(buffers) => cpu.look * buffers as u64,
            Work::Cycles(cycles) => cpu.cycle * cycles,
        };
        state.charge(cost);
    }

    fn lock(&self) -> Option<Arc<dyn VirtualLock>> {
        Some(Arc::new(SimLock {
            world: self.world.clone(),
            lock: Mutex::default(),
        }))
    }

    fn is_ahead(&self) -> bool {
        let state = self.world.lock();
        state.running.is_some_and(|(_, done)| done > Span::ZERO)
    }
}

/// A lock of a simulated node.
struct SimLock {
    world: World,
    lock: Mutex<Lock>,
}

impl VirtualLock for SimLock {
    fn enter(&self) {
        let mut state = self.world.lock();
        let Some((cpu, _)) = state.running else {
            return;
        };
        let (now, handover) = (state.now(), state.parameters.cpu.handover);
        let waited = self.lock.lock().enter(now, cpu, handover);
        state.occupy(waited);
    }

    fn leave(&self) {
        let state = self.world.lock();
        if let Some((cpu, _)) = state.running {
            self.lock.lock().leave(state.now(), cpu);
        }
    }
}

//! MPI, as ordinary programs use it: `MPI_Isend` to `MPI_Irecv` for repartitioning, `MPI_Ibcast` for
//! broadcasts, with `MPI_THREAD_MULTIPLE`.
//!
//! A thread sends and receives in turns, as MPI has no events: while its sends are under way it takes what
//! has come. Threads of the same number belong together, by a tag or by communicators of their own.

use super::memory::{Behind, Filled, Memory};
use super::{MessageBuffer, Receiver, Sender};
use crate::error::{Error, Result};
use crate::meeting::Meeting;
use crate::setting::{MESSAGE_BYTES, Pattern, Setting};
use mpi::Threading;
use mpi::environment::Universe;
use mpi::request::scope;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Equivalence, Root, Source};
use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Messages that a thread sends at a time: with fewer, both sides wait for each other.
const DEPTH: usize = 8;
/// Bytes before a message. A broadcast, all of which are of one length, has its own length there.
const HEAD_BYTES: usize = 16;

/// MPI in this process; when it is dropped, MPI ends.
pub struct Process(#[expect(dead_code, reason = "it is kept, not used")] Universe);

/// Whose turn it is to make communicators, which all nodes do in the same order.
#[derive(Default)]
struct Turn {
    thread: Mutex<usize>,
    passed: Condvar,
}

/// What a thread begins with; communicators are made in the thread itself.
pub struct Thread {
    number: usize,
    turn: Arc<Turn>,
    setting: Arc<Setting>,
}

/// Starts MPI.
///
/// # Errors
/// When it has no support for several threads, or was started with another number of processes.
pub async fn open(setting: &Arc<Setting>, meeting: &mut Meeting) -> Result<(Process, Vec<Thread>)> {
    let started = mpi::initialize_with_threading(Threading::Multiple);
    let (universe, threading) =
        started.ok_or_else(|| Error::Mpi("it is started already".into()))?;
    if threading != Threading::Multiple && setting.threads > 1 {
        return Err(Error::Mpi("this MPI has no MPI_THREAD_MULTIPLE".into()));
    }
    let world = universe.world();
    if (world.rank() as usize, world.size() as usize) != (meeting.node(), setting.nodes) {
        return Err(Error::Mpi(format!(
            "this is process {} of {}, not {} of {}",
            world.rank(),
            world.size(),
            meeting.node(),
            setting.nodes
        )));
    }
    let turn = Arc::<Turn>::default();
    let thread = |number| Thread {
        number,
        turn: turn.clone(),
        setting: setting.clone(),
    };
    let threads = (0..setting.threads).map(thread).collect();
    meeting.barrier().await?;
    Ok((Process(universe), threads))
}

impl Thread {
    /// The two sides of this thread, in which it is called.
    pub fn sides(&self) -> (MpiSender, MpiReceiver) {
        let setting = &self.setting;
        let own = match setting.pattern {
            Pattern::Repartition => Vec::new(),
            Pattern::Broadcast => self.communicators(),
        };
        let message_bytes = setting.message_bytes.unwrap_or(MESSAGE_BYTES);
        let end = Rc::new(RefCell::new(End {
            world: SimpleCommunicator::world(),
            of_root: own,
            tag: self.number as i32,
            message_bytes,
            arrived: VecDeque::new(),
            spare: Vec::new(),
            ended: vec![false; setting.nodes],
        }));
        let sender = MpiSender {
            end: end.clone(),
            pattern: setting.pattern,
            waiting: Vec::new(),
        };
        (sender, MpiReceiver { end })
    }

    /// A communicator for each root: collective calls of one begin in the same order everywhere.
    fn communicators(&self) -> Vec<SimpleCommunicator> {
        let mut thread = self.turn.thread.lock();
        while *thread != self.number {
            self.turn.passed.wait(&mut thread);
        }
        let world = SimpleCommunicator::world();
        let all = (0..self.setting.nodes).map(|_| world.duplicate()).collect();
        *thread += 1;
        self.turn.passed.notify_all();
        all
    }
}

/// What both sides of a thread share.
struct End {
    world: SimpleCommunicator,
    of_root: Vec<SimpleCommunicator>,
    tag: i32,
    message_bytes: usize,
    arrived: VecDeque<Filled<HEAD_BYTES>>,
    spare: Vec<Memory>,
    /// By node: whether it has ended.
    ended: Vec<bool>,
}

/// The sending side.
pub struct MpiSender {
    end: Rc<RefCell<End>>,
    pattern: Pattern,
    /// What is sent together.
    waiting: Vec<Outgoing>,
}

/// A message that is sent.
struct Outgoing {
    to: usize,
    memory: Memory,
    length: usize,
}

/// The receiving side.
pub struct MpiReceiver {
    end: Rc<RefCell<End>>,
}

impl Sender for MpiSender {
    type Buffer = Behind<HEAD_BYTES>;

    async fn acquire(&mut self, _: usize) -> Result<Self::Buffer> {
        Ok(Behind(self.end.borrow_mut().memory()))
    }

    async fn put(&mut self, buffer: Self::Buffer, to: usize, length: usize, _: u32) -> Result<()> {
        let memory = buffer.0;
        self.waiting.push(Outgoing { to, memory, length });
        if self.waiting.len() == DEPTH {
            let waiting = std::mem::take(&mut self.waiting);
            self.end.borrow_mut().send(self.pattern, waiting, false);
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        self.end.borrow_mut().send(self.pattern, waiting, true);
        // Others may broadcast for longer: all go along to the end of the last.
        while self.pattern == Pattern::Broadcast && !self.end.borrow().all_ended() {
            tokio::task::yield_now().await;
            self.end.borrow_mut().send(self.pattern, Vec::new(), true);
        }
        Ok(())
    }
}

impl Receiver for MpiReceiver {
    type Message = Filled<HEAD_BYTES>;

    async fn get(&mut self) -> Result<Option<Filled<HEAD_BYTES>>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            if self.end.borrow().all_ended() {
                return Ok(None);
            }
            std::thread::yield_now();
            tokio::task::yield_now().await;
        }
    }

    fn take(&mut self) -> Result<Option<Filled<HEAD_BYTES>>> {
        let mut end = self.end.borrow_mut();
        if end.arrived.is_empty() {
            end.receive();
        }
        Ok(end.arrived.pop_front())
    }

    fn release(&mut self, message: Filled<HEAD_BYTES>) {
        self.end.borrow_mut().spare.push(message.memory);
    }
}

impl End {
    fn memory(&mut self) -> Memory {
        let spare = self.spare.pop();
        spare.unwrap_or_else(|| Memory::new(HEAD_BYTES + self.message_bytes))
    }

    fn all_ended(&self) -> bool {
        self.ended.iter().all(|ended| *ended)
    }

    fn send(&mut self, pattern: Pattern, messages: Vec<Outgoing>, last: bool) {
        match pattern {
            Pattern::Repartition => self.send_each(messages, last),
            Pattern::Broadcast => self.broadcast(messages, last),
        }
    }

    /// Sends messages, and takes what comes meanwhile. A message without bytes is the end.
    fn send_each(&mut self, mut messages: Vec<Outgoing>, last: bool) {
        if last {
            for to in 0..self.ended.len() {
                let memory = self.memory();
                messages.push(Outgoing {
                    to,
                    memory,
                    length: 0,
                });
            }
        }
        let (world, tag) = (SimpleCommunicator::world(), self.tag);
        scope(|scope| {
            let sends = messages.iter().map(|message| {
                let to = world.process_at_rank(message.to as i32);
                let bytes = &message.memory.filled(HEAD_BYTES + message.length)[HEAD_BYTES..];
                to.immediate_send_with_tag(scope, bytes, tag)
            });
            let mut sends: Vec<_> = sends.collect();
            while !sends.is_empty() {
                let before = sends.len();
                sends = sends
                    .into_iter()
                    .filter_map(|send| send.test().err())
                    .collect();
                if self.receive() == 0 && sends.len() == before {
                    std::thread::yield_now();
                }
            }
        });
        self.spare
            .extend(messages.into_iter().map(|message| message.memory));
    }

    /// Takes what has come from any node, at most about as much as is sent at a time; returns how much.
    fn receive(&mut self) -> usize {
        if !self.of_root.is_empty() {
            return 0;
        }
        for count in 0..DEPTH {
            let probed = self
                .world
                .any_process()
                .immediate_matched_probe_with_tag(self.tag);
            let Some((message, status)) = probed else {
                return count;
            };
            let length = status.count(u8::equivalent_datatype()) as usize;
            let mut memory = self.memory();
            let room = &mut memory.bytes_mut()[HEAD_BYTES..HEAD_BYTES + length];
            scope(|scope| {
                message
                    .immediate_matched_receive_into(scope, room)
                    .wait_without_status()
            });
            if length == 0 {
                self.ended[status.source_rank() as usize] = true;
                self.spare.push(memory);
            } else {
                self.arrived.push_back(Filled { memory, length });
            }
        }
        DEPTH
    }

    /// Broadcasts messages while every other node does, as many each; the head of one has its length, and
    /// whether its node has ended.
    fn broadcast(&mut self, messages: Vec<Outgoing>, last: bool) {
        let own = self.world.rank() as usize;
        let mut own_messages = messages.into_iter();
        let mut rounds = Vec::new();
        for _ in 0..DEPTH {
            for root in 0..self.ended.len() {
                let next = if root == own {
                    own_messages.next()
                } else {
                    None
                };
                let (mut memory, length) = match next {
                    Some(message) => (message.memory, message.length),
                    None => (self.memory(), 0),
                };
                memory.write(0, &(length as u64).to_le_bytes());
                memory.write(8, &u64::from(last).to_le_bytes());
                rounds.push((root, memory));
            }
        }
        scope(|scope| {
            let requests = rounds.iter_mut().map(|(root, memory)| {
                let process = self.of_root[*root].process_at_rank(*root as i32);
                process.immediate_broadcast_into(scope, memory.bytes_mut())
            });
            let requests: Vec<_> = requests.collect();
            requests
                .into_iter()
                .for_each(|request| request.wait_without_status());
        });
        for (root, memory) in rounds {
            let word = |at: usize| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&memory.filled(at + 8)[at..]);
                u64::from_le_bytes(bytes)
            };
            let (length, last) = (word(0) as usize, word(8) != 0);
            self.ended[root] |= last;
            match length {
                0 => self.spare.push(memory),
                _ => self.arrived.push_back(Filled { memory, length }),
            }
        }
    }
}

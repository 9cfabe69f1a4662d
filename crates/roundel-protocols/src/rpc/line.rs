//! Calls on their way to the client's task: for each connection a line, in which they wait for room.

use super::wait::Bell;
use crate::error::CallError;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How a call ends.
pub(super) type Outcome = Result<Vec<u8>, CallError>;

/// What a call asks.
pub(super) enum Asked {
    /// The responder is to answer this.
    Request(Vec<u8>),
    /// A READ of so many bytes at an offset.
    Read(u64, usize),
}

/// A call that has not been begun.
pub(super) struct Submitted {
    /// Which of its connection.
    pub number: u64,
    pub asked: Asked,
    /// When it was made, and is over.
    pub made: Duration,
    pub deadline: Duration,
    pub answer: oneshot::Sender<Outcome>,
}

/// What the callers and the task of a client share.
pub(super) struct Lines {
    peers: Vec<String>,
    /// Calls that a connection can have pending.
    pending: usize,
    lines: Mutex<All>,
    pub bell: Arc<Bell>,
}

struct All {
    lines: Vec<Line>,
    /// Why there is nobody any more who takes them.
    closed: Option<String>,
    /// Calls in all lines, and how many there were ever.
    waiting: usize,
    numbers: u64,
    /// No deadline of one that waits is before this.
    due: Duration,
}

#[derive(Default)]
struct Line {
    calls: VecDeque<Submitted>,
    /// Calls that can be begun, as far as the task has told.
    room: usize,
}

impl Lines {
    pub(super) fn new(peers: Vec<String>, pending: usize) -> Self {
        let lines = peers.iter().map(|_| Line {
            calls: VecDeque::new(),
            room: pending,
        });
        Self {
            pending,
            lines: Mutex::new(All {
                lines: lines.collect(),
                closed: None,
                waiting: 0,
                numbers: 0,
                due: Duration::MAX,
            }),
            bell: Arc::default(),
            peers,
        }
    }

    pub(super) fn connections(&self) -> usize {
        self.peers.len()
    }

    /// Puts a call in line; with `at_once` only if there is room. Returns its number, and what becomes its outcome.
    pub(super) fn submit(
        &self,
        connection: usize,
        asked: Asked,
        times: (Duration, Duration),
        at_once: bool,
    ) -> Result<(u64, oneshot::Receiver<Outcome>), CallError> {
        let Some(peer) = self.peers.get(connection) else {
            let told = format!("a call on connection {connection} of {}", self.peers.len());
            return Err(CallError::Unsupported(told));
        };
        let (answer, outcome) = oneshot::channel();
        let mut all = self.lines.lock();
        if let Some(reason) = &all.closed {
            let reason = reason.clone();
            return Err(CallError::Closed { reason });
        }
        let line = &all.lines[connection];
        if at_once && line.calls.len() >= line.room {
            return Err(CallError::NoRoom {
                peer: peer.clone(),
                pending: self.pending,
            });
        }
        let number = all.numbers;
        let (made, deadline) = times;
        all.numbers += 1;
        all.waiting += 1;
        all.due = all.due.min(deadline);
        all.lines[connection].calls.push_back(Submitted {
            number,
            asked,
            made,
            deadline,
            answer,
        });
        drop(all);
        self.bell.ring();
        Ok((number, outcome))
    }

    /// Takes a call out of line whose caller has given it up, unless it has been begun.
    pub(super) fn forget(&self, connection: usize, number: u64) {
        let mut all = self.lines.lock();
        let calls = &mut all.lines[connection].calls;
        if let Ok(at) = calls.binary_search_by_key(&number, |call| call.number) {
            let call = calls.remove(at);
            all.waiting -= 1;
            drop(all);
            drop(call);
        }
    }

    /// The next call of a line, once there is room for it.
    pub(super) fn next(&self, connection: usize) -> Option<Submitted> {
        let mut all = self.lines.lock();
        let line = &mut all.lines[connection];
        let call = line.calls.pop_front()?;
        line.room = line.room.saturating_sub(1);
        all.waiting -= 1;
        Some(call)
    }

    /// Tells how many calls of each connection can be begun, by its number.
    pub(super) fn set_room(&self, room: impl Fn(usize) -> usize) {
        let mut all = self.lines.lock();
        for (connection, line) in all.lines.iter_mut().enumerate() {
            line.room = room(connection);
        }
    }

    /// Calls that wait.
    pub(super) fn waiting(&self) -> usize {
        self.lines.lock().waiting
    }

    /// Ends the calls whose time is over while they wait; returns how many, and when it may be over for others.
    pub(super) fn expire(&self, now: Duration) -> (usize, Option<Duration>) {
        let mut over = Vec::new();
        let due = {
            let mut all = self.lines.lock();
            let all = &mut *all;
            if all.waiting > 0 && all.due <= now {
                for (connection, line) in all.lines.iter_mut().enumerate() {
                    let is_over = |call: &Submitted| call.deadline <= now;
                    if line.calls.iter().any(is_over) {
                        let calls = std::mem::take(&mut line.calls);
                        let (ended, left): (VecDeque<_>, _) = calls.into_iter().partition(is_over);
                        over.extend(ended.into_iter().map(|call| (connection, call)));
                        line.calls = left;
                    }
                }
                all.waiting -= over.len();
                let left = all.lines.iter().flat_map(|line| &line.calls);
                let next = left.map(|call| call.deadline).min();
                all.due = next.unwrap_or(Duration::MAX);
            }
            (all.waiting > 0).then_some(all.due)
        };
        let ended = over.len();
        for (connection, call) in over {
            // Nobody waits for it who has dropped it.
            let _ = call.answer.send(Err(CallError::Deadline {
                peer: self.peers[connection].clone(),
                after: now.saturating_sub(call.made),
            }));
        }
        (ended, due)
    }

    /// Nobody takes calls from here on; those in line end.
    pub(super) fn close(&self, reason: &str) {
        let calls: Vec<_> = {
            let mut all = self.lines.lock();
            all.closed.get_or_insert_with(|| reason.to_owned());
            all.waiting = 0;
            let lines = all.lines.iter_mut();
            lines
                .flat_map(|line| std::mem::take(&mut line.calls))
                .collect()
        };
        // Outside the lock: they wake their callers.
        drop(calls);
        self.bell.ring();
    }

    /// Whether it was closed.
    pub(super) fn is_closed(&self) -> bool {
        self.lines.lock().closed.is_some()
    }

    /// What a call ends with that was dropped before it ended.
    pub(super) fn ended_with_client(&self) -> CallError {
        let closed = self.lines.lock().closed.clone();
        CallError::Closed {
            reason: closed.unwrap_or_else(|| "its task was dropped".into()),
        }
    }
}

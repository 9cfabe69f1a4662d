//! The client: its task has a requester; callers hand it their calls.

use super::line::{Asked, Lines, Outcome, Submitted};
use super::wait::{Idle, Step, Steps, drive};
use crate::end::{EndOptions, Fabric};
use crate::error::{CallError, ProtocolError, Result};
use crate::requester::Requester;
use roundel_verbs::{CompletionChannel, CompletionQueue, Context};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// A client that is not connected yet.
pub struct Client {
    requester: Requester,
    peers: Vec<String>,
    options: EndOptions,
    context: Arc<dyn Context>,
    channel: CompletionChannel,
}

impl Client {
    /// Makes it for so many connections, with a completion channel of its own.
    ///
    /// # Errors
    /// When the device cannot carry the protocol, or has no room.
    pub fn open(fabric: &Fabric, connections: usize, options: &EndOptions) -> Result<Self> {
        let channel = fabric.device.create_channel()?;
        let own = Fabric {
            channel: Some(channel.clone()),
            ..fabric.clone()
        };
        Ok(Self {
            requester: Requester::open(&own, connections, options)?,
            peers: vec![String::new(); connections],
            options: options.clone(),
            context: fabric.context.clone(),
            channel,
        })
    }

    /// What the server of a connection needs to know.
    pub fn offer(&self, connection: usize) -> Vec<u8> {
        self.requester.offer(connection)
    }

    /// Connects to the server that offers this, which errors call `peer`.
    ///
    /// # Errors
    /// When the offer does not fit, or a verb fails.
    pub fn connect(&mut self, connection: usize, offer: &[u8], peer: &str) -> Result<()> {
        peer.clone_into(&mut self.peers[connection]);
        self.requester.connect(connection, offer, peer)
    }

    /// Connections that it has.
    pub fn connections(&self) -> usize {
        self.peers.len()
    }

    /// Starts its task, which ends with the last clone of what this returns.
    ///
    /// # Errors
    /// When the completion channel cannot be watched.
    pub fn start(self) -> Result<Caller> {
        self.context.spawn(Box::pin(self.channel.drive()?));
        let lines = Arc::new(Lines::new(self.peers, self.options.pending));
        let context = self.context.clone();
        let mut task = Task {
            requester: self.requester,
            lines: lines.clone(),
            pending: Pending::default(),
            ended: Vec::new(),
        };
        self.context.spawn(Box::pin(async move {
            let bell = task.lines.bell.clone();
            if let Err(error) = drive(&mut task, &*context, &bell).await {
                task.lines.close(&error.to_string());
            }
        }));
        Ok(Caller(Arc::new(Held {
            lines,
            context: self.context,
        })))
    }
}

/// Calls servers, as do its clones. When the last is dropped, the client ends, and with it the calls that are pending.
#[derive(Clone)]
pub struct Caller(Arc<Held>);

struct Held {
    lines: Arc<Lines>,
    context: Arc<dyn Context>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.lines.close("nobody calls any more");
    }
}

impl Caller {
    /// Calls the server of a connection. The call is made now, also when its future is not polled yet; where as many are
    /// pending as there can be it waits for room, behind those that came before. It ends within its deadline.
    pub fn call(&self, connection: usize, request: impl Into<Vec<u8>>, deadline: Duration) -> Call {
        let asked = Asked::Request(request.into());
        match self.submit(connection, asked, deadline, false) {
            Ok(call) => call,
            Err(error) => Call(Some(State::Failed(error))),
        }
    }

    /// The same, unless it would have to wait for room.
    ///
    /// # Errors
    /// [`CallError::NoRoom`] when it would; else why it cannot be made.
    pub fn try_call(
        &self,
        connection: usize,
        request: impl Into<Vec<u8>>,
        deadline: Duration,
    ) -> Result<Call, CallError> {
        self.submit(connection, Asked::Request(request.into()), deadline, true)
    }

    /// READs so many bytes at an offset of the memory that the server of a connection lets be read; everything else is
    /// as with [`call`](Self::call).
    pub fn read(&self, connection: usize, offset: u64, length: usize, deadline: Duration) -> Call {
        match self.submit(connection, Asked::Read(offset, length), deadline, false) {
            Ok(call) => call,
            Err(error) => Call(Some(State::Failed(error))),
        }
    }

    /// Connections that it has.
    pub fn connections(&self) -> usize {
        self.0.lines.connections()
    }

    fn submit(
        &self,
        connection: usize,
        asked: Asked,
        deadline: Duration,
        at_once: bool,
    ) -> Result<Call, CallError> {
        let lines = &self.0.lines;
        let now = self.0.context.now();
        let times = (now, now.saturating_add(deadline));
        let (number, answer) = lines.submit(connection, asked, times, at_once)?;
        Ok(Call(Some(State::Made(Made {
            lines: lines.clone(),
            connection,
            number,
            answer,
        }))))
    }
}

/// A call that was made: its answer, or the one error that it ended in. Dropped, it is given up.
#[must_use = "a call whose future is dropped is given up"]
pub struct Call(Option<State>);

enum State {
    Failed(CallError),
    Made(Made),
}

struct Made {
    lines: Arc<Lines>,
    connection: usize,
    number: u64,
    answer: oneshot::Receiver<Outcome>,
}

impl Drop for Made {
    fn drop(&mut self) {
        self.lines.forget(self.connection, self.number);
    }
}

impl Future for Call {
    type Output = Result<Vec<u8>, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let outcome = match &mut self.0 {
            Some(State::Made(made)) => match Pin::new(&mut made.answer).poll(cx) {
                Poll::Ready(Ok(outcome)) => outcome,
                Poll::Ready(Err(_)) => Err(made.lines.ended_with_client()),
                Poll::Pending => return Poll::Pending,
            },
            Some(State::Failed(error)) => Err(error.clone()),
            None => return Poll::Pending,
        };
        self.0 = None;
        Poll::Ready(outcome)
    }
}

/// Calls that have been begun, by the mark that the requester has for each.
#[derive(Default)]
struct Pending {
    calls: Vec<Option<Begun>>,
    free: Vec<usize>,
}

struct Begun {
    made: Duration,
    answer: oneshot::Sender<Outcome>,
}

impl Pending {
    fn add(&mut self, begun: Begun) -> u64 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.calls.push(None);
            self.calls.len() - 1
        });
        self.calls[at] = Some(begun);
        at as u64
    }

    fn take(&mut self, mark: u64) -> Option<Begun> {
        let begun = self.calls.get_mut(mark as usize)?.take()?;
        self.free.push(mark as usize);
        Some(begun)
    }
}

/// What the client's task does.
struct Task {
    requester: Requester,
    lines: Arc<Lines>,
    pending: Pending,
    /// Calls that ended in this step.
    ended: Vec<(oneshot::Sender<Outcome>, Outcome)>,
}

impl Task {
    /// Begins the calls that there is room for; returns how many it took.
    fn begin(&mut self, now: Duration) -> usize {
        let mut taken = 0;
        for connection in 0..self.requester.connections() {
            while self.requester.room(connection) > 0 {
                let Some(call) = self.lines.next(connection) else {
                    break;
                };
                taken += 1;
                self.begin_one(connection, call, now);
            }
        }
        taken
    }

    fn tell_room(&self) {
        self.lines
            .set_room(|connection| self.requester.room(connection));
    }

    fn begin_one(&mut self, connection: usize, call: Submitted, now: Duration) {
        if call.answer.is_closed() {
            return;
        }
        let Submitted {
            asked,
            made,
            answer,
            deadline,
            ..
        } = call;
        let mark = self.pending.add(Begun { made, answer });
        let deadline = Some(deadline);
        let begun = match &asked {
            Asked::Request(request) => self
                .requester
                .call(connection, mark, request, deadline, now),
            Asked::Read(offset, length) => {
                let range = (*offset, *length);
                self.requester.read(connection, mark, range, deadline, now)
            }
        };
        let error = match begun {
            Ok(true) => return,
            // Not with room, which there is.
            Ok(false) => CallError::from(ProtocolError::Unsupported("there is no room".into())),
            Err(error) => error,
        };
        if let Some(begun) = self.pending.take(mark) {
            // A caller that has dropped it does not wait for it.
            let _ = begun.answer.send(Err(error));
        }
    }
}

impl Steps for Task {
    fn step(&mut self, now: Duration) -> Result<Step> {
        if self.lines.is_closed() {
            return Ok(Step::Done);
        }
        let Self {
            requester,
            pending,
            ended: all,
            ..
        } = self;
        let mut happened = requester.poll(now, |ended| {
            let Some(begun) = pending.take(ended.token) else {
                return;
            };
            let outcome = match ended.outcome {
                Ok(response) => Ok(response.to_vec()),
                // It may have waited for room before.
                Err(CallError::Deadline { peer, .. }) => Err(CallError::Deadline {
                    peer,
                    after: now.saturating_sub(begun.made),
                }),
                Err(error) => Err(error),
            };
            all.push((begun.answer, outcome));
        })?;
        if happened > 0 {
            // First: a caller that hears that a call has ended may count on its room.
            self.tell_room();
        }
        for (answer, outcome) in self.ended.drain(..) {
            // Nobody waits for it who has dropped it.
            let _ = answer.send(outcome);
        }
        let (over, due) = self.lines.expire(now);
        happened += over;
        if self.lines.waiting() > 0 {
            let begun = self.begin(now);
            if begun > 0 {
                self.requester.flush()?;
            }
            happened += begun;
        }
        if happened > 0 {
            self.tell_room();
            return Ok(Step::Progress);
        }
        let comes = !self.requester.is_idle();
        let until = [due, comes.then(|| self.requester.due())];
        Ok(Step::Idle(Idle {
            comes,
            looks: self.requester.must_look(),
            until: until.into_iter().flatten().min(),
        }))
    }

    fn queue(&self) -> &CompletionQueue {
        self.requester.queue()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.lines.close("its task has ended");
    }
}

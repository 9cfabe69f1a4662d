//! The server: its task has a responder, which a handler answers for.

use super::wait::{Bell, Idle, Step, Steps, drive};
use crate::end::{EndOptions, Fabric};
use crate::error::Result;
use crate::protocol::Protocol;
use crate::responder::{Handler, Responder, Values};
use parking_lot::Mutex;
use roundel_verbs::{CompletionChannel, CompletionQueue, Context};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How often it is looked whether connections broke that have nothing to complete.
const STATE_INTERVAL: Duration = Duration::from_millis(50);
/// How a request is refused whose handler panicked.
const PANICKED: &str = "its handler panicked";

/// A server that is not connected yet.
pub struct Server {
    responder: Responder,
    reads: bool,
    context: Arc<dyn Context>,
    channel: CompletionChannel,
    connections: usize,
}

impl Server {
    /// Makes it for so many connections, with a completion channel of its own; where the protocol reads, with `readable`
    /// bytes of memory for that.
    ///
    /// # Errors
    /// When the device cannot carry the protocol, or has no room.
    pub fn open(
        fabric: &Fabric,
        connections: usize,
        readable: usize,
        options: &EndOptions,
    ) -> Result<Self> {
        let channel = fabric.device.create_channel()?;
        let own = Fabric {
            channel: Some(channel.clone()),
            ..fabric.clone()
        };
        Ok(Self {
            responder: Responder::open(&own, connections, readable, options)?,
            reads: options.protocol == Protocol::Read,
            context: fabric.context.clone(),
            channel,
            connections,
        })
    }

    /// What the client of a connection needs to know.
    pub fn offer(&self, connection: usize) -> Vec<u8> {
        self.responder.offer(connection)
    }

    /// Connects to the client that offers this, which errors call `peer`.
    ///
    /// # Errors
    /// When the offer does not fit, or a verb fails.
    pub fn connect(&mut self, connection: usize, offer: &[u8], peer: &str) -> Result<()> {
        self.responder.connect(connection, offer, peer)
    }

    /// What can be read, where the protocol reads, so that it is there before anybody asks.
    pub fn values(&self) -> Option<&Values> {
        self.responder.values()
    }

    /// Connections that it has.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// Starts its task, which ends when what this returns is dropped. The handler answers one request at a time, on that
    /// task, so all connections wait while it does. When it panics, that request is refused, and it is asked the next
    /// ones.
    ///
    /// # Errors
    /// When the completion channel cannot be watched.
    pub fn start(self, handler: impl Handler + Send + 'static) -> Result<Serving> {
        self.context.spawn(Box::pin(self.channel.drive()?));
        let shared = Arc::new(Shared::default());
        let values = self.responder.values().cloned();
        let context = self.context.clone();
        let mut task = Task {
            responder: self.responder,
            handler,
            reads: self.reads,
            shared: shared.clone(),
            states: Duration::ZERO,
        };
        self.context.spawn(Box::pin(async move {
            let bell = task.shared.bell.clone();
            if let Err(error) = drive(&mut task, &*context, &bell).await {
                task.shared.seen.lock().failure = Some(error.to_string());
            }
        }));
        Ok(Serving { shared, values })
    }
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Counted before they are answered, so that who is answered knows that it was counted.
    answered: AtomicU64,
    bell: Arc<Bell>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    repeated: u64,
    failure: Option<String>,
}

/// A server that answers until this is dropped.
#[must_use = "a server ends when this is dropped"]
pub struct Serving {
    shared: Arc<Shared>,
    values: Option<Values>,
}

impl Serving {
    /// What can be read, where the protocol reads.
    pub fn values(&self) -> Option<&Values> {
        self.values.as_ref()
    }

    /// Requests answered so far, each counted once, and answers sent again.
    pub fn counts(&self) -> (u64, u64) {
        let answered = self.shared.answered.load(Ordering::Acquire);
        (answered, self.shared.seen.lock().repeated)
    }

    /// Why it answers nobody any more, if it failed.
    pub fn failure(&self) -> Option<String> {
        self.shared.seen.lock().failure.clone()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.bell.ring();
    }
}

/// What the server's task does.
struct Task<H> {
    responder: Responder,
    handler: H,
    reads: bool,
    shared: Arc<Shared>,
    /// When the connections were looked at.
    states: Duration,
}

impl<H: Handler> Steps for Task<H> {
    fn step(&mut self, now: Duration) -> Result<Step> {
        if self.shared.stop.load(Ordering::Acquire) {
            return Ok(Step::Done);
        }
        let (handler, answered) = (&mut self.handler, &self.shared.answered);
        let mut counting = |connection: usize, request: &[u8], response: &mut Vec<u8>| {
            answered.fetch_add(1, Ordering::AcqRel);
            let handle = || handler.handle(connection, request, response);
            // This process reports where it panicked and why. The peer is not told.
            let handled = catch_unwind(AssertUnwindSafe(handle));
            handled.unwrap_or_else(|_| Err(PANICKED.to_owned()))
        };
        let happened = self.responder.poll(now, &mut counting)?;
        if now >= self.states + STATE_INTERVAL {
            self.states = now;
            self.responder.look_at_states();
        }
        if happened > 0 {
            self.shared.seen.lock().repeated = self.responder.counts().1;
        }
        Ok(match happened {
            0 => Step::Idle(Idle {
                // Peers that READ ask only the device.
                comes: !self.reads,
                looks: self.responder.must_look(),
                until: self.responder.due(),
            }),
            _ => Step::Progress,
        })
    }

    fn queue(&self) -> &CompletionQueue {
        self.responder.queue()
    }
}

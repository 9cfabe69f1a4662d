//! The multiplexer of a node (Rödiger et al., "High-Speed Query Processing over High-Speed Networks"):
//! exchange operators hand it filled messages and take messages from it, and it alone talks to the other
//! nodes, over one connection to each, whatever the number of operators, threads and queries.
//!
//! ```text
//!   Shuffle ─► Outbound ─┐                                        ┌─► Arrivals ─► readers of Receive
//!   Shuffle ─► Outbound ─┼─► Outgoing ══════ one Connection ═════► ┤
//!   Shuffle ─► Outbound ─┘   (a queue for each query)             └─► Arrivals ─► readers of Receive
//! ```
//!
//! * `connection`: the queue pair to one peer, its credit, and what is posted to it.
//! * `outgoing`: what waits for it: control first, then the queries in turn.
//! * `pool`: registered messages, of which each query gets its quota.
//! * `outbound` and `inbound`: the two ends of links, as SHUFFLE and RECEIVE use them; `sources`: what is known of the
//!   former.
//! * `arrivals`: what has come for one operator, which any of its readers takes in; `news`: what has come about its links.
//! * `schedule`: whether rows are sent by a schedule; `phases`: which peer they may go to then; `trial`, `tally`
//!   and `window`: what all nodes have found out about whether that is worth it.
//! * `dispatch`: what the completion queue brings.
//! * `meeting`: how two nodes get their connection, and `address`: what they tell each other of it.
//!
//! **Nothing waits with a message in hand.** Who wants to send waits first for the credit of its links, then
//! for a message of the pool; from then on the message needs only the connection's receives, and the peer always
//! gives those back: when its readers are busy, it copies what has come to where they will find it. So
//! exchanges of one query cannot hold each other up. How much may wait there is the credit of each link.
//!
//! This module knows nothing of rows.

mod address;
mod arrivals;
mod connection;
mod dispatch;
mod inbound;
mod meeting;
mod news;
mod outbound;
mod outgoing;
mod phases;
mod pool;
mod schedule;
mod sources;
mod tally;
mod trial;
mod window;

pub use address::{ConnectionAddress, NodeId};
pub(crate) use arrivals::{Arrivals, MessageHead, Sink};
pub(crate) use inbound::Inbound;
pub(crate) use news::News;
pub(crate) use outbound::Outbound;
pub use phases::ScheduleReport;
pub use schedule::{Scheduling, UnknownScheduling};

use crate::buffers::RC_MESSAGE_BYTES;
use crate::designs::Design;
use crate::error::{ExchangeError, Result};
use crate::fabric::Fabric;
use arrivals::OVERTAKING_MAX;
use connection::Connection;
use inbound::Ends;
use outgoing::SourceKey;
use pool::Pool;
use roundel_verbs::completion_queue::{BoxFuture, until_ready};
use roundel_verbs::{Capabilities, Completion, CompletionQueue, Guarded, Regions};
use schedule::Schedule;
use sources::Source;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Completions that the multiplexer's queue is asked to hold.
const COMPLETIONS: usize = 4096;
/// Most bytes of a phase: what a word between neighbours takes is little of it.
const PHASE_BYTES: usize = 1 << 20;
/// Messages are long from here on.
const LONG_MESSAGE_BYTES: usize = 16 << 10;
/// How often it is looked whether silent peers live.
const ATTEND_INTERVAL: Duration = Duration::from_secs(1);

/// Settings of a multiplexer. All nodes of a cluster have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiplexerOptions {
    /// How rows are moved: a design with one endpoint over Reliable Connection.
    pub design: Design,
    /// Bytes of a message, header included.
    pub message_bytes: usize,
    /// Messages that a peer may have on their way to this node, each of which has a receive, a slot or a buffer.
    pub receives: usize,
    /// Messages posted to a connection at a time: those behind them can still be overtaken by control messages and
    /// take turns with those of other queries.
    pub posted: usize,
    /// Messages that a source may have sent on a link before its receiver has read one: in memory of the
    /// query's.
    pub link_messages: usize,
    /// Registered bytes of messages that one query may have waiting or on their way at a time.
    pub query_bytes: usize,
    /// Whether rows are sent by a schedule.
    pub scheduling: Scheduling,
    /// Most bytes of rows that a node sends to another in a phase of the schedule; at most half of what may wait for
    /// it of one query.
    pub phase_bytes: usize,
    /// Messages at least so long, on average, are scheduled where that is left to the multiplexer: shorter ones do not fill
    /// the buffers of a switch.
    pub long_bytes: usize,
}

impl MultiplexerOptions {
    /// The defaults on a device.
    pub fn new(capabilities: &Capabilities) -> Self {
        let message_bytes = RC_MESSAGE_BYTES.min(capabilities.rc_message_bytes_max);
        Self {
            design: Design::SemqSr,
            message_bytes,
            receives: 16,
            posted: 8,
            link_messages: 16,
            query_bytes: 64 * message_bytes,
            scheduling: Scheduling::default(),
            phase_bytes: PHASE_BYTES,
            long_bytes: LONG_MESSAGE_BYTES,
        }
    }
}

/// What a multiplexer has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MultiplexerReport {
    /// Connections that work, one for each peer.
    pub connections: usize,
    /// Most of them at a time.
    pub connections_max: usize,
    /// Registered bytes of messages to send: in the pool, waiting and on their way.
    pub pool_bytes: usize,
    /// Most that one query had in use at a time.
    pub query_bytes_max: usize,
    /// Registered bytes of what messages come into.
    pub receive_bytes: usize,
    /// Messages that the multiplexer copied itself to where their readers will find them, because room for others ran
    /// short.
    pub relieved: u64,
    /// How the phases of the schedule went.
    pub schedule: ScheduleReport,
}

/// The multiplexer of a node. Clones share it; every method may be called by any thread.
#[derive(Clone)]
pub struct Multiplexer(Arc<Inner>);

struct Inner {
    fabric: Fabric,
    options: MultiplexerOptions,
    id: NodeId,
    regions: Regions,
    queue: CompletionQueue,
    state: Guarded<State>,
}

struct State {
    id: NodeId,
    design: Design,
    schedule: Schedule,
    /// Whoever serves the connections.
    driver: Option<Waker>,
    /// Those that have failed stay, without a queue pair.
    connections: Vec<Connection>,
    by_peer: BTreeMap<NodeId, usize>,
    by_queue_pair: HashMap<u32, usize>,
    pool: Pool,
    sources: BTreeMap<SourceKey, Source>,
    ends: Ends,
    completions: Vec<Completion>,
    /// Tasks to wake when the state is not locked any more.
    wakers: Vec<Waker>,
    report: MultiplexerReport,
}

impl std::fmt::Debug for Multiplexer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Multiplexer({})", self.0.id)
    }
}

impl Multiplexer {
    /// A multiplexer on a device, of a process with these NUMA regions. Something must run its
    /// [driver](Self::drive).
    ///
    /// # Errors
    /// When the design is none of a multiplexer's or the device cannot have it, or has no completion queue left.
    pub fn open(fabric: &Fabric, options: MultiplexerOptions, regions: &Regions) -> Result<Self> {
        let design = options.design;
        let checked = design.check_multiplexed();
        checked.map_err(|error| ExchangeError::own(error.to_string()))?;
        let capabilities = fabric.device.capabilities();
        let credit = "it has no immediate data, by which multiplexers tell of credit";
        let lacks_credit = (!capabilities.immediate_data).then_some(credit);
        if let Some(lack) = design.lacks(capabilities).or(lacks_credit) {
            let device = &capabilities.device;
            return Err(ExchangeError::own(format!(
                "{design} cannot run on device {device}: {lack}"
            )));
        }
        let queue = fabric
            .device
            .create_completion_queue(COMPLETIONS, Some(&fabric.channel))?;
        let id = NodeId::random(&*fabric.context);
        let networked = fabric.device.capabilities().networked;
        let state = State {
            id,
            design,
            schedule: Schedule::new(&options, networked),
            driver: None,
            connections: Vec::new(),
            by_peer: BTreeMap::new(),
            by_queue_pair: HashMap::new(),
            pool: Pool::new(&fabric.arena, &options, regions),
            sources: BTreeMap::new(),
            ends: Ends::default(),
            completions: Vec::new(),
            wakers: Vec::new(),
            report: MultiplexerReport::default(),
        };
        Ok(Self(Arc::new(Inner {
            fabric: fabric.clone(),
            options,
            id,
            regions: regions.clone(),
            queue,
            state: Guarded::new(state, &*fabric.context),
        })))
    }

    /// By what peers know this node.
    pub fn id(&self) -> NodeId {
        self.0.id
    }

    /// Its settings.
    pub fn options(&self) -> &MultiplexerOptions {
        &self.0.options
    }

    /// The NUMA regions of its process.
    pub fn regions(&self) -> &Regions {
        &self.0.regions
    }

    /// Most messages of a link that are taken in before one that came earlier: those on their way, and those that may
    /// overtake it here.
    pub(crate) fn messages_ahead(&self) -> usize {
        self.0.options.link_messages + OVERTAKING_MAX as usize
    }

    /// Serves the connections when no operator does, and looks now and then whether silent peers live. Ends
    /// when nobody holds the multiplexer any more.
    pub fn drive(&self) -> impl Future<Output = ()> + Send + use<> {
        let serve = serve(Arc::downgrade(&self.0), self.0.queue.clone());
        let attend = attend(Arc::downgrade(&self.0));
        async move {
            futures::pin_mut!(serve, attend);
            futures::future::select(serve, attend).await;
        }
    }

    /// What it has done so far.
    pub fn report(&self) -> MultiplexerReport {
        let state = self.0.state.lock();
        let mut report = state.report;
        let connections = state.connections.iter();
        report.connections = connections.clone().filter(|one| one.is_alive()).count();
        report.receive_bytes = connections.map(Connection::receive_bytes).sum();
        report.pool_bytes = state.pool.bytes();
        report.query_bytes_max = state.pool.query_bytes_max();
        report.schedule = state.schedule.report();
        report
    }
}

/// Takes what comes, until the multiplexer is gone; and goes on with the schedule when a neighbour is late.
async fn serve(multiplexer: Weak<Inner>, queue: CompletionQueue) {
    let mut late: Option<(Duration, BoxFuture<'static, ()>)> = None;
    until_ready(&[&queue], |cx| {
        let Some(inner) = multiplexer.upgrade() else {
            return Poll::Ready(());
        };
        loop {
            inner.progress();
            let deadline = inner.rest(cx.waker());
            let Some(deadline) = deadline else {
                late = None;
                return Poll::Pending;
            };
            if late.as_ref().is_none_or(|(at, _)| *at != deadline) {
                let context = &inner.fabric.context;
                let left = deadline.saturating_sub(context.now());
                late = Some((deadline, context.sleep(left)));
            }
            if late
                .as_mut()
                .is_some_and(|(_, sleep)| sleep.as_mut().poll(cx).is_pending())
            {
                return Poll::Pending;
            }
            late = None;
        }
    })
    .await;
}

async fn attend(multiplexer: Weak<Inner>) {
    loop {
        let Some(context) = multiplexer
            .upgrade()
            .map(|inner| inner.fabric.context.clone())
        else {
            return;
        };
        context.sleep(ATTEND_INTERVAL).await;
        if let Some(inner) = multiplexer.upgrade() {
            inner.with(State::attend);
        }
    }
}

impl Inner {
    /// Does something with the state, posts what can be posted then, and wakes whom that concerns.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let done = act(&mut state);
        state.post_all(&*self.fabric.context);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        done
    }

    /// The driver is about to sleep: until when, if the schedule waits for a neighbour. It is woken when that changes.
    fn rest(&self, driver: &Waker) -> Option<Duration> {
        let mut state = self.state.lock();
        state.ask_for_bells();
        state.driver = Some(driver.clone());
        let deadline = state.schedule.deadline();
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        deadline
    }

    /// Takes what is there. Where room for more runs short, copies what has come.
    fn progress(&self) {
        let crowded = self.with(|state| {
            state.poll(&self.queue);
            state.crowded()
        });
        let relieved = crowded.iter().filter(|message| message.relieve()).count() as u64;
        if relieved > 0 {
            self.state.lock().report.relieved += relieved;
        }
    }
}

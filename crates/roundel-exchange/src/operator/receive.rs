//! RECEIVE: messages become frames, frames become batches, one stream per source and partition.
//!
//! Registered buffers go back at once: a fragment is copied to its frame, which waits in memory
//! that the budget accounts for. Messages are taken from an endpoint only by a reader that has
//! nothing to read, so that a reader that lags behind holds up nobody, and what piles up is what
//! others needed to get on. A reader that has waited for long takes them from the other lanes too:
//! its source may be a task that waits for credit there.

use super::coalesce::Coalesce;
use super::inbox::{Arrival, Inbox, Store};
use super::local::{Waiting, localize};
use crate::budget::MemoryBudget;
use crate::endpoint::{Fabric, LinkAddress, LinkId, Message, ReceiveEndpoint};
use crate::error::{ExchangeError, Result};
use crate::frame::{Fragment, FrameDecoder};
use crate::options::ExchangeOptions;
use crate::report::EndpointReport;
use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use futures::Stream;
use roundel_verbs::completion_queue::BoxFuture;
use roundel_verbs::{CompletionQueue, CompletionStatus, Guarded};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

/// How long a sender over datagrams may take to hear that all has arrived: the acknowledgement may
/// be lost, and its repetition is answered even though nobody reads any more.
const LINGER: Duration = Duration::from_secs(2);
/// Messages taken from an endpoint at a time.
const MESSAGE_BATCH: usize = 32;

/// The receiving side of an exchange in one node. Every method may be called by any thread.
pub struct Receive {
    fabric: Fabric,
    options: ExchangeOptions,
    lanes: Vec<Arc<Lane>>,
}

/// One endpoint with the partitions it serves.
pub(super) struct Lane {
    pub(super) queue: CompletionQueue,
    pub(super) state: Guarded<LaneState>,
}

pub(super) struct LaneState {
    pub(super) endpoint: ReceiveEndpoint,
    inboxes: HashMap<(LinkId, u32), Inbox>,
    store: Store,
    messages: Vec<Message>,
    /// Bytes of a frame that may be on their way while later ones of it arrive.
    gap: usize,
    waiting_for_data: Duration,
    /// Of the links within the process.
    pub(super) waiting: Waiting,
    /// A reader has looked at the endpoint since the attendant last did.
    pumped: bool,
}

/// A link to one source: a stream per partition. When the link and its streams are dropped, the
/// source can no longer send.
pub struct ReceiveLink(Arc<LinkEnd>);

pub(super) struct LinkEnd {
    pub(super) lanes: Vec<(Arc<Lane>, LinkId)>,
    partitions: Range<u32>,
    pub(super) peer: String,
    /// The number of the offer, by which a source in this process finds it.
    number: u64,
}

impl Receive {
    /// Opens the receiving endpoints of a node.
    pub fn open(
        fabric: &Fabric,
        options: &ExchangeOptions,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self> {
        let count = options.endpoints.max(1);
        let mut lanes = Vec::with_capacity(count);
        for _ in 0..count {
            let endpoint = ReceiveEndpoint::open(fabric, options)?;
            lanes.push(Arc::new(Lane {
                queue: endpoint.queue().clone(),
                state: Guarded::new(
                    LaneState {
                        endpoint,
                        inboxes: HashMap::new(),
                        store: Store::new(budget.clone()),
                        messages: Vec::new(),
                        gap: options.messages_ahead() * options.payload_bytes(),
                        waiting_for_data: Duration::ZERO,
                        waiting: Waiting::default(),
                        pumped: false,
                    },
                    &*fabric.context,
                ),
            }));
        }
        for lane in &lanes {
            let attendant = attend(
                Arc::downgrade(lane),
                fabric.clone(),
                options.repeat_interval,
                options.coupled,
            );
            fabric.context.spawn(Box::pin(attendant));
        }
        Ok(Self {
            fabric: fabric.clone(),
            options: options.clone(),
            lanes,
        })
    }

    /// Offers a link for `partitions` to the source `peer`; the addresses are for it.
    pub fn offer(
        &self,
        peer: &str,
        partitions: Range<u32>,
    ) -> Result<(ReceiveLink, Vec<LinkAddress>)> {
        let mut end = LinkEnd {
            lanes: Vec::with_capacity(self.lanes.len()),
            partitions: partitions.clone(),
            peer: peer.into(),
            // 0 is of none.
            number: self.fabric.context.random().max(1),
        };
        let mut addresses = Vec::with_capacity(self.lanes.len());
        for lane in &self.lanes {
            let (link, mut address) = lane.state.lock().endpoint.offer(peer)?;
            if self.options.local.is_some() {
                address.local = end.number;
            }
            end.lanes.push((lane.clone(), link));
            addresses.push(address);
        }
        for partition in partitions {
            let (lane, link) = end.lane(partition);
            lane.state
                .lock()
                .inboxes
                .insert((link, partition), Inbox::new(self.options.ordered));
        }
        let end = Arc::new(end);
        if let Some(local) = &self.options.local {
            local.offer(end.number, &end);
        }
        Ok((ReceiveLink(end), addresses))
    }

    /// Completes a link with the source's answers, one per lane: rows begin to flow.
    pub fn connect(&self, link: &ReceiveLink, answers: &[LinkAddress]) -> Result<()> {
        if answers.len() != link.0.lanes.len() {
            return Err(ExchangeError::Protocol {
                peer: link.0.peer.clone(),
                reason: format!(
                    "it answers for {} endpoints of {}",
                    answers.len(),
                    link.0.lanes.len()
                ),
            });
        }
        if self.options.local.is_some() && answers.iter().all(|one| one.local == link.0.number) {
            localize(&link.0.lanes);
            return Ok(());
        }
        for ((lane, id), answer) in link.0.lanes.iter().zip(answers) {
            lane.state.lock().endpoint.connect(*id, answer)?;
        }
        Ok(())
    }

    /// The rows of a partition from the link's source, of the given schema. Each partition can be
    /// read once.
    ///
    /// # Errors
    /// When rows of this schema cannot be received.
    pub fn stream(
        &self,
        link: &ReceiveLink,
        partition: u32,
        schema: &SchemaRef,
    ) -> Result<PartitionStream> {
        Ok(PartitionStream {
            end: link.0.clone(),
            partition,
            decoder: FrameDecoder::try_new(schema.clone())
                .map_err(|error| ExchangeError::frame(&link.0.peer, error))?,
            joined: Coalesce::new(schema, self.options.batch_rows),
            schema: schema.clone(),
            fabric: self.fabric.clone(),
            repeat_interval: self.options.repeat_interval,
            silence: None,
            waiting_since: None,
            helping: false,
            done: false,
        })
    }

    /// What its endpoints did so far.
    pub fn report(&self) -> EndpointReport {
        let mut report = EndpointReport::default();
        for lane in &self.lanes {
            let state = lane.state.lock();
            let mut one = state.endpoint.report();
            one.buffered_bytes_max = state.store.buffered_bytes_max;
            one.spilled_bytes = state.store.spilled_bytes;
            one.waiting_for_data = state.waiting_for_data;
            report.merge(&one);
        }
        report
    }
}

/// Does what no reader does: answers senders that have not heard that all has arrived, and takes
/// what comes for partitions that are not read.
async fn attend(lane: Weak<Lane>, fabric: Fabric, interval: Duration, coupled: bool) {
    loop {
        fabric.context.sleep(interval).await;
        let Some(lane) = lane.upgrade() else {
            return;
        };
        let mut state = lane.state.lock();
        state.endpoint.attend();
        let pumped = std::mem::take(&mut state.pumped);
        state.waiting.relieve(coupled && !pumped);
        let unread = state.has_unread_link() || coupled && !pumped;
        if unread || state.endpoint.owes_acknowledgement(LINGER) {
            while state.pump_once(None) {}
            if unread {
                state.endpoint.on_silence();
            }
            drop(state);
            // What was taken for others is theirs to find.
            lane.queue.wake();
        }
    }
}

impl ReceiveLink {
    /// Ends the link with an error that was learnt elsewhere, unless everything has arrived.
    pub fn abort(&self, error: &ExchangeError) {
        for (lane, link) in &self.0.lanes {
            lane.state.lock().endpoint.abort(*link, error.clone());
            lane.queue.wake();
        }
    }

    /// A handle that can abort the link and does not keep it alive.
    pub fn aborter(&self) -> impl Fn(&ExchangeError) + Send + Sync + use<> {
        let end = Arc::downgrade(&self.0);
        move |error| {
            if let Some(end) = end.upgrade() {
                ReceiveLink(end).abort(error);
            }
        }
    }
}

impl LinkEnd {
    pub(super) fn lane(&self, partition: u32) -> (&Arc<Lane>, LinkId) {
        let (lane, link) = &self.lanes[partition as usize % self.lanes.len()];
        (lane, *link)
    }
}

impl Drop for LinkEnd {
    fn drop(&mut self) {
        for (lane, link) in &self.lanes {
            let mut state = lane.state.lock();
            let state = &mut *state;
            state.endpoint.close(*link);
            state.waiting.forget(*link);
            for partition in self.partitions.clone() {
                if let Some(mut inbox) = state.inboxes.remove(&(*link, partition)) {
                    inbox.discard(&mut state.store);
                }
            }
        }
    }
}

impl LaneState {
    /// Takes what has arrived until `wanted` has a frame or there is no more. Errors end links.
    fn pump(&mut self, wanted: (LinkId, u32)) {
        self.pumped = true;
        self.waiting.relieve(false);
        loop {
            let any = self.pump_once(Some(wanted));
            let ready = self
                .inboxes
                .get(&wanted)
                .is_none_or(|inbox| inbox.is_ready());
            if ready || !any {
                return;
            }
        }
    }

    /// Takes in a whole frame of a link within the process.
    pub(super) fn deliver(&mut self, link: LinkId, partition: u32, frame: Buffer) -> Result<()> {
        match self.inboxes.get_mut(&(link, partition)) {
            Some(inbox) => inbox.deliver(frame, &mut self.store),
            None => Err(ExchangeError::own(format!(
                "rows for partition {partition}, which was not asked for"
            ))),
        }
    }

    /// Whether there is an open link none of whose partitions on this lane are read.
    fn has_unread_link(&self) -> bool {
        let wanted = self.inboxes.iter().filter(|(_, inbox)| inbox.wanted);
        let read: HashSet<LinkId> = wanted.map(|((link, _), _)| *link).collect();
        let mut links = self.endpoint.open_links();
        links.any(|link| !read.contains(&link))
    }

    /// Takes some of what has arrived; returns whether there was anything.
    fn pump_once(&mut self, wanted: Option<(LinkId, u32)>) -> bool {
        let mut messages = std::mem::take(&mut self.messages);
        let any = self.endpoint.poll(&mut messages, MESSAGE_BATCH);
        for message in messages.drain(..) {
            self.take(message, wanted);
        }
        self.messages = messages;
        any
    }

    fn take(&mut self, message: Message, wanted: Option<(LinkId, u32)>) {
        let key = (message.link, message.partition);
        let mut fresh = true;
        let mut payload = Payload {
            message: &message,
            lost: None,
        };
        match self.inboxes.get_mut(&key) {
            Some(inbox) => {
                let arrival = inbox.insert(
                    self.endpoint.peer(message.link),
                    &message.data,
                    &mut payload,
                    Some(key) == wanted,
                    self.gap,
                    &mut self.store,
                );
                match arrival {
                    Ok(Arrival::Fresh) => {}
                    Ok(Arrival::Duplicate) => fresh = false,
                    Ok(Arrival::TooEarly) if self.endpoint.may_lose() => {
                        self.endpoint.give_up(message.link);
                    }
                    Ok(Arrival::TooEarly) => {
                        let error = ExchangeError::Protocol {
                            peer: self.endpoint.peer(message.link).into(),
                            reason: format!(
                                "frame {} of partition {} long before its turn",
                                message.data.frame_sequence, key.1
                            ),
                        };
                        self.endpoint.abort(message.link, error);
                    }
                    Err(error) => match payload.lost {
                        Some(status) => self.endpoint.lose(message.link, status),
                        None => self.endpoint.abort(message.link, error),
                    },
                }
            }
            None => {
                let error = ExchangeError::Protocol {
                    peer: self.endpoint.peer(message.link).into(),
                    reason: format!("rows for partition {}, which it was not asked", key.1),
                };
                self.endpoint.abort(message.link, error);
            }
        }
        self.endpoint.release(message, fresh);
    }
}

/// What a message carries, and how the connection ended over which it could not be read.
struct Payload<'a> {
    message: &'a Message,
    lost: Option<CompletionStatus>,
}

impl Fragment for &mut Payload<'_> {
    fn append_to(&mut self, target: &mut Vec<u8>) -> bool {
        self.lost = self.message.append_payload(target).err();
        self.lost.is_none()
    }

    fn copy_to(&mut self, target: &mut [u8]) -> bool {
        self.lost = self.message.copy_payload(target).err();
        self.lost.is_none()
    }
}

/// The batches of one partition from one source.
pub struct PartitionStream {
    end: Arc<LinkEnd>,
    partition: u32,
    decoder: FrameDecoder,
    joined: Coalesce,
    schema: SchemaRef,
    fabric: Fabric,
    repeat_interval: Duration,
    /// Runs while nothing comes, so that silence is noticed.
    silence: Option<BoxFuture<'static, ()>>,
    waiting_since: Option<Duration>,
    /// It has waited for long: its source may wait for credit on another lane, which nobody reads.
    helping: bool,
    done: bool,
}

impl PartitionStream {
    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn poll_frame(&mut self) -> Poll<Option<Result<Buffer>>> {
        let (lane, link) = self.end.lane(self.partition);
        let key = (link, self.partition);
        let mut state = lane.state.lock();
        let state = &mut *state;
        for pumped in [false, true] {
            if pumped {
                state.pump(key);
            }
            let Some(inbox) = state.inboxes.get_mut(&key) else {
                return Poll::Ready(None);
            };
            if let Some(frame) = inbox.take(&mut state.store) {
                if let Ok(frame) = &frame {
                    state.waiting.was_read(link, frame.len());
                }
                return Poll::Ready(Some(frame));
            }
        }
        if let Some(inbox) = state.inboxes.get_mut(&key) {
            inbox.reading = true;
        }
        match state.endpoint.ended(link) {
            None => Poll::Pending,
            Some(Ok(())) if state.inboxes.get(&key).is_some_and(Inbox::is_broken) => {
                Poll::Ready(Some(Err(ExchangeError::Protocol {
                    peer: self.end.peer.clone(),
                    reason: format!("partition {} ends within a frame", self.partition),
                })))
            }
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
        }
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let interval = self.repeat_interval;
        let context = &self.fabric.context;
        let silence = self.silence.get_or_insert_with(|| context.sleep(interval));
        if silence.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.silence = None;
        let (lane, _) = self.end.lane(self.partition);
        lane.state.lock().endpoint.on_silence();
        lane.queue.wake();
        self.helping = self.end.lanes.len() > 1;
        Poll::Ready(())
    }

    /// Takes what has arrived on the other lanes, and will be woken when there is more.
    fn help(&self, cx: &mut Context<'_>) {
        let (own, _) = self.end.lane(self.partition);
        for (lane, _) in &self.end.lanes {
            if Arc::ptr_eq(lane, own) {
                continue;
            }
            lane.queue.wake_at_next(cx);
            let mut state = lane.state.lock();
            while state.pump_once(None) {}
            state.endpoint.on_silence();
        }
    }

    fn waited(&mut self) {
        self.silence = None;
        self.helping = false;
        if let Some(since) = self.waiting_since.take() {
            let waited = self.fabric.context.now().saturating_sub(since);
            let (lane, _) = self.end.lane(self.partition);
            lane.state.lock().waiting_for_data += waited;
        }
    }

    /// The next frame; `None` in place of it when none has come for a while.
    fn poll_next_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Option<Result<Buffer>>>> {
        let mut found = self.poll_frame();
        if found.is_pending() {
            // Armed first, asked once more after: what comes in between wakes this task.
            self.end.lane(self.partition).0.queue.wake_at_next(cx);
            found = self.poll_frame();
        }
        if found.is_pending() {
            self.waiting_since
                .get_or_insert_with(|| self.fabric.context.now());
            if self.helping {
                self.help(cx);
            }
            if self.poll_silence(cx).is_pending() {
                return Poll::Pending;
            }
            return Poll::Ready(None);
        }
        self.waited();
        found.map(Some)
    }

    fn decode(&mut self, frame: Buffer) -> Result<()> {
        let refused = |error| ExchangeError::frame(&self.end.peer, error);
        let batch = self.decoder.decode(frame).map_err(refused)?;
        self.joined.push(batch).map_err(ExchangeError::joining)
    }
}

impl Stream for PartitionStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(batch) = this.joined.next() {
                return Poll::Ready(Some(Ok(batch)));
            }
            if this.done {
                return Poll::Ready(None);
            }
            let taken = match std::task::ready!(this.poll_next_frame(cx)) {
                Some(Some(Ok(frame))) => this.decode(frame),
                Some(Some(Err(error))) => Err(error),
                // The rest, or what has waited for more for long enough.
                end_or_silence => {
                    this.done = end_or_silence.is_some();
                    this.joined.flush().map_err(ExchangeError::joining)
                }
            };
            if let Err(error) = taken {
                this.done = true;
                return Poll::Ready(Some(Err(error)));
            }
        }
    }
}

impl Drop for PartitionStream {
    fn drop(&mut self) {
        let (lane, link) = self.end.lane(self.partition);
        let mut state = lane.state.lock();
        let state = &mut *state;
        if let Some(inbox) = state.inboxes.get_mut(&(link, self.partition)) {
            inbox.discard(&mut state.store);
        }
    }
}

//! One place where the messages of a RECEIVE come in, with the partitions that they are for.

use super::inbox::{Arrival, Inbox, Store};
use super::incoming::{Incoming, Readers};
use super::waiting::Waiting;
use crate::budget::MemoryBudget;
use crate::endpoint::{Fabric, LinkId, Message};
use crate::error::{ExchangeError, Result};
use crate::frame::Fragment;
use crate::multiplexer::{MessageHead, News, Sink};
use crate::options::ExchangeOptions;
use crate::report::EndpointReport;
use arrow::buffer::Buffer;
use roundel_verbs::{CompletionStatus, Guarded};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

/// How long a sender over datagrams may take to hear that all has arrived: the acknowledgement may
/// be lost, and its repetition is answered even though nobody reads any more.
const LINGER: Duration = Duration::from_secs(2);
/// Messages taken from an endpoint at a time.
const MESSAGE_BATCH: usize = 32;

/// One endpoint with the partitions it serves.
pub(super) struct Lane {
    pub(super) readers: Readers,
    pub(super) state: Guarded<LaneState>,
}

pub(super) struct LaneState {
    pub(super) endpoint: Incoming,
    inboxes: BTreeMap<(LinkId, u32), Inbox>,
    store: Store,
    messages: Vec<Message>,
    /// Bytes of a frame that may be on their way while later ones of it arrive.
    gap: usize,
    /// Of the links within the process, and of those through the multiplexer.
    pub(super) waiting: Waiting,
    /// A reader has looked at the endpoint since the attendant last did.
    pumped: bool,
}

impl Lane {
    /// A lane, and what it does by itself.
    pub(super) fn open(
        fabric: &Fabric,
        options: &ExchangeOptions,
        endpoint: Incoming,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Arc<Self> {
        let ahead = match &endpoint {
            Incoming::Endpoint(_) => options.messages_ahead(),
            Incoming::Multiplexer(inbound) => {
                let overtaking = inbound.multiplexer().messages_ahead();
                options.window_max().max(overtaking)
            }
        };
        let lane = Arc::new(Self {
            readers: endpoint.readers(),
            state: Guarded::new(
                LaneState {
                    endpoint,
                    inboxes: BTreeMap::new(),
                    store: Store::new(budget.clone()),
                    messages: Vec::new(),
                    gap: ahead * options.payload_bytes(),
                    waiting: Waiting::default(),
                    pumped: false,
                },
                &*fabric.context,
            ),
        });
        let own = Arc::downgrade(&lane);
        if let Incoming::Multiplexer(inbound) = &lane.state.lock().endpoint {
            inbound.arrivals().set_sink(own.clone());
        }
        let (interval, coupled) = (options.repeat_interval, options.coupled);
        let attendant = attend(own, fabric.clone(), interval, coupled);
        fabric.context.spawn(Box::pin(attendant));
        lane
    }

    /// The next frame of a partition, which its reader asks for, or how the partition ends.
    pub(super) fn poll_frame(
        &self,
        key: (LinkId, u32),
        peer: &str,
    ) -> Poll<Option<Result<Buffer>>> {
        loop {
            let found = self.state.lock().poll_frame(key, peer);
            // Who finds nothing helps to take in what there is.
            if found.is_ready() || !self.readers.take_in(key) {
                return found;
            }
        }
    }
}

impl Sink for Lane {
    fn deliver(&self, link: LinkId, message: &MessageHead, payload: &Buffer) {
        self.state.lock().take_delivered(link, message, payload);
    }

    fn tell(&self, link: LinkId, news: News) {
        if let Incoming::Multiplexer(inbound) = &mut self.state.lock().endpoint {
            inbound.tell(link, news);
        }
    }
}

/// How often what comes for partitions that nobody reads is taken in while there is some: each time, all buffers of its
/// links.
const UNREAD_INTERVAL: Duration = Duration::from_millis(1);

/// Does what no reader does: answers senders that have not heard that all has arrived, and takes
/// what comes for partitions that are not read.
async fn attend(lane: Weak<Lane>, fabric: Fabric, interval: Duration, coupled: bool) {
    let mut wait = interval;
    loop {
        fabric.context.sleep(wait).await;
        let Some(lane) = lane.upgrade() else {
            return;
        };
        let mut state = lane.state.lock();
        state.endpoint.attend();
        let pumped = std::mem::take(&mut state.pumped);
        state.relieve(coupled && !pumped);
        let unread = state.has_unread_link() || coupled && !pumped;
        if unread || state.endpoint.owes_acknowledgement(LINGER) {
            let mut any = false;
            while state.pump_once(None) {
                any = true;
            }
            if unread && wait == interval {
                state.endpoint.on_silence();
            }
            drop(state);
            if unread {
                any |= lane.readers.take_in_all();
            }
            // What was taken for others is theirs to find.
            lane.readers.wake();
            // More is on its way, and others wait for it to be gone.
            wait = match unread && any {
                true => interval.min(UNREAD_INTERVAL),
                false => interval,
            };
        } else {
            wait = interval;
        }
    }
}

impl LaneState {
    fn poll_frame(&mut self, key: (LinkId, u32), peer: &str) -> Poll<Option<Result<Buffer>>> {
        for pumped in [false, true] {
            if pumped {
                self.pump(key);
            }
            let Some(inbox) = self.inboxes.get_mut(&key) else {
                return Poll::Ready(None);
            };
            if let Some(frame) = inbox.take(&mut self.store) {
                if let Ok(frame) = &frame {
                    self.was_read(key.0, frame.len());
                }
                return Poll::Ready(Some(frame));
            }
        }
        if let Some(inbox) = self.inboxes.get_mut(&key) {
            inbox.reading = true;
        }
        match self.endpoint.ended(key.0) {
            None => {
                // What other partitions of its link have not read is no reason to let it wait.
                self.waiting.allow_more(key.0);
                self.grant_held_back(key.0);
                Poll::Pending
            }
            Some(Ok(())) if self.inboxes.get(&key).is_some_and(Inbox::is_broken) => {
                Poll::Ready(Some(Err(ExchangeError::Protocol {
                    peer: peer.to_owned(),
                    reason: format!("partition {} ends within a frame", key.1),
                })))
            }
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
        }
    }

    /// A link's partitions are to be read.
    pub(super) fn expect(&mut self, link: LinkId, partition: u32, ordered: bool) {
        self.inboxes.insert((link, partition), Inbox::new(ordered));
    }

    /// Nobody reads a partition any more.
    pub(super) fn discard(&mut self, link: LinkId, partition: u32) {
        if let Some(inbox) = self.inboxes.get_mut(&(link, partition)) {
            let unread = inbox.discard(&mut self.store);
            self.was_read(link, unread);
        }
    }

    /// Nobody wants a link any more.
    pub(super) fn close(&mut self, link: LinkId, partitions: Range<u32>) {
        self.endpoint.close(link);
        self.waiting.forget(link);
        for partition in partitions {
            if let Some(mut inbox) = self.inboxes.remove(&(link, partition)) {
                inbox.discard(&mut self.store);
            }
        }
    }

    /// What it did so far.
    pub(super) fn report(&self) -> EndpointReport {
        EndpointReport {
            buffered_bytes_max: self.store.buffered_bytes_max,
            spilled_bytes: self.store.spilled_bytes,
            ..self.endpoint.report()
        }
    }

    /// So many bytes of a link wait no more: its source may send on.
    fn was_read(&mut self, link: LinkId, bytes: usize) {
        self.waiting.was_read(link, bytes);
        if !self.waiting.is_full(link) {
            self.grant_held_back(link);
        }
    }

    /// Whether sources need not wait for readers.
    fn relieve(&mut self, relieved: bool) {
        self.waiting.relieve(relieved);
        if relieved {
            for link in self.waiting.held_back() {
                self.grant_held_back(link);
            }
        }
    }

    /// Grants a link the credit that was held back because its readers lagged.
    fn grant_held_back(&mut self, link: LinkId) {
        let credit = self.waiting.take_held_back(link);
        if let Incoming::Multiplexer(inbound) = &mut self.endpoint
            && credit > 0
        {
            inbound.grant(link, credit);
        }
    }

    /// Takes in a message that the multiplexer has brought.
    fn take_delivered(&mut self, link: LinkId, message: &MessageHead, payload: &Buffer) {
        if self.endpoint.ended(link).is_some() {
            return;
        }
        let key = (link, message.partition);
        let peer = self.endpoint.peer(link).to_owned();
        let broken = |reason: String| ExchangeError::Protocol {
            peer: peer.clone(),
            reason,
        };
        let Some(inbox) = self.inboxes.get_mut(&key) else {
            let reason = format!("rows for partition {}, which it was not asked", key.1);
            self.endpoint.abort(link, broken(reason));
            return;
        };
        let wanted = inbox.wanted;
        match inbox.insert(
            &peer,
            &message.data,
            payload,
            false,
            self.gap,
            &mut self.store,
        ) {
            Ok(Arrival::Fresh) => {}
            Ok(Arrival::Duplicate | Arrival::TooEarly) => {
                let reason = format!(
                    "frame {} of partition {} out of its turn",
                    message.data.frame_sequence, key.1
                );
                self.endpoint.abort(link, broken(reason));
            }
            Err(error) => self.endpoint.abort(link, error),
        }
        if let Incoming::Multiplexer(inbound) = &mut self.endpoint {
            inbound.count(link, message.group, message.sequence);
        }
        if wanted {
            self.waiting.add(link, payload.len());
        }
        self.waiting.hold_back(link);
        if !self.waiting.is_full(link) {
            self.grant_held_back(link);
        }
    }

    /// Takes what has arrived until `wanted` has a frame or there is no more. Errors end links.
    fn pump(&mut self, wanted: (LinkId, u32)) {
        self.pumped = true;
        self.relieve(false);
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
            Some(inbox) => {
                if inbox.wanted {
                    self.waiting.add(link, frame.len());
                }
                inbox.deliver(frame, &mut self.store)
            }
            None => Err(ExchangeError::own(format!(
                "rows for partition {partition}, which was not asked for"
            ))),
        }
    }

    /// Whether there is an open link none of whose partitions on this lane are read.
    fn has_unread_link(&self) -> bool {
        let wanted = self.inboxes.iter().filter(|(_, inbox)| inbox.wanted);
        let read: BTreeSet<LinkId> = wanted.map(|((link, _), _)| *link).collect();
        let mut links = self.endpoint.open_links().into_iter();
        links.any(|link| !read.contains(&link))
    }

    /// Takes some of what has arrived; returns whether there was anything.
    pub(super) fn pump_once(&mut self, wanted: Option<(LinkId, u32)>) -> bool {
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

/// What was copied out of registered memory already.
impl Fragment for &Buffer {
    fn append_to(&mut self, target: &mut Vec<u8>) -> bool {
        self.as_slice().append_to(target)
    }

    fn copy_to(&mut self, target: &mut [u8]) -> bool {
        self.as_slice().copy_to(target)
    }

    fn whole(&self) -> Option<Buffer> {
        Some(Buffer::clone(self))
    }
}

//! What a RECEIVE endpoint's completion queue brings: messages, ends, and broken connections.

use super::super::LinkState;
use super::link::{Link, Stage};
use super::{LinkId, Message, ReceiveEndpoint};
use crate::designs::carrier::Place;
use crate::designs::send_ud;
use crate::link::queue_pair::post_receive;
use crate::link::silence::Repetition;
use crate::wire::{Body, Header, SequenceDigest};
use roundel_verbs::capabilities::GRH_BYTES;
use roundel_verbs::{Buffer, Completion, CompletionStatus, Opcode};
use std::time::Duration;

/// Completions taken from the queue at a time.
const POLL_BATCH: usize = 64;
/// Who has not looked for so long was away: round trips take a tenth of it or less on networks with RDMA, so that others look
/// before a small window is used up.
const AWAY: Duration = Duration::from_micros(100);

impl ReceiveEndpoint {
    /// Appends the data messages that have arrived, at most about `limit`. Ends, credits and
    /// repetitions are dealt with here. Returns whether there was anything.
    pub fn poll(&mut self, messages: &mut Vec<Message>, limit: usize) -> bool {
        let mut any = false;
        let before = messages.len();
        self.note_absence();
        if std::mem::take(&mut self.recheck_early) {
            for completion in std::mem::take(&mut self.early) {
                any = true;
                self.take_datagram(completion, messages);
            }
        }
        let mut completions = std::mem::take(&mut self.completions);
        let limit = limit.clamp(1, POLL_BATCH);
        let found = self.queue.poll(&mut completions, limit);
        for completion in completions.drain(..) {
            if completion.opcode == Opcode::Read {
                self.take_read(completion, messages);
            } else if completion.opcode != Opcode::Receive {
                self.take_send(&completion);
            } else if self.datagrams.is_some() {
                self.take_datagram(completion, messages);
            } else {
                self.take_connected(completion, messages);
            }
        }
        self.completions = completions;
        self.ask_for_missing(found < limit);
        any |= found > 0 || self.poll_queues(messages, limit);
        if messages.len() > before || !any {
            self.note_look(&messages[before..]);
        }
        if !any {
            self.lose_broken();
            if self.queue.is_armed() {
                self.ask_for_bells();
            }
        }
        any
    }

    /// Takes note of whether nobody has looked for long, where windows ask for it.
    fn note_absence(&mut self) {
        if self.options.endpoint_budget() < usize::MAX {
            let now = self.fabric.context.now();
            let looked_at = std::mem::replace(&mut self.looked_at, now);
            self.away = now.saturating_sub(looked_at) >= AWAY;
        }
    }

    fn take_send(&mut self, completion: &Completion) {
        self.count_completed(completion);
        // Credit that cannot be written back: the sender is gone. What it had sent counts first.
        if completion.status != CompletionStatus::Success
            && let Some(&index) = self.by_queue_pair.get(&completion.queue_pair)
        {
            self.links[index].broken.get_or_insert(completion.status);
        }
    }

    /// Gives up the links whose connection broke, now that everything that had arrived was taken.
    fn lose_broken(&mut self) {
        // Links over datagrams have none, and there may be a thousand of them.
        if self.datagrams.is_some() {
            return;
        }
        for link in &mut self.links {
            if let Some(status) = link.broken {
                link.fail(link.lost(status));
            }
        }
    }

    fn take_connected(&mut self, completion: Completion, messages: &mut Vec<Message>) {
        let Some(&index) = self.by_queue_pair.get(&completion.queue_pair) else {
            return;
        };
        let link = &mut self.links[index];
        if completion.status != CompletionStatus::Success {
            link.broken.get_or_insert(completion.status);
            return;
        }
        let Some(connection) = link.connection() else {
            return;
        };
        let bytes = completion.bytes;
        match connection.carrier.received(completion) {
            Ok(Some(place)) => self.take_arrived(index, place, bytes, messages),
            Ok(None) => post_receive(&connection.queue_pair, index as u64, None),
            Err(reason) => link.fail(link.broke_protocol(reason)),
        }
    }

    /// A message of so many bytes over a connection.
    pub(super) fn take_arrived(
        &mut self,
        index: usize,
        place: Place,
        bytes: usize,
        messages: &mut Vec<Message>,
    ) {
        let link = &mut self.links[index];
        let header = match place.header(bytes) {
            Ok(header) => header,
            Err(status) => {
                link.broken.get_or_insert(status);
                return;
            }
        };
        match header {
            Ok(header) if header.exchange == link.exchange && header.source == link.source => {
                self.take_message(index, &header, place, messages);
            }
            Ok(_) => link.fail(link.broke_protocol("a message of another exchange")),
            Err(error) => link.fail(link.broke_protocol(error.to_string())),
        }
    }

    fn take_datagram(&mut self, completion: Completion, messages: &mut Vec<Message>) {
        let header = send_ud::header(&completion);
        let speaker = completion.source_queue_pair;
        if completion.status == CompletionStatus::Flushed {
            return;
        }
        let from = header.and_then(|header| {
            let index = *self.by_source.get(&(header.exchange, header.source))?;
            (self.links[index].speaker == speaker).then_some((index, header))
        });
        if from.is_none() && header.is_some() && self.early.len() < self.early_max() {
            self.early.push(completion);
            return;
        }
        let Some(buffer) = completion.buffer else {
            return;
        };
        match from {
            Some((index, header)) if self.links[index].is_open() => {
                let place = Place::Here {
                    buffer,
                    at: GRH_BYTES,
                    slot: 0,
                };
                self.take_message(index, &header, place, messages);
            }
            Some((index, header)) => {
                // A complete link whose sender has not heard so yet, or a failed one.
                if let Body::EndOfStream(end) = header.body {
                    self.acknowledge(index, end.count);
                }
                self.post_datagram(buffer);
            }
            // Garbage, strangers and stale messages are dropped.
            None => self.post_datagram(buffer),
        }
    }

    /// Most datagrams that may come before the answers of those who sent them.
    fn early_max(&self) -> usize {
        let offered = |link: &&Link| matches!(link.stage, Stage::Offered(None));
        let links = self.links.iter().filter(offered);
        links.map(|link| link.grant.granted() as usize).sum()
    }

    fn take_message(
        &mut self,
        index: usize,
        header: &Header,
        place: Place,
        messages: &mut Vec<Message>,
    ) {
        match header.body {
            Body::Data(data) => {
                if self.options.repairs() && !self.is_fresh(index, header) {
                    self.put_away(index, place);
                    return;
                }
                let link = &mut self.links[index];
                link.silence.hear(self.fabric.context.now());
                link.silence.asks = 0;
                messages.push(Message {
                    link: LinkId(index),
                    partition: header.partition,
                    group: header.group,
                    sequence: header.sequence,
                    data,
                    credit_seen: header.credit_seen,
                    place,
                });
            }
            Body::EndOfStream(end) => {
                // Where lost messages are repaired, their source must stay until none is missing.
                if !self.options.repairs() {
                    self.acknowledge(index, end.count);
                }
                self.put_away(index, place);
                self.take_end(index, end);
            }
            Body::Sent(sent) if self.datagrams.is_some() => {
                self.take_sent(index, header.group, sent);
                self.put_away(index, place);
            }
            Body::Join(multicast) if self.datagrams.is_some() => {
                self.join(index, header.group, &multicast);
                self.put_away(index, place);
            }
            _ if self.datagrams.is_some() => self.put_away(index, place),
            _ => {
                let link = &mut self.links[index];
                link.fail(link.broke_protocol("control messages from a sender"));
            }
        }
    }

    /// Gives the memory of a message back that is not handed out.
    fn put_away(&mut self, index: usize, place: Place) {
        match place {
            Place::Here { buffer, .. } => self.post_datagram(buffer),
            Place::There { number, .. } => self.tell_read(index, number),
        }
    }

    fn take_end(&mut self, index: usize, end: SequenceDigest) {
        let link = &mut self.links[index];
        if link.end.is_none() {
            link.silence.hear(self.fabric.context.now());
        }
        link.end = Some(end);
        self.check_end(index);
    }

    /// Gives a message's buffer back and counts the message as arrived. `fresh` is false for one
    /// that had arrived before.
    pub fn release(&mut self, message: Message, fresh: bool) {
        let index = message.link.0;
        let retired = fresh && self.retires_buffer(index);
        let counted = (message.group, message.sequence, message.credit_seen);
        if !fresh {
            // A repetition was not paid for: its receive is there again, and no more than that.
            self.report.duplicates += 1;
        }
        match message.place {
            Place::Here { buffer, slot, .. } => {
                let posted = self.take_back(index, (buffer, slot), retired);
                if fresh {
                    self.count_arrived(index, counted, posted);
                }
            }
            Place::There { number, .. } => {
                if fresh {
                    self.count_arrived(index, counted, 0);
                }
                // With the window that there is now.
                self.tell_read(index, number);
            }
        }
    }

    /// Counts a message of a group, with its number and the credit that its source had seen, for which so
    /// many receives were posted again.
    fn count_arrived(
        &mut self,
        index: usize,
        (group, sequence, credit_seen): (u16, u64, u32),
        posted: u32,
    ) {
        let link = &mut self.links[index];
        link.arrived.add(group, sequence);
        let left = link.grant.hear(credit_seen);
        let connection = link.connection();
        let waits = connection.is_some_and(|connection| connection.carrier.is_starved());
        if waits || left == 0 {
            link.window.starve(self.away);
        }
        self.note_unused(index, left as usize);
        self.grow(index);
        self.count_receives(index, posted);
        self.check_end(index);
    }

    /// Makes a buffer ready for the next message, unless it goes back to the arena; returns how many receives
    /// were posted again.
    fn take_back(&mut self, index: usize, (buffer, slot): (Buffer, u32), retired: bool) -> u32 {
        let mut posted = u32::from(!retired);
        match self.links[index].connection() {
            Some(connection) => {
                let again = connection.carrier.give_back(buffer, slot, retired);
                if let Some(again) = again {
                    post_receive(&connection.queue_pair, index as u64, again);
                    posted = 1;
                }
                self.pump_queues(index);
            }
            None if retired => {}
            None => self.post_datagram(buffer),
        }
        posted
    }

    pub(super) fn post_datagram(&self, buffer: Buffer) {
        if let Some(datagrams) = &self.datagrams {
            post_receive(datagrams, 0, Some(buffer));
        }
    }

    fn check_end(&mut self, index: usize) {
        let now = self.fabric.context.now();
        let repairs = self.options.repairs();
        let link = &mut self.links[index];
        let (Some(end), true) = (link.end, link.is_open()) else {
            return;
        };
        // Repetitions are not counted where each message is told apart.
        let exact = repairs || matches!(link.stage, Stage::Connected(_));
        if link.arrived == end {
            link.state = LinkState::Complete;
            link.acknowledgement = Repetition::start(now, self.options.repeat_interval);
            if repairs {
                self.acknowledge(index, end.count);
            }
        } else if exact && link.arrived.count >= end.count {
            link.fail(link.broke_protocol("its end-of-stream does not match what it sent"));
        }
    }
}

//! The task that receives and transmits, while its host works on the element at hand.

use super::wire::{HEAD_BYTES, Head};
use super::{Departure, Element, LostHosts, Place};
use crate::error::{Result, RingError};
use futures::channel::{mpsc, oneshot};
use futures::{FutureExt as _, StreamExt as _};
use roundel_verbs::completion_queue::until_ready;
use roundel_verbs::{
    Buffer, Completion, CompletionQueue, CompletionStatus, Opcode, Payload, QueuePair,
    ReceiveRequest, SendOperation, SendRequest,
};
use std::collections::VecDeque;
use std::task::{Context, Poll};

/// What completions are of.
pub(super) const ELEMENT: u64 = 0;
pub(super) const CREDIT: u64 = 1;
/// Completions taken at a time.
const BATCH: usize = 32;
/// Credit that says that all elements have come, and that no more credit will.
const ALL_CAME: u32 = u32::MAX;

/// What is known of another host's elements.
#[derive(Clone, Copy, Default)]
struct Origin {
    /// The number of the next one.
    next: u32,
    ended: bool,
}

pub(super) struct Mover {
    place: Place,
    queue: CompletionQueue,
    /// From the predecessor, and to the follower.
    pairs: Option<(QueuePair, QueuePair)>,
    arrived: mpsc::UnboundedSender<Result<Element>>,
    departed: mpsc::UnboundedReceiver<Departure>,
    blanks: mpsc::UnboundedSender<Buffer>,
    /// Buffers of the follower that are free.
    credit: usize,
    /// What it had at first, which is as many as there can be.
    credit_max: usize,
    /// Elements that wait for credit, and those that are under way: whether they began here.
    waiting: VecDeque<Element>,
    under_way: VecDeque<bool>,
    origins: Vec<Origin>,
    /// Hosts whose last element has not come.
    unfinished: usize,
    /// Elements that came, and have neither been passed on nor ended.
    in_hand: usize,
    /// Messages of credit that are under way.
    credits_under_way: usize,
    /// The host's last element has begun, and nothing more is passed on here.
    own_ended: bool,
    closed: bool,
    /// Whether the predecessor has been told that all came, and whether the follower has said so.
    said_all: bool,
    heard_all: bool,
    completions: Vec<Completion>,
}

impl Mover {
    pub(super) fn new(
        place: Place,
        queue: CompletionQueue,
        pairs: Option<(QueuePair, QueuePair)>,
        credit: usize,
        arrived: mpsc::UnboundedSender<Result<Element>>,
        departed: mpsc::UnboundedReceiver<Departure>,
        blanks: mpsc::UnboundedSender<Buffer>,
    ) -> Self {
        let mut origins = vec![Origin::default(); place.hosts];
        origins[place.number].ended = true;
        Self {
            place,
            queue,
            pairs,
            arrived,
            departed,
            blanks,
            credit,
            credit_max: credit,
            waiting: VecDeque::new(),
            under_way: VecDeque::new(),
            origins,
            unfinished: place.hosts - 1,
            in_hand: 0,
            credits_under_way: 0,
            own_ended: false,
            closed: false,
            said_all: false,
            heard_all: false,
            completions: Vec::new(),
        }
    }

    /// Moves elements until all have come and gone.
    pub(super) async fn run(mut self, lost: Option<LostHosts>, ended: oneshot::Sender<Result<()>>) {
        let mut lost = lost.map(futures::FutureExt::fuse);
        let queue = self.queue.clone();
        let result = until_ready(&[&queue], |cx| {
            // Elements that have come already may be the last that were wanted of the lost host.
            let moved = self.poll(cx);
            if moved.is_pending()
                && let Some(lost) = &mut lost
                && let Poll::Ready(lost) = lost.poll_unpin(cx)
            {
                return Poll::Ready(Err(RingError::Lost {
                    place: lost.rank,
                    reason: lost.reason,
                }));
            }
            moved
        })
        .await;
        // A task that waits for an element finds the channel closed, and asks here.
        let _ = ended.send(result);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            self.take_departures(cx);
            let needed = self.in_hand > 0 || self.unfinished > 0 || !self.own_ended;
            if self.closed && needed && self.pairs.is_some() {
                // The ring needs this host, which has given up: its neighbours find its connections gone.
                return Poll::Ready(Err(RingError::Cancelled));
            }
            let mut completions = std::mem::take(&mut self.completions);
            let found = self.queue.poll(&mut completions, BATCH);
            for completion in completions.drain(..) {
                self.complete(completion)?;
            }
            self.completions = completions;
            self.transmit()?;
            self.say_all();
            if self.is_over() {
                return Poll::Ready(Ok(()));
            }
            if found == 0 {
                return Poll::Pending;
            }
        }
    }

    fn is_over(&self) -> bool {
        let sent =
            self.closed && self.waiting.is_empty() && (self.under_way.is_empty() || self.heard_all);
        let alone = self.pairs.is_none();
        sent && (alone
            || self.unfinished == 0
                && self.said_all
                && self.credits_under_way == 0
                && self.heard_all)
    }

    fn take_departures(&mut self, cx: &mut Context<'_>) {
        while !self.closed
            && let Poll::Ready(departure) = self.departed.poll_next_unpin(cx)
        {
            match departure {
                Some(Departure::Forward(element)) => {
                    self.in_hand -= usize::from(!element.begins);
                    self.own_ended |= element.begins && element.head.last;
                    self.waiting.push_back(element);
                }
                Some(Departure::End(element)) => {
                    self.in_hand -= usize::from(!element.begins);
                    self.free(element.buffer, element.begins);
                }
                None => self.closed = true,
            }
        }
    }

    /// A buffer is free again.
    fn free(&mut self, buffer: Buffer, begins: bool) {
        if begins {
            // A host that has begun all of its elements needs no more.
            let _ = self.blanks.unbounded_send(buffer);
            return;
        }
        let Some((inbound, _)) = &self.pairs else {
            return;
        };
        if self.unfinished == 0 {
            return;
        }
        let mut receives = vec![ReceiveRequest {
            id: ELEMENT,
            buffer: Some(buffer),
        }];
        // A connection that refuses is broken, which its completions say.
        if inbound.post_receive(&mut receives).is_ok() && receives.is_empty() {
            self.say_credit(1);
        }
    }

    fn say_credit(&mut self, credit: u32) {
        let Some((inbound, _)) = &self.pairs else {
            return;
        };
        let mut requests = vec![SendRequest {
            id: CREDIT,
            operation: SendOperation::SendWithImmediate(credit),
            payload: Payload::Empty,
            destination: None,
        }];
        if inbound.post_send(&mut requests).is_ok() && requests.is_empty() {
            self.credits_under_way += 1;
        }
    }

    /// Tells the predecessor, once all elements have come, so that it need not wait for this host any more.
    fn say_all(&mut self) {
        if self.unfinished == 0 && !self.said_all && self.pairs.is_some() {
            self.said_all = true;
            self.say_credit(ALL_CAME);
        }
    }

    /// Transmits what there is credit for. Elements that begin here leave one free buffer to those on their way.
    fn transmit(&mut self) -> Result<()> {
        let Some((_, outbound)) = &self.pairs else {
            return Ok(());
        };
        while self.credit > 0 {
            let may = |element: &Element| !element.begins || self.credit > 1;
            let Some(at) = self.waiting.iter().position(may) else {
                break;
            };
            let Some(Element {
                mut buffer,
                mut head,
                begins,
            }) = self.waiting.remove(at)
            else {
                break;
            };
            head.hops += 1;
            buffer.write(0, &head.encode());
            let length = HEAD_BYTES + (head.payload + head.notes) as usize;
            let mut requests = vec![SendRequest {
                id: ELEMENT,
                operation: SendOperation::Send,
                payload: Payload::Owned { buffer, length },
                destination: None,
            }];
            outbound.post_send(&mut requests)?;
            if !requests.is_empty() {
                return Err(RingError::Unsupported(
                    "the device takes fewer sends than a ring has elements".into(),
                ));
            }
            self.under_way.push_back(begins);
            self.credit -= 1;
        }
        Ok(())
    }

    fn complete(&mut self, completion: Completion) -> Result<()> {
        let Some((_, outbound)) = &self.pairs else {
            return Ok(());
        };
        let follows = completion.queue_pair == outbound.number();
        if completion.status != CompletionStatus::Success {
            return self.failed(&completion, follows);
        }
        match (completion.opcode == Opcode::Receive, completion.id) {
            (true, ELEMENT) => self.came(completion),
            (true, _) => self.heard(completion.immediate),
            (false, ELEMENT) => {
                let begins = self.under_way.pop_front().unwrap_or_default();
                if let Some(buffer) = completion.buffer {
                    self.free(buffer, begins);
                }
                Ok(())
            }
            (false, _) => {
                self.credits_under_way -= 1;
                Ok(())
            }
        }
    }

    /// A neighbour's connection is broken. That is no error if the neighbour has done all that it had to.
    fn failed(&mut self, completion: &Completion, follows: bool) -> Result<()> {
        if completion.id == CREDIT && completion.opcode != Opcode::Receive {
            self.credits_under_way -= 1;
        }
        let done = match follows {
            true => self.heard_all,
            false => self.unfinished == 0,
        };
        if done {
            return Ok(());
        }
        let place = if follows {
            self.place.follower()
        } else {
            self.place.predecessor()
        };
        Err(RingError::Lost {
            place,
            reason: format!("its connection ended with {:?}", completion.status),
        })
    }

    /// The follower says that it has free buffers.
    fn heard(&mut self, immediate: Option<u32>) -> Result<()> {
        let place = self.place.follower();
        let malformed = |reason: String| RingError::Malformed { place, reason };
        match immediate {
            Some(ALL_CAME) => self.heard_all = true,
            Some(1) if self.credit < self.credit_max => self.credit += 1,
            other => {
                return Err(malformed(format!(
                    "credit {other:?}, with {} in hand",
                    self.credit
                )));
            }
        }
        if let Some((_, outbound)) = &self.pairs {
            outbound.post_receive(&mut vec![ReceiveRequest {
                id: CREDIT,
                buffer: None,
            }])?;
        }
        Ok(())
    }

    /// An element has come.
    fn came(&mut self, completion: Completion) -> Result<()> {
        let place = self.place.predecessor();
        let malformed = |reason: String| RingError::Malformed { place, reason };
        let Some(buffer) = completion.buffer else {
            return Err(malformed("an element without bytes".into()));
        };
        if completion.bytes < HEAD_BYTES {
            return Err(malformed(format!(
                "an element of {} bytes",
                completion.bytes
            )));
        }
        let mut bytes = [0; HEAD_BYTES];
        buffer.read(0, &mut bytes);
        let head = Head::decode(&bytes, completion.bytes, self.place).map_err(malformed)?;
        let origin = &mut self.origins[usize::from(head.origin)];
        if origin.ended || head.sequence != origin.next {
            let reason = format!(
                "element {} of host {} instead of {}",
                head.sequence, head.origin, origin.next
            );
            return Err(malformed(reason));
        }
        // A relation that is pinned spins for as long as it likes.
        origin.next = origin.next.wrapping_add(1);
        origin.ended = head.last;
        self.unfinished -= usize::from(head.last);
        self.in_hand += 1;
        // A host that takes nothing any more has given up, which its departures say.
        let _ = self.arrived.unbounded_send(Ok(Element {
            buffer,
            head,
            begins: false,
        }));
        Ok(())
    }
}

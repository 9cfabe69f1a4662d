//! The messages that have come for one operator and wait to be taken in. There is a queue for each NUMA region: a message is in the
//! queue of the region that its memory is in. Any reader of the operator takes in what is next, even for the partition
//! of another reader. So copying is shared out among the readers that have time, and a reader that lags holds up
//! nobody. A reader takes from the queue of its own region, unless that is empty, or something has waited for much
//! longer in another. Then it takes from the queue whose first entry came first.

use super::Inner;
use super::news::{MessageKey, News, NewsOfLinks};
use crate::designs::carrier::Place;
use crate::endpoint::LinkId;
use crate::frame::aligned;
use crate::wire::Data;
use arrow::buffer::Buffer as FrameBuffer;
use parking_lot::Mutex;
use roundel_verbs::Regions;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

/// Who gets what was taken in: the operator.
pub(crate) trait Sink: Send + Sync {
    /// The payload of a message.
    fn deliver(&self, link: LinkId, message: &MessageHead, payload: &FrameBuffer);
    /// How a link goes on.
    fn tell(&self, link: LinkId, news: News);
}

/// The parts of a message's header that its reader needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageHead {
    pub(crate) partition: u32,
    pub(crate) group: u16,
    pub(crate) sequence: u64,
    pub(crate) data: Data,
}

impl MessageHead {
    fn key(&self) -> MessageKey {
        (self.group, self.sequence)
    }
}

/// One link that a message is for.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) arrivals: Arc<Arrivals>,
    pub(super) link: LinkId,
    /// The number of the link.
    pub(super) number: u32,
}

/// A message for links of this node, in its registered memory until somebody takes it in for all of them.
pub(super) struct Arrival {
    pub(super) connection: usize,
    pub(super) members: Arc<[Member]>,
    pub(super) head: MessageHead,
    /// The region of its memory.
    region: usize,
    place: Mutex<Option<Place>>,
}

impl Arrival {
    /// A message that has come over a connection.
    pub(super) fn new(
        connection: usize,
        members: Arc<[Member]>,
        head: MessageHead,
        place: Place,
    ) -> Self {
        Self {
            connection,
            members,
            head,
            region: place.region(),
            place: Mutex::new(Some(place)),
        }
    }

    /// Brings it to the readers of its links.
    pub(super) fn push(self: &Arc<Self>) {
        // First of all: who gets it takes it in for the others.
        for member in self.members.iter() {
            let news = &member.arrivals.news;
            news.message_comes(member.link, self.head.key());
        }
        for member in self.members.iter() {
            member.arrivals.push(self, member.link);
        }
    }

    /// Whether it is in registered memory still.
    pub(super) fn is_held(&self) -> bool {
        self.place.lock().is_some()
    }

    /// Takes it in for all, because its receive is needed; whether nobody else has.
    pub(super) fn relieve(&self) -> bool {
        let mut members = self.members.iter();
        members
            .next()
            .is_some_and(|any| any.arrivals.copy(self, None))
    }
}

enum Arrived {
    Message(Arc<Arrival>),
    /// The next news of a link are due.
    News(LinkId),
}

/// A reader takes from the queue of its own region while what is first in others came at most so much earlier: what
/// waits there is overtaken by no more than that.
pub(super) const OVERTAKING_MAX: u64 = 16;

/// What has come to a region, with numbers in the order in which it came to the operator.
struct Queue {
    waiting: Mutex<VecDeque<(u64, Arrived)>>,
    /// The number of the first; [`NOTHING`] where none waits.
    first: AtomicU64,
}

/// Comes after everything.
const NOTHING: u64 = u64::MAX;

impl Queue {
    fn new() -> Self {
        Self {
            waiting: Mutex::default(),
            first: AtomicU64::new(NOTHING),
        }
    }

    /// A message gets its number under the lock, so that the numbers of a queue are in order.
    fn push(&self, arrived: Arrived, came: &AtomicU64) {
        let mut waiting = self.waiting.lock();
        waiting.push_back((came.fetch_add(1, Ordering::Relaxed), arrived));
        self.note_first(&waiting);
    }

    fn pop(&self) -> Option<Arrived> {
        let mut waiting = self.waiting.lock();
        let (_, first) = waiting.pop_front()?;
        self.note_first(&waiting);
        Some(first)
    }

    fn note_first(&self, waiting: &VecDeque<(u64, Arrived)>) {
        let first = waiting.front().map_or(NOTHING, |(number, _)| *number);
        self.first.store(first, Ordering::Release);
    }

    fn first(&self) -> u64 {
        self.first.load(Ordering::Acquire)
    }
}

/// Who waits for something to read.
struct Reader {
    partition: (LinkId, u32),
    waker: Waker,
    /// Where it ran when it began to wait.
    region: usize,
}

/// What has come for one operator.
pub(crate) struct Arrivals {
    multiplexer: Weak<Inner>,
    regions: Regions,
    sink: OnceLock<Weak<dyn Sink>>,
    /// By region.
    queues: Box<[Queue]>,
    came: AtomicU64,
    news: NewsOfLinks,
    readers: Mutex<Vec<Reader>>,
    steals: AtomicU64,
    region_steals: AtomicU64,
}

impl Arrivals {
    pub(super) fn new(multiplexer: Weak<Inner>, regions: &Regions) -> Self {
        Self {
            multiplexer,
            regions: regions.clone(),
            sink: OnceLock::new(),
            queues: (0..regions.count()).map(|_| Queue::new()).collect(),
            came: AtomicU64::new(0),
            news: NewsOfLinks::default(),
            readers: Mutex::default(),
            steals: AtomicU64::new(0),
            region_steals: AtomicU64::new(0),
        }
    }

    /// Says who gets what is taken in. Before that nothing can come.
    pub(crate) fn set_sink(&self, sink: Weak<dyn Sink>) {
        // It is set once, by the operator that opens it.
        let _ = self.sink.set(sink);
    }

    fn push(&self, arrival: &Arc<Arrival>, link: LinkId) {
        let partition = arrival.head.partition;
        let message = Arrived::Message(arrival.clone());
        self.queues[arrival.region].push(message, &self.came);
        self.wake_any((link, partition), arrival.region);
    }

    pub(super) fn push_news(&self, link: LinkId, news: News) {
        self.news.come(link, news);
        // They are in no region's memory.
        self.queues[0].push(Arrived::News(link), &self.came);
        // It is for all partitions of the link.
        self.wake_all();
    }

    /// Takes in what came first to the region of this thread, or else to another, for the reader of a partition or for
    /// nobody; whether there was anything.
    pub(crate) fn take_in(&self, reader: Option<(LinkId, u32)>) -> bool {
        let own = self.regions.current();
        match self.pop(own) {
            None => return false,
            Some(Arrived::News(link)) => {
                self.news.make_due(link);
                self.tell(link);
            }
            Some(Arrived::Message(arrival)) => {
                let copied = self.copy(&arrival, reader);
                if copied && reader.is_some() && arrival.region != own {
                    self.region_steals.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        true
    }

    /// What is next for a thread of a region.
    fn pop(&self, own: usize) -> Option<Arrived> {
        loop {
            let firsts = self.queues.iter().map(Queue::first);
            let (oldest, first) = firsts.enumerate().min_by_key(|(_, first)| *first)?;
            if first == NOTHING {
                return None;
            }
            let lags = self.queues[own].first().saturating_sub(first) > OVERTAKING_MAX;
            let queue = if lags { oldest } else { own };
            // Others may have been faster.
            if let Some(arrived) = self.queues[queue].pop() {
                return Some(arrived);
            }
        }
    }

    /// Tells what there is to be told of a link.
    fn tell(&self, link: LinkId) {
        let told = self.news.tell(link, |news| {
            if let Some(sink) = self.sink() {
                sink.tell(link, news);
            }
        });
        if told {
            self.wake_all();
        }
    }

    /// Copies a message out of registered memory, for all links that it is for, unless another of them has; whether it
    /// did.
    fn copy(&self, arrival: &Arrival, reader: Option<(LinkId, u32)>) -> bool {
        let Some(place) = arrival.place.lock().take() else {
            return false;
        };
        let length = arrival.head.data.payload_length as usize;
        let mut copy = Vec::with_capacity(length);
        // It is in memory of this node's, where nothing fails.
        let _ = place.append_payload(length, &mut copy);
        if let Some(multiplexer) = self.multiplexer.upgrade() {
            multiplexer.give_back(arrival.connection, place);
        }
        let payload = aligned(copy);
        for member in arrival.members.iter() {
            if let Some(sink) = member.arrivals.sink() {
                sink.deliver(member.link, &arrival.head, &payload);
            }
            let partition = (member.link, arrival.head.partition);
            // Links of different operators can have the same number.
            let own = reader == Some(partition) && std::ptr::eq(self, &*member.arrivals);
            if reader.is_some() && !own {
                member.arrivals.steals.fetch_add(1, Ordering::Relaxed);
            }
            if !own {
                member.arrivals.wake_reader(partition);
            }
            let news = &member.arrivals.news;
            news.message_delivered(member.link, arrival.head.key());
            member.arrivals.tell(member.link);
        }
        true
    }

    fn sink(&self) -> Option<Arc<dyn Sink>> {
        self.sink.get()?.upgrade()
    }

    /// Has the reader of a partition woken when there is something for it.
    pub(crate) fn wait(&self, partition: (LinkId, u32), waker: &Waker) {
        let region = self.regions.current();
        let mut readers = self.readers.lock();
        match readers.iter_mut().find(|one| one.partition == partition) {
            Some(waiting) => {
                waiting.waker.clone_from(waker);
                waiting.region = region;
            }
            None => readers.push(Reader {
                partition,
                waker: waker.clone(),
                region,
            }),
        }
    }

    /// Wakes the reader of a partition, which has got something.
    fn wake_reader(&self, partition: (LinkId, u32)) {
        let woken = {
            let mut readers = self.readers.lock();
            let own = readers.iter().position(|one| one.partition == partition);
            own.map(|at| readers.swap_remove(at).waker)
        };
        if let Some(waker) = woken {
            waker.wake();
        }
    }

    /// Wakes the reader of a partition for which something has come, or another if that one is at work: of the region
    /// where it lies, if one waits there.
    fn wake_any(&self, partition: (LinkId, u32), region: usize) {
        let woken = {
            let mut readers = self.readers.lock();
            let own = readers.iter().position(|one| one.partition == partition);
            let near = || readers.iter().rposition(|one| one.region == region);
            let any = own.or_else(near).or(readers.len().checked_sub(1));
            any.map(|at| readers.swap_remove(at).waker)
        };
        if let Some(waker) = woken {
            waker.wake();
        }
    }

    /// Wakes all readers.
    pub(crate) fn wake_all(&self) {
        let readers = std::mem::take(&mut *self.readers.lock());
        for reader in readers {
            reader.waker.wake();
        }
    }

    /// Messages that the reader of another partition has taken in.
    pub(crate) fn steals(&self) -> u64 {
        self.steals.load(Ordering::Relaxed)
    }

    /// Messages that readers have taken in from the queue of another region than theirs.
    pub(crate) fn region_steals(&self) -> u64 {
        self.region_steals.load(Ordering::Relaxed)
    }
}

impl Inner {
    fn give_back(&self, connection: usize, place: Place) {
        self.with(|state| {
            let connection = &mut state.connections[connection];
            if connection.is_alive() {
                connection.give_back(place);
            }
        });
    }
}

#[cfg(test)]
mod tests;

//! What has come for one operator and has not been taken in. Any of its readers takes in what is next, also for
//! another's partition: copying is shared out among those who have time, and a reader that lags holds up
//! nobody.

use super::Inner;
use crate::endpoint::LinkId;
use crate::frame::aligned;
use crate::wire::{Data, HEADER_LENGTH, SequenceDigest};
use arrow::buffer::Buffer as FrameBuffer;
use parking_lot::Mutex;
use roundel_verbs::{Buffer, CompletionStatus};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

/// Who gets what was taken in: the operator.
pub(crate) trait Sink: Send + Sync {
    /// The payload of a message; whether its link has ended, with it or before.
    fn deliver(&self, link: LinkId, message: &MessageHead, payload: &FrameBuffer) -> bool;
    /// How a link goes on.
    fn tell(&self, link: LinkId, news: News);
}

/// What a message says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageHead {
    pub(crate) partition: u32,
    pub(crate) group: u16,
    pub(crate) sequence: u64,
    pub(crate) data: Data,
}

/// What happens to a link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News {
    /// So much was sent in all.
    End(SequenceDigest),
    /// No more comes, and not all has.
    Lost(CompletionStatus),
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
    pub(super) buffer: Mutex<Option<Buffer>>,
}

impl Arrival {
    /// Whether it is in registered memory still.
    pub(super) fn is_held(&self) -> bool {
        self.buffer.lock().is_some()
    }

    /// Takes it in for all, because its receive is needed; whether nobody else has.
    pub(super) fn relieve(&self) -> bool {
        let held = self.is_held();
        if let Some(member) = self.members.first() {
            member.arrivals.copy(self, None);
        }
        held
    }
}

enum Arrived {
    Message(Arc<Arrival>),
    News(LinkId, News),
}

/// What has come for one operator.
pub(crate) struct Arrivals {
    multiplexer: Weak<Inner>,
    sink: OnceLock<Weak<dyn Sink>>,
    waiting: Mutex<VecDeque<Arrived>>,
    readers: Mutex<Vec<((LinkId, u32), Waker)>>,
    steals: AtomicU64,
}

impl Arrivals {
    pub(super) fn new(multiplexer: Weak<Inner>) -> Self {
        Self {
            multiplexer,
            sink: OnceLock::new(),
            waiting: Mutex::default(),
            readers: Mutex::default(),
            steals: AtomicU64::new(0),
        }
    }

    /// Says who gets what is taken in. Before that nothing can come.
    pub(crate) fn set_sink(&self, sink: Weak<dyn Sink>) {
        // It is set once, by the operator that opens it.
        let _ = self.sink.set(sink);
    }

    pub(super) fn push(&self, arrival: &Arc<Arrival>, link: LinkId) {
        let partition = arrival.head.partition;
        let message = Arrived::Message(arrival.clone());
        self.waiting.lock().push_back(message);
        self.wake_any((link, partition));
    }

    pub(super) fn push_news(&self, link: LinkId, news: News) {
        self.waiting.lock().push_back(Arrived::News(link, news));
        // It is for all partitions of the link.
        self.wake_all();
    }

    /// Takes in what came first, for the reader of a partition or for nobody; whether there was anything.
    pub(crate) fn take_in(&self, reader: Option<(LinkId, u32)>) -> bool {
        let Some(arrived) = self.waiting.lock().pop_front() else {
            return false;
        };
        match arrived {
            Arrived::News(link, news) => {
                if let Some(sink) = self.sink() {
                    sink.tell(link, news);
                }
                self.wake_all();
            }
            Arrived::Message(arrival) => self.copy(&arrival, reader),
        }
        true
    }

    /// Copies a message out of registered memory, for all links that it is for, unless another of them has.
    fn copy(&self, arrival: &Arrival, reader: Option<(LinkId, u32)>) {
        let Some(buffer) = arrival.buffer.lock().take() else {
            return;
        };
        let length = arrival.head.data.payload_length as usize;
        let mut copy = Vec::with_capacity(length);
        buffer.read_append(HEADER_LENGTH, length, &mut copy);
        if let Some(multiplexer) = self.multiplexer.upgrade() {
            multiplexer.give_back(arrival.connection, buffer);
        }
        let payload = aligned(copy);
        for member in arrival.members.iter() {
            let sink = member.arrivals.sink();
            let ended = sink.is_some_and(|sink| sink.deliver(member.link, &arrival.head, &payload));
            let partition = (member.link, arrival.head.partition);
            if reader.is_some_and(|reader| reader != partition) {
                member.arrivals.steals.fetch_add(1, Ordering::Relaxed);
            }
            // Links of different operators can have the same number.
            let own = reader == Some(partition) && std::ptr::eq(self, &*member.arrivals);
            if ended {
                // The end may have been taken in first, by another: all partitions of the link wait for this message.
                member.arrivals.wake_all();
            } else if !own {
                member.arrivals.wake_reader(partition);
            }
        }
    }

    fn sink(&self) -> Option<Arc<dyn Sink>> {
        self.sink.get()?.upgrade()
    }

    /// Has the reader of a partition woken when there is something for it.
    pub(crate) fn wait(&self, reader: (LinkId, u32), waker: &Waker) {
        let mut readers = self.readers.lock();
        match readers.iter_mut().find(|(waiting, _)| *waiting == reader) {
            Some((_, waiting)) => waiting.clone_from(waker),
            None => readers.push((reader, waker.clone())),
        }
    }

    /// Wakes the reader of a partition, which has got something.
    fn wake_reader(&self, partition: (LinkId, u32)) {
        let woken = {
            let mut readers = self.readers.lock();
            let own = readers.iter().position(|(reader, _)| *reader == partition);
            own.map(|at| readers.swap_remove(at).1)
        };
        if let Some(waker) = woken {
            waker.wake();
        }
    }

    /// Wakes the reader of a partition for which something has come, or another if that one is at work.
    fn wake_any(&self, partition: (LinkId, u32)) {
        let woken = {
            let mut readers = self.readers.lock();
            let own = readers.iter().position(|(reader, _)| *reader == partition);
            let any = own.or(readers.len().checked_sub(1));
            any.map(|at| readers.swap_remove(at).1)
        };
        if let Some(waker) = woken {
            waker.wake();
        }
    }

    /// Wakes all readers.
    pub(crate) fn wake_all(&self) {
        let readers = std::mem::take(&mut *self.readers.lock());
        for (_, waker) in readers {
            waker.wake();
        }
    }

    /// Messages that the reader of another partition has taken in.
    pub(crate) fn steals(&self) -> u64 {
        self.steals.load(Ordering::Relaxed)
    }
}

impl Inner {
    fn give_back(&self, connection: usize, buffer: Buffer) {
        self.with(|state| {
            let connection = &mut state.connections[connection];
            if connection.is_alive() {
                connection.give_back(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundel_verbs::{ArenaOptions, shm};
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    /// Takes what comes; whether a link has ended with it.
    struct Taker(bool);

    impl Sink for Taker {
        fn deliver(&self, _: LinkId, _: &MessageHead, _: &FrameBuffer) -> bool {
            self.0
        }

        fn tell(&self, _: LinkId, _: News) {}
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The reader of partition 0 of link 0 of one operator takes in a message for partition 0 of link 0 of `members` of these;
    /// how many readers of `partition` are woken by that.
    fn woken(ended: bool, members: std::ops::Range<usize>, partition: u32) -> usize {
        let device = shm::open(shm::ShmOptions::default()).unwrap();
        let arena = device.arena(ArenaOptions::default());
        let sink: Arc<dyn Sink> = Arc::new(Taker(ended));
        let operators = [(); 2].map(|()| {
            let arrivals = Arc::new(Arrivals::new(Weak::new()));
            arrivals.set_sink(Arc::downgrade(&sink));
            arrivals
        });
        let members = operators[members].iter().map(|arrivals| Member {
            arrivals: arrivals.clone(),
            link: LinkId(0),
            number: 0,
        });
        let arrival = Arc::new(Arrival {
            connection: 0,
            members: members.collect(),
            head: MessageHead {
                partition: 0,
                group: 0,
                sequence: 0,
                data: Data {
                    frame_sequence: 0,
                    rows: 0,
                    frame_length: 0,
                    offset: 0,
                    payload_length: 0,
                },
            },
            buffer: Mutex::new(Some(arena.allocate(HEADER_LENGTH).unwrap())),
        });
        operators[0].push(&arrival, LinkId(0));
        let woken = Arc::new(Woken::default());
        for arrivals in &operators {
            arrivals.wait((LinkId(0), partition), &Waker::from(woken.clone()));
        }
        assert!(operators[0].take_in(Some((LinkId(0), 0))));
        woken.0.load(Ordering::Relaxed)
    }

    #[test]
    fn all_partitions_hear_of_the_message_that_ends_their_link() {
        assert_eq!(woken(true, 0..1, 1), 1);
        assert_eq!(woken(false, 0..1, 1), 0);
    }

    #[test]
    fn a_reader_of_another_operator_hears_of_what_is_for_it() {
        assert_eq!(woken(false, 0..2, 0), 1);
    }
}

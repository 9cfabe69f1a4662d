//! MQ/RD through a multiplexer (Liu et al. 2019, section 5.4): rows lie in the sender's memory, and a control message
//! says where. This node READs them into a buffer of its own. From there they are taken in just like messages that were
//! sent. A control message back says how many were read; until then the sender's memory is in use. All else goes by
//! SEND as ever. So a source's end may arrive before the last of its messages have been read; it says how many there
//! are.

use super::MultiplexerOptions;
use super::outgoing::Rows;
use super::way::Place;
use crate::error::Result;
use crate::fabric::Fabric;
use crate::wire::{Full, HEADER_LENGTH, Read};
use roundel_verbs::{Buffer, Payload, Regions, RemoteAddress, SendOperation, SendRequest};
use std::collections::VecDeque;

/// Both ends of what is read over a connection.
pub(super) struct Reads {
    message_bytes: usize,
    /// Own buffers: those that nothing is read into, and how many there are in all.
    free: Vec<Buffer>,
    buffers: usize,
    /// Messages of the peer's, in its order.
    due: VecDeque<Full>,
    /// The first of these that are being read, and all that may be due and be read at a time.
    reading: usize,
    due_max: usize,
    reading_max: usize,
    /// Messages read so far.
    read: u64,
    /// What lies here for the peer, and how many messages it has read before.
    lying: VecDeque<Rows>,
    done: u64,
}

impl Reads {
    /// As many buffers as a peer may have messages on their way, of the regions in turn.
    pub(super) fn open(
        fabric: &Fabric,
        options: &MultiplexerOptions,
        regions: &Regions,
    ) -> Result<Self> {
        let mut free = Vec::with_capacity(options.receives);
        for turn in 0..options.receives {
            let arena = fabric.arena.in_region(regions.in_turn(turn));
            free.push(arena.allocate(options.message_bytes)?);
        }
        let reads_max = fabric.device.capabilities().outstanding_reads_max;
        Ok(Self {
            message_bytes: options.message_bytes,
            buffers: free.len(),
            free,
            due: VecDeque::new(),
            reading: 0,
            due_max: options.posted,
            // More would wait in the send queue, and hold up what is behind them.
            reading_max: reads_max.clamp(1, options.receives),
            read: 0,
            lying: VecDeque::new(),
            done: 0,
        })
    }

    /// Registered bytes.
    pub(super) fn bytes(&self) -> usize {
        self.buffers * self.message_bytes
    }

    /// READs that may be in a send queue.
    pub(super) fn reading_max(&self) -> usize {
        self.reading_max
    }

    /// The peer says where a message lies.
    pub(super) fn take_full(&mut self, full: Full) -> Result<(), &'static str> {
        if self.due.len() >= self.due_max {
            return Err("more of its messages are to be read than may be on their way");
        }
        if !(HEADER_LENGTH..=self.message_bytes).contains(&(full.length as usize)) {
            return Err("its messages are longer than those of this node");
        }
        self.due.push_back(full);
        Ok(())
    }

    /// The next READ, if a message is due and there is a buffer for it.
    pub(super) fn next_read(&mut self, id: u64) -> Option<SendRequest> {
        if self.reading >= self.reading_max {
            return None;
        }
        let full = *self.due.get(self.reading)?;
        let buffer = self.free.pop()?;
        self.reading += 1;
        Some(SendRequest {
            id,
            operation: SendOperation::Read(RemoteAddress {
                address: full.address,
                remote_key: full.remote_key,
            }),
            payload: Payload::Owned {
                buffer,
                length: full.length as usize,
            },
            destination: None,
        })
    }

    /// The oldest READ has ended: what to tell the peer, whose memory is not needed any more.
    pub(super) fn was_read(&mut self) -> Read {
        self.due.pop_front();
        self.reading -= 1;
        self.read += 1;
        Read { count: self.read }
    }

    /// Takes a buffer back from which a message has been taken in.
    pub(super) fn free(&mut self, place: Place) {
        self.free.push(place.buffer);
    }

    /// Rows lie here, as the peer is about to be told.
    pub(super) fn lie(&mut self, rows: Rows) {
        self.lying.push_back(rows);
    }

    /// The peer has read so many messages in all: those that it had not before.
    pub(super) fn take_read(&mut self, read: Read) -> Result<Vec<Rows>, &'static str> {
        let news = read.count.checked_sub(self.done);
        match news.and_then(|news| usize::try_from(news).ok()) {
            Some(news) if news <= self.lying.len() => {
                self.done = read.count;
                Ok(self.lying.drain(..news).collect())
            }
            _ => Err("it has read messages that it was not told of"),
        }
    }

    /// What the peer will not read any more.
    pub(super) fn take_lying(&mut self) -> impl Iterator<Item = Rows> + use<'_> {
        self.lying.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::super::outgoing::Memory;
    use super::super::outgoing::SourceKey;
    use super::*;
    use roundel_verbs::ArenaOptions;
    use roundel_verbs::shm::{self, ShmOptions};

    fn reads() -> Reads {
        let device = shm::open(ShmOptions::default()).unwrap();
        let fabric = Fabric::open(device, ArenaOptions::default()).unwrap();
        let options = MultiplexerOptions {
            receives: 4,
            posted: 3,
            message_bytes: 256,
            ..MultiplexerOptions::new(fabric.device.capabilities())
        };
        Reads::open(&fabric, &options, &Regions::one()).unwrap()
    }

    fn full(length: u32) -> Full {
        Full {
            address: 1,
            remote_key: 2,
            length,
        }
    }

    fn rows() -> Rows {
        Rows {
            query: 1,
            source: SourceKey {
                exchange: 1,
                source: 1,
            },
            destinations: [].into(),
            bytes: 100,
            memory: Memory::Posted,
        }
    }

    fn place(read: SendRequest) -> Place {
        match read.payload {
            Payload::Owned { buffer, .. } => Place::of(buffer),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn messages_are_read_in_their_order() {
        let mut reads = reads();
        reads.take_full(full(100)).unwrap();
        reads.take_full(full(200)).unwrap();
        for (id, length) in [(7, 100), (8, 200)] {
            let read = reads.next_read(id).unwrap();
            assert_eq!((read.id, read.payload.len()), (id, length));
        }
        assert!(reads.next_read(9).is_none());
        for count in [1, 2] {
            assert_eq!(reads.was_read(), Read { count });
        }
    }

    #[tokio::test]
    async fn a_read_needs_a_buffer() {
        let mut reads = reads();
        let mut taken = Vec::new();
        for _ in 0..4 {
            reads.take_full(full(100)).unwrap();
            taken.push(place(reads.next_read(0).unwrap()));
            reads.was_read();
        }
        reads.take_full(full(100)).unwrap();
        assert!(reads.next_read(0).is_none());
        reads.free(taken.remove(0));
        assert!(reads.next_read(0).is_some());
    }

    #[tokio::test]
    async fn messages_that_cannot_be_are_refused() {
        let mut reads = reads();
        for length in [0, 63, 257, u32::MAX] {
            assert!(reads.take_full(full(length)).is_err(), "{length}");
        }
        for _ in 0..3 {
            reads.take_full(full(256)).unwrap();
        }
        let error = reads.take_full(full(256)).unwrap_err();
        assert!(error.contains("more of its messages"), "{error}");
    }

    #[tokio::test]
    async fn a_peer_has_read_only_what_it_was_told_of() {
        let mut reads = reads();
        (0..3).for_each(|_| reads.lie(rows()));
        assert!(reads.take_read(Read { count: 4 }).is_err());
        assert_eq!(reads.take_read(Read { count: 2 }).unwrap().len(), 2);
        assert!(reads.take_read(Read { count: 1 }).is_err());
        assert_eq!(reads.take_read(Read { count: 2 }).unwrap().len(), 0);
        assert_eq!(reads.take_read(Read { count: 3 }).unwrap().len(), 1);
        assert!(reads.take_read(Read { count: u64::MAX }).is_err());
    }
}

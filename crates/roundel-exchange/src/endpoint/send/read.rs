//! MQ/RD at the source (section 5.4): messages wait in buffers that the receiver may read. The source
//! names those that are full in a queue of the receiver's, `ValidArr`; the receiver names those that
//! it has read in a queue of the source's, `FreeArr`.

use super::state::State;
use crate::error::{ExchangeError, Result};
use crate::link::queue::{Queue, QueueAddress, RemoteQueue};
use crate::options::ExchangeOptions;
use roundel_verbs::{Arena, ExposedBuffer, RemoteAddress, SendRequest};

/// One destination that reads.
pub(super) struct Reading {
    /// `FreeArr`.
    pub(super) free: Queue,
    /// `ValidArr`.
    pub(super) valid: RemoteQueue,
    /// Messages that it has been told of and has not read, and how many there may be.
    unread: u64,
    window: u64,
    /// Where its control messages wait: there is one at most.
    control: Option<ExposedBuffer>,
}

/// A message that is not read by every member of its group.
pub(super) struct Unread {
    pub(super) buffer: ExposedBuffer,
    pub(super) group: usize,
    pub(super) members: Vec<usize>,
}

/// The number of a message that is about the link and not of a group.
const OF_LINK: u64 = u64::MAX;

impl Reading {
    pub(super) fn open(
        arena: &Arena,
        options: &ExchangeOptions,
        (offered, window): (Option<QueueAddress>, u32),
        peer: &str,
    ) -> Result<Self> {
        let Some(valid) = offered.filter(|queue| queue.entries > 0) else {
            return Err(ExchangeError::Protocol {
                peer: peer.into(),
                reason: "it offers no queue to tell it of messages".into(),
            });
        };
        Ok(Self {
            free: Queue::open(arena, options.window_max())?,
            valid: RemoteQueue::new(valid, peer)?,
            unread: 0,
            window: window.into(),
            control: None,
        })
    }

    /// Messages that it may be told of now: both queues have room for them.
    pub(super) fn left(&self) -> u32 {
        let entries = self.valid.entries().min(self.free.address().entries.into());
        entries.min(self.window).saturating_sub(self.unread) as u32
    }

    /// Messages that it may have been told of in all.
    pub(super) fn allowed(&self) -> u64 {
        self.valid.count() + u64::from(self.left())
    }

    /// Whether it has read all that it was told of.
    pub(super) fn has_read_all(&self) -> bool {
        self.unread == 0
    }

    /// The request that tells it of a message.
    pub(super) fn tell(
        &mut self,
        id: u64,
        number: u64,
        at: RemoteAddress,
        length: usize,
    ) -> SendRequest {
        self.unread += 1;
        let key_and_length = u64::from(at.remote_key) | (length as u64) << 32;
        self.valid.put(id, [at.address, key_and_length, number])
    }

    /// The request that tells it of a control message, which `buffer` is to hold.
    pub(super) fn tell_control(
        &mut self,
        id: u64,
        buffer: ExposedBuffer,
        length: usize,
    ) -> SendRequest {
        let at = buffer.remote_address();
        self.control = Some(buffer);
        self.tell(id, OF_LINK, at, length)
    }
}

impl State {
    /// Takes back what destination `index` has read.
    pub(super) fn take_read(&mut self, index: usize) {
        loop {
            let Some(reading) = self.destinations[index].reading() else {
                return;
            };
            let Some([number, window, _]) = reading.free.take() else {
                return;
            };
            reading.unread = reading.unread.saturating_sub(1);
            reading.window = window.max(1);
            if number == OF_LINK {
                reading.control = None;
            } else if !self.was_read(number, index) {
                let destination = &mut self.destinations[index];
                let error = ExchangeError::Protocol {
                    peer: destination.peer.clone(),
                    reason: format!("it has read message {number}, which it was not told of"),
                };
                destination.failed.get_or_insert(error);
                return;
            }
        }
    }

    /// A member has read a message, or will not; whether it had been told of it.
    fn was_read(&mut self, number: u64, index: usize) -> bool {
        let Some(unread) = self.unread.get_mut(&number) else {
            return false;
        };
        let Some(at) = unread.members.iter().position(|member| *member == index) else {
            return false;
        };
        unread.members.swap_remove(at);
        if unread.members.is_empty()
            && let Some(read) = self.unread.remove(&number)
        {
            self.give_back(read.group, read.buffer.reclaim());
        }
        true
    }

    /// Nobody waits for a destination any more to read what it was told of.
    pub(super) fn forget_reader(&mut self, index: usize) {
        let numbers: Vec<u64> = self.unread.keys().copied().collect();
        for number in numbers {
            self.was_read(number, index);
        }
    }
}

//! A circular queue in the memory of whoever takes from it, filled by WRITEs of the other end of the
//! link: `FreeArr` and `ValidArr` of the paper (sections 5.4 and 5.5). And a bell: a WRITE wakes
//! nobody, so an end that is about to sleep asks the other one to ring at its next message.
//!
//! ```text
//!   Queue (here)                                  RemoteQueue (there)
//!     bell:    asked at taken = 4   ◄── WRITE ──    the other end has taken 4 and sleeps
//!     entries: 7 8 9 …              ◄── WRITE ──    put
//!                  take
//! ```
//!
//! Verbs promise neither that a WRITE is seen whole nor in which order its words are seen. Every
//! entry carries a checksum that also covers its position: what does not match is not there yet.

use crate::error::{ExchangeError, Result};
use crate::wire::mix;
use roundel_verbs::work::InlineBytes;
use roundel_verbs::{Arena, ExposedBuffer, Payload, RemoteAddress, SendOperation, SendRequest};
use std::sync::atomic::Ordering;

/// The words of an entry. Each queue gives them a meaning.
pub(crate) type Entry = [u64; 3];

const WORD: usize = 8;
/// Bytes of an entry: its words, and their checksum.
const ENTRY_BYTES: usize = 4 * WORD;
/// Bytes before the entries: the bell's two words, on a cache line of their own.
const ENTRIES_AT: usize = 64;
/// Most entries that a peer may say its queue has.
const ENTRIES_MAX: u32 = 1 << 20;

/// Where a queue is, for the other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueAddress {
    /// Its memory.
    pub at: RemoteAddress,
    /// Entries that it has room for; 0 when there is only a bell.
    pub entries: u32,
}

/// The queue that this end takes from.
pub(crate) struct Queue {
    memory: ExposedBuffer,
    entries: u64,
    taken: u64,
}

impl Queue {
    pub(crate) fn open(arena: &Arena, entries: usize) -> Result<Self> {
        Ok(Self {
            memory: arena.allocate_exposed(ENTRIES_AT + entries * ENTRY_BYTES)?,
            entries: entries as u64,
            taken: 0,
        })
    }

    pub(crate) fn address(&self) -> QueueAddress {
        QueueAddress {
            at: self.memory.remote_address(),
            entries: self.entries as u32,
        }
    }

    /// Bytes of registered memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// Entries taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// The next entry, if it has arrived.
    pub(crate) fn take(&mut self) -> Option<Entry> {
        let at = entry_at(self.taken, self.entries)?;
        let word = |index| {
            let word = self.memory.word(at + index * WORD);
            u64::from_le(word.load(Ordering::Acquire))
        };
        let check = word(3);
        let entry = [word(0), word(1), word(2)];
        if check != checksum(self.taken, &entry) {
            return None;
        }
        self.taken += 1;
        Some(entry)
    }

    /// The value that was written last, unless it was taken. It lies in the one entry of the queue, and those before it are lost.
    pub(crate) fn take_newest(&mut self) -> Option<u64> {
        let word = |index| {
            let word = self.memory.word(ENTRIES_AT + index * WORD);
            u64::from_le(word.load(Ordering::Acquire))
        };
        let check = word(3);
        let entry = [word(0), word(1), word(2)];
        let [written, value, _] = entry;
        if check != checksum(written, &entry) || written <= self.taken {
            return None;
        }
        self.taken = written;
        Some(value)
    }

    /// What the other end had taken when it asked to be woken; nothing before it first does.
    fn bell_asked_at(&self) -> Option<u64> {
        let word = |index| {
            let word = self.memory.word(index * WORD);
            u64::from_le(word.load(Ordering::Acquire))
        };
        let (at, check) = (word(0), word(1));
        (check == checksum(0, &[at, 0, 0])).then_some(at)
    }
}

/// The queue that the other end takes from.
pub(crate) struct RemoteQueue {
    address: QueueAddress,
    put: u64,
    /// What this end had taken when it last asked for the bell, and what the other one had when it
    /// was last rung.
    asked_at: Option<u64>,
    rung_at: Option<u64>,
}

impl RemoteQueue {
    /// `ValidArr` of a receiver.
    ///
    /// # Errors
    /// When there is none, or one of so many entries cannot be.
    pub(crate) fn valid(address: Option<QueueAddress>, peer: &str) -> Result<Self> {
        Self::of(address, peer, "it has no queue to tell it of messages")
    }

    /// `FreeArr` of a source.
    ///
    /// # Errors
    /// When there is none, or one of so many entries cannot be.
    pub(crate) fn free(address: Option<QueueAddress>, peer: &str) -> Result<Self> {
        let address = address.filter(|queue| queue.entries > 0);
        Self::of(address, peer, "it answers without a queue for free buffers")
    }

    fn of(address: Option<QueueAddress>, peer: &str, lack: &str) -> Result<Self> {
        let address = address.ok_or_else(|| ExchangeError::protocol(peer, lack))?;
        if address.entries > ENTRIES_MAX {
            let reason = format!("its queue has {} entries", address.entries);
            return Err(ExchangeError::protocol(peer, reason));
        }
        Ok(Self {
            address,
            put: 0,
            asked_at: None,
            rung_at: None,
        })
    }

    /// Where it is.
    pub(crate) fn at(&self) -> RemoteAddress {
        self.address.at
    }

    /// Entries put so far.
    pub(crate) fn count(&self) -> u64 {
        self.put
    }

    /// Entries that it has room for at a time.
    pub(crate) fn entries(&self) -> u64 {
        self.address.entries.into()
    }

    /// The request that puts an entry. It is the caller's to know that there is room.
    pub(crate) fn put(&mut self, id: u64, entry: Entry) -> SendRequest {
        let at = entry_at(self.put, self.entries()).unwrap_or(ENTRIES_AT);
        let check = checksum(self.put, &entry);
        self.put += 1;
        write_words(
            id,
            self.address.at.offset(at),
            &[entry[0], entry[1], entry[2], check],
        )
    }

    /// The request that writes a value over the one before it, which nobody needs any more.
    pub(crate) fn put_newest(&mut self, id: u64, value: u64) -> SendRequest {
        self.put += 1;
        let entry = [self.put, value, 0];
        let check = checksum(self.put, &entry);
        write_words(
            id,
            self.address.at.offset(ENTRIES_AT),
            &[entry[0], entry[1], entry[2], check],
        )
    }

    /// The request that asks to be woken when there is more than the `taken` messages that this end
    /// has taken. It needs to be made once: after its completion whoever asked looks once more.
    pub(crate) fn ask_for_bell(&mut self, id: u64, taken: u64) -> Option<SendRequest> {
        if self.asked_at == Some(taken) {
            return None;
        }
        self.asked_at = Some(taken);
        let check = checksum(0, &[taken, 0, 0]);
        Some(write_words(id, self.address.at, &[taken, check]))
    }

    /// Whether to wake the other end now: it has asked in `own` to be woken when there are more messages
    /// than it had taken, `sent` of which there are by now. Said once for each time that it asked.
    pub(crate) fn must_ring(&mut self, own: &Queue, sent: u64) -> bool {
        let asked = own.bell_asked_at().filter(|asked| *asked < sent);
        if asked.is_none() || self.rung_at == asked {
            return false;
        }
        self.rung_at = asked;
        true
    }
}

/// The address of nothing.
pub(crate) const NOWHERE: RemoteAddress = RemoteAddress {
    address: 0,
    remote_key: 0,
};

fn entry_at(position: u64, entries: u64) -> Option<usize> {
    let index = position.checked_rem(entries)?;
    Some(ENTRIES_AT + index as usize * ENTRY_BYTES)
}

fn write_words(id: u64, at: RemoteAddress, words: &[u64]) -> SendRequest {
    let mut bytes = [0; ENTRY_BYTES];
    for (bytes, word) in bytes.chunks_exact_mut(WORD).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let inline = InlineBytes::new(&bytes[..words.len() * WORD]);
    SendRequest {
        id,
        operation: SendOperation::Write(at),
        payload: inline.map_or(Payload::Empty, Payload::Inline),
        destination: None,
    }
}

/// Of what is said at a position; never that of memory that nobody has written to.
pub(crate) fn checksum(position: u64, words: &Entry) -> u64 {
    let sum = words
        .iter()
        .fold(mix(position), |sum, word| mix(sum ^ *word));
    sum | 1
}

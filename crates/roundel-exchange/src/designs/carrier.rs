//! The interface between those who have messages and what carries them over one link: a carrier turns filled messages into
//! requests, and completions and what was written here into messages. It tells of the credit that is left, and what is
//! there. It posts nothing itself: an endpoint or the multiplexer does, and knows what fits.

use crate::error::Result;
use crate::fabric::Fabric;
use crate::link::header::{check_header, header_at};
use crate::link::queue::{Queue, QueueAddress, RemoteQueue};
use crate::wire::{HEADER_LENGTH, Header, WireError};
use roundel_verbs::work::InlineBytes;
use roundel_verbs::{
    Buffer, Completion, CompletionStatus, Payload, QueuePair, RemoteAddress, SendRequest,
    VerbsError,
};
use std::sync::Arc;

/// The size of a link: bytes of its messages, and how many its receiver has room for.
#[derive(Clone, Copy)]
pub(crate) struct LinkSizes {
    pub(crate) message_bytes: usize,
    pub(crate) least: usize,
    pub(crate) most: usize,
    /// Control messages that may be on their way at a time.
    pub(crate) control: usize,
    /// Whether credit is written to the source's memory.
    pub(crate) credit_in_memory: bool,
}

/// Allocates a buffer of so many bytes, of memory that can be exposed to peers where that is said.
pub(crate) type Allocate<'a> = &'a mut dyn FnMut(usize, bool) -> Result<Buffer>;

/// Requests to post one after the other.
pub(crate) type Requests = Vec<SendRequest>;
/// The next one, if there is one to be made; `Err` when the other end has broken the protocol.
pub(crate) type Next = Option<Result<SendRequest, &'static str>>;

/// A message at its source.
pub(crate) enum Filled {
    /// A control message, which is a header.
    Header(Header),
    /// To be sent or written. In a buffer, what [belongs behind it](crate::Design) is there.
    Bytes(Payload),
    /// To be read, by the receiver, that gives its number back.
    Exposed {
        at: RemoteAddress,
        length: usize,
        number: u64,
    },
}

impl Filled {
    /// Where it is to be read, it has this number.
    pub(crate) fn with_number(self, number: u64) -> Self {
        match self {
            Self::Exposed { at, length, .. } => Self::Exposed { at, length, number },
            other => other,
        }
    }

    pub(super) fn into_bytes(self) -> Result<Payload, &'static str> {
        match self {
            Self::Header(header) => Ok(inline(&header)),
            Self::Bytes(payload) => Ok(payload),
            Self::Exposed { .. } => Err("a message that it is to read"),
        }
    }
}

/// A message that is a header.
pub(crate) fn inline(header: &Header) -> Payload {
    let bytes = InlineBytes::new(&header.emit());
    Payload::Inline(bytes.expect("a header is smaller than an inline payload"))
}

/// The queues of a link, as one end sees them, by which an end that sleeps can be woken.
pub(crate) struct Bell<'a> {
    pub(crate) own: &'a Queue,
    pub(crate) there: &'a mut RemoteQueue,
    /// How many messages this end has taken, and how many of them it has told the other one.
    pub(crate) taken: u64,
    pub(crate) told: u64,
    /// Whether this end is woken by nothing else.
    pub(crate) asks: bool,
}

impl<'a> Bell<'a> {
    /// That of an end which takes and tells of entries of these queues, one by one.
    pub(crate) fn new(own: &'a Queue, there: &'a mut RemoteQueue) -> Self {
        let (taken, told) = (own.taken(), there.count());
        Self {
            own,
            there,
            taken,
            told,
            asks: true,
        }
    }

    /// Whether to wake the other end now.
    pub(crate) fn must_ring(&mut self) -> bool {
        self.there.must_ring(self.own, self.told)
    }

    /// The request that asks to be woken, if there is one to be made.
    pub(crate) fn ask(&mut self, id: u64) -> Option<SendRequest> {
        match self.asks {
            true => self.there.ask_for_bell(id, self.taken),
            false => None,
        }
    }
}

/// The end of a link at its source.
pub(crate) trait SourceEnd: Send {
    /// The queue that the receiver writes to.
    fn queue(&self) -> Option<&Queue> {
        None
    }

    /// The receiver is known, with a queue of its own where it has one, and so many messages may wait there at first.
    fn begin(&mut self, _valid: Option<QueueAddress>, _window: u32, _peer: &str) -> Result<()> {
        Ok(())
    }

    /// Messages that may be carried now, given the credit that is left.
    fn left(&self, credit: u32) -> u32 {
        credit
    }

    /// Messages that the receiver has allowed in all, modulo 2^32, given what it has granted.
    fn allowed(&self, granted: u32) -> u32 {
        granted
    }

    /// The requests that carry a message, with these marks: the first one where one request is enough. Of a header that is
    /// read, the first one is its number, too.
    fn carry(&mut self, message: Filled, ids: [u64; 2]) -> Result<Requests, &'static str>;

    /// Takes what the receiver has written here; returns the number of the next message that it has read.
    fn take(&mut self) -> Option<u64> {
        None
    }

    /// Takes the newest credit that the receiver has written here.
    fn take_credit(&mut self) -> Option<u32> {
        None
    }

    /// Whether the receiver needs no memory here any more.
    fn has_all_read(&self) -> bool {
        true
    }

    fn bell(&mut self) -> Option<Bell<'_>> {
        None
    }
}

/// The end of a link at its receiver.
pub(crate) trait ReceiverEnd: Send {
    /// The queue that the source writes to.
    fn queue(&self) -> Option<&Queue> {
        None
    }

    /// The source is known, with a queue of its own where it has one.
    fn begin(&mut self, _free: Option<QueueAddress>, _peer: &str) -> Result<()> {
        Ok(())
    }

    /// The credit that a source begins with before it is told any, and what it is granted first, given the buffers of the
    /// link.
    fn first_credit(&self, _buffers: usize) -> u32 {
        0
    }

    fn first_grant(&self, buffers: usize) -> usize {
        buffers
    }

    /// The receives that it begins with; there may be so many.
    fn first_receives(&mut self, most: usize) -> Vec<Option<Buffer>> {
        (0..most).map(|_| None).collect()
    }

    /// Whether a message uses up a receive, for which its source needs credit.
    fn counts_on_receives(&self) -> bool {
        false
    }

    /// Whether messages come into registered buffers of this end's.
    fn has_buffers(&self) -> bool {
        true
    }

    /// The request that writes a credit to the source's memory. `None` where credit is immediate data.
    fn tell_credit(&mut self, _id: u64, _credit: u32) -> Option<SendRequest> {
        None
    }

    /// The message that the completion of a receive brings. `None` for a bell, whose receive is posted again.
    fn received(&mut self, completion: Completion) -> Result<Option<Place>, &'static str> {
        match completion.written || completion.bytes == 0 {
            true => Ok(None),
            false => Err("it sends where it should write"),
        }
    }

    /// The next message that memory says is there, and its bytes. `open` says whether more may come.
    fn poll(&mut self, _open: bool) -> Option<Result<(Place, usize), &'static str>> {
        None
    }

    /// The oldest READ has ended.
    fn was_read(&mut self) {}

    /// A message of this number was consumed where it is.
    fn consumed(&mut self, _number: u64) {}

    /// Takes the buffer of a message back, which a retired one is not for. Returns the receive to post again.
    fn give_back(&mut self, buffer: Buffer, slot: u32, retired: bool) -> Option<Option<Buffer>>;

    /// The next request about buffers, given the window of the link.
    fn next_request(&mut self, _id: u64, _window: usize, _open: bool) -> Next {
        None
    }

    /// Adds up to so many buffers, as far as there is memory to spare; returns how many. `None` where receives have
    /// them.
    fn widen(&mut self, _fabric: &Fabric, _wanted: usize) -> Option<usize> {
        None
    }

    /// Whether messages wait and there is no buffer for them.
    fn is_starved(&self) -> bool {
        false
    }

    /// Buffers that nothing is in, where that is known here and not at the source.
    fn unused(&self) -> Option<usize> {
        None
    }

    fn bell(&mut self) -> Option<Bell<'_>> {
        None
    }
}

/// Where a message is until it is released.
#[derive(Debug)]
pub(crate) enum Place {
    /// In a registered buffer here, from a byte on; with the buffer's number, where the source writes to
    /// numbered ones.
    Here {
        buffer: Buffer,
        at: usize,
        slot: u32,
    },
    /// Still in the source's memory, which is read at once; with the number that the source gave it.
    There {
        queue_pair: Arc<QueuePair>,
        at: RemoteAddress,
        number: u64,
    },
}

impl Place {
    /// A buffer that begins with the message.
    pub(crate) fn of(buffer: Buffer) -> Self {
        Self::Here {
            buffer,
            at: 0,
            slot: 0,
        }
    }

    /// The number of the NUMA region that it is in; the first one where it is in the source's memory.
    pub(crate) fn region(&self) -> usize {
        match self {
            Self::Here { buffer, .. } => buffer.region().number(),
            Self::There { .. } => 0,
        }
    }

    /// The header of the message, which has so many bytes.
    ///
    /// # Errors
    /// How the connection ended over which it should have been read.
    pub(crate) fn header(
        &self,
        bytes: usize,
    ) -> Result<Result<Header, WireError>, CompletionStatus> {
        match self {
            Self::Here { buffer, at, .. } => Ok(header_at(buffer, *at, at.saturating_add(bytes))),
            Self::There { queue_pair, at, .. } => {
                let mut header = [0; HEADER_LENGTH];
                ended(queue_pair.read_at_once(*at, &mut header))?;
                Ok(check_header(&header, bytes))
            }
        }
    }

    /// Copies the payload, which has `target`'s length.
    pub(crate) fn copy_payload(&self, target: &mut [u8]) -> Result<(), CompletionStatus> {
        match self {
            Self::Here { buffer, at, .. } => {
                buffer.read(at + HEADER_LENGTH, target);
                Ok(())
            }
            Self::There { queue_pair, at, .. } => {
                ended(queue_pair.read_at_once(at.offset(HEADER_LENGTH), target))
            }
        }
    }

    /// Appends the payload of so many bytes, without clearing memory for it first; nothing where it fails.
    pub(crate) fn append_payload(
        &self,
        length: usize,
        target: &mut Vec<u8>,
    ) -> Result<(), CompletionStatus> {
        match self {
            Self::Here { buffer, at, .. } => {
                buffer.read_append(at + HEADER_LENGTH, length, target);
                Ok(())
            }
            Self::There { queue_pair, at, .. } => {
                let from = at.offset(HEADER_LENGTH);
                ended(queue_pair.read_at_once_append(from, length, target))
            }
        }
    }
}

/// How reading at once ended.
fn ended(read: Result<CompletionStatus, VerbsError>) -> Result<(), CompletionStatus> {
    match read {
        Ok(CompletionStatus::Success) => Ok(()),
        Ok(status) => Err(status),
        // Asked only of devices that can.
        Err(_) => Err(CompletionStatus::LocalOperation),
    }
}

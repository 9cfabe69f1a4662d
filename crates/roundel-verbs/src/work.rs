//! Work requests and work completions, with the buffers they own while they are in flight.

use crate::address_handle::AddressHandle;
use crate::counters::Opcode;
use crate::memory::{Buffer, RemoteAddress, SharedBuffer};
use crate::transport::Transport;

/// Largest payload that can travel inside a work request, in bytes; devices may take less.
pub const INLINE_BYTES_MAX: usize = 128;

/// What a send request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOperation {
    /// SEND to a receive that the peer posted.
    Send,
    /// SEND that also carries 32 bits to the receiver's completion.
    SendWithImmediate(u32),
    /// WRITE to the peer's memory; the peer is not told.
    Write(RemoteAddress),
    /// WRITE to the peer's memory; consumes a receive of the peer and tells it these 32 bits.
    WriteWithImmediate(RemoteAddress, u32),
    /// READ from the peer's memory into the payload's buffer.
    Read(RemoteAddress),
    /// Replaces the peer's aligned 64-bit word by `swap` if it is `compare`, in one step; the word
    /// as it was comes back in the payload's buffer.
    CompareAndSwap {
        /// Where the word is.
        at: RemoteAddress,
        /// The value that it must have.
        compare: u64,
        /// The value that it gets.
        swap: u64,
    },
    /// Adds to the peer's aligned 64-bit word, in one step and wrapping; the word as it was comes
    /// back in the payload's buffer.
    FetchAndAdd {
        /// Where the word is.
        at: RemoteAddress,
        /// The number that is added.
        add: u64,
    },
}

/// Bytes of the word of an atomic operation.
pub const ATOMIC_BYTES: usize = 8;

impl SendOperation {
    /// What the counters call it.
    pub fn opcode(&self) -> Opcode {
        match self {
            Self::Send | Self::SendWithImmediate(_) => Opcode::Send,
            Self::Write(_) => Opcode::Write,
            Self::WriteWithImmediate(..) => Opcode::WriteWithImmediate,
            Self::Read(_) => Opcode::Read,
            Self::CompareAndSwap { .. } => Opcode::CompareAndSwap,
            Self::FetchAndAdd { .. } => Opcode::FetchAndAdd,
        }
    }

    /// Whether queue pairs of a transport carry it.
    pub(crate) fn travels_on(&self, transport: Transport) -> bool {
        match self {
            Self::Send | Self::SendWithImmediate(_) => true,
            Self::Write(_) | Self::WriteWithImmediate(..) => transport.is_connected(),
            Self::Read(_) | Self::CompareAndSwap { .. } | Self::FetchAndAdd { .. } => {
                transport == Transport::ReliableConnection
            }
        }
    }

    /// Whether 32 bits are handed to the receiver's completion.
    pub(crate) fn has_immediate(&self) -> bool {
        matches!(
            self,
            Self::SendWithImmediate(_) | Self::WriteWithImmediate(..)
        )
    }

    /// Whether bytes come back into the payload's buffer.
    pub(crate) fn returns_bytes(&self) -> bool {
        matches!(self, Self::Read(_)) || self.atomic_word().is_some()
    }

    /// The word of an atomic operation.
    pub(crate) fn atomic_word(&self) -> Option<RemoteAddress> {
        match self {
            Self::CompareAndSwap { at, .. } | Self::FetchAndAdd { at, .. } => Some(*at),
            _ => None,
        }
    }
}

/// The bytes of a send request.
#[derive(Debug)]
pub enum Payload {
    /// No bytes at all.
    Empty,
    /// A copy of a few bytes, kept in the work request itself.
    Inline(InlineBytes),
    /// The first `length` bytes of a buffer, which comes back in the completion. The only payload
    /// a READ and the atomics take.
    Owned {
        /// The buffer.
        buffer: Buffer,
        /// Bytes in use.
        length: usize,
    },
    /// The first `length` bytes of a buffer that is posted to every member of a transmission
    /// group.
    Shared {
        /// The buffer.
        buffer: SharedBuffer,
        /// Bytes in use.
        length: usize,
    },
}

impl Payload {
    /// Bytes that travel.
    pub fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Inline(bytes) => bytes.as_slice().len(),
            Self::Owned { length, .. } | Self::Shared { length, .. } => *length,
        }
    }

    /// Whether no byte travels.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A payload of at most [`INLINE_BYTES_MAX`] bytes.
#[derive(Clone, Copy)]
pub struct InlineBytes {
    bytes: [u8; INLINE_BYTES_MAX],
    length: u8,
}

impl InlineBytes {
    /// Copies the bytes; `None` when they are more than [`INLINE_BYTES_MAX`].
    pub fn new(source: &[u8]) -> Option<Self> {
        Self::joined(source, &[])
    }

    /// The same of two parts, one after the other.
    pub fn joined(first: &[u8], second: &[u8]) -> Option<Self> {
        let (between, length) = (first.len(), first.len() + second.len());
        let mut bytes = [0; INLINE_BYTES_MAX];
        bytes.get_mut(..between)?.copy_from_slice(first);
        bytes.get_mut(between..length)?.copy_from_slice(second);
        Some(Self {
            bytes,
            length: length as u8,
        })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }
}

impl std::fmt::Debug for InlineBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InlineBytes({} bytes)", self.length)
    }
}

/// A request for the send queue. Every request is signalled: it ends in exactly one completion.
#[derive(Debug)]
pub struct SendRequest {
    /// The caller's mark, handed back in the completion.
    pub id: u64,
    /// The verb, and the peer's memory that it is for.
    pub operation: SendOperation,
    /// The bytes that it sends, or the buffer that it fills.
    pub payload: Payload,
    /// The receiver. Needed on UD, ignored on a connected transport.
    pub destination: Option<AddressHandle>,
}

/// A request for the receive queue.
#[derive(Debug)]
pub struct ReceiveRequest {
    /// The caller's mark, handed back in the completion.
    pub id: u64,
    /// Where the message goes, whole; `None` takes empty messages and WRITEs with immediate data
    /// only. On UD the first [`GRH_BYTES`](crate::capabilities::GRH_BYTES) bytes are the global
    /// routing header's.
    pub buffer: Option<Buffer>,
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionStatus {
    /// The request was carried out.
    Success,
    /// The posted receive was too small for the message.
    LocalLength,
    /// The request named local memory that is not registered so.
    LocalProtection,
    /// Something was wrong with the request at this end; the device does not say what. Soft-RoCE
    /// ends so what others end as [`LocalLength`](Self::LocalLength) and
    /// [`LocalProtection`](Self::LocalProtection).
    LocalOperation,
    /// The queue pair went to the error state before the request was served.
    Flushed,
    /// The peer refused the request as malformed: its receive was too small.
    RemoteInvalidRequest,
    /// The remote key, the range or the rights do not allow the access.
    RemoteAccess,
    /// The peer could not carry the request out; its device does not say why. Soft-RoCE ends so
    /// what others end as [`RemoteInvalidRequest`](Self::RemoteInvalidRequest).
    RemoteOperation,
    /// The peer never posted a receive.
    ReceiverNotReady,
    /// The peer is dead, or its queue pair is not there any more.
    RetryExceeded,
    /// The device failed in another way; its log says more.
    Failed,
}

/// The end of a work request, with the buffer it owned.
#[derive(Debug)]
pub struct Completion {
    /// The caller's mark.
    pub id: u64,
    /// The number of the queue pair it was posted to.
    pub queue_pair: u32,
    /// How it ended.
    pub status: CompletionStatus,
    /// What it was; receives are [`Opcode::Receive`].
    pub opcode: Opcode,
    /// Payload bytes received or read; on UD with the global routing header. Never more than the
    /// buffer has, unless they were `written`.
    pub bytes: usize,
    /// A receive that a WRITE with immediate data consumed: the bytes are in exposed memory, the
    /// buffer was not used.
    pub written: bool,
    /// Immediate data of the message received.
    pub immediate: Option<u32>,
    /// The owned buffer of the request, if it had one.
    pub buffer: Option<Buffer>,
    /// On UD: the number of the queue pair that sent the datagram. As the sender wrote it.
    pub source_queue_pair: u32,
}

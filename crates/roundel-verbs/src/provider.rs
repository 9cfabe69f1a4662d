//! The traits that a provider implements. [`Device`](crate::Device) and the types around it put ownership on
//! top of this: they keep every buffer that a posted request names until its completion.

use crate::address::{DeviceAddress, QueuePairAddress};
pub use crate::address_handle::ProviderAddressHandle;
use crate::capabilities::Capabilities;
use crate::counters::{CounterSnapshot, Counters, Opcode};
use crate::error::{Result, VerbsError};
pub use crate::memory::ProviderSegment;
use crate::memory::{Buffer, RemoteAddress};
use crate::multicast::MulticastGroup;
use crate::transport::{QueuePairState, Transport};
use crate::work::{CompletionStatus, InlineBytes, SendOperation};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A device of a provider.
pub trait ProviderDevice: Send + Sync {
    /// Limits and properties.
    fn capabilities(&self) -> &Capabilities;
    /// Its address, for peers.
    fn address(&self) -> DeviceAddress;
    /// Registers new memory of at least `length` bytes; `exposed` memory may be read and written
    /// remotely by whoever has its remote key. It is to lie on a NUMA node, or where it is best for the device; where
    /// that cannot be, it lies elsewhere.
    fn register_segment(
        &self,
        length: usize,
        exposed: bool,
        node: Option<u32>,
    ) -> Result<Box<dyn ProviderSegment>>;
    /// A channel whose file descriptor becomes readable when an armed queue has a completion.
    fn create_channel(&self) -> Result<Arc<dyn ProviderChannel>>;
    /// A completion queue, on a channel if its user wants to sleep.
    fn create_completion_queue(
        &self,
        depth: usize,
        channel: Option<&Arc<dyn ProviderChannel>>,
    ) -> Result<Arc<dyn ProviderCompletionQueue>>;
    /// A queue pair in state INIT.
    fn create_queue_pair(&self, options: RawQueuePairOptions)
    -> Result<Arc<dyn ProviderQueuePair>>;
    /// Resolves a UD destination.
    fn create_address_handle(
        &self,
        remote: &QueuePairAddress,
    ) -> Result<Arc<dyn ProviderAddressHandle>>;
    /// Counts over all queue pairs, the destroyed ones too.
    fn counters(&self) -> CounterSnapshot;
    /// A shared receive queue for at most `depth` receives.
    fn create_shared_receive_queue(
        &self,
        _depth: usize,
    ) -> Result<Arc<dyn ProviderSharedReceiveQueue>> {
        Err(self.unsupported("shared receive queues"))
    }
    /// Resolves a multicast group as a UD destination.
    fn create_multicast_handle(
        &self,
        _group: &MulticastGroup,
    ) -> Result<Arc<dyn ProviderAddressHandle>> {
        Err(self.unsupported("multicast"))
    }
    /// The error of what this provider does not have.
    fn unsupported(&self, what: &'static str) -> VerbsError {
        VerbsError::Unsupported {
            provider: self.capabilities().provider,
            what,
        }
    }
}

/// A completion channel.
pub trait ProviderChannel: Send + Sync + std::any::Any {
    /// Readable when there is an event.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Takes the events that are there, so that the descriptor is readable only for new ones.
    fn acknowledge(&self);
    /// Makes the descriptor readable, as an event would.
    fn notify(&self);
    /// Ready when there is an event, for those that run on virtual time and cannot wait for a descriptor;
    /// `None` where they can.
    fn poll_event(&self, _cx: &mut Context<'_>) -> Option<Poll<()>> {
        None
    }
}

/// A completion queue.
pub trait ProviderCompletionQueue: Send + Sync + std::any::Any {
    /// Appends at most `limit` completions; returns how many.
    fn poll(&self, completions: &mut Vec<RawCompletion>, limit: usize) -> usize;
    /// Asks for an event on the channel at the next completion; returns whether it was armed
    /// already. Poll once more afterwards: a completion that came before the arming makes no event.
    fn arm(&self) -> bool;
    /// Whether it is armed and has not fired.
    fn armed(&self) -> bool;
    /// Wakes a task once when there may be something new: a completion here, or what was written through a
    /// queue pair of this queue. For tasks that would look again and again on virtual time; false where they
    /// can.
    fn wake_when_new(&self, _waker: &Waker) -> bool {
        false
    }
}

/// A queue pair.
pub trait ProviderQueuePair: Send + Sync {
    /// Its address, for peers.
    fn address(&self) -> QueuePairAddress;
    /// The state now; a dead peer moves it to the error state.
    fn state(&self) -> QueuePairState;
    /// INIT → RTR → RTS: connects to `remote` (RC), or becomes ready (UD, `None`).
    fn connect(&self, remote: Option<&QueuePairAddress>) -> Result<()>;
    /// Any state → ERR: posted requests complete as flushed.
    fn modify_to_error(&self);
    /// Posts to the send queue; returns how many of the requests fitted.
    ///
    /// # Safety
    /// The memory that each accepted request names stays valid, and is not written by this
    /// process, until its completion has been polled or the queue pair has been dropped.
    #[allow(unsafe_code)]
    unsafe fn post_send(&self, requests: &[RawSendRequest]) -> Result<usize>;
    /// Posts to the receive queue; returns how many of the requests fitted.
    ///
    /// # Safety
    /// The memory that each accepted request names stays valid, and is not touched by this
    /// process, until its completion has been polled or the queue pair has been dropped.
    #[allow(unsafe_code)]
    unsafe fn post_receive(&self, requests: &[RawReceiveRequest]) -> Result<usize>;
    /// Copies from the peer's exposed memory at once, ahead of everything posted, and breaks where a
    /// READ would. After a success every byte of the target is initialised; none is ever made anything
    /// else. `None` where all READs go through the queue, which the capabilities say.
    fn read_at_once(
        &self,
        _from: RemoteAddress,
        _target: &mut [MaybeUninit<u8>],
    ) -> Option<CompletionStatus> {
        None
    }
    /// Makes it a member of a multicast group until it is destroyed. Called only where the
    /// capabilities have groups.
    fn join_multicast(&self, group: &MulticastGroup) -> Result<()>;
    /// Counters of this queue pair.
    fn counters(&self) -> &Counters;
    /// Hands the buffers over that a peer may still write into although the queue pair is being
    /// destroyed. They are kept until that is over.
    fn destroy(&self, posted: Vec<Buffer>);
}

/// A receive queue of many queue pairs.
pub trait ProviderSharedReceiveQueue: Send + Sync + std::any::Any {
    /// Posts receives; returns how many of the requests fitted.
    ///
    /// # Safety
    /// As for [`ProviderQueuePair::post_receive`], until the completion has been polled or
    /// `destroy` has returned.
    #[allow(unsafe_code)]
    unsafe fn post_receive(&self, requests: &[RawReceiveRequest]) -> Result<usize>;
    /// The ids of receives that queue pairs took which were destroyed before the completions were
    /// polled; each is reported once.
    fn take_abandoned(&self) -> Vec<u64>;
    /// Destroys it, after its queue pairs.
    fn destroy(&self);
}

/// What a queue pair is created with.
pub struct RawQueuePairOptions {
    /// RC, UC or UD.
    pub transport: Transport,
    /// Where send completions go.
    pub send_queue: Arc<dyn ProviderCompletionQueue>,
    /// Where receive completions go.
    pub receive_queue: Arc<dyn ProviderCompletionQueue>,
    /// Most sends in flight.
    pub send_depth: usize,
    /// Most receives posted.
    pub receive_depth: usize,
    /// How often a SEND is tried again when the receiver is not ready; 7 is without end.
    pub rnr_retry: u8,
    /// The queue key of a UD queue pair.
    pub queue_key: u32,
    /// Where its receives come from, if not from a queue of its own.
    pub shared_receive_queue: Option<Arc<dyn ProviderSharedReceiveQueue>>,
}

/// A send request in the provider's terms.
pub struct RawSendRequest {
    /// Handed back in the completion.
    pub id: u64,
    /// The verb, and the peer's memory that it is for.
    pub operation: SendOperation,
    /// Inline bytes; then the local range is empty.
    pub inline: Option<InlineBytes>,
    /// Local memory: address, bytes, local key.
    pub local: RawLocal,
    /// The receiver on UD; none on a connected transport.
    pub destination: Option<Arc<dyn ProviderAddressHandle>>,
}

/// A receive request in the provider's terms.
pub struct RawReceiveRequest {
    /// Handed back in the completion.
    pub id: u64,
    /// Local memory.
    pub local: RawLocal,
}

/// A range of registered memory of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawLocal {
    /// Address in this process.
    pub address: u64,
    /// Length in bytes.
    pub length: usize,
    /// Local key of its region.
    pub local_key: u32,
}

impl RawLocal {
    /// All of a buffer.
    pub(crate) fn of(buffer: &Buffer) -> Self {
        Self {
            address: buffer.address(),
            length: buffer.len(),
            local_key: buffer.local_key(),
        }
    }
}

/// A completion in the provider's terms.
#[derive(Clone, Copy, Debug)]
pub struct RawCompletion {
    /// The request's mark.
    pub id: u64,
    /// Number of the queue pair.
    pub queue_pair: u32,
    /// How it ended.
    pub status: CompletionStatus,
    /// What it was.
    pub opcode: Opcode,
    /// Payload bytes. Of a receive, at most as many as its memory has, unless they were `written`.
    pub bytes: usize,
    /// The receive was consumed by a WRITE with immediate data: its memory was not used.
    pub written: bool,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// On UD, the sender's queue pair number.
    pub source_queue_pair: u32,
}

//! Queue pairs: connected (RC) or datagram (UD), and the buffers of the requests in flight.
#![allow(unsafe_code)] // Upholds the contract of the provider's verbs by keeping the buffers.

use crate::address::QueuePairAddress;
use crate::completion_queue::CompletionQueue;
use crate::counters::{CountedQueuePair, CounterSnapshot};
use crate::error::{Result, VerbsError};
use crate::in_flight::InFlight;
use crate::memory::{Buffer, RemoteAddress};
use crate::multicast::MulticastGroup;
use crate::provider::ProviderQueuePair;
use crate::shared_receive::SharedReceiveQueue;
use crate::work::{ATOMIC_BYTES, CompletionStatus, Payload, ReceiveRequest, SendRequest};
use std::mem::MaybeUninit;
use std::sync::Arc;

pub use crate::address_handle::AddressHandle;
pub use crate::transport::{QueuePairState, Transport};

/// What a queue pair is created with.
#[derive(Clone, Debug)]
pub struct QueuePairOptions {
    /// RC, UC or UD.
    pub transport: Transport,
    /// Most sends in flight; more are refused until completions are polled.
    pub send_depth: usize,
    /// Most receives posted.
    pub receive_depth: usize,
    /// How often a SEND is tried again when the receiver is not ready; 7 is without end.
    pub rnr_retry: u8,
    /// The queue key of a UD queue pair: random per exchange, at most [`QUEUE_KEY_MAX`].
    pub queue_key: u32,
}

/// Largest queue key. Those above are the operating system's: a queue pair takes one only from a
/// privileged user, and a send to one carries the sender's own instead.
pub const QUEUE_KEY_MAX: u32 = u32::MAX >> 1;

/// What a device takes in a request.
pub(crate) struct RequestLimits {
    /// Most bytes of an inline payload.
    pub inline_bytes_max: usize,
    /// Whether SENDs and WRITEs may carry immediate data.
    pub immediate_data: bool,
}

/// A queue pair. Dropping it destroys it; buffers of requests in flight go back to their arena
/// as soon as no device can touch them any more.
pub struct QueuePair {
    provider: Arc<dyn ProviderQueuePair>,
    in_flight: Arc<InFlight>,
    address: QueuePairAddress,
    options: QueuePairOptions,
    limits: RequestLimits,
    send_queue: CompletionQueue,
    receive_queue: CompletionQueue,
    shared: Option<SharedReceiveQueue>,
    _counted: CountedQueuePair,
}

impl QueuePair {
    pub(crate) fn new(
        provider: Arc<dyn ProviderQueuePair>,
        options: QueuePairOptions,
        limits: RequestLimits,
        send_queue: CompletionQueue,
        receive_queue: CompletionQueue,
        shared: Option<SharedReceiveQueue>,
        counted: CountedQueuePair,
    ) -> Self {
        let receives = shared
            .as_ref()
            .map_or_else(Arc::default, |shared| shared.receives().clone());
        let in_flight = Arc::new(InFlight::new(receives));
        let address = provider.address();
        send_queue.attach(address.number, &in_flight);
        receive_queue.attach(address.number, &in_flight);
        Self {
            provider,
            in_flight,
            address,
            options,
            limits,
            send_queue,
            receive_queue,
            shared,
            _counted: counted,
        }
    }

    /// Its address, for peers.
    pub fn address(&self) -> &QueuePairAddress {
        &self.address
    }

    /// Its number on its device.
    pub fn number(&self) -> u32 {
        self.address.number
    }

    /// The state now.
    pub fn state(&self) -> QueuePairState {
        self.provider.state()
    }

    /// Messages and bytes so far.
    pub fn counters(&self) -> CounterSnapshot {
        self.provider.counters().snapshot()
    }

    /// Connects an RC or UC queue pair to its peer's; both sides call it.
    pub fn connect(&self, remote: &QueuePairAddress) -> Result<()> {
        if !self.options.transport.is_connected() {
            return Err(VerbsError::UnsupportedOnTransport {
                operation: "connect",
                transport: self.options.transport,
            });
        }
        self.provider.connect(Some(remote))
    }

    /// Makes a UD queue pair ready to send and receive.
    pub fn activate(&self) -> Result<()> {
        if self.options.transport != Transport::UnreliableDatagram {
            return Err(VerbsError::UnsupportedOnTransport {
                operation: "activate",
                transport: self.options.transport,
            });
        }
        self.provider.connect(None)
    }

    /// Joins a multicast group: from now on it gets what is sent to the group, as long as it
    /// lives. For UD queue pairs whose queue key is the group's. Joining twice is joining once.
    pub fn join(&self, group: &MulticastGroup) -> Result<()> {
        if self.options.transport != Transport::UnreliableDatagram {
            return Err(VerbsError::UnsupportedOnTransport {
                operation: "multicast",
                transport: self.options.transport,
            });
        }
        if self.options.queue_key != group.queue_key {
            return Err(VerbsError::InvalidRequest(
                "the multicast group has another queue key than the queue pair".into(),
            ));
        }
        self.provider.join_multicast(group)
    }

    /// Moves it to the error state: everything posted completes as flushed.
    pub fn modify_to_error(&self) {
        self.provider.modify_to_error();
    }

    /// Posts requests to the send queue, from the front of the vector, and removes those that
    /// were taken. Returns how many: fewer than there are when the queue is full, which is
    /// back-pressure: poll completions, then post the rest.
    pub fn post_send(&self, requests: &mut Vec<SendRequest>) -> Result<usize> {
        for request in requests.iter() {
            self.check(request)?;
        }
        let depth = self.options.send_depth;
        self.in_flight.sends().post(requests, depth, |raw| {
            // SAFETY: the slots hold the buffers of all requests until a polled completion takes
            // them, or those that were refused go back, or until the queue pair is dropped, which
            // destroys it at the provider first.
            unsafe { self.provider.post_send(raw) }
        })
    }

    /// Posts requests to the receive queue, from the front of the vector, and removes those that
    /// were taken; returns how many.
    ///
    /// # Errors
    /// When its receives come from a shared receive queue.
    pub fn post_receive(&self, requests: &mut Vec<ReceiveRequest>) -> Result<usize> {
        if self.shared.is_some() {
            return Err(VerbsError::InvalidRequest(
                "a receive for a queue pair that takes them from a shared receive queue".into(),
            ));
        }
        let depth = self.options.receive_depth;
        self.in_flight.receives().post(requests, depth, |raw| {
            // SAFETY: as in `post_send`; in addition the buffers are owned, so nothing in this
            // process touches them meanwhile.
            unsafe { self.provider.post_receive(raw) }
        })
    }

    /// A READ into any memory, which is over when this returns, for devices whose
    /// [capabilities](crate::Capabilities::reads_at_once) have it. It overtakes everything posted, and
    /// makes no completion: how it ended is the answer. An end other than success breaks the connection,
    /// except that a peer that has not connected yet is not ready.
    ///
    /// # Errors
    /// Where it cannot be.
    pub fn read_at_once(&self, from: RemoteAddress, target: &mut [u8]) -> Result<CompletionStatus> {
        let bytes: *mut [u8] = target;
        // SAFETY: the same bytes under another type; those who get them initialise them, or leave them
        // as they are.
        let target = unsafe { &mut *(bytes as *mut [MaybeUninit<u8>]) };
        self.copy_from_peer(from, target)
    }

    /// The same, appended to a vector that is not cleared first, unless it fails.
    ///
    /// # Errors
    /// Where it cannot be.
    pub fn read_at_once_append(
        &self,
        from: RemoteAddress,
        length: usize,
        target: &mut Vec<u8>,
    ) -> Result<CompletionStatus> {
        target.reserve(length);
        let status = self.copy_from_peer(from, &mut target.spare_capacity_mut()[..length])?;
        if status == CompletionStatus::Success {
            // SAFETY: so many bytes beyond the length were reserved, and are initialised after a success.
            unsafe { target.set_len(target.len() + length) };
        }
        Ok(status)
    }

    fn copy_from_peer(
        &self,
        from: RemoteAddress,
        target: &mut [MaybeUninit<u8>],
    ) -> Result<CompletionStatus> {
        let read = match self.options.transport {
            Transport::ReliableConnection => self.provider.read_at_once(from, target),
            _ => None,
        };
        read.ok_or(VerbsError::UnsupportedOnTransport {
            operation: "read at once",
            transport: self.options.transport,
        })
    }

    fn check(&self, request: &SendRequest) -> Result<()> {
        match &request.payload {
            Payload::Empty => {}
            Payload::Inline(bytes) => {
                let length = bytes.as_slice().len();
                let most = self.limits.inline_bytes_max;
                if length > most {
                    return Err(VerbsError::InvalidRequest(format!(
                        "{length} inline bytes, the device takes {most}"
                    )));
                }
            }
            Payload::Owned { buffer, length } => check_part(buffer, *length)?,
            Payload::Shared { buffer, length } => check_part(buffer.buffer(), *length)?,
        }
        let operation = &request.operation;
        if operation.has_immediate() && !self.limits.immediate_data {
            return Err(VerbsError::InvalidRequest(format!(
                "{} with immediate data, which the device does not have: its capabilities say so",
                operation.opcode().name()
            )));
        }
        if operation.returns_bytes() && !matches!(request.payload, Payload::Owned { .. }) {
            return Err(VerbsError::InvalidRequest(format!(
                "{} needs an owned buffer for what comes back",
                operation.opcode().name()
            )));
        }
        if let Some(at) = operation.atomic_word()
            && (request.payload.len() != ATOMIC_BYTES
                || !at.address.is_multiple_of(ATOMIC_BYTES as u64))
        {
            return Err(VerbsError::InvalidRequest(format!(
                "an atomic of {} bytes at {:#x}: it takes a word of {ATOMIC_BYTES} bytes, aligned",
                request.payload.len(),
                at.address
            )));
        }
        let transport = self.options.transport;
        if !operation.travels_on(transport) {
            return Err(VerbsError::UnsupportedOnTransport {
                operation: operation.opcode().name(),
                transport,
            });
        }
        if transport == Transport::UnreliableDatagram && request.destination.is_none() {
            return Err(VerbsError::InvalidRequest(
                "a datagram needs a destination".into(),
            ));
        }
        Ok(())
    }
}

fn check_part(buffer: &Buffer, length: usize) -> Result<()> {
    if length > buffer.len() {
        return Err(VerbsError::InvalidRequest(format!(
            "{length} bytes of a buffer of {}",
            buffer.len()
        )));
    }
    Ok(())
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let sends = self.in_flight.sends().take_all();
        let posted = match self.shared {
            Some(_) => Vec::new(),
            None => self.in_flight.receives().take_all(),
        };
        self.provider.destroy(posted);
        // Not before: until then a receive from the shared queue may complete elsewhere.
        self.send_queue.detach(self.number(), &self.in_flight);
        self.receive_queue.detach(self.number(), &self.in_flight);
        if let Some(shared) = &self.shared {
            shared.reclaim();
        }
        // After `destroy` nothing reads the buffers of sends: `shm` serves them in this process,
        // devices are done with a queue pair when it is destroyed.
        drop(sends);
    }
}

impl std::fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuePair")
            .field("number", &self.number())
            .field("transport", &self.options.transport)
            .field("state", &self.state())
            .finish()
    }
}

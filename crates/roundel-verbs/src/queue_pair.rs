//! Queue pairs: connected (RC) or datagram (UD), and the buffers of the requests in flight.
#![allow(unsafe_code)] // Upholds the contract of the provider's post verbs by keeping the buffers.

use crate::address::QueuePairAddress;
use crate::completion_queue::CompletionQueue;
use crate::counters::CounterSnapshot;
use crate::error::{Result, VerbsError};
use crate::memory::{Buffer, SharedBuffer};
use crate::provider::{
    ProviderAddressHandle, ProviderQueuePair, RawLocal, RawReceiveRequest, RawSendRequest,
};
use crate::work::{Payload, ReceiveRequest, SendOperation, SendRequest};
use parking_lot::Mutex;
use std::sync::Arc;

/// The transport service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// Reliable connection: one peer, in order, nothing lost.
    ReliableConnection,
    /// Unreliable datagram: any peer, small messages, may lose and reorder.
    UnreliableDatagram,
}

/// The state machine of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueuePairState {
    /// Created: receives may be posted.
    Init,
    /// Ready to send (and to receive).
    ReadyToSend,
    /// Broken: everything posted is flushed.
    Error,
}

/// What a queue pair is created with.
#[derive(Clone, Debug)]
pub struct QueuePairOptions {
    /// RC or UD.
    pub transport: Transport,
    /// Most sends in flight; more are refused until completions are polled.
    pub send_depth: usize,
    /// Most receives posted.
    pub receive_depth: usize,
    /// How often a SEND is tried again when the receiver is not ready; 7 is without end.
    pub rnr_retry: u8,
    /// The queue key of a UD queue pair: random per exchange.
    pub queue_key: u32,
}

/// A resolved UD destination.
#[derive(Clone)]
pub struct AddressHandle(pub(crate) Arc<dyn ProviderAddressHandle>);

impl std::fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AddressHandle")
    }
}

/// A queue pair. Dropping it destroys it; buffers of requests in flight go back to their arena
/// as soon as no device can touch them any more.
pub struct QueuePair {
    provider: Arc<dyn ProviderQueuePair>,
    in_flight: Arc<InFlight>,
    address: QueuePairAddress,
    transport: Transport,
    inline_bytes_max: usize,
    send_queue: CompletionQueue,
    receive_queue: CompletionQueue,
}

/// What posted requests own, until they complete.
#[derive(Default)]
pub(crate) struct InFlight {
    sends: Mutex<Slots<SendSlot>>,
    receives: Mutex<Slots<ReceiveSlot>>,
}

struct SendSlot {
    id: u64,
    buffer: PostedBuffer,
}

struct ReceiveSlot {
    id: u64,
    buffer: Option<Buffer>,
}

enum PostedBuffer {
    None,
    Owned(Buffer),
    Shared(SharedBuffer),
}

/// Slots with stable indices and a free list.
struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[index] = Some(value);
        index as u64
    }

    fn remove(&mut self, index: u64) -> Option<T> {
        let value = self.slots.get_mut(index as usize)?.take()?;
        self.free.push(index as usize);
        Some(value)
    }
}

impl InFlight {
    /// Ends a send: its mark and the buffer it owned.
    pub(crate) fn complete_send(&self, slot: u64) -> Option<(u64, Option<Buffer>)> {
        let slot = self.sends.lock().remove(slot)?;
        let buffer = match slot.buffer {
            PostedBuffer::Owned(buffer) => Some(buffer),
            PostedBuffer::Shared(_) | PostedBuffer::None => None,
        };
        Some((slot.id, buffer))
    }

    /// Ends a receive: its mark and its buffer.
    pub(crate) fn complete_receive(&self, slot: u64) -> Option<(u64, Option<Buffer>)> {
        let slot = self.receives.lock().remove(slot)?;
        Some((slot.id, slot.buffer))
    }
}

impl QueuePair {
    pub(crate) fn new(
        provider: Arc<dyn ProviderQueuePair>,
        transport: Transport,
        inline_bytes_max: usize,
        send_queue: CompletionQueue,
        receive_queue: CompletionQueue,
    ) -> Self {
        let in_flight = Arc::new(InFlight::default());
        let address = provider.address();
        send_queue.attach(address.number, &in_flight);
        receive_queue.attach(address.number, &in_flight);
        Self {
            provider,
            in_flight,
            address,
            transport,
            inline_bytes_max,
            send_queue,
            receive_queue,
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

    /// Connects an RC queue pair to its peer's; both sides call it.
    pub fn connect(&self, remote: &QueuePairAddress) -> Result<()> {
        if self.transport != Transport::ReliableConnection {
            return Err(VerbsError::UnsupportedOnTransport {
                operation: "connect",
                transport: self.transport,
            });
        }
        self.provider.connect(Some(remote))
    }

    /// Makes a UD queue pair ready to send and receive.
    pub fn activate(&self) -> Result<()> {
        if self.transport != Transport::UnreliableDatagram {
            return Err(VerbsError::UnsupportedOnTransport {
                operation: "activate",
                transport: self.transport,
            });
        }
        self.provider.connect(None)
    }

    /// Moves it to the error state: everything posted completes as flushed.
    pub fn modify_to_error(&self) {
        self.provider.modify_to_error();
    }

    /// Posts requests to the send queue, from the front of the vector, and removes those that
    /// were taken. Returns how many: fewer than there are when the queue is full, which is
    /// back-pressure: poll completions, then post the rest.
    pub fn post_send(&self, requests: &mut Vec<SendRequest>) -> Result<usize> {
        let mut raw = Vec::with_capacity(requests.len());
        for request in requests.iter() {
            raw.push(self.raw_send(request)?);
        }
        // The slots are filled before the provider sees the requests: another thread may poll
        // their completions before this call returns.
        {
            let mut sends = self.in_flight.sends.lock();
            for (raw, request) in raw.iter_mut().zip(requests.iter_mut()) {
                let buffer = match std::mem::replace(&mut request.payload, Payload::Empty) {
                    Payload::Empty | Payload::Inline(_) => PostedBuffer::None,
                    Payload::Owned { buffer, .. } => PostedBuffer::Owned(buffer),
                    Payload::Shared { buffer, .. } => PostedBuffer::Shared(buffer),
                };
                raw.id = sends.insert(SendSlot {
                    id: request.id,
                    buffer,
                });
            }
        }
        // SAFETY: the slots hold the buffers of all requests until `complete_send` takes them,
        // which only a polled completion or the rollback below does, or until the queue pair is
        // dropped, which destroys it at the provider first.
        let posted = unsafe { self.provider.post_send(&raw) };
        let taken = *posted.as_ref().unwrap_or(&0);
        let mut sends = self.in_flight.sends.lock();
        for (raw, request) in raw.iter().zip(requests.iter_mut()).skip(taken) {
            let slot = sends
                .remove(raw.id)
                .expect("a request that was not posted keeps its slot");
            request.payload = match (slot.buffer, raw.inline) {
                (PostedBuffer::Owned(buffer), _) => Payload::Owned {
                    buffer,
                    length: raw.local.length,
                },
                (PostedBuffer::Shared(buffer), _) => Payload::Shared {
                    buffer,
                    length: raw.local.length,
                },
                (PostedBuffer::None, Some(bytes)) => Payload::Inline(bytes),
                (PostedBuffer::None, None) => Payload::Empty,
            };
        }
        drop(sends);
        requests.drain(..taken);
        posted
    }

    /// Posts requests to the receive queue, from the front of the vector, and removes those that
    /// were taken; returns how many.
    pub fn post_receive(&self, requests: &mut Vec<ReceiveRequest>) -> Result<usize> {
        let mut raw = Vec::with_capacity(requests.len());
        {
            let mut receives = self.in_flight.receives.lock();
            for request in requests.iter_mut() {
                let local = request.buffer.as_ref().map_or(RawLocal::default(), local);
                let id = receives.insert(ReceiveSlot {
                    id: request.id,
                    buffer: request.buffer.take(),
                });
                raw.push(RawReceiveRequest { id, local });
            }
        }
        // SAFETY: as in `post_send`; in addition the buffers are owned, so nothing in this
        // process touches them meanwhile.
        let posted = unsafe { self.provider.post_receive(&raw) };
        let taken = *posted.as_ref().unwrap_or(&0);
        let mut receives = self.in_flight.receives.lock();
        for (raw, request) in raw.iter().zip(requests.iter_mut()).skip(taken) {
            let slot = receives
                .remove(raw.id)
                .expect("a request that was not posted keeps its slot");
            request.buffer = slot.buffer;
        }
        drop(receives);
        requests.drain(..taken);
        posted
    }

    fn raw_send(&self, request: &SendRequest) -> Result<RawSendRequest> {
        let (inline, local) = match &request.payload {
            Payload::Empty => (None, RawLocal::default()),
            Payload::Inline(bytes) => {
                if bytes.as_slice().len() > self.inline_bytes_max {
                    return Err(VerbsError::InvalidRequest(format!(
                        "{} inline bytes, the device takes {}",
                        bytes.as_slice().len(),
                        self.inline_bytes_max
                    )));
                }
                (Some(*bytes), RawLocal::default())
            }
            Payload::Owned { buffer, length } => (None, part(buffer, *length)?),
            Payload::Shared { buffer, length } => (None, part(buffer.buffer(), *length)?),
        };
        if matches!(request.operation, SendOperation::Read(_))
            && !matches!(request.payload, Payload::Owned { .. })
        {
            return Err(VerbsError::InvalidRequest(
                "a READ needs an owned buffer to read into".into(),
            ));
        }
        if self.transport == Transport::UnreliableDatagram {
            if !matches!(
                request.operation,
                SendOperation::Send | SendOperation::SendWithImmediate(_)
            ) {
                return Err(VerbsError::UnsupportedOnTransport {
                    operation: request.operation.opcode().name(),
                    transport: self.transport,
                });
            }
            if request.destination.is_none() {
                return Err(VerbsError::InvalidRequest(
                    "a datagram needs a destination".into(),
                ));
            }
        }
        Ok(RawSendRequest {
            id: 0,
            operation: request.operation,
            inline,
            local,
            destination: request.destination.as_ref().map(|handle| handle.0.clone()),
        })
    }
}

fn local(buffer: &Buffer) -> RawLocal {
    RawLocal {
        address: buffer.address(),
        length: buffer.len(),
        local_key: buffer.local_key(),
    }
}

fn part(buffer: &Buffer, length: usize) -> Result<RawLocal> {
    if length > buffer.len() {
        return Err(VerbsError::InvalidRequest(format!(
            "{length} bytes of a buffer of {}",
            buffer.len()
        )));
    }
    Ok(RawLocal {
        length,
        ..local(buffer)
    })
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.send_queue.detach(self.number());
        self.receive_queue.detach(self.number());
        let sends = std::mem::take(&mut *self.in_flight.sends.lock());
        let receives = std::mem::take(&mut *self.in_flight.receives.lock());
        let posted = receives
            .slots
            .into_iter()
            .flatten()
            .filter_map(|slot| slot.buffer)
            .collect();
        self.provider.destroy(posted);
        // Sends are served by this process: after `destroy` nothing reads their buffers.
        drop(sends);
    }
}

impl std::fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuePair")
            .field("number", &self.number())
            .field("transport", &self.transport)
            .field("state", &self.state())
            .finish()
    }
}

//! Queue pairs: connected (RC) or datagram (UD), and the buffers of the requests in flight.
#![allow(unsafe_code)] // Upholds the contract of the provider's post verbs by keeping the buffers.

use crate::address::QueuePairAddress;
use crate::completion_queue::CompletionQueue;
use crate::counters::CounterSnapshot;
use crate::error::{Result, VerbsError};
use crate::memory::{Buffer, SharedBuffer};
use crate::provider::{
    ProviderAddressHandle, ProviderQueuePair, RawCompletion, RawLocal, RawReceiveRequest,
    RawSendRequest,
};
use crate::work::{Completion, Payload, ReceiveRequest, SendOperation, SendRequest};
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
    sends: Mutex<Requests<SendSlot, RawSendRequest>>,
    receives: Mutex<Requests<ReceiveSlot, RawReceiveRequest>>,
}

/// The requests of one queue.
struct Requests<S, R> {
    slots: Slots<S>,
    /// Memory for the next call's requests in the provider's terms, empty.
    spare: Vec<R>,
}

impl<S, R> Default for Requests<S, R> {
    fn default() -> Self {
        Self {
            slots: Slots::default(),
            spare: Vec::new(),
        }
    }
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
    /// Ends requests of the send queue, if `of_sends`, or of the receive queue, and appends their
    /// completions.
    pub(crate) fn complete(
        &self,
        of_sends: bool,
        ended: &[RawCompletion],
        completions: &mut Vec<Completion>,
    ) {
        if of_sends {
            let slots = &mut self.sends.lock().slots;
            append(ended, completions, |slot| {
                let slot = slots.remove(slot)?;
                let buffer = match slot.buffer {
                    PostedBuffer::Owned(buffer) => Some(buffer),
                    PostedBuffer::Shared(_) | PostedBuffer::None => None,
                };
                Some((slot.id, buffer))
            });
        } else {
            let slots = &mut self.receives.lock().slots;
            append(ended, completions, |slot| {
                let slot = slots.remove(slot)?;
                Some((slot.id, slot.buffer))
            });
        }
    }
}

/// Appends completions, with the mark and the buffer that `end` has for the slot of each.
fn append(
    ended: &[RawCompletion],
    completions: &mut Vec<Completion>,
    mut end: impl FnMut(u64) -> Option<(u64, Option<Buffer>)>,
) {
    for raw in ended {
        if let Some((id, buffer)) = end(raw.id) {
            completions.push(Completion {
                id,
                queue_pair: raw.queue_pair,
                status: raw.status,
                opcode: raw.opcode,
                bytes: raw.bytes,
                written: raw.written,
                immediate: raw.immediate,
                buffer,
                source_queue_pair: raw.source_queue_pair,
            });
        }
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
        for request in requests.iter() {
            self.check(request)?;
        }
        // The slots are filled before the provider sees the requests: another thread may poll
        // their completions before this call returns.
        let mut raw = {
            let sends = &mut *self.in_flight.sends.lock();
            let mut raw = std::mem::take(&mut sends.spare);
            for request in requests.iter_mut() {
                let (buffer, local) = take_buffer(&mut request.payload);
                let id = sends.slots.insert(SendSlot {
                    id: request.id,
                    buffer,
                });
                raw.push(RawSendRequest {
                    id,
                    operation: request.operation,
                    inline: None,
                    local,
                    destination: request.destination.as_ref().map(|handle| handle.0.clone()),
                });
                if let (Payload::Inline(bytes), Some(raw)) = (&request.payload, raw.last_mut()) {
                    raw.inline = Some(*bytes);
                }
            }
            raw
        };
        // SAFETY: the slots hold the buffers of all requests until `complete` takes them, which
        // only a polled completion or the rollback below does, or until the queue pair is
        // dropped, which destroys it at the provider first.
        let posted = unsafe { self.provider.post_send(&raw) };
        let taken = *posted.as_ref().unwrap_or(&0);
        requests.drain(..taken);
        let mut sends = self.in_flight.sends.lock();
        for (raw, request) in raw.iter().skip(taken).zip(requests.iter_mut()) {
            let slot = sends
                .slots
                .remove(raw.id)
                .expect("a request that was not posted keeps its slot");
            let length = raw.local.length;
            match slot.buffer {
                PostedBuffer::Owned(buffer) => request.payload = Payload::Owned { buffer, length },
                PostedBuffer::Shared(buffer) => {
                    request.payload = Payload::Shared { buffer, length };
                }
                // The payload is where it was.
                PostedBuffer::None => {}
            }
        }
        raw.clear();
        sends.spare = raw;
        posted
    }

    /// Posts requests to the receive queue, from the front of the vector, and removes those that
    /// were taken; returns how many.
    pub fn post_receive(&self, requests: &mut Vec<ReceiveRequest>) -> Result<usize> {
        let mut raw = {
            let receives = &mut *self.in_flight.receives.lock();
            let mut raw = std::mem::take(&mut receives.spare);
            for request in requests.iter_mut() {
                let local = request.buffer.as_ref().map_or(RawLocal::default(), local);
                let id = receives.slots.insert(ReceiveSlot {
                    id: request.id,
                    buffer: request.buffer.take(),
                });
                raw.push(RawReceiveRequest { id, local });
            }
            raw
        };
        // SAFETY: as in `post_send`; in addition the buffers are owned, so nothing in this
        // process touches them meanwhile.
        let posted = unsafe { self.provider.post_receive(&raw) };
        let taken = *posted.as_ref().unwrap_or(&0);
        requests.drain(..taken);
        let mut receives = self.in_flight.receives.lock();
        for (raw, request) in raw.iter().skip(taken).zip(requests.iter_mut()) {
            let slot = receives
                .slots
                .remove(raw.id)
                .expect("a request that was not posted keeps its slot");
            request.buffer = slot.buffer;
        }
        raw.clear();
        receives.spare = raw;
        posted
    }

    fn check(&self, request: &SendRequest) -> Result<()> {
        match &request.payload {
            Payload::Empty => {}
            Payload::Inline(bytes) => {
                let length = bytes.as_slice().len();
                if length > self.inline_bytes_max {
                    return Err(VerbsError::InvalidRequest(format!(
                        "{length} inline bytes, the device takes {}",
                        self.inline_bytes_max
                    )));
                }
            }
            Payload::Owned { buffer, length } => check_part(buffer, *length)?,
            Payload::Shared { buffer, length } => check_part(buffer.buffer(), *length)?,
        }
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
        Ok(())
    }
}

/// Takes the buffer out of a payload, with the part of it that travels. A payload without a buffer
/// stays where it is.
fn take_buffer(payload: &mut Payload) -> (PostedBuffer, RawLocal) {
    if matches!(payload, Payload::Empty | Payload::Inline(_)) {
        return (PostedBuffer::None, RawLocal::default());
    }
    match std::mem::replace(payload, Payload::Empty) {
        Payload::Owned { buffer, length } => {
            let local = part(&buffer, length);
            (PostedBuffer::Owned(buffer), local)
        }
        Payload::Shared { buffer, length } => {
            let local = part(buffer.buffer(), length);
            (PostedBuffer::Shared(buffer), local)
        }
        Payload::Empty | Payload::Inline(_) => (PostedBuffer::None, RawLocal::default()),
    }
}

fn local(buffer: &Buffer) -> RawLocal {
    RawLocal {
        address: buffer.address(),
        length: buffer.len(),
        local_key: buffer.local_key(),
    }
}

fn part(buffer: &Buffer, length: usize) -> RawLocal {
    RawLocal {
        length,
        ..local(buffer)
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
        self.send_queue.detach(self.number());
        self.receive_queue.detach(self.number());
        let sends = std::mem::take(&mut *self.in_flight.sends.lock());
        let receives = std::mem::take(&mut *self.in_flight.receives.lock());
        let posted = receives
            .slots
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

//! What a check is written with: queue pairs of one device, and waiting with a deadline.

use super::PATIENCE;
use crate::completion_queue::{CompletionChannel, CompletionQueue};
use crate::device::Device;
use crate::error::VerbsError;
use crate::memory::{Arena, ArenaOptions, Buffer};
use crate::queue_pair::{AddressHandle, QUEUE_KEY_MAX, QueuePair, QueuePairOptions, Transport};
use crate::work::{
    Completion, CompletionStatus, Payload, ReceiveRequest, SendOperation, SendRequest,
};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Work requests that a queue pair may have in flight.
const DEPTH: usize = 8;

/// Why a check did not succeed.
pub(super) enum Trouble {
    /// The device does not have what is checked.
    NotSupported,
    /// It should have succeeded; the text says what went wrong.
    Failed(String),
}

pub(super) type Result<T, E = Trouble> = std::result::Result<T, E>;

impl From<VerbsError> for Trouble {
    fn from(error: VerbsError) -> Self {
        let missing = match &error {
            VerbsError::Unsupported { .. } | VerbsError::UnsupportedOnTransport { .. } => true,
            VerbsError::System { source, .. } => [Errno::NOSYS, Errno::OPNOTSUPP]
                .iter()
                .any(|errno| source.raw_os_error() == Some(errno.raw_os_error())),
            _ => false,
        };
        if missing {
            Self::NotSupported
        } else {
            Self::Failed(error.to_string())
        }
    }
}

/// Fails the check.
pub(super) fn failed<T>(reason: impl Into<String>) -> Result<T> {
    Err(Trouble::Failed(reason.into()))
}

/// Fails unless something is as it must be.
pub(super) fn ensure(holds: bool, reason: &str) -> Result<()> {
    if holds { Ok(()) } else { failed(reason) }
}

/// It runs on real devices, in real time.
pub(super) fn now() -> Instant {
    Instant::now()
}

/// The device, a little memory and two completion queues.
pub(super) struct Bench {
    pub device: Device,
    pub arena: Arena,
    pub sends: CompletionQueue,
    pub receives: CompletionQueue,
    end: Instant,
}

impl Bench {
    /// Receives complete on the channel, if there is one.
    pub(super) fn new(device: &Device, channel: Option<&CompletionChannel>) -> Result<Self> {
        Ok(Self {
            device: device.clone(),
            // Small, so that it fits into a low limit of locked memory.
            arena: device.arena(ArenaOptions {
                segment_bytes: 4096,
                ..ArenaOptions::default()
            }),
            sends: device.create_completion_queue(2 * DEPTH, None)?,
            receives: device.create_completion_queue(2 * DEPTH, channel)?,
            end: now() + PATIENCE,
        })
    }

    /// Time that the check has left.
    pub(super) fn left(&self) -> Duration {
        self.end.saturating_duration_since(now())
    }

    pub(super) fn options(&self, transport: Transport) -> QueuePairOptions {
        let depth = DEPTH.min(self.device.capabilities().work_requests_max);
        QueuePairOptions {
            transport,
            send_depth: depth,
            receive_depth: depth,
            // Not without end: nothing may be left in flight.
            rnr_retry: 6,
            queue_key: rand::random::<u32>() & QUEUE_KEY_MAX,
        }
    }

    /// Two queue pairs that are connected to each other.
    pub(super) fn connected(&self, transport: Transport) -> Result<(QueuePair, QueuePair)> {
        let options = self.options(transport);
        let pair = || {
            self.device
                .create_queue_pair(&options, &self.sends, &self.receives)
        };
        let (one, other) = (pair()?, pair()?);
        one.connect(other.address())?;
        other.connect(one.address())?;
        Ok((one, other))
    }

    pub(super) fn filled(&self, bytes: &[u8]) -> Result<Buffer> {
        let mut buffer = self.arena.allocate(bytes.len())?;
        buffer.write(0, bytes);
        Ok(buffer)
    }

    pub(super) fn payload(&self, bytes: &[u8]) -> Result<Payload> {
        Ok(Payload::Owned {
            buffer: self.filled(bytes)?,
            length: bytes.len(),
        })
    }

    pub(super) fn receive(&self, length: usize) -> Result<ReceiveRequest> {
        Ok(ReceiveRequest {
            id: 0,
            buffer: Some(self.arena.allocate(length)?),
        })
    }

    pub(super) fn post_receive(&self, pair: &QueuePair, length: usize) -> Result<()> {
        let taken = pair.post_receive(&mut vec![self.receive(length)?])?;
        ensure(taken == 1, "the receive queue takes nothing")
    }

    pub(super) fn post(
        &self,
        pair: &QueuePair,
        operation: SendOperation,
        payload: Payload,
        destination: Option<&AddressHandle>,
    ) -> Result<()> {
        let request = SendRequest {
            id: 0,
            operation,
            payload,
            destination: destination.cloned(),
        };
        let taken = pair.post_send(&mut vec![request])?;
        ensure(taken == 1, "the send queue takes nothing")
    }

    /// Posts a request on a connection and waits until it is done.
    pub(super) fn carry_out(
        &self,
        pair: &QueuePair,
        operation: SendOperation,
        payload: Payload,
    ) -> Result<Completion> {
        self.post(pair, operation, payload, None)?;
        self.sent()
    }

    /// The next send completion.
    pub(super) fn sent(&self) -> Result<Completion> {
        match self.next(&self.sends, self.left())? {
            Some(completion) => Ok(completion),
            None => failed(format!("a send did not complete within {PATIENCE:?}")),
        }
    }

    /// The next receive completion.
    pub(super) fn received(&self) -> Result<Completion> {
        match self.next(&self.receives, self.left())? {
            Some(completion) => Ok(completion),
            None => failed(format!("nothing arrived within {PATIENCE:?}")),
        }
    }

    /// The next completion of a queue, if one comes in time; it must be a success.
    pub(super) fn next(
        &self,
        queue: &CompletionQueue,
        within: Duration,
    ) -> Result<Option<Completion>> {
        let end = now() + within;
        let mut found = Vec::new();
        while queue.poll(&mut found, 1) == 0 {
            if now() >= end {
                return Ok(None);
            }
            std::thread::yield_now();
        }
        let completion = found.pop();
        match &completion {
            Some(one) if one.status != CompletionStatus::Success => {
                failed(format!("{} ended with {:?}", one.opcode.name(), one.status))
            }
            _ => Ok(completion),
        }
    }

    /// Waits until the condition holds.
    pub(super) fn until(&self, what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
        while !condition() {
            if self.left().is_zero() {
                return failed(format!("{what} within {PATIENCE:?}"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// The bytes of a completion's buffer, from `offset` on.
pub(super) fn bytes_of(completion: &Completion, offset: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match &completion.buffer {
        Some(buffer) if (offset..=buffer.len()).contains(&completion.bytes) => {
            buffer.read_append(offset, completion.bytes - offset, &mut bytes);
            Ok(bytes)
        }
        _ => failed("the completion's length does not fit its buffer"),
    }
}

/// `count` bytes, no two neighbours equal.
pub(super) fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n % 251) as u8).collect()
}

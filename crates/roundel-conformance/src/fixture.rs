//! The vocabulary of the cases: nodes, connected pairs, and waiting with a deadline.

use super::Provider;
use super::report::Failure;
use roundel_verbs::completion_queue::CompletionQueue;
use roundel_verbs::device::Device;
use roundel_verbs::memory::{Arena, ArenaOptions, Buffer};
use roundel_verbs::queue_pair::{AddressHandle, QueuePair, QueuePairOptions, Transport};
use roundel_verbs::work::{
    Completion, CompletionStatus, InlineBytes, Payload, ReceiveRequest, SendOperation, SendRequest,
};
use std::time::{Duration, Instant};

/// How long a case waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How long a case waits to see that nothing comes.
pub(crate) const SILENCE: Duration = Duration::from_millis(20);
/// A device notices within this time that its peer does not answer: most take less.
pub(crate) const DEAD_PEER: Duration = Duration::from_millis(700);
/// How a provider differs whose statuses tell less.
pub(crate) const VAGUE_STATUS: &str =
    "the status says that the request was wrong, not what was wrong";
/// The queue key of datagram queue pairs.
pub(crate) const QUEUE_KEY: u32 = 0x1234_5678;

/// The suite runs outside of any simulation.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Rounds of a case that shows the same thing over and over: fewer on a slow provider.
pub(crate) fn rounds(provider: &dyn Provider, on_a_fast_one: u64) -> u64 {
    (on_a_fast_one / provider.slowness()).max(on_a_fast_one.min(20))
}

/// A device with an arena and two completion queues.
pub(crate) struct Node<'a> {
    pub provider: &'a dyn Provider,
    pub device: Device,
    pub arena: Arena,
    pub sends: CompletionQueue,
    pub receives: CompletionQueue,
}

impl<'a> Node<'a> {
    pub(crate) fn open(provider: &'a dyn Provider) -> Result<Self, Failure> {
        let device = provider.open()?;
        Self::on(provider, device)
    }

    /// On a device that is there already.
    pub(crate) fn on(provider: &'a dyn Provider, device: Device) -> Result<Self, Failure> {
        Ok(Self {
            provider,
            // Small segments: a device pins every page of them.
            arena: device.arena(ArenaOptions {
                segment_bytes: 256 << 10,
                ..ArenaOptions::default()
            }),
            sends: device.create_completion_queue(1024, None)?,
            receives: device.create_completion_queue(1024, None)?,
            device,
        })
    }

    pub(crate) fn queue_pair(&self, options: &QueuePairOptions) -> Result<QueuePair, Failure> {
        Ok(self
            .device
            .create_queue_pair(options, &self.sends, &self.receives)?)
    }

    /// A UD queue pair that is ready.
    pub(crate) fn datagrams(&self) -> Result<QueuePair, Failure> {
        let pair = self.queue_pair(&datagram_options())?;
        pair.activate()?;
        Ok(pair)
    }

    pub(crate) fn handle(&self, to: &QueuePair) -> Result<AddressHandle, Failure> {
        Ok(self.device.create_address_handle(to.address())?)
    }

    pub(crate) fn filled(&self, bytes: &[u8]) -> Result<Buffer, Failure> {
        let mut buffer = self.arena.allocate(bytes.len().max(1))?;
        buffer.write(0, bytes);
        Ok(buffer)
    }

    pub(crate) fn owned(&self, bytes: &[u8]) -> Result<Payload, Failure> {
        Ok(Payload::Owned {
            buffer: self.filled(bytes)?,
            length: bytes.len(),
        })
    }

    /// Posts `count` receives of `length` bytes with ids from `first`.
    pub(crate) fn post_receives(
        &self,
        pair: &QueuePair,
        first: u64,
        count: usize,
        length: usize,
    ) -> Result<(), Failure> {
        let mut requests = Vec::new();
        for id in first..first + count as u64 {
            requests.push(ReceiveRequest {
                id,
                buffer: Some(self.arena.allocate(length)?),
            });
        }
        post_receives(pair, requests)
    }

    /// The next `count` send completions.
    pub(crate) fn sent(&self, count: usize) -> Result<Vec<Completion>, Failure> {
        wait_for(self.provider, &self.sends, count)
    }

    /// The next `count` receive completions.
    pub(crate) fn received(&self, count: usize) -> Result<Vec<Completion>, Failure> {
        wait_for(self.provider, &self.receives, count)
    }

    /// Fails if a completion comes to either queue.
    pub(crate) fn silent(&self) -> Result<(), Failure> {
        let end = now() + SILENCE;
        let mut found = Vec::new();
        while now() < end {
            if self.sends.poll(&mut found, 1) + self.receives.poll(&mut found, 1) > 0 {
                return Err(Failure(format!("unexpected completion {:?}", found[0])));
            }
            self.provider.idle();
        }
        Ok(())
    }
}

pub(crate) fn connected_options() -> QueuePairOptions {
    QueuePairOptions {
        transport: Transport::ReliableConnection,
        send_depth: 64,
        receive_depth: 64,
        rnr_retry: 7,
        queue_key: 0,
    }
}

pub(crate) fn datagram_options() -> QueuePairOptions {
    QueuePairOptions {
        transport: Transport::UnreliableDatagram,
        queue_key: QUEUE_KEY,
        ..connected_options()
    }
}

/// Two nodes with a connection, reliable unless its options say otherwise.
pub(crate) struct Connection<'a> {
    pub a: Node<'a>,
    pub b: Node<'a>,
    pub qa: QueuePair,
    pub qb: QueuePair,
}

impl<'a> Connection<'a> {
    pub(crate) fn open(provider: &'a dyn Provider) -> Result<Self, Failure> {
        Self::with(provider, &connected_options())
    }

    pub(crate) fn with(
        provider: &'a dyn Provider,
        options: &QueuePairOptions,
    ) -> Result<Self, Failure> {
        Self::between(Node::open(provider)?, Node::open(provider)?, options)
    }

    pub(crate) fn between(
        a: Node<'a>,
        b: Node<'a>,
        options: &QueuePairOptions,
    ) -> Result<Self, Failure> {
        let (qa, qb) = connect(&a, &b, options)?;
        Ok(Self { a, b, qa, qb })
    }

    /// New queue pairs in place of those that broke.
    pub(crate) fn again(&mut self) -> Result<(), Failure> {
        (self.qa, self.qb) = connect(&self.a, &self.b, &connected_options())?;
        Ok(())
    }
}

/// A connection between two nodes.
pub(crate) fn connect(
    a: &Node<'_>,
    b: &Node<'_>,
    options: &QueuePairOptions,
) -> Result<(QueuePair, QueuePair), Failure> {
    let (qa, qb) = (a.queue_pair(options)?, b.queue_pair(options)?);
    qa.connect(qb.address())?;
    qb.connect(qa.address())?;
    Ok((qa, qb))
}

/// Posts all, or fails.
pub(crate) fn post_receives(
    pair: &QueuePair,
    mut requests: Vec<ReceiveRequest>,
) -> Result<(), Failure> {
    pair.post_receive(&mut requests)?;
    if requests.is_empty() {
        Ok(())
    } else {
        Err(Failure(format!("{} receives did not fit", requests.len())))
    }
}

/// Posts all, or fails.
pub(crate) fn post_sends(pair: &QueuePair, mut requests: Vec<SendRequest>) -> Result<(), Failure> {
    pair.post_send(&mut requests)?;
    if requests.is_empty() {
        Ok(())
    } else {
        Err(Failure(format!("{} sends did not fit", requests.len())))
    }
}

/// A request on a reliable connection.
pub(crate) fn request(id: u64, operation: SendOperation, payload: Payload) -> SendRequest {
    SendRequest {
        id,
        operation,
        payload,
        destination: None,
    }
}

/// Posts one request, or fails.
pub(crate) fn post(
    pair: &QueuePair,
    id: u64,
    operation: SendOperation,
    payload: Payload,
) -> Result<(), Failure> {
    post_sends(pair, vec![request(id, operation, payload)])
}

/// Posts one datagram, or fails.
pub(crate) fn post_datagram(
    pair: &QueuePair,
    to: &AddressHandle,
    id: u64,
    payload: Payload,
) -> Result<(), Failure> {
    post_sends(
        pair,
        vec![SendRequest {
            id,
            operation: SendOperation::Send,
            payload,
            destination: Some(to.clone()),
        }],
    )
}

pub(crate) fn inline(bytes: &[u8]) -> Result<Payload, Failure> {
    InlineBytes::new(bytes)
        .map(Payload::Inline)
        .ok_or_else(|| Failure(format!("{} bytes are too many to be inline", bytes.len())))
}

/// Exactly `count` completions, within [`PATIENCE`].
pub(crate) fn wait_for(
    provider: &dyn Provider,
    queue: &CompletionQueue,
    count: usize,
) -> Result<Vec<Completion>, Failure> {
    let end = now() + PATIENCE;
    let mut found = Vec::new();
    while found.len() < count {
        let missing = count - found.len();
        if queue.poll(&mut found, missing) == 0 {
            if now() > end {
                return Err(Failure(format!(
                    "only {} of {count} completions came: {found:?}",
                    found.len()
                )));
            }
            provider.idle();
        }
    }
    Ok(found)
}

/// Waits until the condition holds.
pub(crate) fn until(
    provider: &dyn Provider,
    what: &str,
    mut condition: impl FnMut() -> bool,
) -> Result<(), Failure> {
    let end = now() + PATIENCE;
    while !condition() {
        if now() > end {
            return Err(Failure(format!("never happened: {what}")));
        }
        provider.idle();
    }
    Ok(())
}

/// The bytes of a completion's buffer.
pub(crate) fn bytes_of(completion: &Completion) -> Result<Vec<u8>, Failure> {
    let Some(buffer) = &completion.buffer else {
        return Err(Failure(format!("no buffer in {completion:?}")));
    };
    if completion.bytes > buffer.len() {
        return Err(Failure(format!("more bytes than buffer in {completion:?}")));
    }
    let mut bytes = Vec::new();
    buffer.read_append(0, completion.bytes, &mut bytes);
    Ok(bytes)
}

/// The payload of a received datagram.
pub(crate) fn datagram_of(completion: &Completion, grh_bytes: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = bytes_of(completion)?;
    if bytes.len() < grh_bytes {
        return Err(Failure(format!("no room for a GRH in {completion:?}")));
    }
    Ok(bytes.split_off(grh_bytes))
}

/// Fails unless the completions have these ids and statuses, in this order.
pub(crate) fn expect(
    completions: &[Completion],
    wanted: &[(u64, CompletionStatus)],
) -> Result<(), Failure> {
    let found: Vec<_> = completions.iter().map(|c| (c.id, c.status)).collect();
    if found == wanted {
        Ok(())
    } else {
        Err(Failure(format!(
            "completions {found:?} instead of {wanted:?}"
        )))
    }
}

/// `count` bytes that differ from message to message.
pub(crate) fn pattern(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

//! The parts that endpoints and the multiplexer are made of. This knows no messages.

use crate::error::{ExchangeError, Result};
use roundel_verbs::{
    Arena, ArenaOptions, Buffer, CompletionChannel, CompletionQueue, Context, Device,
    ExposedBuffer, QueuePair, QueuePairOptions, TokioContext, Transport,
};
use std::sync::Arc;

/// The parts of endpoints: a device, its memory, a channel that a driver serves, and the
/// world outside. Clones share it.
#[derive(Clone)]
pub struct Fabric {
    /// The device.
    pub device: Device,
    /// Its registered memory.
    pub arena: Arena,
    /// The channel that wakes waiting endpoints; something must run its
    /// [driver](CompletionChannel::drive).
    pub channel: CompletionChannel,
    /// Time, tasks, randomness.
    pub context: Arc<dyn Context>,
}

impl Fabric {
    /// A device with memory, a channel and its driver, on the tokio runtime that this is called
    /// in.
    ///
    /// # Errors
    /// When the device has no channel left.
    ///
    /// # Panics
    /// When called outside of a tokio runtime.
    pub fn open(device: Device, memory: ArenaOptions) -> Result<Self> {
        Self::on(device, memory, Arc::new(TokioContext::current()))
    }

    /// A device with memory, a channel and its driver, in a world of its own.
    ///
    /// # Errors
    /// When the device has no channel left.
    pub fn on(device: Device, memory: ArenaOptions, context: Arc<dyn Context>) -> Result<Self> {
        let channel = device.create_channel()?;
        context.spawn(Box::pin(channel.drive()?));
        Ok(Self {
            arena: device.arena(memory),
            device,
            channel,
            context,
        })
    }

    /// A queue pair of Reliable Connection that has so many sends and receives posted at most.
    pub(crate) fn connected(
        &self,
        queue: &CompletionQueue,
        send_depth: usize,
        receive_depth: usize,
    ) -> Result<QueuePair> {
        let options = QueuePairOptions {
            transport: Transport::ReliableConnection,
            send_depth,
            receive_depth,
            rnr_retry: 7,
            queue_key: 0,
        };
        Ok(self.device.create_queue_pair(&options, queue, queue)?)
    }

    /// A buffer, of memory that can be exposed to peers where `exposable`.
    pub(crate) fn buffer(&self, bytes: usize, exposable: bool) -> Result<Buffer> {
        allocate(&self.arena, bytes, exposable)
    }

    /// Bytes that nobody needs in order to get on: none when the arena is more than half full, the
    /// rest of which is for new links.
    pub(crate) fn spare_bytes(&self) -> usize {
        let allocated = self.arena.usage().allocated;
        (self.arena.quota() / 2).saturating_sub(allocated)
    }

    /// A buffer of what there is to spare.
    pub(crate) fn spare_buffer(&self, bytes: usize, exposable: bool) -> Option<Buffer> {
        if bytes > self.spare_bytes() {
            return None;
        }
        self.buffer(bytes, exposable).ok()
    }
}

/// A buffer of an arena, of memory that can be exposed to peers where `exposable`.
pub(crate) fn allocate(arena: &Arena, bytes: usize, exposable: bool) -> Result<Buffer> {
    let buffer = match exposable {
        true => arena.allocate_exposable(bytes),
        false => arena.allocate(bytes),
    };
    Ok(buffer?)
}

/// Lets peers at a buffer.
pub(crate) fn expose(buffer: Buffer) -> Result<ExposedBuffer> {
    buffer.expose().map_err(|_| {
        ExchangeError::own("a buffer for peers, where they cannot reach it".to_owned())
    })
}

//! Communication endpoints (Liu et al. 2019, sections 4.2, 5.2 and 5.3): the mechanics of moving
//! messages, apart from what is in them.
//!
//! ```text
//!   SendEndpoint                                   ReceiveEndpoint
//!     acquire(group) → buffer                        poll → message (header, buffer)
//!     put(buffer, origin): waits for credit          the caller copies the payload out and
//!        SEND ───────────────────────────────────►   releases the buffer: it is posted again
//!        credit ◄── WRITE with immediate (RC) ────   and, every few receives, credit written back
//!                   or a datagram (UD)
//! ```
//!
//! Credit is absolute: the number of receives posted for the link so far, modulo 2^32. A repeated
//! or overtaken credit does no harm. Over datagrams it carries what has arrived, and what is lost is
//! sent again, see [`OnLoss`](crate::OnLoss).
//!
//! A **link** joins one source to one destination over one endpoint of each. Each side opens its
//! end and hands the other its [`LinkAddress`] out of band: the receiver offers, the sender
//! accepts and answers, the receiver completes the link and grants its first credit.

mod address;
mod credit;
mod datagram;
mod receive;
mod ring;
mod seal;
mod send;
mod slot;

pub use address::LinkAddress;
pub(crate) use credit::Credit;
pub(crate) use datagram::header_at;
pub use receive::{LinkId, Message, ReceiveEndpoint};
pub use ring::RingAddress;
pub(crate) use ring::{NOWHERE, RemoteRing, Ring, empty_write};
pub(crate) use seal::{arrived, break_seal, sealed_length, write_seal};
pub(crate) use send::TakesBack;
pub use send::{DestinationId, GroupId, Origin, SendBuffer, SendEndpoint};
pub(crate) use slot::Slot;

use crate::error::{ExchangeError, Result};
use roundel_verbs::{
    Arena, ArenaOptions, Buffer, CompletionChannel, Context, Device, ExposedBuffer, TokioContext,
};
use std::sync::Arc;
use std::time::Duration;

/// Over Reliable Connection: how long a peer may be silent before it is probed with an empty WRITE,
/// and then between two probes. Devices notice that a peer is gone when they send to it; whoever
/// only waits would wait for ever.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// How a link stands at its receiving end.
pub(crate) enum LinkState {
    /// More may come.
    Open,
    /// Everything has come.
    Complete,
    /// Not everything has come, and no more will.
    Failed(ExchangeError),
}

impl LinkState {
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Ends the link, unless it has ended.
    pub(crate) fn fail(&mut self, error: ExchangeError) {
        if self.is_open() {
            *self = Self::Failed(error);
        }
    }

    /// `None` while more may come, then how it ended.
    pub(crate) fn ended(&self) -> Option<Result<()>> {
        match self {
            Self::Open => None,
            Self::Complete => Some(Ok(())),
            Self::Failed(error) => Some(Err(error.clone())),
        }
    }
}

/// What endpoints are made of: a device, its memory, a channel that a driver serves, and the
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

    /// A buffer, of memory that can be exposed to peers where `exposable`.
    fn buffer(&self, bytes: usize, exposable: bool) -> Result<Buffer> {
        let buffer = match exposable {
            true => self.arena.allocate_exposable(bytes),
            false => self.arena.allocate(bytes),
        };
        Ok(buffer?)
    }

    /// Bytes that nobody needs in order to get on: none when the arena is more than half full, the
    /// rest of which is for new links.
    fn spare_bytes(&self) -> usize {
        let allocated = self.arena.usage().allocated;
        (self.arena.quota() / 2).saturating_sub(allocated)
    }

    /// A buffer of what there is to spare.
    fn spare_buffer(&self, bytes: usize, exposable: bool) -> Option<Buffer> {
        if bytes > self.spare_bytes() {
            return None;
        }
        self.buffer(bytes, exposable).ok()
    }
}

/// Lets peers at a buffer.
pub(crate) fn expose(buffer: Buffer) -> Result<ExposedBuffer> {
    buffer.expose().map_err(|_| {
        ExchangeError::own("a buffer for peers, where they cannot reach it".to_owned())
    })
}

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
mod receive;
mod send;

pub use crate::fabric::Fabric;
pub use crate::link::queue::QueueAddress;
pub use address::LinkAddress;
pub use receive::{LinkId, Message, ReceiveEndpoint};
pub(crate) use send::TakesBack;
pub use send::{DestinationId, GroupId, Origin, SendBuffer, SendEndpoint};

use crate::error::{ExchangeError, Result};

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

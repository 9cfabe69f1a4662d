//! How messages get from one end of a connection to the other: the designs that a multiplexer can have. Knows the
//! memory of messages, not what they are about.

use super::MultiplexerOptions;
use super::address::ConnectionAddress;
use super::reads::Reads;
use super::slots::Slots;
use crate::designs::Verb;
use crate::error::Result;
use crate::fabric::Fabric;
use crate::wire::HEADER_LENGTH;
use roundel_verbs::{Buffer, Regions};

/// Registered memory of this node that a message has come into.
pub(super) struct Place {
    pub(super) buffer: Buffer,
    /// Where in it the message begins.
    pub(super) at: usize,
    /// The number of the slot, where the peer writes to slots.
    pub(super) slot: u32,
}

impl Place {
    /// One that begins with the message.
    pub(super) fn of(buffer: Buffer) -> Self {
        Self {
            buffer,
            at: 0,
            slot: 0,
        }
    }
}

/// How messages get to their receiver.
pub(super) enum Way {
    /// By SEND, into receives.
    Send,
    /// By WRITE, into slots.
    Write(Slots),
    /// Rows are READ where they lie; the rest goes by SEND.
    Read(Reads),
}

impl Way {
    pub(super) fn open(
        fabric: &Fabric,
        options: &MultiplexerOptions,
        regions: &Regions,
    ) -> Result<Self> {
        Ok(match options.design.verb() {
            Verb::Send => Self::Send,
            Verb::Write(notification) => {
                Self::Write(Slots::open(notification, fabric, options, regions)?)
            }
            Verb::Read => Self::Read(Reads::open(fabric, options, regions)?),
        })
    }

    /// Bytes of a receive's buffer: for what comes by SEND.
    pub(super) fn receive_bytes(&self, options: &MultiplexerOptions) -> Option<usize> {
        match self {
            Self::Send => Some(options.message_bytes),
            Self::Write(_) => None,
            Self::Read(_) => Some(HEADER_LENGTH),
        }
    }

    /// Registered bytes beyond those of receives.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Send => 0,
            Self::Write(slots) => slots.bytes(),
            Self::Read(reads) => reads.bytes(),
        }
    }

    /// Requests that may be in a send queue beside so many of messages.
    pub(super) fn requests(&self, messages: usize) -> usize {
        match self {
            Self::Send | Self::Write(_) => messages,
            Self::Read(reads) => messages + reads.reading_max(),
        }
    }

    /// Completes what the peer is told of this end.
    pub(super) fn tell(&self, address: &mut ConnectionAddress) {
        if let Self::Write(slots) = self {
            slots.tell(address);
        }
    }

    /// Takes note of the peer's end.
    pub(super) fn begin(&mut self, remote: &ConnectionAddress, peer: &str) -> Result<()> {
        match self {
            Self::Write(slots) => slots.begin(remote, peer),
            Self::Send | Self::Read(_) => Ok(()),
        }
    }
}

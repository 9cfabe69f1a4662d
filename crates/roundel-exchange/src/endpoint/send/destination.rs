//! What a send endpoint knows of one destination: how messages get there, and what has come of them.

use super::read::Reading;
use super::write::Writing;
use crate::error::ExchangeError;
use crate::link::credit::Credit;
use crate::link::queue::{Queue, RemoteQueue};
use crate::report::DestinationReport;
use crate::wire::SequenceDigest;
use roundel_verbs::{AddressHandle, CompletionStatus, QueuePair};
use std::time::Duration;

pub(super) struct Destination {
    pub(super) peer: String,
    pub(super) carrier: Carrier,
    pub(super) credit: Credit,
    /// The data messages sent.
    pub(super) digest: SequenceDigest,
    pub(super) report: DestinationReport,
    /// Reliable Connection: sends posted and not completed, and whether one of them failed.
    pub(super) in_flight: usize,
    pub(super) undelivered: bool,
    pub(super) end: Option<End>,
    /// When it was last probed.
    pub(super) probed_at: Duration,
    /// It has asked what was sent, and has not been answered.
    pub(super) asked: bool,
    pub(super) failed: Option<ExchangeError>,
}

pub(super) enum Carrier {
    Connected {
        queue_pair: QueuePair,
        way: Way,
    },
    Datagram {
        handle: AddressHandle,
        number: u32,
        queue_key: u32,
    },
    Closed,
}

/// How messages get over a connection.
pub(super) enum Way {
    Send,
    Write(Box<Writing>),
    Read(Box<Reading>),
}

/// An end-of-stream that was sent.
pub(super) struct End {
    pub(super) acknowledged: bool,
    pub(super) said_at: Duration,
}

impl Destination {
    pub(super) fn new(peer: &str, carrier: Carrier) -> Self {
        Self {
            peer: peer.into(),
            carrier,
            credit: Credit::default(),
            digest: SequenceDigest::default(),
            report: DestinationReport::default(),
            in_flight: 0,
            undelivered: false,
            end: None,
            probed_at: Duration::ZERO,
            asked: false,
            failed: None,
        }
    }

    /// Messages that may be sent to it now.
    pub(super) fn left(&self) -> u32 {
        match self.way() {
            Some(Way::Write(writing)) => writing.left(self.credit.left()),
            Some(Way::Read(reading)) => reading.left(),
            _ => self.credit.left(),
        }
    }

    /// The messages that it has allowed in all, modulo 2^32.
    pub(super) fn allowed(&self) -> u32 {
        match self.way() {
            Some(Way::Write(writing)) => writing.free.taken() as u32,
            Some(Way::Read(reading)) => reading.allowed() as u32,
            _ => self.credit.granted(),
        }
    }

    fn way(&self) -> Option<&Way> {
        match &self.carrier {
            Carrier::Connected { way, .. } => Some(way),
            _ => None,
        }
    }

    pub(super) fn reading(&mut self) -> Option<&mut Reading> {
        match &mut self.carrier {
            Carrier::Connected {
                way: Way::Read(reading),
                ..
            } => Some(reading),
            _ => None,
        }
    }

    /// Its queue pair, its queue at this end and this end's at it, and what it has been sent, if
    /// either end may have to be woken by a bell.
    pub(super) fn bell(&mut self) -> Option<(&QueuePair, &Queue, &mut RemoteQueue, u64)> {
        let Carrier::Connected { queue_pair, way } = &mut self.carrier else {
            return None;
        };
        match way {
            Way::Send => None,
            Way::Write(writing) => {
                let sent = writing.sent();
                let told = writing.told.as_mut()?;
                Some((queue_pair, &writing.free, told, sent))
            }
            Way::Read(reading) => {
                let sent = reading.valid.count();
                Some((queue_pair, &reading.free, &mut reading.valid, sent))
            }
        }
    }

    /// Counts a data message that was sent.
    pub(super) fn count(&mut self, group: usize, sequence: u64, length: usize) {
        self.report.messages += 1;
        self.report.bytes += length as u64;
        self.credit.spend();
        self.digest.add(group as u16, sequence);
    }

    pub(super) fn lost(&self, status: CompletionStatus) -> ExchangeError {
        ExchangeError::PeerLost {
            peer: self.peer.clone(),
            status,
        }
    }
}

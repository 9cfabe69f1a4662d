//! What a send endpoint knows of one destination: what carries messages there, and what has come of them.

use crate::designs::carrier::SourceEnd;
use crate::error::ExchangeError;
use crate::link::credit::Credit;
use crate::link::queue_pair::SendQueue;
use crate::report::DestinationReport;
use crate::wire::SequenceDigest;
use roundel_verbs::{CompletionStatus, QueuePairAddress};
use std::time::Duration;

pub(super) struct Destination {
    pub(super) peer: String,
    /// The queue pair at the other end.
    pub(super) remote: QueuePairAddress,
    /// Reliable Connection: the queue pair of this link, and whether one of its sends failed.
    pub(super) sends: Option<SendQueue>,
    pub(super) undelivered: bool,
    /// Absent once it is closed.
    pub(super) carrier: Option<Box<dyn SourceEnd>>,
    pub(super) credit: Credit,
    /// Over datagrams: receives that are posted for what it says.
    pub(super) control_receives: usize,
    /// The data messages sent.
    pub(super) digest: SequenceDigest,
    pub(super) report: DestinationReport,
    pub(super) end: Option<End>,
    /// When it was last probed.
    pub(super) probed_at: Duration,
    /// It has asked what was sent, and has not been answered.
    pub(super) asked: bool,
    pub(super) failed: Option<ExchangeError>,
}

/// An end-of-stream that was sent.
pub(super) struct End {
    pub(super) acknowledged: bool,
    pub(super) said_at: Duration,
}

impl Destination {
    pub(super) fn new(
        peer: &str,
        remote: &QueuePairAddress,
        sends: Option<SendQueue>,
        carrier: Box<dyn SourceEnd>,
    ) -> Self {
        Self {
            peer: peer.into(),
            remote: remote.clone(),
            sends,
            undelivered: false,
            carrier: Some(carrier),
            credit: Credit::default(),
            control_receives: 0,
            digest: SequenceDigest::default(),
            report: DestinationReport::default(),
            end: None,
            probed_at: Duration::ZERO,
            asked: false,
            failed: None,
        }
    }

    /// Messages that may be sent to it now.
    pub(super) fn left(&self) -> u32 {
        let credit = self.credit.left();
        let carrier = self.carrier.as_ref();
        carrier.map_or(credit, |carrier| carrier.left(credit))
    }

    /// The messages that it has allowed in all, modulo 2^32.
    pub(super) fn allowed(&self) -> u32 {
        let granted = self.credit.granted();
        let carrier = self.carrier.as_ref();
        carrier.map_or(granted, |carrier| carrier.allowed(granted))
    }

    /// Counts a data message that was sent.
    pub(super) fn count(&mut self, group: usize, sequence: u64, length: usize) {
        self.report.messages += 1;
        self.report.bytes += length as u64;
        self.credit.spend();
        self.digest.add(group as u16, sequence);
    }

    /// It can be sent nothing more, unless that is known already.
    pub(super) fn fail(&mut self, error: &ExchangeError) {
        self.failed.get_or_insert_with(|| error.clone());
    }

    pub(super) fn lost(&self, status: CompletionStatus) -> ExchangeError {
        ExchangeError::lost(&self.peer, status)
    }

    pub(super) fn broke_protocol(&self, reason: impl Into<String>) -> ExchangeError {
        ExchangeError::protocol(&self.peer, reason)
    }
}

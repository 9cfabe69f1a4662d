//! One link as its receiver sees it.

use super::read::Reads;
use super::sequence::Sequences;
use super::written::Written;
use crate::buffers::Circulation;
use crate::endpoint::LinkState;
use crate::error::ExchangeError;
use crate::loss::OnLoss;
use crate::wire::SequenceDigest;
use roundel_verbs::{AddressHandle, CompletionStatus, QueuePair, SendRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Link {
    pub(super) peer: String,
    pub(super) carrier: Carrier,
    pub(super) exchange: u64,
    pub(super) source: u32,
    /// Index of this link among the sender's destinations.
    pub(super) destination: u32,
    /// The number of the sender's queue pair.
    pub(super) speaker: u32,
    /// Receives of this link: its window.
    pub(super) buffers: usize,
    /// Absolute credit granted, and messages heard that were paid for with it, modulo 2^32.
    pub(super) credit: u32,
    pub(super) heard: u32,
    /// A source used up its credit since the link last grew.
    pub(super) starved: bool,
    /// The receiver had nothing to do since then.
    pub(super) idle: bool,
    /// Messages that it finds at its looks, buffers that its source finds free when it sends, and those
    /// that are to be given back.
    pub(super) arriving: Circulation,
    pub(super) unused: Circulation,
    pub(super) found: usize,
    pub(super) retiring: usize,
    /// Receives posted since credit was last written back.
    pub(super) unsaid: u32,
    /// The data messages that have arrived.
    pub(super) arrived: SequenceDigest,
    /// Where lost messages are repaired: which have arrived, by the source's group, and the group
    /// that was last acknowledged during a silence.
    pub(super) groups: BTreeMap<u16, Sequences>,
    pub(super) group_in_turn: u16,
    /// Groups of the source that were joined by multicast.
    pub(super) joined: BTreeSet<u16>,
    /// Those that the source says it has sent, once it has ended, and how many it had sent when
    /// it last answered.
    pub(super) end: Option<SequenceDigest>,
    pub(super) sent: u64,
    pub(super) state: LinkState,
    /// How the connection broke; what had arrived before may still be waiting.
    pub(super) broken: Option<CompletionStatus>,
    /// When data or the end last came, when the source was last asked for it, and how often in vain
    /// since it is known that messages are missing.
    pub(super) heard_at: Duration,
    pub(super) asked_at: Duration,
    pub(super) asks: u32,
    /// When the link was complete, and when and after how long to say so again.
    pub(super) complete_at: Duration,
    pub(super) repeat_at: Duration,
    pub(super) repeat_after: Duration,
}

pub(super) enum Carrier {
    /// Until the sender has answered.
    Offered(Option<Connection>),
    Connected(Connection),
    Datagram(AddressHandle),
    Closed,
}

/// A queue pair of the link's own.
pub(super) struct Connection {
    pub(super) queue_pair: Arc<QueuePair>,
    pub(super) way: Way,
    /// Requests about buffers that are posted and have not completed, and how many may be.
    pub(super) in_flight: usize,
    pub(super) in_flight_max: usize,
    /// Those that found the queue full, in order.
    pub(super) unposted: Vec<SendRequest>,
}

/// How messages get over a connection.
pub(super) enum Way {
    Send,
    Write(Box<Written>),
    Read(Box<Reads>),
}

impl Link {
    pub(super) fn offered(
        peer: &str,
        connection: Option<Connection>,
        buffers: usize,
        now: Duration,
    ) -> Self {
        Self {
            peer: peer.into(),
            carrier: Carrier::Offered(connection),
            exchange: 0,
            source: 0,
            destination: 0,
            speaker: 0,
            buffers,
            credit: buffers as u32,
            heard: 0,
            starved: false,
            idle: false,
            arriving: Circulation::new(),
            unused: Circulation::new(),
            found: 0,
            retiring: 0,
            unsaid: 0,
            arrived: SequenceDigest::default(),
            groups: BTreeMap::new(),
            group_in_turn: 0,
            joined: BTreeSet::new(),
            end: None,
            sent: 0,
            state: LinkState::Open,
            broken: None,
            heard_at: now,
            asked_at: now,
            asks: 0,
            complete_at: Duration::ZERO,
            repeat_at: Duration::ZERO,
            repeat_after: Duration::ZERO,
        }
    }

    /// What the source may send before it hears more: over connections it first waits for that, except for
    /// messages that are to be read.
    pub(super) fn first_credit(&self) -> u32 {
        match &self.carrier {
            Carrier::Offered(Some(Connection {
                way: Way::Read(_), ..
            })) => self.buffers as u32,
            Carrier::Offered(None) => self.credit,
            _ => 0,
        }
    }

    /// Its queue pair and what goes over it, once it is connected.
    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        match &mut self.carrier {
            Carrier::Connected(connection) => Some(connection),
            _ => None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state.is_open()
    }

    /// Ends it, unless it has ended.
    pub(super) fn fail(&mut self, error: ExchangeError) {
        self.state.fail(error);
    }

    pub(super) fn lost(&self, status: CompletionStatus) -> ExchangeError {
        ExchangeError::PeerLost {
            peer: self.peer.clone(),
            status,
        }
    }

    pub(super) fn broke_protocol(&self, reason: impl Into<String>) -> ExchangeError {
        ExchangeError::Protocol {
            peer: self.peer.clone(),
            reason: reason.into(),
        }
    }

    /// Messages that the source is known to have sent.
    pub(super) fn known_sent(&self) -> u64 {
        self.end.map_or(self.sent, |end| end.count)
    }

    /// Whether it is known that messages are missing: the end does not match what arrived, or
    /// more were sent when the source last answered, or later ones have arrived.
    pub(super) fn is_short(&self) -> bool {
        match self.end {
            Some(end) => end != self.arrived,
            None => self.sent > self.arrived.count || self.groups.values().any(Sequences::misses),
        }
    }

    /// The error of a link that misses messages.
    pub(super) fn missing(&self, waited: Duration, on_loss: OnLoss) -> ExchangeError {
        let sent = self.known_sent().max(self.arrived.count);
        ExchangeError::MessagesMissing {
            peer: self.peer.clone(),
            sent,
            // With as many that should not have come, the count alone shows none.
            missing: (sent - self.arrived.count).max(1),
            waited_ms: waited.as_millis(),
            transient: on_loss != OnLoss::Fail,
        }
    }
}

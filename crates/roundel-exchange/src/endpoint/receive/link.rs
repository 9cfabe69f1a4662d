//! One link as its receiver sees it.

use crate::designs::carrier::ReceiverEnd;
use crate::endpoint::LinkState;
use crate::error::ExchangeError;
use crate::link::credit::Grant;
use crate::link::repair::ArrivedByGroup;
use crate::link::silence::{Repetition, Silence};
use crate::link::window::ReceiveWindow;
use crate::loss::OnLoss;
use crate::wire::SequenceDigest;
use roundel_verbs::{AddressHandle, CompletionStatus, QueuePair, SendRequest};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Link {
    pub(super) peer: String,
    pub(super) stage: Stage,
    pub(super) exchange: u64,
    pub(super) source: u32,
    /// Index of this link among the sender's destinations.
    pub(super) destination: u32,
    /// The number of the sender's queue pair.
    pub(super) speaker: u32,
    pub(super) window: ReceiveWindow,
    pub(super) grant: Grant,
    /// The data messages that have arrived, and where lost ones are repaired, which of each group.
    pub(super) arrived: SequenceDigest,
    pub(super) groups: ArrivedByGroup,
    /// Groups of the source that were joined by multicast.
    pub(super) joined: BTreeSet<u16>,
    /// Those that the source says it has sent, once it has ended, and how many it had sent when
    /// it last answered.
    pub(super) end: Option<SequenceDigest>,
    pub(super) sent: u64,
    pub(super) state: LinkState,
    /// How the connection broke; what had arrived before may still be waiting.
    pub(super) broken: Option<CompletionStatus>,
    /// Since data or the end last came; asks count while messages are known to be missing.
    pub(super) silence: Silence,
    /// The source is told that the link is complete.
    pub(super) acknowledgement: Repetition,
}

/// The stage that a link has reached.
pub(super) enum Stage {
    /// Until the sender has answered.
    Offered(Option<Connection>),
    Connected(Connection),
    Datagram(AddressHandle),
    Closed,
}

/// A queue pair of the link's own.
pub(super) struct Connection {
    pub(super) queue_pair: Arc<QueuePair>,
    pub(super) carrier: Box<dyn ReceiverEnd>,
    /// Requests about buffers that are posted and have not completed, and how many may be.
    pub(super) in_flight: usize,
    pub(super) in_flight_max: usize,
    /// Those that found the queue full, in order.
    pub(super) unposted: Vec<SendRequest>,
}

impl Link {
    pub(super) fn offered(
        peer: &str,
        connection: Option<Connection>,
        (buffers, grant): (usize, Grant),
        now: Duration,
    ) -> Self {
        Self {
            peer: peer.into(),
            stage: Stage::Offered(connection),
            exchange: 0,
            source: 0,
            destination: 0,
            speaker: 0,
            window: ReceiveWindow::new(buffers),
            grant,
            arrived: SequenceDigest::default(),
            groups: ArrivedByGroup::default(),
            joined: BTreeSet::new(),
            end: None,
            sent: 0,
            state: LinkState::Open,
            broken: None,
            silence: Silence::since(now),
            acknowledgement: Repetition::default(),
        }
    }

    /// What the source may send before it hears more: over connections it first waits for that, except for
    /// messages that are to be read.
    pub(super) fn first_credit(&self) -> u32 {
        match &self.stage {
            Stage::Offered(Some(connection)) => {
                connection.carrier.first_credit(self.window.buffers())
            }
            Stage::Offered(None) => self.grant.granted(),
            _ => 0,
        }
    }

    /// Its queue pair and what goes over it, once it is connected.
    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        match &mut self.stage {
            Stage::Connected(connection) => Some(connection),
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
        ExchangeError::lost(&self.peer, status)
    }

    pub(super) fn broke_protocol(&self, reason: impl Into<String>) -> ExchangeError {
        ExchangeError::protocol(&self.peer, reason)
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
            None => self.sent > self.arrived.count || self.groups.misses(),
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

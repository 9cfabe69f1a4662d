//! What is measured: who asks whom, how, and how much.

use crate::end::EndOptions;
use crate::error::{ProtocolError, Result};
use crate::message::frame::SLOTS_MAX;
use crate::protocol::Protocol;
use roundel_verbs::Capabilities;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use strum::{Display, EnumString, IntoStaticStr};

/// Who asks whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[derive(Display, EnumString, IntoStaticStr)]
#[strum(ascii_case_insensitive, parse_err_ty = UnknownParadigm, parse_err_fn = unknown)]
pub enum Paradigm {
    /// P nodes ask one.
    #[strum(serialize = "M:1")]
    ManyToOne,
    /// One node asks Q.
    #[strum(serialize = "1:M")]
    OneToMany,
    /// N nodes ask each other.
    #[strum(serialize = "M:M")]
    ManyToMany,
}

impl Paradigm {
    /// Every paradigm.
    pub const ALL: [Self; 3] = [Self::ManyToOne, Self::OneToMany, Self::ManyToMany];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The text names no paradigm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown paradigm {0:?}: there are M:1, 1:M and M:M")]
pub struct UnknownParadigm(String);

fn unknown(text: &str) -> UnknownParadigm {
    UnknownParadigm(text.to_owned())
}

impl TryFrom<String> for Paradigm {
    type Error = UnknownParadigm;

    fn try_from(text: String) -> Result<Self, UnknownParadigm> {
        text.parse()
    }
}

impl From<Paradigm> for String {
    fn from(paradigm: Paradigm) -> Self {
        paradigm.name().to_owned()
    }
}

/// When calls are begun.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// One as soon as another has ended: R are always pending on each connection.
    Closed,
    /// So many in a second on each requester thread, at moments drawn from an exponential distribution, whatever has
    /// ended. Latency counts from the moment that was drawn, so that what waits for room counts too.
    Open(f64),
}

/// A conversation of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Who asks whom.
    pub paradigm: Paradigm,
    /// The protocol of the calls.
    pub protocol: Protocol,
    /// Nodes that ask the one, or that the one asks, or all of them: the paper's P, Q or N.
    pub nodes: usize,
    /// Threads that ask on each node that does, and threads that answer (the paper's S).
    pub threads: usize,
    /// Threads that answer, where they are not as many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responder_threads: Option<usize>,
    /// Calls pending on each connection (the paper's R).
    pub pending: usize,
    /// Bytes of a request (the paper's L).
    pub request_bytes: usize,
    /// Bytes of a response (the paper's V).
    pub response_bytes: usize,
    /// When calls are begun.
    pub load: Load,
    /// Seconds before anything counts.
    pub warm_up: f64,
    /// Seconds that count.
    pub seconds: f64,
}

/// Most nodes of a setting.
pub const NODES_MAX: usize = 1000;
/// Most threads of a node, of each kind.
pub const THREADS_MAX: usize = 1024;

impl Setting {
    /// The paper's sizes: keys of 36 bytes, values of 365, one thread, 16 calls pending.
    pub fn new(paradigm: Paradigm, protocol: Protocol, nodes: usize) -> Self {
        Self {
            paradigm,
            protocol,
            nodes,
            threads: 1,
            responder_threads: None,
            pending: 16,
            request_bytes: 36,
            response_bytes: 365,
            load: Load::Closed,
            warm_up: 0.2,
            seconds: 1.0,
        }
    }

    /// Nodes in all.
    pub fn all_nodes(&self) -> usize {
        match self.paradigm {
            Paradigm::ManyToOne | Paradigm::OneToMany => self.nodes + 1,
            Paradigm::ManyToMany => self.nodes,
        }
    }

    /// Threads that answer on each node that does.
    pub fn answering_threads(&self) -> usize {
        self.responder_threads.unwrap_or(self.threads)
    }

    /// What its ends are made with.
    pub fn end_options(&self) -> EndOptions {
        EndOptions {
            pending: self.pending,
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            ..EndOptions::new(self.protocol)
        }
    }

    /// The same, as long as a simulation needs: its clock is exact, and nothing disturbs it, but the calls that all begin
    /// at once have to drain before it counts.
    pub fn for_simulation(&self) -> Self {
        /// Calls of the busiest node in a second, where it is slow.
        const SLOW: f64 = 2e6;
        const SECONDS: f64 = 0.001;
        let pending = (self.links().len() * self.pending) as f64;
        let busy = match self.paradigm {
            Paradigm::ManyToMany => self.nodes as f64,
            _ => 1.0,
        };
        let bytes = (self.request_bytes + self.response_bytes) as f64;
        let drained = pending / busy * (1.0 / SLOW).max(bytes / 5e9);
        Self {
            warm_up: drained.max(SECONDS / 2.0),
            seconds: SECONDS,
            ..self.clone()
        }
    }

    /// When it is over, after it began.
    pub(crate) fn ends(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up + self.seconds)
    }

    /// Whether it makes sense, and a device can carry it.
    ///
    /// # Errors
    /// [`ProtocolError::Unsupported`], with the reason.
    pub fn check_on(&self, device: &Capabilities) -> Result<()> {
        self.check()?;
        self.end_options().check(device)
    }

    /// Whether it makes sense, whatever the device.
    ///
    /// # Errors
    /// [`ProtocolError::Unsupported`], with the reason.
    pub fn check(&self) -> Result<()> {
        let least = if self.paradigm == Paradigm::ManyToMany {
            2
        } else {
            1
        };
        let positive = |seconds: f64| seconds.is_finite() && seconds > 0.0 && seconds < 1e6;
        let wrong = if self.nodes < least || self.nodes > NODES_MAX {
            format!(
                "{} nodes: {} has {least} to {NODES_MAX}",
                self.nodes, self.paradigm
            )
        } else if self.threads == 0 || self.threads > THREADS_MAX {
            format!("{} threads: there are 1 to {THREADS_MAX}", self.threads)
        } else if self.answering_threads() == 0 || self.answering_threads() > THREADS_MAX {
            format!(
                "{} responder threads: there are 1 to {THREADS_MAX}",
                self.answering_threads()
            )
        } else if self.pending == 0 || self.pending > SLOTS_MAX {
            format!(
                "{} calls pending on a connection: there are 1 to {SLOTS_MAX}",
                self.pending
            )
        } else if self.response_bytes == 0 {
            "responses of 0 bytes: they have at least one".to_owned()
        } else if !positive(self.seconds) || !(self.warm_up == 0.0 || positive(self.warm_up)) {
            "a run takes more than 0 seconds".to_owned()
        } else if matches!(self.load, Load::Open(rate) if !positive(rate / 1e6)) {
            "an open loop has more than 0 calls in a second".to_owned()
        } else {
            return Ok(());
        };
        Err(ProtocolError::Unsupported(wrong))
    }
}

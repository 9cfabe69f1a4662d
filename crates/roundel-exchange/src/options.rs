//! The settings of an exchange, with their defaults and limits.

use crate::buffers::{Buffers, RC_MESSAGE_BYTES, READ_AT_ONCE_MESSAGE_BYTES, Window};
use crate::designs::carrier::LinkSizes;
use crate::designs::{Design, Verb};
use crate::loss::OnLoss;
use crate::wire::{HEADER_LENGTH, Missing};
use roundel_verbs::{Capabilities, Transport};
use std::time::Duration;

/// How a receiver of a Reliable Connection tells its source of credit for SENDs (Liu et al. 2019, section 5.2).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::EnumString, strum::VariantNames,
)]
#[strum(serialize_all = "kebab-case")]
pub enum CreditBy {
    /// As the immediate data of an empty WRITE, which wakes a source that sleeps.
    Immediate,
    /// By a WRITE to the source's memory, as in the paper. It needs no immediate data, which iWARP does not have.
    Memory,
}

/// How many times per window the receiver of a link that has grown writes credit back.
const CREDITS_PER_WINDOW: usize = 16;
/// A receiver writes its credit back every so many receives.
pub const CREDIT_FREQUENCY: u32 = 2;

/// Most receives of a datagram queue pair, where the device allows as many.
const DATAGRAMS_MAX: usize = 4096;

/// Settings of an exchange; sender and receiver use the same.
#[derive(Clone, Debug)]
pub struct ExchangeOptions {
    /// The design of the shuffle.
    pub design: Design,
    /// Endpoints per node and side: between 1 and one for each thread.
    pub endpoints: usize,
    /// Whether each endpoint is a unit by itself, with links to all units of the other nodes.
    pub classic: bool,
    /// Bytes of a message, header included; clamped to what the device can carry.
    pub message_bytes: usize,
    /// How many messages a source may have in flight on a link, and buffers on each side.
    pub window: Window,
    /// The receiver writes its credit back every so many receives, at most as many as there are; a
    /// link that has grown, 16 times per window.
    pub credit_frequency: u32,
    /// How a source hears of its credit where messages are sent over Reliable Connection.
    pub credit_by: CreditBy,
    /// Over datagrams: how long to wait for what the other side should have said, before saying
    /// it again.
    pub repeat_interval: Duration,
    /// Over datagrams: how long a receiver that knows of missing messages waits for them.
    pub missing_deadline: Duration,
    /// Over datagrams: what to do about lost messages.
    pub on_loss: OnLoss,
    /// Over datagrams: the queue key of all endpoints of the exchange, a secret that its nodes
    /// share, drawn at random for it, at most [`roundel_verbs::QUEUE_KEY_MAX`]. Groups of several destinations need one to be sent to by
    /// multicast. Without it every endpoint draws one of its own.
    pub queue_key: Option<u32>,
    /// Over datagrams: most receives, and most sends, of a queue pair, which bounds how many links there can be.
    pub datagrams_max: usize,
    /// Whether a task of a source may feed several destinations, so that one that is not read would
    /// hold up the others: then a receiver takes what has arrived although nobody reads it, as far as
    /// its budget and the disk go.
    pub coupled: bool,
    /// Rows that a receiver joins short batches up to; at most 1 passes all on as they come.
    pub batch_rows: usize,
    /// Whether the batches of each source and partition come out in the order they went in. They
    /// do anyway over an endpoint's Reliable Connection; what a multiplexer brings is taken in by several.
    pub ordered: bool,
}

impl ExchangeOptions {
    /// The defaults of a design on a device, in nodes of so many threads.
    pub fn new(design: Design, threads: usize, capabilities: &Capabilities) -> Self {
        let connected = |bytes: usize| bytes.min(capabilities.rc_message_bytes_max);
        let message_bytes = match design.transport() {
            Transport::ReliableConnection if design.reads() && capabilities.reads_at_once => {
                connected(READ_AT_ONCE_MESSAGE_BYTES)
            }
            Transport::ReliableConnection => connected(RC_MESSAGE_BYTES),
            _ => capabilities.ud_message_bytes_max,
        };
        Self {
            design,
            endpoints: design.endpoints(threads),
            classic: false,
            message_bytes,
            window: Buffers::Adaptive.window(design.transport(), message_bytes),
            credit_frequency: CREDIT_FREQUENCY,
            credit_by: match capabilities.immediate_data {
                true => CreditBy::Immediate,
                false => CreditBy::Memory,
            },
            repeat_interval: Duration::from_millis(20),
            missing_deadline: Duration::from_secs(2),
            on_loss: OnLoss::default(),
            queue_key: None,
            datagrams_max: DATAGRAMS_MAX.min(capabilities.work_requests_max),
            coupled: false,
            batch_rows: 8192,
            ordered: false,
        }
    }

    /// The same as a classic exchange of nodes with so many units: each unit has an endpoint of its own, and links
    /// with all units of the other nodes.
    pub fn classic(self, units: usize) -> Self {
        Self {
            endpoints: units,
            classic: true,
            ..self
        }
    }

    /// Links from a node to each endpoint of another: one for each of its units.
    pub(crate) fn units(&self) -> usize {
        match self.classic {
            true => self.endpoints.max(1),
            false => 1,
        }
    }

    /// Whether credit for SENDs over Reliable Connection is written to memory.
    fn has_credit_in_memory(&self) -> bool {
        self.credit_by == CreditBy::Memory
            && self.design.verb() == Verb::Send
            && self.design.transport() == Transport::ReliableConnection
    }

    /// Whether the ends of a link write to queues of each other's, which somebody has to look at.
    pub(crate) fn has_queues(&self) -> bool {
        self.design.has_queues() || self.has_credit_in_memory()
    }

    /// Whether lost messages are sent again: then sources keep what they have sent, and receivers
    /// know which messages have arrived.
    pub(crate) fn repairs(&self) -> bool {
        self.design.transport() == Transport::UnreliableDatagram && self.on_loss == OnLoss::Repair
    }

    /// Buffers of an endpoint for datagrams before its links have more than they need; without end over connections.
    pub(crate) fn endpoint_budget(&self) -> usize {
        match self.window.budget {
            usize::MAX => usize::MAX,
            budget => budget / self.endpoints.max(1),
        }
    }

    /// Most messages of a group that a source keeps because they may not have arrived: so many
    /// that one that is missing does not hold it up before it can be repaired.
    pub(crate) fn unarrived_max(&self) -> usize {
        2 * self.window_max()
    }

    /// Most messages of a source that may arrive over an endpoint before one that was sent earlier.
    pub(crate) fn messages_ahead(&self) -> usize {
        match self.repairs() {
            true => self.unarrived_max(),
            false => self.window_max(),
        }
    }

    /// Most messages with which a receiver that has so many buffers for a link asks for what it misses of one group at a time.
    pub(crate) fn asks_in_flight(&self, buffers: usize) -> usize {
        match self.repairs() {
            true => (2 * buffers).div_ceil(Missing::SPAN as usize),
            false => 0,
        }
    }

    /// Most messages that a source may ever have in flight on a link. Where lost messages are
    /// repaired it keeps as many, so that half of them fill the same memory, and the same caches.
    pub(crate) fn window_max(&self) -> usize {
        let most = match self.repairs() {
            true => self.window.most / 2,
            false => self.window.most,
        };
        self.window.least.max(most)
    }

    /// Messages that a source may have in flight on a new link, where there is memory to spare.
    pub(crate) fn window_start(&self) -> usize {
        self.window
            .first
            .clamp(self.window.least, self.window_max())
    }

    /// The credit frequency that can work on a link of so many buffers: a sender that has used
    /// them up must hear of more.
    pub(crate) fn credit_every(&self, buffers: usize) -> u32 {
        let rare = (buffers / CREDITS_PER_WINDOW) as u32;
        self.credit_frequency.max(rare).clamp(1, buffers as u32)
    }

    /// Most credits that a receiver writes back before the sender has taken one: every one but
    /// the first, and those of a link that grows, is paid for by messages that used up a credit.
    pub(crate) fn credits_in_flight(&self) -> usize {
        self.credits_in_flight_of(self.window_max())
    }

    /// The same of a receiver that has at most so many buffers for a link.
    pub(crate) fn credits_in_flight_of(&self, window: usize) -> usize {
        let mut buffers = self.window.least;
        let mut most = 0;
        let mut growths = 0;
        loop {
            most = most.max(buffers / self.credit_every(buffers) as usize);
            if buffers >= window {
                return most + growths + 2;
            }
            buffers = (2 * buffers).min(window);
            growths += 1;
        }
    }

    /// The size of a link over a connection.
    pub(crate) fn link_sizes(&self) -> LinkSizes {
        LinkSizes {
            message_bytes: self.message_bytes,
            least: self.window.least,
            most: self.window_max(),
            // The end of a stream.
            control: 1,
            credit_in_memory: self.has_credit_in_memory(),
        }
    }

    /// Bytes of payload in a message.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.message_bytes - HEADER_LENGTH
    }
}

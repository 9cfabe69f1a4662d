//! The settings of an exchange, with their defaults and limits.

use crate::design::Design;
use crate::wire::HEADER_LENGTH;
use roundel_verbs::{Capabilities, Transport};
use std::time::Duration;

/// Bytes of a message over Reliable Connection, header included.
pub const RC_MESSAGE_BYTES: usize = 64 << 10;
/// Bytes that a link may have in flight: two messages of Reliable Connection, so that one is
/// filled while the other travels. Datagrams are smaller, and as many more.
pub const WINDOW_BYTES: usize = 2 * RC_MESSAGE_BYTES;
/// A receiver writes its credit back every so many receives.
pub const CREDIT_FREQUENCY: u32 = 2;

/// Settings of an exchange; sender and receiver use the same.
#[derive(Clone, Debug)]
pub struct ExchangeOptions {
    /// Which design.
    pub design: Design,
    /// Threads per node: the endpoints of a multi-endpoint design.
    pub threads: usize,
    /// Bytes of a message, header included; clamped to what the device can carry.
    pub message_bytes: usize,
    /// Messages that a source may have in flight on a link, and buffers on each side; at least 2.
    pub buffers_per_link: usize,
    /// The receiver writes its credit back every so many receives, at most `buffers_per_link`.
    pub credit_frequency: u32,
    /// Over datagrams: how long to wait for what the other side should have said, before saying
    /// it again.
    pub repeat_interval: Duration,
    /// Over datagrams: how long a receiver that knows of missing messages waits for them.
    pub missing_deadline: Duration,
    /// Whether the batches of each source and partition come out in the order they went in. They
    /// do anyway over Reliable Connection.
    pub ordered: bool,
}

impl ExchangeOptions {
    /// The defaults of a design on a device.
    pub fn new(design: Design, threads: usize, capabilities: &Capabilities) -> Self {
        let message_bytes = match design.transport() {
            Transport::ReliableConnection => {
                RC_MESSAGE_BYTES.min(capabilities.rc_message_bytes_max)
            }
            _ => capabilities.ud_message_bytes_max,
        };
        Self {
            design,
            threads: threads.max(1),
            message_bytes,
            buffers_per_link: (WINDOW_BYTES / message_bytes).max(2),
            credit_frequency: CREDIT_FREQUENCY,
            repeat_interval: Duration::from_millis(20),
            missing_deadline: Duration::from_secs(2),
            ordered: false,
        }
    }

    /// The credit frequency that can work: a sender that has used up its buffers must hear of more.
    pub(crate) fn credit_every(&self) -> u32 {
        self.credit_frequency.clamp(1, self.buffers_per_link as u32)
    }

    /// Most credits that a receiver writes back before the sender has taken one: every one but
    /// the first is paid for by messages that used up a credit.
    pub(crate) fn credits_in_flight(&self) -> usize {
        self.buffers_per_link / self.credit_every() as usize + 2
    }

    /// Bytes of payload in a message.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.message_bytes - HEADER_LENGTH
    }
}

//! What can hold a candidate up, and what of that is known of the hardware.

use crate::fabric::FabricChoice;
use roundel_verbs::sim::Parameters;
use serde::Serialize;
use strum::Display;

/// What holds a candidate up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The link.
    #[strum(to_string = "the link is full")]
    Link,
    /// What threads hash and copy.
    #[strum(to_string = "threads hash and copy no faster")]
    Threads,
    /// More queue pairs than the NIC has contexts for.
    #[strum(to_string = "there are more queue pairs than the NIC has contexts for")]
    Contexts,
    /// The lock of an endpoint that threads share.
    #[strum(to_string = "threads wait for the lock of the endpoint that they share")]
    Lock,
    /// Credit of receivers.
    #[strum(to_string = "senders wait for credit")]
    Credit,
    /// Free buffers.
    #[strum(to_string = "senders wait for free buffers")]
    Buffers,
    /// Nothing that is measured.
    #[strum(to_string = "nothing was seen that it waits for")]
    Unknown,
}

/// What is known of simulated hardware.
#[derive(Clone, Debug)]
pub(super) struct Hardware {
    /// Bytes of payload in a second of a link.
    pub link: f64,
    /// Bytes that a thread hashes and copies in a second.
    pub thread: f64,
    /// Queue pairs of whose contexts the NIC has room for both.
    pub contexts: u64,
    /// Fetching one, as a share of what goes out on the link for it.
    pub fetching: f64,
}

impl Hardware {
    /// That of a fabric, where it is simulated.
    pub(super) fn of(fabric: &FabricChoice) -> Option<Self> {
        let Parameters { link, nic, cpu, .. } = fabric.hardware()?;
        let packet = link.packet_bytes;
        let on_link = link.rate.time(packet + link.header_bytes).as_picos();
        let packet_picos = on_link.max(nic.host.time(packet).as_picos()) as f64;
        let byte = |rate: roundel_verbs::sim::Rate| rate.time(packet).as_picos();
        let thread = (byte(cpu.hash) + byte(cpu.copy)) as f64;
        Some(Self {
            link: packet as f64 / packet_picos * 1e12,
            thread: packet as f64 / thread * 1e12,
            contexts: nic.contexts as u64 / 2,
            fetching: nic.requester_miss.as_picos() as f64 / packet_picos,
        })
    }

    /// Bytes in a second that a node of so many threads cannot exceed.
    pub(super) fn most(&self, threads: usize) -> f64 {
        self.link.min(threads as f64 * self.thread)
    }
}

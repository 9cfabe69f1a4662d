//! What the two ends say to each other over the rendezvous, between the runs. It comes from
//! outside: whoever reads it checks what it says.
//!
//! ```text
//!   magic (8)  version (4, little endian)  JSON of a message
//! ```
//!
//! Magic and version stay where they are in all versions, so that any two can tell each other.

use super::error::{PerfError, Result};
use super::test::Test;
use roundel_verbs::{Capabilities, QueuePairAddress, RemoteAddress, VerbsError};
use serde::{Deserialize, Serialize};

/// Version of these messages and of what the ends do between them.
const VERSION: u32 = 3;
const MAGIC: [u8; 8] = *b"rndlperf";

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Message {
    /// Both, first: facts of the end.
    Hello(EndFacts),
    /// The initiator: the next test.
    Test {
        /// The test.
        test: Test,
        /// The seed of the patterns that verify messages, so that bytes of an earlier test do
        /// not pass.
        seed: u64,
    },
    /// The initiator: there are no more tests.
    Finish,
    /// Both: where their queue pair and memory are.
    Offer(Offer),
    /// This end has come so far. Both know the next step.
    Ready,
    /// The initiator, after a run: messages that it sent.
    Sent(u64),
    /// The responder, after a run: messages that it received, and its CPU time.
    Received {
        /// Messages that it received.
        messages: u64,
        /// CPU time of its process during the run.
        cpu_seconds: f64,
    },
    /// Any, instead of what is expected: this end failed, for this reason.
    Failed(String),
}

/// What a peer needs to connect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Offer {
    /// Where its queue pair is.
    pub(super) queue_pair: QueuePairAddress,
    /// Where its exposed memory is.
    pub(super) exposed: Option<RemoteAddress>,
}

/// Facts of an end, for reports and errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndFacts {
    /// Name of its host.
    pub host: String,
    /// Number of its process.
    pub process: u32,
    /// Facts of its device.
    pub device: DeviceFacts,
}

impl EndFacts {
    /// The facts of this process and a device of its own.
    pub fn of(device: &Capabilities) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            host: host.trim().to_owned(),
            process: std::process::id(),
            device: DeviceFacts::from(device),
        }
    }

    /// How errors call it.
    pub fn name(&self) -> String {
        format!("process {} on {}", self.process, self.host)
    }
}

/// What reports say of a device: its [`Capabilities`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields of Capabilities")]
pub struct DeviceFacts {
    pub provider: String,
    pub queue_pairs_max: usize,
    pub work_requests_max: usize,
    pub completion_queues_max: usize,
    pub completion_channels_max: usize,
    pub inline_bytes_max: usize,
    pub rc_message_bytes_max: usize,
    pub ud_message_bytes_max: usize,
    pub grh_bytes: usize,
    pub registered_bytes_max: usize,
    pub outstanding_reads_max: usize,
    pub atomics: bool,
    pub write_in_address_order: bool,
    pub same_host_only: bool,
}

impl From<&Capabilities> for DeviceFacts {
    fn from(device: &Capabilities) -> Self {
        Self {
            provider: device.provider.to_owned(),
            queue_pairs_max: device.queue_pairs_max,
            work_requests_max: device.work_requests_max,
            completion_queues_max: device.completion_queues_max,
            completion_channels_max: device.completion_channels_max,
            inline_bytes_max: device.inline_bytes_max,
            rc_message_bytes_max: device.rc_message_bytes_max,
            ud_message_bytes_max: device.ud_message_bytes_max,
            grh_bytes: device.grh_bytes,
            registered_bytes_max: device.registered_bytes_max,
            outstanding_reads_max: device.outstanding_reads_max,
            atomics: device.atomics,
            write_in_address_order: device.write_in_address_order,
            same_host_only: device.same_host_only,
        }
    }
}

impl Message {
    pub(super) fn emit(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        serde_json::to_writer(&mut bytes, self).expect("a message is plain data, in memory");
        bytes
    }

    /// Reads what `peer` sent.
    pub(super) fn parse(bytes: &[u8], peer: &str) -> Result<Self> {
        let wrong = |reason: String| PerfError::Protocol {
            peer: peer.to_owned(),
            reason,
        };
        let versioned = bytes.strip_prefix(&MAGIC);
        let Some((version, text)) = versioned.and_then(<[u8]>::split_first_chunk::<4>) else {
            return Err(wrong("it measures something else".into()));
        };
        let theirs = u32::from_le_bytes(*version);
        if theirs != VERSION {
            return Err(PerfError::Verbs(VerbsError::VersionMismatch {
                peer: peer.to_owned(),
                protocol: "perf",
                theirs,
                ours: VERSION,
            }));
        }
        serde_json::from_slice(text).map_err(|error| wrong(format!("it sent {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::test::{Length, Measure, Polling, Verb};
    use proptest::prelude::*;
    use roundel_verbs::Transport;
    use roundel_verbs::address::{DEVICE_ADDRESS_BYTES_MAX, DeviceAddress};

    fn test(bytes: usize, seconds: f64, verb: usize, transport: Transport) -> Test {
        Test {
            measure: Measure::Latency,
            verb: Verb::ALL[verb],
            transport,
            bytes,
            depth: bytes,
            batch: 1,
            inline_bytes_max: Some(bytes),
            polling: Polling::Event,
            poll_memory: transport == Transport::UnreliableConnection,
            length: Length::Seconds(seconds),
            warm_up: None,
            timed_runs: 3,
        }
    }

    proptest! {
        #[test]
        fn messages_round_trip(
            bytes: usize,
            eighths: u32,
            verb in 0..Verb::ALL.len(),
            transport in prop::sample::select(Transport::ALL.to_vec()),
            text: String,
            device in prop::collection::vec(any::<u8>(), 0..=DEVICE_ADDRESS_BYTES_MAX),
        ) {
            // JSON keeps a number that has few digits as it is.
            let seconds = f64::from(eighths) / 8.0;
            let number = bytes as u32;
            let queue_pair = QueuePairAddress {
                device: DeviceAddress::new(&device).unwrap(),
                number,
                incarnation: eighths,
                queue_key: !number,
            };
            let memory = RemoteAddress { address: u64::MAX, remote_key: 7 };
            for message in [
                Message::Test {
                    test: test(bytes, seconds, verb, transport),
                    seed: u64::MAX,
                },
                Message::Sent(u64::MAX - bytes as u64),
                Message::Received { messages: bytes as u64, cpu_seconds: seconds },
                Message::Offer(Offer { queue_pair, exposed: Some(memory) }),
                Message::Failed(text),
                Message::Ready,
            ] {
                let read = Message::parse(&message.emit(), "x").unwrap();
                prop_assert_eq!(read, message);
            }
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(mut bytes: Vec<u8>, begins_well: bool) {
            if begins_well {
                bytes.splice(0..0, MAGIC.into_iter().chain(VERSION.to_le_bytes()));
            }
            let _ = Message::parse(&bytes, "x");
        }
    }

    #[test]
    fn another_version_is_told() {
        let mut bytes = Message::Ready.emit();
        bytes[MAGIC.len()] = 9;
        let told = Message::parse(&bytes, "x").unwrap_err().to_string();
        assert_eq!(
            told,
            "peer x speaks version 9 of the perf protocol, this side 3"
        );
    }
}

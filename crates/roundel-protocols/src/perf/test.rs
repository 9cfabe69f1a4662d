//! What is measured: the parameters of one test, which the initiator chooses and both ends check.

use super::error::{PerfError, Result};
use roundel_verbs::work::ATOMIC_BYTES;
use roundel_verbs::{Capabilities, Opcode, Transport};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use strum::{IntoStaticStr, VariantArray};

/// Most timed runs of a test.
pub const RUNS_MAX: u32 = 1000;
/// Longest timed run.
pub const RUN_TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Receives posted for each send that may be in flight: as a receiver that falls behind for a
/// moment would otherwise stop the sender, or lose datagrams.
const RECEIVES_PER_SEND: usize = 4;
/// Sends of a latency test that may wait for their completion to be polled: that is done in batches,
/// beside the critical path.
const LATENCY_DEPTH: usize = 64;
/// Most bytes of posted receives, if at least [`BUFFERS_MIN`] fit: with more, the caches of the
/// processor are measured too. SEND of 64 KiB over shm is 2.6 times slower with 16 MiB.
const RECEIVE_BYTES_MAX: usize = 8 << 20;
/// Most bytes of the buffers that requests own, as those of READs: no network has more on its way, and
/// a second-level cache holds them.
const OWNED_BYTES_MAX: usize = 2 << 20;
/// Fewest buffers, whatever their size.
const BUFFERS_MIN: usize = 2;

/// The verb that a test does over and over.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Verb {
    /// SEND to posted receives.
    Send,
    /// WRITE to exposed memory.
    Write,
    /// READ from exposed memory.
    Read,
    /// WRITE with immediate data, which consumes receives.
    WriteImm,
    /// Compare-and-swap of a word in exposed memory.
    CompareAndSwap,
    /// Addition to a word in exposed memory.
    FetchAndAdd,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 6] = *Self::VARIANTS.as_array().unwrap();

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// What the counters call it.
    pub fn opcode(self) -> Opcode {
        match self {
            Self::Send => Opcode::Send,
            Self::Write => Opcode::Write,
            Self::Read => Opcode::Read,
            Self::WriteImm => Opcode::WriteWithImmediate,
            Self::CompareAndSwap => Opcode::CompareAndSwap,
            Self::FetchAndAdd => Opcode::FetchAndAdd,
        }
    }

    /// Whether a transport has it.
    pub fn is_on(self, transport: Transport) -> bool {
        match transport {
            Transport::ReliableConnection => true,
            Transport::UnreliableConnection => !self.returns_bytes(),
            _ => self == Self::Send,
        }
    }

    /// Whether a device has it.
    pub fn is_of(self, device: &Capabilities) -> bool {
        device.atomics || !self.is_atomic()
    }

    /// Whether it changes a word of [`ATOMIC_BYTES`] in one step, and has no other size.
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::CompareAndSwap | Self::FetchAndAdd)
    }

    /// Whether bytes come back to the end that posts it.
    pub(super) fn returns_bytes(self) -> bool {
        self == Self::Read || self.is_atomic()
    }

    /// Whether it consumes a receive of the peer.
    pub(super) fn consumes_receive(self) -> bool {
        matches!(self, Self::Send | Self::WriteImm)
    }

    /// Whether it goes to or comes from exposed memory of the peer.
    pub(super) fn is_one_sided(self) -> bool {
        self != Self::Send
    }
}

/// What a test measures of its verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Measure {
    /// As many as possible, in one direction: bytes and messages per second.
    Bandwidth,
    /// One at a time, there and back: half of the round trip; of READ and of atomics the
    /// whole.
    Latency,
}

impl Measure {
    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How an end waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Polling {
    /// It polls without a pause.
    Busy,
    /// It sleeps on the completion channel.
    Event,
}

impl Polling {
    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How long a timed run is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    /// This many messages.
    Messages(u64),
    /// This many seconds.
    Seconds(f64),
}

/// The transports that can be measured, with their names on the command line and in reports. One
/// more is a row here, its verbs in [`Verb::is_on`], its longest message in [`message_bytes_max`] and
/// its connection in the module `end`.
const TRANSPORTS: [(Transport, &str); 3] = [
    (Transport::ReliableConnection, "rc"),
    (Transport::UnreliableConnection, "uc"),
    (Transport::UnreliableDatagram, "ud"),
];

/// The name of a transport on the command line and in reports.
pub fn transport_name(transport: Transport) -> &'static str {
    let named = TRANSPORTS.iter().find(|(other, _)| *other == transport);
    named.map_or("unknown", |(_, name)| name)
}

/// The transport of this name.
pub fn transport_named(name: &str) -> Option<Transport> {
    let named = TRANSPORTS.iter().find(|(_, other)| *other == name);
    named.map(|(transport, _)| *transport)
}

/// A transport on the wire and in reports: its name.
mod transport {
    use super::{Transport, transport_name, transport_named};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(transport: &Transport, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(transport_name(*transport))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Transport, D::Error> {
        let name = String::deserialize(from)?;
        transport_named(&name)
            .ok_or_else(|| D::Error::custom(format!("there is no transport {name:?}")))
    }
}

/// The parameters of one test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// What is measured.
    pub measure: Measure,
    /// Of which verb.
    pub verb: Verb,
    /// On which transport.
    #[serde(with = "transport")]
    pub transport: Transport,
    /// Bytes of a message.
    pub bytes: usize,
    /// Messages in flight; of bandwidth only.
    pub depth: usize,
    /// Work requests posted with one call; of bandwidth only.
    pub batch: usize,
    /// Messages of up to so many bytes travel inside their work request. None: of latency all that
    /// the device takes, of bandwidth none.
    pub inline_bytes_max: Option<usize>,
    /// How both ends wait.
    pub polling: Polling,
    /// The arrival of a WRITE is seen in memory; otherwise it carries immediate data. Of latency
    /// only.
    pub poll_memory: bool,
    /// How long a timed run is.
    pub length: Length,
    /// Messages before the timed runs. None: so many that each receive is used once.
    pub warm_up: Option<u64>,
    /// How many timed runs there are.
    pub timed_runs: u32,
}

impl Test {
    /// Checks the parameters against each other and a device's limits.
    ///
    /// # Errors
    /// [`PerfError::Unsupported`].
    pub fn check(&self, device: &Capabilities) -> Result<()> {
        let verb = self.verb.name();
        let transport = transport_name(self.transport);
        let most = message_bytes_max(device, self.transport);
        let requests = device.work_requests_max;
        let inline = device.inline_bytes_max;
        let wrong = if !self.verb.is_on(self.transport) {
            format!("{transport} queue pairs have no {verb}")
        } else if !device.transports.contains(&self.transport) {
            format!("this {} device has no {transport}", device.provider)
        } else if !self.verb.is_of(device) {
            format!("this {} device has no atomics: no {verb}", device.provider)
        } else if self.verb.is_atomic() && self.bytes != ATOMIC_BYTES {
            format!(
                "{verb} of {} bytes: it has {ATOMIC_BYTES}, always",
                self.bytes
            )
        } else if self.bytes == 0 || self.bytes > most {
            format!(
                "a message of {} bytes: on {transport} of this {} device it has 1 to {most}",
                self.bytes, device.provider
            )
        } else if self.depth == 0 || self.depth > requests {
            format!(
                "a depth of {}: this device takes 1 to {requests}",
                self.depth
            )
        } else if self.batch == 0 || self.batch > self.depth {
            format!(
                "a batch of {}: it is 1 to the depth, {}",
                self.batch, self.depth
            )
        } else if self.inline_bytes_max.is_some_and(|bytes| bytes > inline) {
            format!("this device takes at most {inline} inline bytes")
        } else if self.timed_runs == 0 || self.timed_runs > RUNS_MAX {
            format!("{} runs: there are 1 to {RUNS_MAX}", self.timed_runs)
        } else {
            match self.length {
                Length::Messages(0) => "a run has at least one message".to_owned(),
                Length::Seconds(s) if s > 0.0 && s <= RUN_TIME_MAX.as_secs_f64() => return Ok(()),
                Length::Seconds(_) => {
                    format!("a run takes more than 0 and at most {RUN_TIME_MAX:?}")
                }
                Length::Messages(_) => return Ok(()),
            }
        };
        Err(PerfError::Unsupported(wrong))
    }

    /// Sends that an end may have in flight, on a device with these limits.
    pub(super) fn send_depth(&self, device: &Capabilities) -> usize {
        match self.measure {
            Measure::Bandwidth => self.depth,
            Measure::Latency => LATENCY_DEPTH.min(device.work_requests_max),
        }
    }

    /// Receives that an end posts, on a device with these limits.
    pub(super) fn receive_depth(&self, device: &Capabilities) -> usize {
        self.buffers_within(
            RECEIVE_BYTES_MAX,
            RECEIVES_PER_SEND * self.send_depth(device),
        )
        .min(device.work_requests_max)
    }

    /// How many buffers of a message each the requests of an end take, of those that it would like to
    /// have.
    pub(super) fn owned_buffers(&self, wanted: usize) -> usize {
        self.buffers_within(OWNED_BYTES_MAX, wanted)
    }

    fn buffers_within(&self, bytes: usize, wanted: usize) -> usize {
        wanted.min(BUFFERS_MIN.max(bytes / self.bytes))
    }

    /// Whether messages travel inside their work requests, on a device with these limits.
    pub(super) fn is_inline(&self, device: &Capabilities) -> bool {
        let most = self.inline_bytes_max.unwrap_or(match self.measure {
            Measure::Bandwidth => 0,
            Measure::Latency => device.inline_bytes_max,
        });
        !self.verb.returns_bytes() && self.bytes <= most.min(device.inline_bytes_max)
    }

    /// Messages of the warm-up.
    pub(super) fn warm_up_messages(&self, device: &Capabilities) -> u64 {
        self.warm_up
            .unwrap_or_else(|| self.receive_depth(device) as u64)
    }

    /// Whether the responder sends too.
    pub(super) fn goes_both_ways(&self) -> bool {
        self.measure == Measure::Latency && !self.verb.returns_bytes()
    }

    /// The verb that is posted.
    pub(super) fn posted_verb(&self) -> Verb {
        match (self.measure, self.verb) {
            (Measure::Latency, Verb::Write) if !self.poll_memory => Verb::WriteImm,
            (_, verb) => verb,
        }
    }
}

/// Most bytes of a message on a transport.
pub fn message_bytes_max(device: &Capabilities, transport: Transport) -> usize {
    match transport {
        Transport::UnreliableDatagram => device.ud_message_bytes_max,
        _ => device.rc_message_bytes_max,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use roundel_verbs::Blame as _;

    /// A short test of SEND over RC.
    pub(in crate::perf) fn bandwidth_test() -> Test {
        Test {
            measure: Measure::Bandwidth,
            verb: Verb::Send,
            transport: Transport::ReliableConnection,
            bytes: 64,
            depth: 16,
            batch: 4,
            inline_bytes_max: None,
            polling: Polling::Busy,
            poll_memory: true,
            length: Length::Messages(1000),
            warm_up: None,
            timed_runs: 1,
        }
    }

    fn device() -> roundel_verbs::Device {
        roundel_verbs::shm::open(roundel_verbs::shm::ShmOptions::default()).unwrap()
    }

    #[test]
    fn what_a_device_cannot_do_is_told() {
        let device = device();
        let limits = device.capabilities();
        let good = bandwidth_test();
        assert!(good.check(limits).is_ok());
        let ud = Transport::UnreliableDatagram;
        let wrong = |change: fn(&mut Test), told: &str| {
            let mut test = good.clone();
            change(&mut test);
            let error = test.check(limits).unwrap_err();
            assert!(
                error.is_usage() && error.to_string().contains(told),
                "{error}"
            );
        };
        wrong(|test| test.bytes = 0, "0 bytes");
        wrong(|test| test.bytes = (1 << 30) + 1, "1 to 1073741824");
        wrong(|test| test.depth = 0, "depth");
        wrong(|test| test.depth = 1 << 20, "16384");
        wrong(|test| test.batch = 0, "batch");
        wrong(|test| test.batch = 17, "1 to the depth, 16");
        wrong(|test| test.timed_runs = 0, "runs");
        wrong(|test| test.inline_bytes_max = Some(1 << 20), "128");
        wrong(|test| test.length = Length::Messages(0), "at least one");
        wrong(
            |test| test.length = Length::Seconds(f64::NAN),
            "more than 0",
        );
        wrong(|test| test.length = Length::Seconds(1e9), "more than 0");
        wrong(|test| test.verb = Verb::FetchAndAdd, "64 bytes: it has 8");
        let uc = Transport::UnreliableConnection;
        for verb in Verb::ALL {
            let is_on = |transport| {
                let test = Test {
                    verb,
                    transport,
                    bytes: 8,
                    ..good.clone()
                };
                test.check(limits).is_ok()
            };
            assert!(is_on(Transport::ReliableConnection), "{verb:?}");
            let answers = [Verb::Read, Verb::CompareAndSwap, Verb::FetchAndAdd];
            assert_eq!(is_on(uc), !answers.contains(&verb), "{verb:?}");
            assert_eq!(is_on(ud), verb == Verb::Send, "{verb:?}");
        }
        let long = Test {
            bytes: limits.ud_message_bytes_max + 1,
            transport: ud,
            ..good
        };
        assert!(long.check(limits).unwrap_err().to_string().contains("4096"));
    }

    #[test]
    fn what_a_device_does_not_have_is_told() {
        let mut device = device().capabilities().clone();
        device.atomics = false;
        device.transports = vec![Transport::ReliableConnection];
        for verb in Verb::ALL {
            let mut test = Test {
                verb,
                bytes: 8,
                ..bandwidth_test()
            };
            assert_eq!(verb.is_of(&device), !verb.is_atomic());
            match test.check(&device) {
                Ok(()) => assert!(!verb.is_atomic()),
                Err(error) => {
                    assert!(verb.is_atomic());
                    assert!(error.to_string().contains("no atomics"), "{error}");
                }
            }
            test.transport = Transport::UnreliableConnection;
            assert!(test.check(&device).is_err());
        }
        let test = Test {
            transport: Transport::UnreliableConnection,
            ..bandwidth_test()
        };
        let told = test.check(&device).unwrap_err().to_string();
        assert_eq!(told, "this shm device has no uc");
    }

    #[test]
    fn large_messages_have_fewer_buffers() {
        let device = device();
        let limits = device.capabilities();
        let of = |bytes, depth| {
            let test = Test {
                bytes,
                depth,
                ..bandwidth_test()
            };
            test.receive_depth(limits)
        };
        assert_eq!(of(8, 128), 512);
        assert_eq!(of(8, 16 << 10), limits.work_requests_max);
        assert_eq!(of(64 << 10, 128), 128);
        assert_eq!(of(1 << 20, 128), 8);
        assert_eq!(of(1 << 30, 128), 2);
    }

    #[test]
    fn transports_have_names() {
        for (transport, name) in TRANSPORTS {
            assert_eq!(transport_named(name), Some(transport));
            assert_eq!(transport_name(transport), name);
        }
        assert_eq!(transport_named("pigeon"), None);
    }
}

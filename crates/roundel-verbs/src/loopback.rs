//! Whether the verbs of an open device work: one small message each, between queue pairs of that
//! device. For whoever wants to know quickly, before anything depends on it; the
//! conformance suite (`roundel-conformance`) asks how they behave.
//!
//! It uses the object model only, and knows nothing of the provider. It touches no queue pair but
//! its own, and leaves nothing behind.

mod bench;
mod checks;
pub mod pipe;

use crate::device::Device;
use bench::{Bench, Trouble};
use serde::Serialize;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use strum::{IntoStaticStr, VariantArray};

/// How long a check waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// How long a check may take: beyond that a call of it does not return, and the rest is not tried.
const ABANDONED_AFTER: Duration = Duration::from_secs(5);

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
pub enum Check {
    /// Registering a segment of an arena with the default sizes.
    #[strum(serialize = "registered memory")]
    RegisteredMemory,
    /// SEND over a reliable connection.
    #[strum(serialize = "RC SEND")]
    RcSend,
    /// WRITE over a reliable connection.
    #[strum(serialize = "RC WRITE")]
    RcWrite,
    /// READ over a reliable connection.
    #[strum(serialize = "RC READ")]
    RcRead,
    /// WRITE with immediate data over a reliable connection.
    #[strum(serialize = "RC WRITE with immediate")]
    RcWriteWithImmediate,
    /// A payload inside the work request.
    #[strum(serialize = "inline")]
    Inline,
    /// Compare-and-swap and fetch-and-add.
    #[strum(serialize = "atomics")]
    Atomics,
    /// An armed completion queue makes its channel's descriptor readable.
    #[strum(serialize = "completion channel")]
    CompletionChannel,
    /// A receive queue that several queue pairs share.
    #[strum(serialize = "shared receive queue")]
    SharedReceiveQueue,
    /// SEND over an unreliable connection.
    #[strum(serialize = "UC SEND")]
    UcSend,
    /// WRITE over an unreliable connection.
    #[strum(serialize = "UC WRITE")]
    UcWrite,
    /// SEND of the longest datagram.
    #[strum(serialize = "UD SEND")]
    UdSend,
    /// A datagram to a multicast group.
    #[strum(serialize = "multicast")]
    Multicast,
}

impl Check {
    /// Every check, in the order in which they run.
    pub const ALL: [Self; 13] = *Self::VARIANTS.as_array().unwrap();

    /// What reports for people call it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The check without which this one cannot succeed.
    fn needs(self) -> Option<Check> {
        match self {
            Self::RegisteredMemory => None,
            Self::RcSend | Self::UcSend | Self::UdSend => Some(Self::RegisteredMemory),
            Self::UcWrite => Some(Self::UcSend),
            Self::Multicast => Some(Self::UdSend),
            _ => Some(Self::RcSend),
        }
    }
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "reason", rename_all = "snake_case")]
pub enum Verdict {
    /// What was sent has arrived.
    Works,
    /// Provider or device say that they do not have it.
    NotSupported,
    /// It does not work, and this is what happened.
    Failed(String),
    /// What it builds on does not work.
    NotTried(String),
}

/// A check and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// What was checked.
    pub check: Check,
    /// How it ended.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Runs every check on the device. Blocks, for [`PATIENCE`] or so per check that fails.
pub fn run(device: &Device) -> Vec<Outcome> {
    // On a thread of its own: a call that does not return, which a broken driver can cause, holds
    // up that thread only.
    let (sender, receiver) = channel();
    let device = device.clone();
    let started = std::thread::Builder::new()
        .name("loopback".to_owned())
        .spawn(move || run_all(&device, &sender));
    match started {
        Ok(_) => collect(&receiver),
        Err(error) => {
            let reason = format!("no thread could be started: {error}");
            let not_tried = |check| Outcome {
                check,
                verdict: Verdict::NotTried(reason.clone()),
            };
            Check::ALL.map(not_tried).into()
        }
    }
}

fn run_all(device: &Device, sender: &Sender<Verdict>) {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for check in Check::ALL {
        let verdict = match verdict_of_needed(check, &outcomes) {
            Some(verdict) => verdict,
            None => match Bench::new(device, None).and_then(|bench| checks::run(check, &bench)) {
                Ok(()) => Verdict::Works,
                Err(Trouble::NotSupported) => Verdict::NotSupported,
                Err(Trouble::Failed(reason)) => Verdict::Failed(reason),
            },
        };
        tracing::debug!(check = check.name(), ?verdict, "loopback");
        if sender.send(verdict.clone()).is_err() {
            return;
        }
        outcomes.push(Outcome { check, verdict });
    }
}

/// The verdict of a check whose foundation does not work.
fn verdict_of_needed(check: Check, outcomes: &[Outcome]) -> Option<Verdict> {
    let needed = check.needs()?;
    let found = outcomes.iter().find(|outcome| outcome.check == needed)?;
    match found.verdict {
        Verdict::Works => None,
        Verdict::NotSupported => Some(Verdict::NotSupported),
        Verdict::Failed(_) | Verdict::NotTried(_) => Some(Verdict::NotTried(format!(
            "{} does not work",
            needed.name()
        ))),
    }
}

fn collect(receiver: &Receiver<Verdict>) -> Vec<Outcome> {
    let mut lost = None;
    let outcome = |check: Check| {
        let verdict = match lost {
            Some(before) => {
                let before: Check = before;
                Verdict::NotTried(format!("{} did not return", before.name()))
            }
            None => receiver.recv_timeout(ABANDONED_AFTER).unwrap_or_else(|_| {
                lost = Some(check);
                Verdict::Failed("a call did not return; the log of the kernel may say why".into())
            }),
        };
        Outcome { check, verdict }
    };
    Check::ALL.into_iter().map(outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{shm, tcp};

    #[test]
    fn shared_memory_has_all_but_what_it_says_it_has_not() {
        has_all_but_shared_receives_and_multicast(&shm::open(shm::ShmOptions::default()).unwrap());
    }

    #[test]
    fn sockets_have_all_but_what_they_say_they_have_not() {
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        has_all_but_shared_receives_and_multicast(&tcp::open(tcp::TcpOptions { address }).unwrap());
    }

    fn has_all_but_shared_receives_and_multicast(device: &Device) {
        for outcome in run(device) {
            let wanted = match outcome.check {
                Check::SharedReceiveQueue | Check::Multicast => Verdict::NotSupported,
                _ => Verdict::Works,
            };
            assert_eq!(outcome.verdict, wanted, "{}", outcome.check.name());
        }
    }

    #[test]
    fn what_builds_on_something_broken_is_not_tried() {
        let of = |verdict| {
            let outcomes = [Outcome {
                check: Check::UdSend,
                verdict,
            }];
            verdict_of_needed(Check::Multicast, &outcomes)
        };
        assert_eq!(of(Verdict::Works), None);
        assert_eq!(of(Verdict::NotSupported), Some(Verdict::NotSupported));
        let not_tried = Verdict::NotTried("UD SEND does not work".to_owned());
        assert_eq!(of(Verdict::Failed("lost".to_owned())), Some(not_tried));
    }

    #[test]
    fn a_call_that_does_not_return_ends_the_waiting() {
        let (sender, receiver) = channel();
        sender.send(Verdict::Works).unwrap();
        drop(sender);
        let outcomes = collect(&receiver);
        assert_eq!(outcomes.len(), Check::ALL.len());
        assert_eq!(outcomes[0].verdict, Verdict::Works);
        assert!(matches!(outcomes[1].verdict, Verdict::Failed(_)));
        let not_tried = Verdict::NotTried("RC SEND did not return".to_owned());
        assert!(outcomes[2..].iter().all(|o| o.verdict == not_tried));
    }
}

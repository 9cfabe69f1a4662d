//! Whether rows are sent by a schedule: as the options say, or where that gains anything. When rows may go where is the
//! business of `phases`, and what the nodes have found out together is the business of `trial`. This module knows no
//! messages, only how many bytes wait for whom.

use super::MultiplexerOptions;
use super::address::NodeId;
use super::phases::{Backlog, Phases, ScheduleReport, Turn};
use super::trial::Trial;
use crate::wire::Body;
use std::time::Duration;
use strum::{Display, EnumString, IntoStaticStr};

/// Whether rows are sent by a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Display, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase", ascii_case_insensitive)]
#[strum(parse_err_ty = UnknownScheduling, parse_err_fn = unknown)]
pub enum Scheduling {
    /// Rows are sent whenever there are any.
    #[default]
    Off,
    /// Rows are sent in their phase, as long as messages are long. Phases of short messages would end before the next
    /// node has heard of it.
    On,
    /// Rows are sent in their phase while long messages wait across a network, if rows that are for several nodes leave
    /// faster that way, in all of the nodes together.
    Auto,
}

impl Scheduling {
    /// Whatever can be asked for.
    pub const ALL: [Scheduling; 3] = [Scheduling::Off, Scheduling::On, Scheduling::Auto];

    /// The name: `off`, …
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The name is not one of a way to schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown schedule '{0}': use one of off, on, auto")]
pub struct UnknownScheduling(String);

fn unknown(name: &str) -> UnknownScheduling {
    UnknownScheduling(name.into())
}

/// The schedule of a node. Peers are numbered by their connections.
pub(super) struct Schedule {
    scheduling: Scheduling,
    /// Whether there is a switch between the nodes.
    networked: bool,
    /// Messages at least so long, on average, fill the buffers of a switch.
    long_bytes: usize,
    message_bytes: usize,
    /// Messages of a phase.
    phase_messages: usize,
    /// What waited last was long, on average.
    long: bool,
    peers: Vec<usize>,
    phases: Phases,
    trial: Trial,
}

impl Schedule {
    /// As these options have it; `networked` says that there is a switch between the nodes.
    pub(super) fn new(options: &MultiplexerOptions, networked: bool) -> Self {
        Self {
            scheduling: options.scheduling,
            networked,
            long_bytes: options.long_bytes,
            message_bytes: options.message_bytes,
            phase_messages: 1,
            long: false,
            peers: Vec::new(),
            phases: Phases::new(options.phase_bytes),
            trial: Trial::new(),
        }
    }

    pub(super) fn report(&self) -> ScheduleReport {
        ScheduleReport {
            changes: self.trial.changes(),
            ..self.phases.report()
        }
    }

    /// Whether it ever says anything.
    pub(super) fn is_used(&self) -> bool {
        match self.scheduling {
            Scheduling::Off => false,
            Scheduling::On => true,
            Scheduling::Auto => self.is_tried(),
        }
    }

    /// Whether the nodes are to find out what it is worth.
    fn is_tried(&self) -> bool {
        self.scheduling == Scheduling::Auto && self.networked
    }

    /// Takes note of the nodes that there are, for each of which so many bytes may wait.
    pub(super) fn set_peers(
        &mut self,
        own: NodeId,
        peers: impl Iterator<Item = (NodeId, usize)>,
        waiting_bytes: usize,
    ) {
        let mut peers: Vec<_> = peers.collect();
        peers.sort_unstable_by_key(|(node, _)| node.0);
        let first = peers.first().filter(|(node, _)| node.0 < own.0);
        let first = first.map(|(_, peer)| *peer);
        let above = peers.partition_point(|(node, _)| node.0 < own.0);
        peers.rotate_left(above);
        self.peers = peers.into_iter().map(|(_, peer)| peer).collect();
        self.phases.set_peers(&self.peers, waiting_bytes);
        if self.is_tried() {
            let waiting = waiting_bytes / self.message_bytes.max(1);
            self.phase_messages = (self.phases.bytes() / self.message_bytes.max(1)).max(1);
            self.trial
                .set_peers(&self.peers, first, (self.phases.bytes(), waiting));
        }
    }

    /// Who may be sent rows now.
    pub(super) fn turn(&self) -> Turn {
        self.phases.turn()
    }

    /// Until when it waits for its neighbour.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.phases.deadline()
    }

    /// So many bytes of rows were posted to a peer.
    pub(super) fn count(&mut self, peer: usize, bytes: usize) {
        if self.is_tried() {
            self.trial.count(peer, bytes);
        }
        self.phases.count(bytes);
    }

    /// What a peer says. Returns what to answer at once.
    pub(super) fn hear(&mut self, peer: usize, heard: Body) -> Option<(usize, Body)> {
        match heard {
            Body::Phase(phase) => {
                let answer = self.phases.hear(peer, phase);
                return answer.map(|(peer, phase)| (peer, Body::Phase(phase)));
            }
            Body::Trial(trial) if self.is_tried() => {
                self.trial.hear(peer, trial);
            }
            _ => {}
        }
        None
    }

    /// Goes on as far as it can. Returns what peers shall hear, if anything.
    pub(super) fn advance(
        &mut self,
        now: Duration,
        backlog: impl Fn(usize) -> Backlog,
    ) -> Vec<(usize, Body)> {
        self.look(now, &backlog);
        let told = self.trial.take_said().into_iter();
        let mut said: Vec<_> = told
            .map(|(peer, trial)| (peer, Body::Trial(trial)))
            .collect();
        let phase = self.phases.advance(now, self.is_worth(), backlog);
        said.extend(phase.map(|(peer, phase)| (peer, Body::Phase(phase))));
        said
    }

    /// Whether to take part while there are rows.
    fn is_worth(&self) -> bool {
        let wanted = match self.scheduling {
            Scheduling::Off => false,
            Scheduling::On => true,
            Scheduling::Auto => self.is_tried() && self.trial.is_scheduled(),
        };
        wanted && self.long
    }

    /// Sees whether messages are long, and lets the trial see how fast rows leave, while long ones are on their way, or
    /// wait, to several peers.
    fn look(&mut self, now: Duration, backlog: &impl Fn(usize) -> Backlog) {
        let all = || self.peers.iter().map(|peer| backlog(*peer));
        let bytes: usize = all().map(|one| one.bytes).sum();
        let messages: usize = all().map(|one| one.messages).sum();
        if messages > 0 {
            self.long = bytes >= messages * self.long_bytes;
        }
        if self.is_tried() {
            let with = |messages| {
                let peers = self.peers.iter().copied();
                peers.filter(move |peer| {
                    let waits = backlog(*peer);
                    waits.messages + waits.in_flight >= messages
                })
            };
            let busy = with(1).count();
            if busy > 1 && self.long {
                let full = with(self.phase_messages).count();
                self.trial.look(now, with(1), full);
            } else if busy == 0 || !self.long {
                self.trial.idle();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 1000;

    fn schedule(scheduling: Scheduling, networked: bool) -> Schedule {
        let options = MultiplexerOptions {
            design: crate::Design::SemqSr,
            message_bytes: BYTES,
            receives: 16,
            posted: 8,
            link_messages: 16,
            query_bytes: 64 * BYTES,
            scheduling,
            phase_bytes: BYTES,
            long_bytes: 16 << 10,
        };
        let mut schedule = Schedule::new(&options, networked);
        let peers = (1..=3).map(|peer| (NodeId(peer as u64), peer));
        // Not the first of all, which has nobody to tell.
        schedule.set_peers(NodeId(9), peers, 2 * BYTES);
        schedule
    }

    /// A message of so many bytes for each of the first peers.
    fn waiting(bytes: usize, peers: usize) -> impl Fn(usize) -> Backlog {
        move |peer| match peer <= peers {
            true => Backlog {
                bytes,
                messages: 1,
                in_flight: 0,
            },
            false => Backlog::default(),
        }
    }

    #[test]
    fn automatic_tries_it_with_long_messages_to_several_across_a_network() {
        let tried = |networked, bytes, peers: usize| {
            let mut node = schedule(Scheduling::Auto, networked);
            (0..100).any(|moment| {
                let now = Duration::from_micros(moment);
                let words = node.advance(now, waiting(bytes, peers));
                node.count(1, BYTES);
                let tell = |word: &(usize, Body)| matches!(word.1, Body::Trial(_));
                words.iter().any(tell)
            })
        };
        assert!(tried(true, 64 << 10, 2));
        assert!(!tried(false, 64 << 10, 2));
        assert!(!tried(true, 4 << 10, 2));
        assert!(!tried(true, 64 << 10, 1));
    }

    #[test]
    fn only_automatic_listens_to_the_others() {
        let scheduled = |scheduling, bytes| {
            let mut node = schedule(scheduling, true);
            let told = crate::wire::Trial {
                number: 1,
                rate: 0,
                crowded: false,
            };
            node.hear(2, Body::Trial(told));
            node.advance(Duration::ZERO, waiting(bytes, 2));
            node.turn() != Turn::Everybody
        };
        assert!(scheduled(Scheduling::Auto, 64 << 10));
        assert!(!scheduled(Scheduling::Off, 64 << 10));
        // Short messages are left alone, whatever the others do.
        assert!(!scheduled(Scheduling::Auto, 4 << 10));
    }

    #[test]
    fn names_are_read_as_written() {
        for scheduling in Scheduling::ALL {
            assert_eq!(scheduling.to_string().parse(), Ok(scheduling));
        }
        assert!("never".parse::<Scheduling>().is_err());
    }
}

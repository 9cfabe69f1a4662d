//! What goes wrong, at rates, at moments, or with the n-th packet of a kind.

use super::packet::Content;
use super::time::{Span, Time};
use rand::Rng;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;

/// What goes wrong. Nothing does by default. Packets within a node are spared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Share of packets that are lost.
    pub loss: f64,
    /// Share of packets whose bytes are spoilt, which the receiving NIC finds out by their checksum.
    pub corruption: f64,
    /// Share of packets that come twice.
    pub duplication: f64,
    /// Share of packets that are held back, for up to [`delay`](Self::delay), and overtaken.
    pub delayed: f64,
    /// How long at most.
    pub delay: Duration,
    /// What happens to single packets.
    pub packets: Vec<PacketFault>,
    /// What happens at moments.
    pub moments: Vec<Moment>,
}

/// What happens to one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketFault {
    /// The kind of the packet.
    pub kind: PacketKind,
    /// The number of the packet among all of its kind in the whole cluster, from 0.
    pub number: u64,
    /// What happens to the packet.
    pub what: What,
}

/// What can happen to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// It is lost.
    Lost,
    /// It comes twice.
    Twice,
    /// It is held back for so long.
    Late(Duration),
}

/// Kinds of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PacketKind {
    /// A part of a message on a connection.
    Request,
    /// A part of what a READ or an atomic returns.
    Response,
    /// What a receiver says of requests.
    Acknowledgement,
    /// A datagram.
    Datagram,
}

/// What happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Virtual time since the simulation began; a time that is past means at once.
    pub at: Duration,
    /// The number of the node that it happens to.
    pub node: usize,
    /// What happens to the node.
    pub what: Trouble,
}

/// What can happen to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// It ends, with its tasks.
    Crash,
    /// Its NIC is dead from here on.
    DeadNic,
    /// Its threads stand still for so long; its NIC does not.
    Pause(Duration),
    /// It reaches nobody for so long, and nobody reaches it.
    Cut(Duration),
    /// Its NIC takes so many times as long for everything.
    SlowNic(u32),
}

impl Trouble {
    /// Whether the node is lost to the others for good.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Crash | Self::DeadNic)
    }
}

/// How far faults have come.
#[derive(Default)]
pub(super) struct FaultState {
    faults: Faults,
    /// Packets of each kind so far.
    seen: HashMap<PacketKind, u64>,
}

/// What has gone wrong with a node.
#[derive(Default)]
pub(super) struct Health {
    pub dead: bool,
    pub cut_until: Time,
    /// How many times as long its NIC takes; 0 is once.
    pub slowness: u32,
}

/// How a packet fares.
pub(super) enum Fate {
    Arrives,
    Lost,
    Twice,
    Late(Span),
    Spoilt,
}

impl FaultState {
    pub(super) fn new(faults: Faults) -> Self {
        Self {
            faults,
            seen: HashMap::new(),
        }
    }

    /// How a packet fares between nodes that reach each other.
    pub(super) fn fate(&mut self, content: &Content, random: &mut impl Rng) -> Fate {
        let kind = content.kind();
        let faults = &self.faults;
        if !faults.packets.is_empty() {
            let number = self.seen.entry(kind).or_default();
            let this = *number;
            *number += 1;
            let found = faults
                .packets
                .iter()
                .find(|one| one.kind == kind && one.number == this);
            match found.map(|one| one.what) {
                None => {}
                Some(What::Lost) => return Fate::Lost,
                Some(What::Twice) => return Fate::Twice,
                Some(What::Late(span)) => return Fate::Late(span.into()),
            }
        }
        let shares = [
            faults.loss,
            faults.corruption,
            faults.duplication,
            faults.delayed,
        ];
        if shares.iter().all(|share| *share <= 0.0) {
            return Fate::Arrives;
        }
        let most = Span::from(faults.delay).as_picos().max(1);
        let late = Fate::Late(Span::picos(random.random_range(0..most)));
        let mut drawn: f64 = random.random();
        let fates = [Fate::Lost, Fate::Spoilt, Fate::Twice, late];
        for (share, fate) in shares.into_iter().zip(fates) {
            if drawn < share {
                return fate;
            }
            drawn -= share;
        }
        Fate::Arrives
    }
}

impl Content {
    fn kind(&self) -> PacketKind {
        match self {
            Self::Request(_) | Self::Unreliable(..) => PacketKind::Request,
            Self::Response(_) | Self::Found { .. } => PacketKind::Response,
            Self::Acknowledge(_) | Self::NotReady(_) | Self::Missing(_) | Self::Refused(..) => {
                PacketKind::Acknowledgement
            }
            Self::Datagram(..) => PacketKind::Datagram,
        }
    }
}

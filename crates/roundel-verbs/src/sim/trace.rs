//! A hash of all events, which tells whether two runs were the same.

use super::events::Event;
use super::packet::Content;
use super::time::Time;

/// FNV-1a, over words.
#[derive(Clone, Copy)]
pub(super) struct Trace(u64);

impl Default for Trace {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Trace {
    pub(super) fn hash(self) -> u64 {
        self.0
    }

    fn mix(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// Takes note of an event: when, what kind, where, and how much.
    pub(super) fn add(&mut self, at: Time, event: &Event) {
        let (kind, place, size) = match event {
            Event::Wake(_) => (0, 0, 0),
            Event::Run(cpu) => (1, cpu.node, cpu.index as u64),
            Event::Doorbell(pair, up_to) => (2, pair.node, *up_to),
            Event::Emit(node) => (3, *node, 0),
            Event::Left(pair, message) => (4, pair.node, *message),
            Event::Arrive(input, packet) => (5, *input, packet.wire_bytes as u64),
            Event::Passed(input, packet) => (6, *input, packet.wire_bytes as u64),
            Event::Received(packet) => (7, packet.to.node, kind_of(&packet.content)),
            Event::Resume(pair) => (8, pair.node, u64::from(pair.number)),
            Event::Trouble(node, what) => (10, *node, u64::from(what.is_final())),
            Event::Timeout(pair) => (9, pair.node, u64::from(pair.number)),
        };
        self.mix(at.picos());
        self.mix(kind << 32 | place as u64);
        self.mix(size);
    }
}

fn kind_of(content: &Content) -> u64 {
    match content {
        Content::Request(part) => 16 + part.message,
        Content::Response(_) => 1,
        Content::Found { .. } => 2,
        Content::Acknowledge(_) => 3,
        Content::NotReady(_) => 4,
        Content::Missing(_) => 5,
        Content::Refused(..) => 6,
        Content::Unreliable(..) => 7,
        Content::Datagram(..) => 8,
    }
}

//! What there is to choose from: a design, messages and buffers. Ladders, on which a search goes step by step.

use super::{ShuffleWish, is_datagrams};
use crate::figure::Unit;
use crate::report::quantity;
use crate::setting::{Pattern, Setting, Transport};
use roundel_exchange::{Buffers, Design, Verb};
use roundel_simtest::as_text;
use serde::Serialize;
use std::fmt;

/// Bytes of messages over connections.
const SIZES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Buffers of a thread for a destination, over connections and of datagrams, which are small.
const BUFFERS: [usize; 3] = [2, 4, 8];
const DATAGRAM_BUFFERS: [usize; 4] = [2, 4, 8, 32];
/// Where a search begins.
const SIZE: usize = 64 << 10;
const FIRST_BUFFERS: usize = 2;
const FIRST_DATAGRAM_BUFFERS: usize = 8;
/// Bytes of a datagram, to say how long one is run: no network has larger packets.
const DATAGRAM_BYTES: usize = 4096;

/// Something to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// The design.
    #[serde(serialize_with = "as_text::serialize")]
    pub design: Design,
    /// Bytes of a message; of datagrams as many as the device carries in one.
    pub message_bytes: Option<usize>,
    /// Buffers of each thread for each destination.
    pub buffers: usize,
}

/// A step on a ladder, up or down.
pub(super) type Step = fn(&Candidate, bool) -> Option<Candidate>;

fn beside(ladder: &[usize], at: usize, up: bool) -> Option<usize> {
    match up {
        true => ladder.iter().copied().find(|one| *one > at),
        false => ladder.iter().copied().rev().find(|one| *one < at),
    }
}

impl Candidate {
    /// Where a search begins, and where it goes from there when that does not fit into memory.
    pub(super) fn starts(design: Design) -> Vec<Self> {
        let start = match is_datagrams(design) {
            true => Self {
                design,
                message_bytes: None,
                buffers: FIRST_DATAGRAM_BUFFERS,
            },
            false => Self {
                design,
                message_bytes: Some(SIZE),
                buffers: FIRST_BUFFERS,
            },
        };
        let less = |from: &Self| from.resized(false).or_else(|| from.buffered(false));
        std::iter::successors(Some(start), less).collect()
    }

    /// All of a design.
    #[cfg(test)]
    pub(super) fn every(design: Design) -> Vec<Self> {
        let sizes: Vec<_> = match is_datagrams(design) {
            true => vec![None],
            false => SIZES.into_iter().map(Some).collect(),
        };
        let of_size = |message_bytes| {
            let of = move |buffers| Self {
                design,
                message_bytes,
                buffers,
            };
            of(0).ladder().iter().copied().map(of)
        };
        sizes.into_iter().flat_map(of_size).collect()
    }

    fn ladder(&self) -> &'static [usize] {
        match is_datagrams(self.design) {
            true => &DATAGRAM_BUFFERS,
            false => &BUFFERS,
        }
    }

    /// With the next larger messages, or the next smaller ones.
    pub(super) fn resized(&self, up: bool) -> Option<Self> {
        let bytes = beside(&SIZES, self.message_bytes?, up)?;
        Some(Self {
            message_bytes: Some(bytes),
            ..*self
        })
    }

    /// With more buffers, or with fewer.
    pub(super) fn buffered(&self, up: bool) -> Option<Self> {
        let buffers = beside(self.ladder(), self.buffers, up)?;
        Some(Self { buffers, ..*self })
    }

    /// Bytes of a message, or a few more.
    pub(super) fn bytes(&self) -> usize {
        self.message_bytes.unwrap_or(DATAGRAM_BYTES)
    }

    /// What a node registers at least: the buffers of one side. Those of a receiver that READs where they lie are
    /// the sender's, which has as many for all nodes together in broadcast. How long datagrams are only the device
    /// knows.
    pub(super) fn registered_at_least(&self, wish: &ShuffleWish) -> u64 {
        let once = self.design.verb() == Verb::Read && wish.pattern == Pattern::Broadcast;
        let links = match once {
            true => wish.threads,
            false => wish.threads * wish.nodes,
        };
        (links * self.buffers * self.message_bytes.unwrap_or(0)) as u64
    }

    /// The setting that tells what it does.
    pub(super) fn setting(&self, wish: &ShuffleWish, seconds: f64) -> Setting {
        Setting {
            pattern: wish.pattern,
            nodes: wish.nodes,
            threads: wish.threads,
            message_bytes: self.message_bytes,
            buffers: Buffers::Fixed(self.buffers),
            seconds,
            ..Setting::new(Transport::Design(self.design), wish.fabric.clone())
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            design, buffers, ..
        } = self;
        match self.message_bytes {
            Some(bytes) => {
                let bytes = quantity(bytes as f64, Unit::Bytes);
                write!(f, "{design} with {buffers} buffers of {bytes}")
            }
            None => write!(f, "{design} with {buffers} datagrams"),
        }
    }
}

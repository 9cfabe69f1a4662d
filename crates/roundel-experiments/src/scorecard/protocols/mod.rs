//! Message passing protocols (Huang, Ghandeharizadeh 2019). A part holds when what is first, what falls and where lines cross
//! is as in the paper; whether numbers are near is told apart from that.

mod many_to_many;
mod many_to_one;
mod one_to_many;
mod paradigms;

use super::Judge;
use super::lab::Lab;
use crate::conversation::{Conversation, NODES, Sweep};
use crate::error::Result;
use crate::fabric::FabricChoice;
use roundel_protocols::Protocol;
use roundel_protocols::Protocol::{Read, SendSend, SendWrite, WriteSend, WriteWrite};

/// What is ahead is so by more than this share, and what stays or has come to its end differs by no more than that.
const AHEAD: f64 = 0.02;
const SAME: f64 = 0.05;
/// What the paper calls similar, comparable or insignificant differs by no more than this.
const ALIKE: f64 = 0.1;

const ALL: [Protocol; 5] = Protocol::OF_THE_PAPER;
/// All but READ, by how requests and by how responses go.
const OTHERS: [Protocol; 4] = [SendSend, SendWrite, WriteSend, WriteWrite];
const ASK_BY_WRITE: [Protocol; 2] = [WriteSend, WriteWrite];
const ASK_BY_SEND: [Protocol; 2] = [SendSend, SendWrite];
const ANSWER_BY_WRITE: [Protocol; 2] = [SendWrite, WriteWrite];
const ANSWER_BY_SEND: [Protocol; 2] = [SendSend, WriteSend];

pub(super) const JUDGES: &[&[Judge]] = &[
    paradigms::JUDGES,
    many_to_one::JUDGES,
    one_to_many::JUDGES,
    many_to_many::JUDGES,
];

/// The lines of a figure, in gigabits per second.
struct Curves {
    sweep: &'static Sweep,
    lines: Vec<(Protocol, Vec<f64>)>,
}

impl Curves {
    fn of(lab: &Lab, sweep: &'static Sweep) -> Result<Self> {
        let fabric: FabricChoice = "sim:fdr".parse().expect("a generation");
        let of = |protocol: Protocol| {
            // What takes longest first.
            let places = sweep.told.iter().rev();
            places.map(move |x| (protocol, *x))
        };
        let conversations: Vec<_> = ALL
            .into_iter()
            .flat_map(of)
            .map(|(protocol, x)| Conversation {
                fabric: fabric.clone(),
                setting: sweep.setting(protocol, x, NODES),
            })
            .collect();
        let seen = lab.conversations(&conversations)?;
        let lines = ALL.into_iter().zip(seen.chunks(sweep.told.len()));
        let lines = lines.map(|(protocol, line)| (protocol, line.iter().rev().copied().collect()));
        Ok(Self {
            sweep,
            lines: lines.collect(),
        })
    }

    fn line(&self, protocol: Protocol) -> impl DoubleEndedIterator<Item = (usize, f64)> + Clone {
        let line = self.lines.iter().find(|(one, _)| *one == protocol);
        let values = line.map_or(&[][..], |(_, values)| values);
        self.sweep.told.iter().copied().zip(values.iter().copied())
    }

    fn at(&self, protocol: Protocol, x: usize) -> f64 {
        let found = self.line(protocol).find(|(place, _)| *place == x);
        found.expect("a place of the sweep").1
    }

    /// The highest value of a line.
    fn most(&self, protocol: Protocol) -> f64 {
        self.line(protocol)
            .map(|(_, value)| value)
            .fold(0.0, f64::max)
    }

    /// The place of it, the first of those that are the same.
    fn peak(&self, protocol: Protocol) -> usize {
        let most = self.most(protocol);
        let found = self.line(protocol).find(|(_, value)| is_same(*value, most));
        found.map_or(0, |(x, _)| x)
    }

    /// The values of a line from a place on.
    fn from(&self, protocol: Protocol, x: usize) -> Vec<f64> {
        let line = self.line(protocol);
        line.filter(|(place, _)| *place >= x)
            .map(|(_, value)| value)
            .collect()
    }

    /// The best and the worst of some protocols at a place.
    fn best(&self, protocols: &[Protocol], x: usize) -> f64 {
        self.each(protocols, x).into_iter().fold(0.0, f64::max)
    }

    fn worst(&self, protocols: &[Protocol], x: usize) -> f64 {
        self.each(protocols, x)
            .into_iter()
            .fold(f64::INFINITY, f64::min)
    }

    fn each(&self, protocols: &[Protocol], x: usize) -> Vec<f64> {
        protocols
            .iter()
            .map(|protocol| self.at(*protocol, x))
            .collect()
    }

    /// Whether each of some is ahead of each of others at a place.
    fn ahead(&self, some: &[Protocol], others: &[Protocol], x: usize) -> bool {
        is_ahead(self.worst(some, x), self.best(others, x))
    }

    /// A line for people.
    fn told(&self, protocol: Protocol) -> String {
        let values: Vec<_> = self
            .line(protocol)
            .map(|(_, value)| gigabits(value))
            .collect();
        format!("{protocol} {}", values.join(", "))
    }

    /// All lines, with their places.
    fn all_told(&self, protocols: &[Protocol]) -> String {
        let xs: Vec<_> = self.sweep.told.iter().map(ToString::to_string).collect();
        let lines: Vec<_> = protocols
            .iter()
            .map(|protocol| self.told(*protocol))
            .collect();
        format!("at {}: {} Gb/s", xs.join(", "), lines.join("; "))
    }

    /// What is at a place, for people.
    fn told_at(&self, protocols: &[Protocol], x: usize) -> String {
        let each = protocols.iter().map(|one| (one, self.at(*one, x)));
        let each: Vec<_> = each
            .map(|(one, value)| format!("{one} {}", gigabits(value)))
            .collect();
        format!("{} Gb/s", each.join(", "))
    }
}

/// Gigabits per second, for people.
fn gigabits(value: f64) -> String {
    match value < 10.0 {
        true => format!("{value:.2}"),
        false => format!("{value:.1}"),
    }
}

fn is_ahead(one: f64, other: f64) -> bool {
    one > other * (1.0 + AHEAD)
}

fn is_same(one: f64, other: f64) -> bool {
    spread(&[one, other]) <= SAME
}

/// The share of the highest by which values lie apart.
fn spread(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(0.0, f64::max);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    if most > 0.0 { 1.0 - least / most } else { 0.0 }
}

/// The mean of values.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Whether values do not rise on their way, and fall in all.
fn falls(values: &[f64]) -> bool {
    let rises = values
        .windows(2)
        .any(|pair| pair[1] > pair[0] * (1.0 + SAME));
    let ends = values.first().zip(values.last());
    !rises && ends.is_some_and(|(first, last)| is_ahead(*first, *last))
}

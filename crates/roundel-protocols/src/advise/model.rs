//! How many calls there can be, by a generation's parameters: what is taken most of, of all that a call takes some of.

use super::demand::{Costs, Demand, Pairs};
use crate::error::{ProtocolError, Result};
use crate::message::frame;
use crate::paradigm::{Paradigm, Setting};
use crate::protocol::Protocol;
use roundel_verbs::Transport;
use roundel_verbs::sim::Parameters;
use serde::Serialize;
use strum::Display;

/// What keeps a conversation from being faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The link of the busiest node, or its bus.
    #[strum(to_string = "the link is full")]
    Link,
    /// The engines of its NIC, for each message.
    #[strum(to_string = "the NIC's message rate")]
    Messages,
    /// The same, where messages that consume a receive take a good part.
    #[strum(to_string = "the NIC's message rate, of which receives take a good part")]
    Receives,
    /// The NIC holds too few contexts of queue pairs, and fetches them again and again.
    #[strum(to_string = "contexts of more queue pairs than the NIC holds")]
    Contexts,
    /// It has more READs outstanding than it can remember, and fetches their requests again.
    #[strum(to_string = "more outstanding READs than the NIC remembers")]
    OutstandingReads,
    /// The threads that ask.
    #[strum(to_string = "the threads that ask")]
    AskingThreads,
    /// The threads that answer.
    #[strum(to_string = "the threads that answer")]
    AnsweringThreads,
    /// Too few calls are pending to fill the time that they take.
    #[strum(to_string = "too few calls are pending")]
    Pending,
    /// What was measured on this host at nearby settings.
    #[strum(to_string = "as measured on this host")]
    Measured,
}

/// What is predicted of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Calls in a second, all nodes together.
    pub calls_per_second: f64,
    /// What keeps it from being more.
    pub limit: Limit,
}

/// What can predict.
pub trait Predict {
    /// How many calls there can be.
    ///
    /// # Errors
    /// When the setting makes no sense, or cannot be there.
    fn predict(&self, setting: &Setting) -> Result<Prediction>;
}

/// A model of a generation of hardware.
#[derive(Clone, Debug)]
pub struct Model {
    parameters: Parameters,
}

impl Model {
    /// Of hardware with these parameters.
    pub fn new(parameters: Parameters) -> Self {
        Self { parameters }
    }
}

/// Datagrams have an end.
fn check_bytes(setting: &Setting, parameters: &Parameters) -> Result<()> {
    let ways = [
        (setting.protocol.requests(), setting.request_bytes),
        (setting.protocol.responses(), setting.response_bytes),
    ];
    for (way, bytes) in ways {
        let datagrams = way.filter(|way| way.transport == Transport::UnreliableDatagram);
        let Some(way) = datagrams else { continue };
        let most = parameters.link.packet_bytes - frame::overhead(way);
        if bytes > most {
            let told = format!(
                "{bytes} bytes: with {} there are at most {most}",
                setting.protocol
            );
            return Err(ProtocolError::Unsupported(told));
        }
    }
    Ok(())
}

/// A limit on calls in a second of a node of one kind.
type Bound = (f64, Limit);

impl Predict for Model {
    fn predict(&self, setting: &Setting) -> Result<Prediction> {
        setting.check()?;
        check_bytes(setting, &self.parameters)?;
        let costs = Costs::new(&self.parameters);
        let bytes = (setting.request_bytes, setting.response_bytes);
        let protocol = setting.protocol;
        let (nodes, threads) = (setting.nodes, setting.threads);
        // Connections of a node that asks, and of one that answers; how many of each kind there are.
        let (asking, answering, askers, answerers) = match setting.paradigm {
            Paradigm::ManyToOne => (threads, nodes * threads, nodes, 1),
            Paradigm::OneToMany => (nodes * threads, threads, 1, nodes),
            Paradigm::ManyToMany => {
                let each = (nodes - 1) * threads;
                (each, each, nodes, nodes)
            }
        };
        let outstanding = asking * setting.pending.min(self.parameters.nic.reads_max);
        let pairs = |own: usize, both: usize, answers: bool| Pairs {
            sending: own,
            receiving: both,
            pending: setting.pending,
            answers,
            reads: match protocol {
                Protocol::Read => outstanding,
                _ => 0,
            },
        };
        // With READs, a node that reads gets no requests, and a node that is read from sends none.
        let (asks, answers) = match (setting.paradigm, protocol) {
            (Paradigm::ManyToMany, Protocol::Read) => ((asking, answering), (asking, answering)),
            (Paradigm::ManyToMany, _) => {
                let all = asking + answering;
                ((all, all), (all, all))
            }
            (_, Protocol::Read) => ((asking, 0), (0, answering)),
            _ => ((asking, asking), (answering, answering)),
        };
        let ask = costs.asking(protocol, bytes, pairs(asks.0, asks.1, false));
        let answer = costs.answering(protocol, bytes, pairs(answers.0, answers.1, true));
        // Calls of a node: each asks as many as it answers with M:M.
        let mut bounds: Vec<Bound> = Vec::new();
        let mut nic = |demand: Demand, count: usize| {
            let (calls, limit) = of_nic(demand, protocol, self.parameters.nic.reads < outstanding);
            bounds.push((calls * count as f64, limit));
        };
        match setting.paradigm {
            Paradigm::ManyToMany => nic(ask.plus(answer), nodes),
            _ => {
                nic(ask, askers);
                nic(answer, answerers);
            }
        }
        let row = (setting.pending as f64 / 4.0).clamp(1.0, 16.0);
        let (asks, answers) = costs.thread(protocol, bytes, row);
        let of_threads = |each: f64, count: usize| match each > 0.0 {
            true => count as f64 / each * 1e9,
            false => f64::INFINITY,
        };
        bounds.push((of_threads(asks, askers * threads), Limit::AskingThreads));
        let count = answerers * setting.answering_threads().min(answering);
        bounds.push((of_threads(answers, count), Limit::AnsweringThreads));
        let pending = (askers * asking * setting.pending) as f64;
        let latency = costs.latency(protocol, bytes);
        bounds.push((pending / latency * 1e9, Limit::Pending));
        let least = bounds
            .into_iter()
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .expect("there are bounds");
        Ok(Prediction {
            calls_per_second: least.0,
            limit: least.1,
        })
    }
}

/// Calls in a second that a NIC can have a part in, and what it is busy with.
fn of_nic(demand: Demand, protocol: Protocol, forgets: bool) -> Bound {
    let send = demand.send + demand.send_misses;
    let receive = demand.receive + demand.receive_misses;
    let link = demand.out.max(demand.into);
    let most = send.max(receive).max(link);
    let misses = match send >= receive {
        true => demand.send_misses,
        false => demand.receive_misses,
    };
    let limit = if link >= most {
        Limit::Link
    } else if misses > 0.3 * most && protocol == Protocol::Read && forgets {
        Limit::OutstandingReads
    } else if misses > 0.3 * most {
        Limit::Contexts
    } else if receive > send && demand.receives > 0.15 * most {
        Limit::Receives
    } else {
        Limit::Messages
    };
    (1e9 / most, limit)
}

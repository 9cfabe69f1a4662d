//! A node of a setting: its ends, what they offer to other nodes' ends, and the workers that they become.

use super::asking::{Asking, Begin, stamp};
use super::ends::{Answerer, Asker};
use super::links::{Link, Place};
use super::report::NodeReport;
use super::setting::Setting;
use crate::drive::{Step, Steps};
use crate::end::Fabric;
use crate::error::{ProtocolError, Result};
use hdrhistogram::Histogram;
use roundel_verbs::CompletionQueue;
use roundel_verbs::rendezvous::{pack_list, unpack_list};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of values that a responder lets be read: more than a second-level cache holds.
const READABLE_BYTES: usize = 1 << 20;

/// The ends of a node that are not connected yet.
pub struct Hand {
    setting: Setting,
    node: usize,
    links: Vec<Link>,
    requesters: Vec<Asker>,
    responders: Vec<Answerer>,
}

impl Hand {
    /// Opens the ends of a node; `fabric` gives each thread its own, requesters first, by its number.
    ///
    /// # Errors
    /// When the setting makes no sense, or the device cannot carry it.
    pub fn open(
        setting: &Setting,
        node: usize,
        mut fabric: impl FnMut(usize) -> Result<Fabric>,
    ) -> Result<Self> {
        setting.check()?;
        let links = setting.links();
        let options = setting.end_options();
        let (mut requesters, mut responders) = (Vec::new(), Vec::new());
        let connections = |end: fn(&Link) -> Place, thread| {
            let own = links.iter().map(end);
            own.filter(|place| (place.node, place.thread) == (node, thread))
                .count()
        };
        for thread in 0..setting.threads {
            match connections(|link| link.requester, thread) {
                0 => {}
                count => {
                    let fabric = fabric(thread)?;
                    requesters.push(Asker::open(&fabric, count, &options)?);
                }
            }
        }
        let asking = requesters.len();
        let values = READABLE_BYTES
            .max(setting.response_bytes)
            .next_multiple_of(8);
        for thread in 0..setting.answering_threads() {
            match connections(|link| link.responder, thread) {
                0 => {}
                count => {
                    let fabric = fabric(asking + thread)?;
                    responders.push(Answerer::open(&fabric, count, values, &options)?);
                }
            }
        }
        Ok(Self {
            setting: setting.clone(),
            node,
            links,
            requesters,
            responders,
        })
    }

    /// What each node needs to know, by its number.
    pub fn offers(&self) -> Vec<Vec<u8>> {
        let mut offers = vec![Vec::new(); self.setting.all_nodes()];
        for link in &self.links {
            let (from, to) = (link.requester, link.responder);
            if from.node == self.node {
                offers[to.node].push(self.requesters[from.thread].offer(from.connection));
            }
            if to.node == self.node {
                offers[from.node].push(self.responders[to.thread].offer(to.connection));
            }
        }
        offers.iter().map(|list| pack_list(list)).collect()
    }

    /// Connects to the ends of the other nodes. `offers` has what each offers to this node, by its number.
    ///
    /// # Errors
    /// When an offer does not fit, or a verb fails.
    pub fn connect(&mut self, offers: &[Vec<u8>]) -> Result<()> {
        let lists = offers.iter().enumerate().map(|(node, bytes)| {
            let list = unpack_list(bytes).ok_or_else(|| ProtocolError::Offer {
                peer: node.to_string(),
                reason: "its offers cannot be read".into(),
            })?;
            Ok(list.into_iter())
        });
        let mut lists = lists.collect::<Result<Vec<_>>>()?;
        let mut next = |node: usize| {
            let offer = lists.get_mut(node).and_then(Iterator::next);
            offer.ok_or_else(|| ProtocolError::Offer {
                peer: node.to_string(),
                reason: "it has fewer connections".into(),
            })
        };
        for link in &self.links {
            let (from, to) = (link.requester, link.responder);
            if from.node == self.node {
                let (offer, name) = (next(to.node)?, to.node.to_string());
                self.requesters[from.thread].connect(from.connection, &offer, &name)?;
            }
            if to.node == self.node {
                let (offer, name) = (next(from.node)?, from.node.to_string());
                self.responders[to.thread].connect(to.connection, &offer, &name)?;
            }
        }
        Ok(())
    }

    /// Queue pairs of all its threads.
    pub fn queue_pairs(&self) -> usize {
        let asking = self.requesters.iter().map(Asker::queue_pairs);
        let answering = self.responders.iter().map(Answerer::queue_pairs);
        asking.chain(answering).sum()
    }

    /// Its workers, requesters first. They begin at `begin.start`; those that answer end when `stop` is set.
    pub fn workers(self, begin: Begin, stop: &Arc<AtomicBool>) -> Vec<Worker> {
        let setting = self.setting;
        let asking = self
            .requesters
            .into_iter()
            .enumerate()
            .map(|(thread, requester)| {
                let begin = Begin {
                    seed: begin.seed.wrapping_add(thread as u64),
                    ..begin
                };
                Worker::Asks(Box::new(Asking::new(requester, &setting, begin)))
            });
        let answering = self.responders.into_iter().map(|responder| {
            Worker::Answers(Box::new(Answering {
                responder,
                value: (0..setting.response_bytes).map(|at| at as u8).collect(),
                stop: stop.clone(),
            }))
        });
        asking.chain(answering).collect()
    }
}

/// The work of a thread of a node.
pub enum Worker {
    /// It sends requests, and takes their responses.
    Asks(Box<Asking>),
    /// It answers the requests of others.
    Answers(Box<Answering>),
}

impl Worker {
    /// Adds what it counted to its node's, and to its latencies.
    pub fn report(self, node: &mut NodeReport, latencies: &mut Histogram<u64>) {
        match self {
            Self::Asks(asking) => {
                let (own, times) = asking.into_report();
                node.add(own);
                // Both have the same range.
                let _ = latencies.add(times);
            }
            Self::Answers(answering) => node.answered += answering.responder.answered(),
        }
    }
}

impl Steps for Worker {
    fn step(&mut self, now: Duration) -> Result<Step> {
        match self {
            Self::Asks(asking) => asking.step(now),
            Self::Answers(answering) => answering.step(now),
        }
    }

    fn queue(&self) -> Option<&CompletionQueue> {
        match self {
            Self::Asks(asking) => asking.queue(),
            Self::Answers(answering) => answering.queue(),
        }
    }
}

/// Answers all requests of a thread with a value.
pub struct Answering {
    responder: Answerer,
    value: Vec<u8>,
    stop: Arc<AtomicBool>,
}

impl Steps for Answering {
    fn step(&mut self, now: Duration) -> Result<Step> {
        let Self {
            responder, value, ..
        } = self;
        let happened = responder.poll(
            now,
            &mut |_: usize, request: &[u8], response: &mut Vec<u8>| {
                response.extend_from_slice(value);
                stamp(response, request);
                Ok(())
            },
        )?;
        if self.stop.load(Ordering::Relaxed) {
            return Ok(Step::Done);
        }
        Ok(match happened {
            0 => Step::Idle(responder.due().filter(|due| *due > now)),
            _ => Step::Progress,
        })
    }

    fn queue(&self) -> Option<&CompletionQueue> {
        self.responder.queue()
    }
}

//! A model of this host, from a few measured points: for devices of which nobody knows the parameters, such as shared
//! memory.
//!
//! Of each protocol it knows how long one call takes by itself, and what a call takes of a busy thread, for short and
//! for long responses; in between is what lies between.

use super::model::{Limit, Predict, Prediction};
use crate::error::{ProtocolError, Result};
use crate::paradigm::{Measured, Paradigm, Setting};
use crate::protocol::Protocol;
use std::collections::HashMap;

/// Calls pending where a thread is kept busy.
const BUSY: usize = 32;
/// Bytes of short and of long responses; datagrams carry both.
const SHORT: usize = 64;
const LONG: usize = 3072;

/// The settings whose measurement makes a model: one call at a time, and many, of short and of long responses.
pub fn probes(protocols: &[Protocol], request_bytes: usize, seconds: f64) -> Vec<Setting> {
    let mut probes = Vec::new();
    for protocol in protocols {
        for pending in [1, BUSY] {
            for response_bytes in [SHORT, LONG] {
                probes.push(Setting {
                    pending,
                    request_bytes,
                    response_bytes,
                    warm_up: seconds / 4.0,
                    seconds,
                    ..Setting::new(Paradigm::ManyToOne, *protocol, 1)
                });
            }
        }
    }
    probes
}

/// Seconds of a call, by the bytes of its response.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    short: f64,
    long: f64,
}

impl Line {
    fn at(self, bytes: usize) -> f64 {
        let share = (bytes as f64 - SHORT as f64) / (LONG - SHORT) as f64;
        (self.short + share * (self.long - self.short)).max(self.short.min(self.long) / 4.0)
    }

    fn set(&mut self, bytes: usize, seconds: f64) {
        match bytes {
            SHORT => self.short = seconds,
            _ => self.long = seconds,
        }
    }
}

/// What was measured on this host.
#[derive(Clone, Debug)]
pub struct HostModel {
    protocols: HashMap<Protocol, (Line, Line)>,
    /// Processors that all nodes share.
    processors: usize,
}

impl HostModel {
    /// Of what was measured of [`probes`], on a host with so many processors.
    pub fn new(measured: &[Measured], processors: usize) -> Self {
        let mut protocols: HashMap<Protocol, (Line, Line)> = HashMap::new();
        for one in measured {
            let (alone, busy) = protocols.entry(one.setting.protocol).or_default();
            let seconds = 1.0 / one.calls_per_second.max(f64::MIN_POSITIVE);
            let line = if one.setting.pending == 1 {
                alone
            } else {
                busy
            };
            line.set(one.setting.response_bytes, seconds);
        }
        Self {
            protocols,
            processors: processors.max(1),
        }
    }
}

impl Predict for HostModel {
    fn predict(&self, setting: &Setting) -> Result<Prediction> {
        setting.check()?;
        let Some((alone, busy)) = self.protocols.get(&setting.protocol) else {
            let told = format!("{} was not measured", setting.protocol);
            return Err(ProtocolError::Unsupported(told));
        };
        let links = setting.links().len() as f64;
        let bytes = setting.response_bytes;
        let (asking, answering) = match setting.paradigm {
            Paradigm::ManyToOne => (setting.nodes * setting.threads, setting.answering_threads()),
            Paradigm::OneToMany => (setting.threads, setting.nodes * setting.answering_threads()),
            Paradigm::ManyToMany => (
                setting.nodes * setting.threads,
                setting.nodes * setting.answering_threads(),
            ),
        };
        // A pair of threads that ask and answer has two processors, where there are enough.
        let pairs = asking.min(answering) as f64;
        let processors = self.processors as f64;
        let pairs = pairs.min((processors / 2.0).max(0.5));
        let all = (asking + answering) as f64;
        let crowded = (all / processors).max(1.0);
        let waiting = links * setting.pending as f64 / (alone.at(bytes) * crowded);
        Ok(Prediction {
            calls_per_second: (pairs / busy.at(bytes)).min(waiting),
            limit: Limit::Measured,
        })
    }
}

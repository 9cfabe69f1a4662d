//! The thread that asks: it keeps calls pending, or begins them at moments drawn, checks what comes back, and counts.

use super::ends::Asker;
use super::report::NodeReport;
use super::setting::{Load, Setting};
use crate::drive::{Step, Steps};
use crate::error::Result;
use crate::protocol::Protocol;
use hdrhistogram::Histogram;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use roundel_verbs::CompletionQueue;
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes that tell one request, and the response to it, from others.
const NUMBER_BYTES: usize = 8;
/// Calls of an open loop are given up after so long after the end.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// How workers begin, and end.
#[derive(Clone, Copy, Debug)]
pub struct Begin {
    /// When the workers begin, on the clock whose time their steps get.
    pub start: Duration,
    /// Seed of the random numbers that they draw.
    pub seed: u64,
    /// Whether those that ask wait for their last answers.
    pub drain: bool,
}

/// Asks on all connections of a thread.
pub struct Asking {
    requester: Asker,
    setting: Setting,
    /// When it counts.
    counts: (Duration, Duration),
    drain: bool,
    request: Vec<u8>,
    next: u64,
    begun: bool,
    arrivals: Option<Moments>,
    /// Connections on which a call ended that is followed by another.
    again: Vec<usize>,
    latencies: Histogram<u64>,
    report: NodeReport,
}

/// When calls of an open loop are begun.
struct Moments {
    random: ChaCha8Rng,
    rate: f64,
    next: Duration,
    /// Those that wait for room.
    waiting: VecDeque<Duration>,
    connection: usize,
}

impl Moments {
    fn new(rate: f64, seed: u64, from: Duration) -> Self {
        let mut moments = Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            rate,
            next: from,
            waiting: VecDeque::new(),
            connection: 0,
        };
        moments.draw();
        moments
    }

    fn draw(&mut self) {
        let uniform: f64 = self.random.random();
        self.next += Duration::from_secs_f64(-(1.0 - uniform).ln() / self.rate);
    }
}

impl Asking {
    /// Begins at `start`, and counts when the warm-up is over.
    pub(super) fn new(requester: Asker, setting: &Setting, begin: Begin) -> Self {
        let Begin { start, seed, drain } = begin;
        let counts_from = start + Duration::from_secs_f64(setting.warm_up);
        let arrivals = match setting.load {
            Load::Closed => None,
            Load::Open(rate) => Some(Moments::new(rate, seed, start)),
        };
        Self {
            requester,
            counts: (counts_from, start + setting.ends()),
            drain,
            request: vec![0; setting.request_bytes],
            next: 0,
            begun: false,
            arrivals,
            again: Vec::new(),
            latencies: NodeReport::histogram(),
            report: NodeReport::default(),
            setting: setting.clone(),
        }
    }

    /// What it counted.
    pub(super) fn into_report(mut self) -> (NodeReport, Histogram<u64>) {
        self.report.resent = self.requester.resent();
        self.report.seconds = self.setting.seconds;
        (self.report, self.latencies)
    }

    /// Begins a call, if there is room. Its moment is when it was due.
    fn ask(&mut self, connection: usize, due: Duration) -> bool {
        let number = self.next;
        let begun = match self.setting.protocol {
            Protocol::Read => {
                let (readable, length) = (
                    self.requester.readable(connection),
                    self.setting.response_bytes,
                );
                // Values lie side by side; their keys come round and round.
                let values = (readable / length as u64).max(1);
                let at = number % values * length as u64;
                self.requester.read(connection, number, (at, length), due)
            }
            _ => {
                let stamped = self.request.len().min(NUMBER_BYTES);
                self.request[..stamped].copy_from_slice(&number.to_le_bytes()[..stamped]);
                self.requester.call(connection, number, &self.request, due)
            }
        };
        match begun {
            Ok(true) => {
                self.next += 1;
                true
            }
            Ok(false) => false,
            Err(error) => {
                self.report.errors += 1;
                self.report.failure.get_or_insert_with(|| error.to_string());
                true
            }
        }
    }

    fn poll(&mut self, now: Duration) -> Result<usize> {
        let Self {
            requester,
            report,
            latencies,
            again,
            setting,
            counts,
            ..
        } = self;
        requester.poll(now, |ended| {
            again.push(ended.connection);
            let counted = (counts.0..counts.1).contains(&now);
            match ended.outcome {
                Ok(response) => {
                    report.wrong += u64::from(!is_right(response, ended.token, setting));
                    if counted {
                        report.calls += 1;
                        let took = now.saturating_sub(ended.begun).as_nanos() as u64;
                        latencies.saturating_record(took.max(1));
                    }
                }
                Err(error) => {
                    report.errors += 1;
                    report.failure.get_or_insert_with(|| error.to_string());
                }
            }
        })
    }

    /// Begins what is due.
    fn begin(&mut self, now: Duration) -> bool {
        let ended = std::mem::take(&mut self.again);
        if now >= self.counts.1 {
            return false;
        }
        let mut begun = false;
        match self.arrivals.take() {
            None => {
                if !std::mem::replace(&mut self.begun, true) {
                    for connection in 0..self.requester.connections() {
                        for _ in 0..self.requester.room(connection) {
                            begun |= self.ask(connection, now);
                        }
                    }
                }
                for connection in &ended {
                    begun |= self.ask(*connection, now);
                }
            }
            Some(mut moments) => {
                while moments.next <= now {
                    moments.waiting.push_back(moments.next);
                    moments.draw();
                }
                let connections = self.requester.connections();
                while let Some(due) = moments.waiting.front().copied() {
                    let mut asked = false;
                    for _ in 0..connections {
                        let connection = moments.connection;
                        moments.connection = (connection + 1) % connections;
                        if self.ask(connection, due) {
                            asked = true;
                            break;
                        }
                    }
                    if !asked {
                        break;
                    }
                    begun = true;
                    moments.waiting.pop_front();
                }
                self.arrivals = Some(moments);
            }
        }
        self.again = ended;
        self.again.clear();
        begun
    }
}

/// Whether a response is the one to the request of this number.
fn is_right(response: &[u8], number: u64, setting: &Setting) -> bool {
    if response.len() != setting.response_bytes {
        return false;
    }
    if setting.protocol == Protocol::Read {
        return true;
    }
    let stamped = NUMBER_BYTES.min(setting.request_bytes).min(response.len());
    response[..stamped] == number.to_le_bytes()[..stamped]
}

/// Has a response begin as its request does.
pub(super) fn stamp(response: &mut [u8], request: &[u8]) {
    let stamped = NUMBER_BYTES.min(request.len()).min(response.len());
    response[..stamped].copy_from_slice(&request[..stamped]);
}

impl Steps for Asking {
    fn step(&mut self, now: Duration) -> Result<Step> {
        let happened = self.poll(now)?;
        let begun = self.begin(now);
        if begun {
            self.requester.flush()?;
        }
        if now >= self.counts.1 {
            let waiting = self
                .arrivals
                .as_ref()
                .map_or(0, |moments| moments.waiting.len());
            self.report.backlog = waiting as u64;
            let late = now >= self.counts.1 + DRAIN_MAX;
            if !self.drain || self.requester.is_idle() || late {
                return Ok(Step::Done);
            }
        }
        if happened > 0 || begun {
            return Ok(Step::Progress);
        }
        let next = self.arrivals.as_ref().map(|moments| moments.next);
        let until = [next, self.requester.due(), Some(self.counts.1)];
        Ok(Step::Idle(
            until.into_iter().flatten().filter(|at| *at > now).min(),
        ))
    }

    fn queue(&self) -> Option<&CompletionQueue> {
        self.requester.queue()
    }
}

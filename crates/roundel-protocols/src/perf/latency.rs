//! One message at a time, there and back: the end that asks and the end that answers.

use super::bandwidth::{Limit, QUIET};
use super::drive::{Step, Work};
use super::end::End;
use super::error::{PerfError, Result};
use super::link::Link;
use super::message::Message;
use super::payload::Payloads;
use super::report::cpu_time;
use super::test::{Length, Test, Verb};
use hdrhistogram::Histogram;
use roundel_verbs::{Completion, Context, Opcode, SendRequest};
use std::time::Duration;

/// Longest time that the histogram tells from longer ones, in nanoseconds.
const TIME_MAX: u64 = 100_000_000_000;
/// Digits of a time that count.
const DIGITS: u8 = 3;
/// When no answer to a datagram has come for so long, it is lost.
const LOST_AFTER: Duration = Duration::from_millis(100);
/// So many sends whose completion is not needed may wait to be polled.
const REAP_AT: u64 = 16;
/// Buffers for messages whose last byte changes.
pub(super) const BUFFERS: usize = 8;

/// How an end sees that a message has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// A receive completes.
    Receive,
    /// The last byte in exposed memory changes.
    Memory,
    /// The request itself completes.
    Completion,
}

impl Arrival {
    fn of(test: &Test) -> Self {
        match test.posted_verb() {
            Verb::Read | Verb::CompareAndSwap | Verb::FetchAndAdd => Self::Completion,
            Verb::Write => Self::Memory,
            Verb::Send | Verb::WriteImm => Self::Receive,
        }
    }
}

/// The last byte of message `number`, of those that are polled for in memory: never that of the
/// one before, nor zero.
fn mark(number: u64) -> u8 {
    (number % 255) as u8 + 1
}

/// The number of the message with this mark: the first one after `last`, whose mark was there
/// before; those between were lost. None while there is no new one.
fn marked(mark_found: u8, last: u64) -> Option<u64> {
    // Zero is no message's.
    let place = u64::from(mark_found.checked_sub(1)?);
    let distance = (place + 255 - last % 255) % 255;
    (distance > 0).then(|| last + distance)
}

/// What both ends do alike.
struct Side<'a> {
    end: &'a mut End,
    payloads: &'a mut Payloads,
    arrival: Arrival,
    requests: Vec<SendRequest>,
    in_flight: u64,
    /// Most sends in flight before their completions must be polled.
    reap_at: u64,
}

impl<'a> Side<'a> {
    fn new(end: &'a mut End, payloads: &'a mut Payloads, test: &Test) -> Self {
        let reap_at = match &payloads {
            Payloads::Owned { free, .. } => (free.len() as u64).div_ceil(2).min(REAP_AT),
            Payloads::Inline { .. } | Payloads::Shared { .. } => REAP_AT,
        };
        Self {
            end,
            payloads,
            arrival: Arrival::of(test),
            requests: Vec::with_capacity(1),
            in_flight: 0,
            reap_at,
        }
    }

    /// Posts message `number`; false when there is no room until completions are polled.
    fn send(&mut self, number: u64) -> Result<bool> {
        if self.requests.is_empty() {
            if self.arrival == Arrival::Memory {
                self.payloads.mark(mark(number));
            }
            let operation = self.end.operation(number, self.end.is_lossy())?;
            let to = self.end.destination();
            self.payloads
                .append_request(&mut self.requests, number, operation, to);
        }
        let posted = self.end.post(&mut self.requests)?;
        self.in_flight += posted as u64;
        Ok(posted > 0)
    }

    /// Takes completions, those of arrived messages to `arrived`; returns how many.
    fn poll(&mut self, mut arrived: impl FnMut(&Completion)) -> Result<usize> {
        let Self {
            end,
            payloads,
            in_flight,
            arrival,
            ..
        } = self;
        end.poll(|end, mut completion| {
            if completion.opcode == Opcode::Receive {
                arrived(&completion);
                end.give_back(completion);
                return;
            }
            *in_flight -= 1;
            if *arrival == Arrival::Completion {
                arrived(&completion);
            }
            if let Some(buffer) = completion.buffer.take() {
                payloads.give_back(buffer);
            }
        })
    }

    /// What can wait until a message has been sent, and is done while it is on its way.
    fn catch_up(&mut self) -> Result<()> {
        self.end.repost()
    }
}

/// The end that asks.
pub(super) struct Asker<'a> {
    side: Side<'a>,
    context: &'a dyn Context,
    limit: Limit,
    /// Messages sent; the last has this number.
    asked: u64,
    answered: u64,
    is_waiting: bool,
    /// When the last answer came.
    since: Duration,
    times: Histogram<u64>,
    is_over: bool,
}

impl<'a> Asker<'a> {
    /// A run of this length, from now on.
    pub(super) fn new(
        end: &'a mut End,
        payloads: &'a mut Payloads,
        test: &Test,
        length: Length,
        context: &'a dyn Context,
    ) -> Self {
        let side = Side::new(end, payloads, test);
        let times = Histogram::new_with_bounds(1, TIME_MAX, DIGITS);
        let now = context.now();
        Self {
            side,
            context,
            limit: Limit::new(length, now),
            asked: 0,
            answered: 0,
            is_waiting: false,
            since: now,
            times: times.expect("the bounds and digits are ones that a histogram can have"),
            is_over: false,
        }
    }

    /// Messages that were sent.
    pub(super) fn messages(&self) -> u64 {
        self.asked
    }

    /// Those that were answered.
    pub(super) fn answered(&self) -> u64 {
        self.answered
    }

    /// Times of round trips in nanoseconds.
    pub(super) fn times(&self) -> &Histogram<u64> {
        &self.times
    }

    fn ask(&mut self) -> Result<Step> {
        if self.is_over {
            let found = self.side.poll(|_| {})?;
            return Ok(match (self.side.in_flight, found) {
                (0, _) => Step::Done,
                (_, 0) => Step::Idle,
                _ => Step::Progress,
            });
        }
        if !self.side.send(self.asked + 1)? {
            self.side.poll(|_| {})?;
            return Ok(Step::Idle);
        }
        self.asked += 1;
        self.is_waiting = true;
        self.side.catch_up()?;
        Ok(Step::Progress)
    }

    fn end_of_trip(&mut self, now: Duration) {
        self.since = now;
        self.is_waiting = false;
        self.is_over = self.limit.is_reached(self.asked, || now);
    }
}

impl Work for Asker<'_> {
    fn step(&mut self) -> Result<Step> {
        if !self.is_waiting {
            return self.ask();
        }
        let is_lossy = self.side.end.is_lossy();
        let asked = self.asked;
        let has_arrived = match self.side.arrival {
            Arrival::Memory => {
                if self.side.in_flight >= self.side.reap_at {
                    self.side.poll(|_| {})?;
                }
                self.side.end.mark() == mark(asked)
            }
            Arrival::Receive | Arrival::Completion => {
                let mut has_arrived = false;
                self.side.poll(|completion| {
                    // An answer that was given up may come late.
                    has_arrived |= !is_lossy || completion.immediate == Some(asked as u32);
                })?;
                has_arrived
            }
        };
        if has_arrived {
            let now = self.context.now();
            let nanoseconds = (now - self.since).as_nanos() as u64;
            self.times.saturating_record(nanoseconds);
            self.answered += 1;
            self.end_of_trip(now);
            return Ok(Step::Progress);
        }
        Ok(Step::Idle)
    }

    fn look_around(&mut self, link: &mut Link) -> Result<()> {
        if self.is_waiting && self.side.end.is_lossy() {
            let now = self.context.now();
            if now - self.since >= LOST_AFTER {
                // Or the mark of an old answer would be taken for that of a message much later.
                self.side.end.clear_mark();
                self.end_of_trip(now);
            }
        }
        link.check()
    }

    fn end(&mut self) -> &mut End {
        self.side.end
    }
}

/// The end that answers, until it is told how many messages there were.
pub(super) struct Answerer<'a> {
    side: Side<'a>,
    context: &'a dyn Context,
    /// Messages that arrived.
    arrived: u64,
    /// The number of the last of those that memory was polled for.
    last_marked: u64,
    /// Answers to be sent: their numbers, of which there is more than one only on a lossy transport.
    due: Vec<u64>,
    told: Option<(u64, Duration)>,
    /// When it was told.
    told_at: Duration,
}

impl<'a> Answerer<'a> {
    /// A run that starts now.
    pub(super) fn new(
        end: &'a mut End,
        payloads: &'a mut Payloads,
        test: &Test,
        context: &'a dyn Context,
    ) -> Self {
        Self {
            side: Side::new(end, payloads, test),
            context,
            arrived: 0,
            last_marked: 0,
            due: Vec::with_capacity(REAP_AT as usize),
            told: None,
            told_at: Duration::ZERO,
        }
    }

    /// Messages that arrived.
    pub(super) fn messages(&self) -> u64 {
        self.arrived
    }

    /// CPU time when the other end had its last answer.
    pub(super) fn cpu_time(&self) -> Duration {
        self.told.map_or_else(cpu_time, |(_, cpu)| cpu)
    }

    fn is_over(&self) -> Result<bool> {
        let Some((asked, _)) = self.told else {
            return Ok(false);
        };
        if self.side.in_flight > 0 {
            return Ok(false);
        }
        if self.side.end.is_lossy() {
            return Ok(self.context.now() - self.told_at >= QUIET);
        }
        if self.arrived == asked {
            return Ok(true);
        }
        // It has had every answer.
        Err(PerfError::Miscounted {
            what: "messages to answer".into(),
            expected: asked,
            found: self.arrived,
            peer: self.side.end.peer().to_owned(),
        })
    }
}

impl Work for Answerer<'_> {
    fn step(&mut self) -> Result<Step> {
        let Self {
            side,
            due,
            last_marked,
            ..
        } = self;
        let is_lossy = side.end.is_lossy();
        let next = self.arrived + 1;
        let mut found = 0;
        match side.arrival {
            Arrival::Memory => {
                // While its answer waits for room, the mark of the last one is still there.
                let new = marked(side.end.mark(), *last_marked).filter(|_| due.is_empty());
                if let Some(number) = new {
                    *last_marked = number;
                    due.push(number);
                } else if side.in_flight >= side.reap_at || self.told.is_some() {
                    found = side.poll(|_| {})?;
                }
            }
            Arrival::Receive | Arrival::Completion => {
                found = side.poll(|completion| {
                    let number = completion.immediate.map(u64::from);
                    due.push(if is_lossy { number.unwrap_or(0) } else { next });
                })?;
            }
        }
        if due.is_empty() {
            if found == 0 && self.told.is_some() && self.is_over()? {
                return Ok(Step::Done);
            }
            return Ok(if found > 0 {
                Step::Progress
            } else {
                Step::Idle
            });
        }
        while let Some(number) = self.due.last() {
            if !self.side.send(*number)? {
                self.side.poll(|_| {})?;
                return Ok(Step::Progress);
            }
            self.due.pop();
            self.arrived += 1;
        }
        self.side.catch_up()?;
        Ok(Step::Progress)
    }

    fn look_around(&mut self, link: &mut Link) -> Result<()> {
        if self.told.is_some() {
            return link.check();
        }
        match link.finish()? {
            None => Ok(()),
            Some(Message::Sent(asked)) => {
                self.told = Some((asked, cpu_time()));
                self.told_at = self.context.now();
                Ok(())
            }
            Some(other) => Err(link.unexpected(&other)),
        }
    }

    fn end(&mut self) -> &mut End {
        self.side.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_next_mark_tells_how_many_were_lost(last in 0..1u64 << 40, lost in 0..254u64) {
            let number = last + lost + 1;
            prop_assert_eq!(marked(mark(number), last), Some(number));
            prop_assert_eq!(marked(mark(last), last), None);
            prop_assert_eq!(marked(0, last), None);
        }
    }
}

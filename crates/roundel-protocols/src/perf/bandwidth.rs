//! As many messages as possible in one direction: the end that posts and the end that receives.

use super::drive::{Step, Work};
use super::end::End;
use super::error::{PerfError, Result};
use super::link::Link;
use super::message::Message;
use super::payload::Payloads;
use super::report::cpu_time;
use super::test::{Length, Test};
use roundel_verbs::{Context, Opcode, SendRequest};
use std::time::Duration;

/// In a run by time, the clock is read at every so-manieth step.
const CLOCK_STEPS: u32 = 16;
/// When no datagram has come for so long after the sender's last, the rest is lost.
pub(super) const QUIET: Duration = Duration::from_millis(100);

/// When a run is over.
pub(super) struct Limit {
    messages: u64,
    until: Option<Duration>,
}

impl Limit {
    /// The end of a run that starts now.
    pub(super) fn new(length: Length, now: Duration) -> Self {
        match length {
            Length::Messages(messages) => Self {
                messages,
                until: None,
            },
            Length::Seconds(seconds) => Self {
                messages: u64::MAX,
                until: Some(now + Duration::from_secs_f64(seconds)),
            },
        }
    }

    /// Whether `sent` messages are all, or the time is over.
    pub(super) fn is_reached(&self, sent: u64, now: impl FnOnce() -> Duration) -> bool {
        sent == self.messages || self.until.is_some_and(|until| now() >= until)
    }
}

/// The end that posts.
pub(super) struct Sender<'a> {
    end: &'a mut End,
    payloads: &'a mut Payloads,
    context: &'a dyn Context,
    depth: usize,
    batch: usize,
    limit: Limit,
    /// Set when the limit is reached.
    is_over: bool,
    steps: u32,
    /// Filled and not posted yet: there was no room.
    requests: Vec<SendRequest>,
    made: u64,
    completed: u64,
}

impl<'a> Sender<'a> {
    /// A run of this length, from now on.
    pub(super) fn new(
        end: &'a mut End,
        payloads: &'a mut Payloads,
        test: &Test,
        length: Length,
        context: &'a dyn Context,
    ) -> Self {
        Self {
            end,
            payloads,
            context,
            depth: test.depth,
            batch: test.batch,
            limit: Limit::new(length, context.now()),
            is_over: false,
            steps: 0,
            requests: Vec::with_capacity(test.batch),
            made: 0,
            completed: 0,
        }
    }

    /// Messages that were sent.
    pub(super) fn messages(&self) -> u64 {
        self.made
    }

    /// Fills the next batch; not at all when there is no room for the whole.
    fn make_requests(&mut self) -> Result<()> {
        let in_flight = (self.made - self.completed) as usize;
        let left = (self.limit.messages - self.made).min(self.batch as u64) as usize;
        if in_flight + left > self.depth {
            return Ok(());
        }
        for _ in 0..left {
            let number = self.made + self.requests.len() as u64 + 1;
            let operation = self.end.operation(number, false)?;
            let to = self.end.destination();
            self.payloads
                .append_request(&mut self.requests, number, operation, to);
        }
        self.made += self.requests.len() as u64;
        Ok(())
    }
}

impl Work for Sender<'_> {
    fn step(&mut self) -> Result<Step> {
        let Self {
            end,
            payloads,
            completed,
            ..
        } = self;
        let mut progress = end.poll(|_, completion| {
            *completed += 1;
            if let Some(buffer) = completion.buffer {
                payloads.give_back(buffer);
            }
        })? > 0;
        self.steps += 1;
        if self.steps == CLOCK_STEPS {
            self.steps = 0;
            let now = || self.context.now();
            self.is_over = self.is_over || self.limit.is_reached(self.made, now);
        }
        loop {
            if self.requests.is_empty() {
                if self.is_over || self.made == self.limit.messages {
                    if self.completed == self.made {
                        return Ok(Step::Done);
                    }
                    break;
                }
                self.make_requests()?;
            }
            if self.requests.is_empty() || self.end.post(&mut self.requests)? == 0 {
                break;
            }
            progress = true;
        }
        Ok(if progress { Step::Progress } else { Step::Idle })
    }

    fn end(&mut self) -> &mut End {
        self.end
    }
}

/// The end that receives, until it is told how many messages there were.
pub(super) struct Receiver<'a> {
    end: &'a mut End,
    context: &'a dyn Context,
    received_before: u64,
    /// What the sender sent, and how much CPU time this process had used when it was known.
    told: Option<(u64, Duration)>,
    /// Since when nothing has come, and how much had come.
    quiet: (Duration, u64),
}

impl<'a> Receiver<'a> {
    /// A run that starts now.
    pub(super) fn new(end: &'a mut End, context: &'a dyn Context) -> Self {
        Self {
            received_before: end.completed(Opcode::Receive),
            end,
            context,
            told: None,
            quiet: (Duration::ZERO, 0),
        }
    }

    /// Messages that were received.
    pub(super) fn messages(&self) -> u64 {
        self.end.completed(Opcode::Receive) - self.received_before
    }

    /// CPU time when the sender had sent its last message.
    pub(super) fn cpu_time(&self) -> Duration {
        self.told.map_or_else(cpu_time, |(_, cpu)| cpu)
    }

    /// Whether nothing more will come: on a lossy transport, when it has been quiet.
    fn is_over(&mut self) -> Result<bool> {
        let Some((sent, _)) = self.told else {
            return Ok(false);
        };
        let received = self.messages();
        if received > sent || (received < sent && !self.end.is_lossy()) {
            let now = self.context.now();
            // Its sends completed, so all is here already or on the last few steps of its way.
            if received < sent && !self.has_been_quiet(received, now) {
                return Ok(false);
            }
            return Err(PerfError::Miscounted {
                what: "messages received".into(),
                expected: sent,
                found: received,
                peer: self.end.peer().to_owned(),
            });
        }
        let now = self.context.now();
        Ok(received == sent || self.has_been_quiet(received, now))
    }

    fn has_been_quiet(&mut self, received: u64, now: Duration) -> bool {
        let (since, then) = self.quiet;
        if since == Duration::ZERO || then != received {
            self.quiet = (now, received);
            return false;
        }
        now - since >= QUIET
    }
}

impl Work for Receiver<'_> {
    fn step(&mut self) -> Result<Step> {
        let found = self.end.poll(End::give_back)?;
        if found > 0 {
            self.end.repost()?;
            return Ok(Step::Progress);
        }
        if self.told.is_some() && self.is_over()? {
            return Ok(Step::Done);
        }
        Ok(Step::Idle)
    }

    fn look_around(&mut self, link: &mut Link) -> Result<()> {
        if self.told.is_some() {
            return link.check();
        }
        match link.finish()? {
            None => Ok(()),
            Some(Message::Sent(sent)) => {
                self.told = Some((sent, cpu_time()));
                Ok(())
            }
            Some(other) => Err(link.unexpected(&other)),
        }
    }

    fn end(&mut self) -> &mut End {
        self.end
    }
}

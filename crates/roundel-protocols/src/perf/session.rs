//! What two ends do together: they meet, agree on each test, and run it.

use super::bandwidth::{Receiver, Sender};
use super::drive::drive;
use super::end::{End, Role};
use super::error::{PerfError, Result};
use super::latency::{self, Answerer, Asker};
use super::link::{Link, Stop};
use super::message::{EndFacts, Message};
use super::payload::Payloads;
use super::report::{CpuSeconds, LatencyMicroseconds, Measurement, Run, cpu_time};
use super::test::{Length, Measure, Test, Verb};
use super::verify::Verification;
use roundel_verbs::{Context, Device, Rendezvous, VerbsError};
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Two ends that have met and know each other.
pub struct Session {
    device: Device,
    rendezvous: Box<dyn Rendezvous>,
    peer: EndFacts,
}

/// Meets the other end.
///
/// # Errors
/// When the group is not one of two, the peer is lost or speaks another version, or its device is
/// of another provider.
pub async fn meet(device: Device, mut rendezvous: impl Rendezvous + 'static) -> Result<Session> {
    let (rank, peers) = (rendezvous.rank(), rendezvous.peers());
    if peers != 2 {
        let told = format!("a measurement between {peers} ends; there are 2");
        return Err(VerbsError::InvalidRequest(told).into());
    }
    let own = EndFacts::of(device.capabilities());
    let other = format!("{}", 1 - rank);
    let all = rendezvous.exchange(Message::Hello(own).emit()).await?;
    let peer = match Message::parse(&all[1 - rank], &other)? {
        Message::Hello(facts) => EndFacts {
            host: printable(&facts.host),
            ..facts
        },
        unexpected => {
            return Err(PerfError::Protocol {
                peer: other,
                reason: format!("it began with {unexpected:?}"),
            });
        }
    };
    let provider = device.capabilities().provider;
    if peer.device.provider != provider {
        return Err(PerfError::Unsupported(format!(
            "the device of peer {} is of provider {:?}, this side's of {provider:?}: give both ends \
             the same",
            peer.name(),
            peer.device.provider
        )));
    }
    Ok(Session {
        device,
        rendezvous: Box::new(rendezvous),
        peer,
    })
}

impl Session {
    /// Who the other end is.
    pub fn peer(&self) -> &EndFacts {
        &self.peer
    }

    /// Begins to measure, in order, in a thread of its own.
    ///
    /// # Errors
    /// [`PerfError::Unsupported`] when this device cannot do one of the tests.
    pub fn initiate(self, tests: Vec<Test>, context: Arc<dyn Context>) -> Result<Measuring> {
        for test in &tests {
            test.check(self.device.capabilities())?;
        }
        // Only where both devices keep the order can either be polled in memory.
        let in_order = self.device.capabilities().write_in_address_order
            && self.peer.device.write_in_address_order;
        let tests = tests.into_iter().map(move |test| Test {
            poll_memory: test.poll_memory && in_order,
            ..test
        });
        let tests: Vec<Test> = tests.collect();
        self.start(Role::Initiator, context, move |node, results| {
            for test in tests {
                let measurement = node.measure(test)?;
                // A caller that does not take it has dropped `Measuring`, which stops this.
                let _ = results.send(Ok(measurement));
            }
            node.link.exchange(&Message::Finish).map(drop)
        })
    }

    /// Does what the other end asks for, in a thread of its own, until that has no more tests.
    /// There are no measurements at this end.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn respond(self, context: Arc<dyn Context>) -> Result<Measuring> {
        self.start(Role::Responder, context, |node, _| {
            loop {
                match node.link.exchange(&Message::Ready)? {
                    Message::Test { test, seed } => node.serve(&test, seed)?,
                    Message::Finish => return Ok(()),
                    other => return Err(node.link.unexpected(&other)),
                }
            }
        })
    }

    fn start(
        self,
        role: Role,
        context: Arc<dyn Context>,
        work: impl FnOnce(&mut Node, &UnboundedSender<Result<Measurement>>) -> Result<()>
        + Send
        + 'static,
    ) -> Result<Measuring> {
        let stop = Stop::default();
        let (sender, results) = unbounded_channel();
        let link = Link::serve(self.rendezvous, self.peer.name(), stop.clone(), &*context);
        let mut node = Node {
            device: self.device,
            link,
            role,
            context,
        };
        let body = move || {
            if let Err(error) = work(&mut node, &sender) {
                let error = node.link.explain(error);
                let _ = sender.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name("perf".to_owned());
        #[expect(
            clippy::disallowed_methods,
            reason = "single verbs are measured on real devices only"
        )]
        thread.spawn(body).map_err(|source| {
            PerfError::Verbs(VerbsError::System {
                call: "starting a thread",
                source,
            })
        })?;
        Ok(Measuring { results, stop })
    }
}

/// A measurement under way. Dropping it stops it.
pub struct Measuring {
    results: UnboundedReceiver<Result<Measurement>>,
    stop: Stop,
}

impl Measuring {
    /// The next test's measurement; an error ends the measurement, as does nothing.
    pub async fn next(&mut self) -> Option<Result<Measurement>> {
        self.results.recv().await
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        self.stop.set();
    }
}

/// An end, in its thread.
struct Node {
    device: Device,
    link: Link,
    role: Role,
    context: Arc<dyn Context>,
}

impl Node {
    /// The initiator's part of a test.
    fn measure(&mut self, test: Test) -> Result<Measurement> {
        let seed = self.context.random();
        let next = Message::Test {
            test: test.clone(),
            seed,
        };
        match self.link.exchange(&next)? {
            Message::Ready => {}
            other => return Err(self.link.unexpected(&other)),
        }
        let (mut end, mut payloads) = self.prepare(&test, seed)?;
        let warm_up = test.warm_up_messages(self.device.capabilities());
        if warm_up > 0 {
            self.run(&mut end, &mut payloads, &test, Length::Messages(warm_up))?;
        }
        let mut runs = Vec::with_capacity(test.timed_runs as usize);
        for _ in 0..test.timed_runs {
            runs.push(self.run(&mut end, &mut payloads, &test, test.length)?);
        }
        self.end_of_runs(&end)?;
        Measurement::new(test, runs)
            .ok_or_else(|| PerfError::Unsupported("a test has at least one run".into()))
    }

    fn run(
        &mut self,
        end: &mut End,
        payloads: &mut Payloads,
        test: &Test,
        length: Length,
    ) -> Result<Run> {
        end.clear_mark();
        self.link.synchronize()?;
        let (link, context) = (&mut self.link, &*self.context);
        let cpu_before = cpu_time();
        let start = context.now();
        let (messages, answered, latency) = match test.measure {
            Measure::Bandwidth => {
                let mut sender = Sender::new(end, payloads, test, length, context);
                drive(&mut sender, test.polling, link)?;
                (sender.messages(), None, None)
            }
            Measure::Latency => {
                let mut asker = Asker::new(end, payloads, test, length, context);
                drive(&mut asker, test.polling, link)?;
                let trips = if test.goes_both_ways() { 2.0 } else { 1.0 };
                let latency = LatencyMicroseconds::of(asker.times(), trips);
                (asker.messages(), Some(asker.answered()), latency)
            }
        };
        let elapsed = context.now() - start;
        let initiator = (cpu_time() - cpu_before).as_secs_f64();
        link.exchange(&Message::Sent(messages))?;
        let (received, responder) = match link.exchange(&Message::Ready)? {
            Message::Received {
                messages,
                cpu_seconds,
            } => (messages, cpu_seconds),
            other => return Err(link.unexpected(&other)),
        };
        let received = match (answered, test.posted_verb()) {
            (Some(answered), _) => Some(answered),
            (None, Verb::Send | Verb::WriteImm) => Some(received),
            // They complete when they have left, and nobody sees them arrive.
            (None, Verb::Write) if end.is_lossy() => None,
            // Their completion says that they arrived.
            (None, Verb::Write | Verb::Read | Verb::CompareAndSwap | Verb::FetchAndAdd) => {
                Some(messages)
            }
        };
        let cpu_seconds = CpuSeconds {
            initiator,
            responder,
        };
        Ok(Run::new(
            test.bytes,
            messages,
            received,
            elapsed,
            latency,
            cpu_seconds,
        ))
    }

    /// The responder's part of a test.
    fn serve(&mut self, test: &Test, seed: u64) -> Result<()> {
        test.check(self.device.capabilities())?;
        let (mut end, mut payloads) = self.prepare(test, seed)?;
        loop {
            end.clear_mark();
            match self.link.exchange(&Message::Ready)? {
                Message::Ready => {}
                // The initiator has no more runs.
                Message::Finish => break,
                other => return Err(self.link.unexpected(&other)),
            }
            let (link, context) = (&mut self.link, &*self.context);
            let cpu_before = cpu_time();
            link.begin(&Message::Ready);
            let (messages, cpu_after) = match (test.measure, test.posted_verb()) {
                (Measure::Latency, Verb::Send | Verb::Write | Verb::WriteImm) => {
                    let mut answerer = Answerer::new(&mut end, &mut payloads, test, context);
                    drive(&mut answerer, test.polling, link)?;
                    (answerer.messages(), answerer.cpu_time())
                }
                (Measure::Bandwidth, Verb::Send | Verb::WriteImm) => {
                    let mut receiver = Receiver::new(&mut end, context);
                    drive(&mut receiver, test.polling, link)?;
                    (receiver.messages(), receiver.cpu_time())
                }
                (_, Verb::Read | Verb::CompareAndSwap | Verb::FetchAndAdd)
                | (Measure::Bandwidth, Verb::Write) => match link.complete()? {
                    Message::Sent(messages) => (messages, cpu_time()),
                    other => return Err(link.unexpected(&other)),
                },
            };
            if test.verb.is_atomic() {
                end.check_word(messages)?;
            }
            link.exchange(&Message::Received {
                messages,
                cpu_seconds: (cpu_after - cpu_before).as_secs_f64(),
            })?;
        }
        end.check_counters()
    }

    /// Makes this end of a test, connects it and verifies that messages arrive as they were sent.
    fn prepare(&mut self, test: &Test, seed: u64) -> Result<(End, Payloads)> {
        let mut end = End::create(&self.device, test, self.role, self.link.peer())?;
        match self.link.exchange(&Message::Offer(end.offer()))? {
            Message::Offer(offer) => end.connect(&offer)?,
            other => return Err(self.link.unexpected(&other)),
        }
        self.link.synchronize()?;
        let verification = Verification {
            end: &mut end,
            link: &mut self.link,
            test,
            seed,
            role: self.role,
            device: self.device.capabilities(),
            context: &*self.context,
        };
        verification.run()?;
        let owned = match (test.measure, test.posted_verb()) {
            (Measure::Bandwidth, verb) if verb.returns_bytes() => Some(test.depth),
            (Measure::Latency, verb) if verb == Verb::Write || verb.returns_bytes() => {
                Some(latency::BUFFERS)
            }
            _ => None,
        };
        let payloads = end.payloads(test, owned)?;
        Ok((end, payloads))
    }

    /// The initiator: ends the responder's loop over runs, and compares counts.
    fn end_of_runs(&mut self, end: &End) -> Result<()> {
        self.link.exchange(&Message::Finish)?;
        end.check_counters()
    }
}

/// A name that came from outside, for people.
fn printable(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(255).collect()
}

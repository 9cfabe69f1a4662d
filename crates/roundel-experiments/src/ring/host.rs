//! A host of the ring, as section III-D has it: a receiver, a join entity and a transmitter, on the cores of a simulated
//! node. Elements are moved by [`Roundabout`]; what they cost is charged here. Knows no other host.

use super::costs::Costs;
use super::{HostPhases, Program, RingJoin, WAIT_LEAST, rates};
use crate::error::{Error, Result};
use futures::channel::{mpsc, oneshot};
use futures::future::join_all;
use futures::{FutureExt as _, StreamExt as _};
use roundel_ring::Roundabout;
use roundel_ring::roundabout::{Element, Next};
use roundel_verbs::sim::{Parameters, SimNode};
use roundel_verbs::{Context, Work, settle};
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Bytes of an element's number, which its payload begins with.
const NUMBER_BYTES: usize = size_of::<u64>();
/// How long threads of a core take turns for, in nanoseconds: a part of what they have to do, within these limits. As they
/// are, who moves elements waits for a small part of the time that an element is joined.
const TURNS: f64 = 16.0;
const TURN: std::ops::RangeInclusive<f64> = 2e5..=1e7;

/// Who receives and transmits has cores of its own as far as there are some.
pub(super) const RECEIVES: usize = rates::CORES - 1;
const fn transmits(threads: usize) -> usize {
    match rates::CORES - threads {
        1 => RECEIVES,
        _ => RECEIVES - 1,
    }
}

type Elements = mpsc::UnboundedReceiver<Element>;
type ElementsTo = mpsc::UnboundedSender<Element>;
/// Nanoseconds of work, and who waits for them.
type Job = (f64, oneshot::Sender<()>);

/// The rows of a host that spin, in elements.
#[derive(Clone, Copy)]
pub(super) struct Fragments {
    own: u64,
    of_element: u64,
}

/// A host.
#[derive(Clone)]
pub(super) struct Host {
    pub number: usize,
    pub node: SimNode,
    pub join: Arc<RingJoin>,
    pub costs: Arc<Costs>,
    pub fragments: Fragments,
    pub parameters: Arc<Parameters>,
}

impl Fragments {
    /// Of elements that have room for so many bytes of rows.
    pub(super) fn new(join: &RingJoin, room: usize) -> Self {
        Self {
            own: join.rows.of_host(join.hosts).spinning,
            of_element: (room / join.row_bytes).max(1) as u64,
        }
    }

    /// Elements that begin on a host.
    fn elements(self) -> u64 {
        self.own.div_ceil(self.of_element)
    }

    /// Rows of an element, by its number on the host where it begins.
    fn rows(self, number: u64) -> Range<u64> {
        let before = |number: u64| (number * self.of_element).min(self.own);
        before(number)..before(number + 1)
    }

    /// One of the parts that threads join of an element, as shares of all that spins from its origin.
    fn part(self, number: u64, part: usize, parts: usize) -> (f64, f64) {
        let Range { start, end } = self.rows(number);
        let at = |part: usize| start as f64 + (end - start) as f64 * part as f64 / parts as f64;
        let own = self.own as f64;
        (at(part) / own, at(part + 1) / own)
    }
}

impl Host {
    /// Sets its relations up, and joins what comes until all has.
    pub(super) async fn run(self, ring: Roundabout) -> Result<HostPhases> {
        let context = self.node.context();
        let cores: Vec<_> = (0..rates::CORES).map(|core| self.worker(core)).collect();
        let began = context.now();
        let [spinning, stationary] = self.costs.set_up();
        work(
            &cores,
            match self.join.program {
                Program::Paper => vec![spinning, stationary],
                Program::Roundel => {
                    let threads = self.join.threads;
                    vec![(spinning + stationary) / threads as f64; threads]
                }
            },
        )
        .await;
        let mut phases = HostPhases {
            set_up: (context.now() - began).as_secs_f64(),
            ..HostPhases::default()
        };
        let (worked, set_up) = (self.node.worked(), context.now());
        let place = ring.place();
        let Entities {
            mut received,
            mut own,
            to_transmit,
            ended,
        } = self.entities(ring);
        let mut expected = vec![0; place.hosts];
        for joined in 0..self.fragments.elements() * place.hosts as u64 {
            let waits = context.now();
            // What has come goes first.
            let next = std::future::poll_fn(|cx| match received.poll_next_unpin(cx) {
                Poll::Ready(Some(element)) => Poll::Ready(Some(element)),
                other => match own.poll_next_unpin(cx) {
                    Poll::Pending if other.is_ready() => Poll::Ready(None),
                    next => next,
                },
            });
            let Some(element) = next.await else {
                return Err(why(ended).await);
            };
            let joins = context.now();
            let waited = (joins - waits).as_secs_f64();
            phases.synchronisation += waited;
            if waited >= WAIT_LEAST {
                phases.waits.push((waits - set_up).as_secs_f64());
            }
            let stalls = self.join.stalls.iter();
            for stall in stalls.filter(|stall| (stall.host, stall.after) == (self.number, joined)) {
                phases.stalls.push((context.now() - set_up).as_secs_f64());
                context.sleep(Duration::from_secs_f64(stall.seconds)).await;
            }
            let number = number_of(&element);
            let origin = element.origin();
            if number != Some(expected[origin]) {
                return Err(Error::Wrong(format!(
                    "host {} got element {number:?} of host {origin} instead of {}",
                    self.number, expected[origin]
                )));
            }
            let number = expected[origin];
            expected[origin] += 1;
            let bytes = self.bytes(number);
            // One thread makes an element of rows, or rows of it.
            let code = self.costs.code(bytes);
            if code > 0.0 {
                work(&cores, [code]).await;
            }
            let parts = self.join.threads;
            let part = |part| {
                let (from, to) = self.fragments.part(number, part, parts);
                self.costs.join(from, to)
            };
            work(&cores, (0..parts).map(part)).await;
            phases.elements += 1;
            if origin != self.number {
                phases.bytes += bytes as u64;
            }
            // Whoever is gone has said why.
            let _ = to_transmit.unbounded_send(element);
            phases.join += (context.now() - joins).as_secs_f64();
        }
        let waits = context.now();
        drop(to_transmit);
        ended.await.unwrap_or_else(|_| Err(stopped()))?;
        phases.synchronisation += (context.now() - waits).as_secs_f64();
        phases.worked = (self.node.worked() - worked).as_secs_f64();
        Ok(phases)
    }

    /// Bytes of the rows of an element.
    fn bytes(&self, number: u64) -> usize {
        let rows = self.fragments.rows(number);
        self.costs.bytes(rows.end - rows.start)
    }

    /// Begins the receiver, the transmitter, and what both of them are to the ring.
    fn entities(&self, ring: Roundabout) -> Entities {
        let (came, to_receive) = mpsc::unbounded();
        let (receives, received) = mpsc::unbounded();
        let (begins, own) = mpsc::unbounded();
        let (to_transmit, transmits_from) = mpsc::unbounded();
        let (transmitted, departures) = mpsc::unbounded();
        let place = ring.place();
        self.entity(RECEIVES, to_receive, receives, |_| true);
        self.entity(
            transmits(self.join.threads),
            transmits_from,
            transmitted,
            move |element| !element.ends_at(place),
        );
        let (end, ended) = oneshot::channel();
        let host = self.clone();
        let moves = async move {
            let moved = host.moves(ring, came, begins, departures).await;
            // Who waits for it may have failed.
            let _ = end.send(moved);
        };
        self.node.spawn(RECEIVES, moves.boxed());
        Entities {
            received,
            own,
            to_transmit,
            ended,
        }
    }

    /// Hands elements from and to the ring, and begins those of this host as there is room.
    async fn moves(
        &self,
        mut ring: Roundabout,
        came: ElementsTo,
        begins: ElementsTo,
        mut departures: Elements,
    ) -> Result<()> {
        let head = self.parameters.bytes_for(self.join.element_bytes) - ring.payload_bytes_max();
        let (mut begun, elements) = (0, self.fragments.elements());
        let mut all_came = false;
        loop {
            let event = {
                let mut next = pin!(ring.next(begun < elements));
                std::future::poll_fn(|cx| {
                    if let Poll::Ready(element) = departures.poll_next_unpin(cx) {
                        return Poll::Ready(Event::Departs(element));
                    }
                    if all_came {
                        return Poll::Pending;
                    }
                    next.as_mut().poll(cx).map(Event::Comes)
                })
                .await
            };
            match event {
                Event::Departs(Some(element)) => ring.pass_on(element),
                Event::Departs(None) => break,
                Event::Comes(next) => match next? {
                    Next::End => all_came = true,
                    Next::Element(element) => {
                        let _ = came.unbounded_send(element);
                    }
                    Next::Blank(blank) => {
                        let bytes = self.parameters.bytes_for(head + self.bytes(begun));
                        let mut payload = vec![0; (bytes - head).max(NUMBER_BYTES)];
                        payload[..NUMBER_BYTES].copy_from_slice(&begun.to_le_bytes());
                        begun += 1;
                        let element = ring.begin(blank, &payload, &[], begun == elements);
                        let _ = begins.unbounded_send(element);
                    }
                },
            }
        }
        Ok(ring.finish().await?)
    }

    /// Begins a receiver or a transmitter: with TCP it moves the bytes of those elements that `crosses` says.
    fn entity(
        &self,
        core: usize,
        mut from: Elements,
        to: ElementsTo,
        crosses: impl Fn(&Element) -> bool + Send + 'static,
    ) {
        let (host, context) = (self.clone(), self.node.context_of(core));
        let moves = async move {
            while let Some(element) = from.next().await {
                if crosses(&element)
                    && let Some(number) = number_of(&element)
                {
                    let kernel = host.costs.kernel(host.bytes(number));
                    busy(&host.parameters, &*context, kernel).await;
                }
                // Whoever is gone has said why.
                let _ = to.unbounded_send(element);
            }
        };
        self.node.spawn(core, moves.boxed());
    }

    /// Begins a thread of a core that does what it is told.
    fn worker(&self, core: usize) -> mpsc::UnboundedSender<Job> {
        let (jobs, mut todo) = mpsc::unbounded::<Job>();
        let (parameters, context) = (self.parameters.clone(), self.node.context_of(core));
        let works = async move {
            while let Some((nanoseconds, done)) = todo.next().await {
                busy(&parameters, &*context, nanoseconds).await;
                let _ = done.send(());
            }
        };
        self.node.spawn(core, works.boxed());
        jobs
    }
}

/// Works for so long, in turns with the other threads of the core.
pub(super) async fn busy(parameters: &Parameters, context: &dyn Context, nanoseconds: f64) {
    let cycle = parameters.cpu.cycle.as_picos() as f64 / 1e3;
    let turn = (nanoseconds / TURNS).clamp(*TURN.start(), *TURN.end());
    let mut left = nanoseconds;
    while left > 0.0 {
        context.charge(Work::Cycles((left.min(turn) / cycle).round() as u64));
        settle(context).await;
        left -= turn;
    }
}

/// What the join entity has to do with the others.
struct Entities {
    received: Elements,
    own: Elements,
    to_transmit: ElementsTo,
    ended: oneshot::Receiver<Result<()>>,
}

enum Event {
    Departs(Option<Element>),
    Comes(std::result::Result<Next, roundel_ring::RingError>),
}

/// Has a core each do so much, and waits for all.
async fn work(cores: &[mpsc::UnboundedSender<Job>], jobs: impl IntoIterator<Item = f64>) {
    let begin = |(core, nanoseconds): (&mpsc::UnboundedSender<Job>, f64)| {
        let (done, waits) = oneshot::channel();
        // A core stays as long as who tells it what to do.
        let _ = core.unbounded_send((nanoseconds, done));
        waits
    };
    let waits: Vec<_> = cores.iter().zip(jobs).map(begin).collect();
    join_all(waits).await;
}

fn number_of(element: &Element) -> Option<u64> {
    let payload = element.payload();
    payload
        .first_chunk()
        .map(|number| u64::from_le_bytes(*number))
}

async fn why(ended: oneshot::Receiver<Result<()>>) -> Error {
    match ended.await {
        Ok(Err(error)) => error,
        _ => stopped(),
    }
}

fn stopped() -> Error {
    Error::Wrong("a host of the ring stopped".into())
}

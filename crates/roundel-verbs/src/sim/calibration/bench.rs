//! Loads of raw verbs on a simulated cluster, as the programs behind the published numbers make them.

use super::super::{Parameters, SimNode, Simulation};
use crate::capabilities::GRH_BYTES;
use crate::completion_queue::CompletionQueue;
use crate::counters::Opcode;
use crate::memory::{Arena, Buffer, ExposedBuffer, RemoteAddress};
use crate::queue_pair::{AddressHandle, QueuePair, QueuePairOptions, Transport};
use crate::work::{Completion, CompletionStatus};
use crate::work::{INLINE_BYTES_MAX, InlineBytes, Payload};
use crate::work::{ReceiveRequest, SendOperation, SendRequest};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

/// Before anything is counted, so that every queue is as long as it becomes.
const WARM_UP: Duration = Duration::from_micros(200);
/// Until the load has been counted.
const END: Duration = Duration::from_micros(500);

/// Most completions that are taken at once.
const POLLED_MAX: usize = 16;
/// Memory of each worker that others read and write, in blocks of a cache line.
const EXPOSED_BYTES: usize = 64 << 10;
const BLOCK_BYTES: usize = 64;
const RECEIVES: usize = 256;
const QUEUE_KEY: u32 = 7;

/// What is asked for, and how many bytes of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    Read(usize),
    Write(usize),
    Send(usize),
}

/// What each worker that asks for something does: it has so many requests outstanding, each on a queue pair
/// chosen at random.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub verb: Verb,
    pub transport: Transport,
    pub window: usize,
}

/// A cluster.
pub(super) struct Bench {
    simulation: Simulation,
    nodes: Vec<SimNode>,
    threads: usize,
    load: Load,
    workers: Vec<Worker>,
    counts: Vec<Arc<Counts>>,
}

/// What a node has completed.
#[derive(Default)]
struct Counts {
    sends: AtomicU64,
    receives: AtomicU64,
}

/// Millions in a second, of a node.
#[derive(Clone, Copy)]
pub(super) struct Rates {
    pub asked: f64,
    pub received: f64,
}

/// A thread and its queue pairs.
struct Worker {
    node: usize,
    thread: usize,
    arena: Arena,
    queue: CompletionQueue,
    exposed: ExposedBuffer,
    pairs: Vec<Connection>,
    asks: bool,
}

struct Connection {
    pair: QueuePair,
    target: RemoteAddress,
    destination: Option<AddressHandle>,
}

impl Bench {
    /// So many nodes with as many threads each, of which those of some nodes ask for something.
    pub(super) fn new(
        parameters: Parameters,
        nodes: usize,
        threads: usize,
        asks: impl Fn(usize) -> bool,
        load: Load,
    ) -> Self {
        let simulation = Simulation::new(parameters, 1);
        let nodes: Vec<_> = (0..nodes).map(|_| simulation.add_node(threads)).collect();
        let workers = (0..nodes.len() * threads)
            .map(|number| {
                let (node, thread) = (number / threads, number % threads);
                let device = nodes[node].device();
                let arena = device.arena(Default::default());
                // Registered before the clock runs.
                drop(arena.allocate(1).unwrap());
                Worker {
                    node,
                    thread,
                    queue: device.create_completion_queue(4096, None).unwrap(),
                    exposed: arena.allocate_exposed(EXPOSED_BYTES).unwrap(),
                    arena,
                    pairs: Vec::new(),
                    asks: asks(node),
                }
            })
            .collect();
        Self {
            counts: nodes.iter().map(|_| Arc::default()).collect(),
            simulation,
            nodes,
            threads,
            load,
            workers,
        }
    }

    /// Connects a thread of a node with one of another.
    pub(super) fn connect(&mut self, one: (usize, usize), other: (usize, usize)) {
        let options = QueuePairOptions {
            transport: self.load.transport,
            send_depth: 1024,
            receive_depth: RECEIVES,
            rnr_retry: 7,
            queue_key: QUEUE_KEY,
        };
        let ends = [one, other].map(|(node, thread)| node * self.threads + thread);
        let pairs = ends.map(|end| {
            let (worker, device) = (&self.workers[end], self.device_of(end));
            device
                .create_queue_pair(&options, &worker.queue, &worker.queue)
                .unwrap()
        });
        let connected = options.transport.is_connected();
        for (from, to) in [(0, 1), (1, 0)] {
            match connected {
                true => pairs[from].connect(pairs[to].address()).unwrap(),
                false => pairs[from].activate().unwrap(),
            }
        }
        let addresses = [1, 0].map(|to| pairs[to].address().clone());
        for ((pair, address), (from, to)) in pairs.into_iter().zip(addresses).zip([(0, 1), (1, 0)])
        {
            let destination = (!connected)
                .then(|| self.device_of(ends[from]).create_address_handle(&address))
                .transpose();
            let connection = Connection {
                pair,
                target: self.workers[ends[to]].exposed.remote_address(),
                destination: destination.unwrap(),
            };
            self.workers[ends[from]].pairs.push(connection);
        }
    }

    fn device_of(&self, worker: usize) -> crate::Device {
        self.nodes[self.workers[worker].node].device()
    }

    /// Runs the load. Returns what each node did.
    pub(super) fn run(self) -> Vec<Rates> {
        for worker in self.workers {
            let (node, counts) = (&self.nodes[worker.node], &self.counts[worker.node]);
            let context = node.context();
            let (load, counts, thread) = (self.load, counts.clone(), worker.thread);
            let random = move || context.random() as usize;
            node.spawn(
                thread,
                Box::pin(async move { worker.work(load, &counts, random).await }),
            );
        }
        let read = |counts: &Arc<Counts>| {
            [&counts.sends, &counts.receives].map(|count| count.load(Ordering::Relaxed))
        };
        self.simulation.advance(WARM_UP);
        let before: Vec<_> = self.counts.iter().map(read).collect();
        self.simulation.advance(END);
        let rate = |before: u64, after: u64| {
            (after - before) as f64 / (END - WARM_UP).as_nanos() as f64 * 1000.0
        };
        let rates = before.iter().zip(&self.counts).map(|(before, counts)| {
            let after = read(counts);
            Rates {
                asked: rate(before[0], after[0]),
                received: rate(before[1], after[1]),
            }
        });
        rates.collect()
    }
}

impl Worker {
    async fn work(self, load: Load, counts: &Counts, random: impl Fn() -> usize) {
        let (mut buffers, mut completions) = (VecDeque::new(), Vec::new());
        if let Verb::Send(bytes) = load.verb {
            for number in 0..self.pairs.len() {
                self.receive(number, bytes, RECEIVES);
            }
        }
        let asks = self.asks && !self.pairs.is_empty();
        let (mut outstanding, mut taken) = (0, vec![0; self.pairs.len()]);
        loop {
            while asks && outstanding < load.window {
                self.ask(load.verb, &mut buffers, &random);
                outstanding += 1;
            }
            self.poll(&mut completions).await;
            for completion in completions.drain(..) {
                let Completion {
                    status,
                    opcode,
                    queue_pair,
                    buffer,
                    ..
                } = completion;
                assert_eq!(status, CompletionStatus::Success);
                if opcode == Opcode::Receive {
                    counts.receives.fetch_add(1, Ordering::Relaxed);
                    let mut pairs = self.pairs.iter();
                    let number = pairs.position(|to| to.pair.number() == queue_pair);
                    taken[number.unwrap()] += 1;
                } else {
                    counts.sends.fetch_add(1, Ordering::Relaxed);
                    outstanding -= 1;
                    buffers.extend(buffer);
                }
            }
            if let Verb::Send(bytes) = load.verb {
                for (number, taken) in taken
                    .iter_mut()
                    .enumerate()
                    .filter(|(_, taken)| **taken > 0)
                {
                    self.receive(number, bytes, std::mem::take(taken));
                }
            }
        }
    }

    /// Waits for completions.
    async fn poll(&self, completions: &mut Vec<Completion>) {
        std::future::poll_fn(|cx| match self.queue.poll(completions, POLLED_MAX) {
            0 => {
                self.queue.provider().wake_when_new(cx.waker());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        })
        .await;
    }

    /// Waits for a word that a peer writes.
    async fn wait_for(&self, word: u64) {
        std::future::poll_fn(|cx| {
            self.queue.poll(&mut Vec::new(), POLLED_MAX);
            if self.exposed.word(0).load(Ordering::Acquire) == word {
                return Poll::Ready(());
            }
            self.queue.provider().wake_when_new(cx.waker());
            Poll::Pending
        })
        .await;
    }

    fn write_word(&self, word: u64) {
        let to = &self.pairs[0];
        let request = SendRequest {
            id: 0,
            operation: SendOperation::Write(to.target),
            payload: Payload::Inline(InlineBytes::new(&word.to_le_bytes()).unwrap()),
            destination: None,
        };
        assert_eq!(to.pair.post_send(&mut vec![request]).unwrap(), 1);
    }

    fn receive(&self, number: usize, bytes: usize, count: usize) {
        let requests = (0..count).map(|_| ReceiveRequest {
            id: 0,
            buffer: Some(self.arena.allocate(GRH_BYTES + bytes).unwrap()),
        });
        let posted = self.pairs[number]
            .pair
            .post_receive(&mut requests.collect());
        assert_eq!(posted.unwrap(), count);
    }

    fn ask(&self, verb: Verb, buffers: &mut VecDeque<Buffer>, random: impl Fn() -> usize) {
        let to = &self.pairs[random() % self.pairs.len()];
        let (Verb::Read(bytes) | Verb::Write(bytes) | Verb::Send(bytes)) = verb;
        let blocks = (EXPOSED_BYTES - bytes) / BLOCK_BYTES;
        let at = to.target.offset(random() % blocks * BLOCK_BYTES);
        let operation = match verb {
            Verb::Read(_) => SendOperation::Read(at),
            Verb::Write(_) => SendOperation::Write(at),
            Verb::Send(_) => SendOperation::Send,
        };
        let payload = match matches!(verb, Verb::Read(_)) || bytes > INLINE_BYTES_MAX {
            true => Payload::Owned {
                buffer: buffers.pop_front().unwrap_or_else(|| {
                    let mut buffer = self.arena.allocate(bytes).unwrap();
                    buffer.write(0, &vec![1; bytes]);
                    buffer
                }),
                length: bytes,
            },
            false => Payload::Inline(InlineBytes::new(&vec![1; bytes]).unwrap()),
        };
        let request = SendRequest {
            id: 0,
            operation,
            payload,
            destination: to.destination.clone(),
        };
        assert_eq!(to.pair.post_send(&mut vec![request]).unwrap(), 1);
    }
}

/// Microseconds until a small request and what answers it are over, between two nodes with nothing else to do:
/// the data of a READ, or a WRITE for a WRITE.
pub(super) fn round_trip(verb: Verb) -> f64 {
    const ROUNDS: u64 = 50;
    let load = Load {
        verb,
        transport: Transport::ReliableConnection,
        window: 1,
    };
    let mut bench = Bench::new(Parameters::fdr(), 2, 1, |_| false, load);
    bench.connect((0, 0), (1, 0));
    let [one, other] = <[Worker; 2]>::try_from(bench.workers)
        .ok()
        .expect("each node has one thread");
    let writes = matches!(verb, Verb::Write(_));
    if writes {
        let answers = async move {
            for round in 1..=ROUNDS {
                other.wait_for(round).await;
                other.write_word(round);
            }
            std::future::pending::<()>().await;
        };
        bench.nodes[1].spawn(0, Box::pin(answers));
    }
    let asks = async move {
        let mut buffers = VecDeque::new();
        for round in 1..=ROUNDS {
            if writes {
                one.write_word(round);
                one.wait_for(round).await;
            } else {
                one.ask(verb, &mut buffers, || 0);
                let mut completions = Vec::new();
                one.poll(&mut completions).await;
                buffers.extend(completions.pop().and_then(|ended| ended.buffer));
            }
        }
    };
    let limit = Duration::from_millis(1);
    bench.simulation.run(&bench.nodes[0], limit, asks).unwrap();
    bench.simulation.now().as_nanos() as f64 / 1000.0 / ROUNDS as f64
}

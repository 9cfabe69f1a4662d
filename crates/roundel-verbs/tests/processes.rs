//! The `shm` provider between real processes: this binary starts itself again as the peers. They
//! are killed and stopped at random moments under load; the survivor must never hang, and its
//! memory must come back.
//!
//! `ROUNDEL_SEED` repeats a run, `ROUNDEL_KILLS` sets its length.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roundel_verbs::{
    AddressHandle, Arena, ArenaOptions, Buffer, Completion, CompletionQueue, CompletionStatus,
    Device, ExposedBuffer, Payload, QueuePair, QueuePairAddress, QueuePairOptions, QueuePairState,
    ReceiveRequest, RemoteAddress, SendOperation, SendRequest, Transport, shm,
};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

const CHILD: &str = "ROUNDEL_VERBS_CHILD";
/// Nothing that a peer's death must bring about takes longer.
const PATIENCE: Duration = Duration::from_secs(5);
const RC_BYTES: usize = 64 << 10;
const UD_BYTES: usize = 4096;
const GRH: usize = roundel_verbs::capabilities::GRH_BYTES;
const UD_RECEIVES: usize = 16;

/// What peers tell each other, as text over pipes.
struct Card {
    connected: QueuePairAddress,
    datagrams: QueuePairAddress,
    exposed: RemoteAddress,
}

impl Card {
    fn to_text(&self) -> String {
        let hex =
            |bytes: Vec<u8>| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
        format!(
            "@ {} {} {} {}",
            hex(self.connected.to_bytes()),
            hex(self.datagrams.to_bytes()),
            self.exposed.address,
            self.exposed.remote_key
        )
    }

    fn from_text(text: &str) -> Self {
        let words: Vec<&str> = text.split_whitespace().collect();
        let address = |hex: &str| {
            let bytes: Vec<u8> = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect();
            QueuePairAddress::from_bytes(&bytes).unwrap()
        };
        Self {
            connected: address(words[1]),
            datagrams: address(words[2]),
            exposed: RemoteAddress {
                address: words[3].parse().unwrap(),
                remote_key: words[4].parse().unwrap(),
            },
        }
    }
}

fn device() -> Device {
    shm::open(shm::ShmOptions::default()).unwrap()
}

fn arena(device: &Device) -> Arena {
    device.arena(ArenaOptions {
        segment_bytes: 1 << 20,
        ..ArenaOptions::default()
    })
}

fn options(transport: Transport) -> QueuePairOptions {
    QueuePairOptions {
        transport,
        send_depth: 16,
        receive_depth: UD_RECEIVES,
        rnr_retry: 7,
        queue_key: 4711,
    }
}

fn receive(pair: &QueuePair, buffer: Buffer) {
    let mut request = vec![ReceiveRequest {
        id: 0,
        buffer: Some(buffer),
    }];
    pair.post_receive(&mut request).unwrap();
    assert!(request.is_empty(), "room for every receive");
}

/// One side of a reliable connection under load: SENDs and WRITEs of random sizes, both ways.
struct Link {
    pair: QueuePair,
    queue: CompletionQueue,
    exposed: ExposedBuffer,
    target: Option<RemoteAddress>,
    free: Vec<Buffer>,
    /// Buffers with posted requests.
    posted: usize,
    received: u64,
    failed: Option<CompletionStatus>,
}

impl Link {
    fn new(device: &Device, arena: &Arena) -> Self {
        let queue = device.create_completion_queue(64, None).unwrap();
        let pair = device
            .create_queue_pair(&options(Transport::ReliableConnection), &queue, &queue)
            .unwrap();
        for _ in 0..4 {
            receive(&pair, arena.allocate(RC_BYTES).unwrap());
        }
        Self {
            pair,
            queue,
            exposed: arena.allocate_exposed(RC_BYTES).unwrap(),
            target: None,
            free: (0..4).map(|_| arena.allocate(RC_BYTES).unwrap()).collect(),
            posted: 4,
            received: 0,
            failed: None,
        }
    }

    fn connect(&mut self, card: &Card) {
        self.target = Some(card.exposed);
        // The peer may be dead already: then the queue pair breaks, or is never connected.
        if self.pair.connect(&card.connected).is_err() {
            self.pair.modify_to_error();
        }
    }

    fn turn(&mut self, random: &mut StdRng) {
        let mut requests = Vec::new();
        while let Some(mut buffer) = self.free.pop() {
            let length = random.random_range(1..=RC_BYTES);
            buffer.write(0, &(length as u64).to_le_bytes()[..length.min(8)]);
            let operation = match (self.target, random.random_range(0..4)) {
                (Some(target), 0) => SendOperation::Write(target),
                (Some(target), 1) => SendOperation::Read(target),
                _ => SendOperation::Send,
            };
            requests.push(SendRequest {
                id: 1,
                operation,
                payload: Payload::Owned { buffer, length },
                destination: None,
            });
        }
        self.posted += self.pair.post_send(&mut requests).unwrap();
        for request in requests {
            if let Payload::Owned { buffer, .. } = request.payload {
                self.free.push(buffer);
            }
        }
        let mut found = Vec::new();
        self.queue.poll(&mut found, 16);
        for completion in found {
            self.posted -= 1;
            let buffer = completion.buffer.expect("every request had a buffer");
            if completion.status != CompletionStatus::Success {
                self.failed.get_or_insert(completion.status);
                self.free.clear();
                continue;
            }
            if completion.id == 0 {
                self.received += 1;
                if completion.bytes >= 8 {
                    let mut word = [0; 8];
                    buffer.read(0, &mut word);
                    assert_eq!(u64::from_le_bytes(word), completion.bytes as u64, "payload");
                }
                receive(&self.pair, buffer);
                self.posted += 1;
            } else {
                self.free.push(buffer);
            }
        }
    }
}

/// A datagram queue pair under load.
struct Datagrams {
    pair: QueuePair,
    queue: CompletionQueue,
    free: Vec<Buffer>,
    received: u64,
}

impl Datagrams {
    fn new(device: &Device, arena: &Arena) -> Self {
        let queue = device.create_completion_queue(64, None).unwrap();
        let pair = device
            .create_queue_pair(&options(Transport::UnreliableDatagram), &queue, &queue)
            .unwrap();
        pair.activate().unwrap();
        for _ in 0..UD_RECEIVES {
            receive(&pair, arena.allocate(GRH + UD_BYTES).unwrap());
        }
        Self {
            pair,
            queue,
            free: (0..8).map(|_| arena.allocate(UD_BYTES).unwrap()).collect(),
            received: 0,
        }
    }

    fn turn(&mut self, to: &[AddressHandle]) {
        let mut requests = Vec::new();
        for (index, to) in to.iter().cycle().take(self.free.len()).enumerate() {
            let Some(mut buffer) = self.free.pop() else {
                break;
            };
            let length = UD_BYTES - index;
            buffer.write(0, &(length as u64).to_le_bytes());
            requests.push(SendRequest {
                id: 1,
                operation: SendOperation::Send,
                payload: Payload::Owned { buffer, length },
                destination: Some(to.clone()),
            });
        }
        self.pair.post_send(&mut requests).unwrap();
        assert!(requests.is_empty(), "there are fewer buffers than slots");
        for completion in self.poll() {
            let buffer = completion.buffer.expect("every request had a buffer");
            if completion.id == 1 {
                self.free.push(buffer);
            } else {
                self.received += 1;
                let mut word = [0; 8];
                buffer.read(GRH, &mut word);
                let length = u64::from_le_bytes(word) as usize;
                assert_eq!(completion.bytes, GRH + length, "payload");
                receive(&self.pair, buffer);
            }
        }
    }

    fn poll(&self) -> Vec<Completion> {
        let mut found = Vec::new();
        self.queue.poll(&mut found, 64);
        for completion in &found {
            assert_eq!(completion.status, CompletionStatus::Success);
        }
        found
    }

    /// Proves that every receive is there: as many datagrams as there are receives come back.
    fn all_receives_work(&mut self, device: &Device) {
        let own = device.create_address_handle(self.pair.address()).unwrap();
        self.turn(&[]);
        let before = self.received;
        let start = Instant::now();
        while self.received - before < 4 * UD_RECEIVES as u64 {
            self.turn(std::slice::from_ref(&own));
            assert!(
                start.elapsed() < PATIENCE,
                "datagrams to ourselves do not arrive any more"
            );
        }
        // Now each receive in turn, with nothing taken in between.
        for _ in 0..10 {
            self.turn(&[]);
        }
        for _ in 0..UD_RECEIVES {
            let mut buffer = self.free.pop().expect("sends are done at once");
            buffer.write(0, &100u64.to_le_bytes());
            let mut request = vec![SendRequest {
                id: 1,
                operation: SendOperation::Send,
                payload: Payload::Owned {
                    buffer,
                    length: 100,
                },
                destination: Some(own.clone()),
            }];
            self.pair.post_send(&mut request).unwrap();
            let mut found = Vec::new();
            self.queue.poll(&mut found, 1);
            self.free
                .push(found.remove(0).buffer.expect("its own completion is first"));
        }
        let came = self.poll();
        assert_eq!(came.len(), UD_RECEIVES, "receives were lost");
        for completion in came {
            receive(&self.pair, completion.buffer.expect("it had a buffer"));
        }
    }
}

/// What the peers do until they are killed.
fn peer(seed: u64) {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let mut random = StdRng::seed_from_u64(seed);
    let device = device();
    let arena = arena(&device);
    let mut link = Link::new(&device, &arena);
    let mut datagrams = Datagrams::new(&device, &arena);
    let card = Card {
        connected: link.pair.address().clone(),
        datagrams: datagrams.pair.address().clone(),
        exposed: link.exposed.remote_address(),
    };
    println!("\n{}", card.to_text());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let theirs = Card::from_text(&line);
    let to = device.create_address_handle(&theirs.datagrams).unwrap();
    link.connect(&theirs);
    loop {
        link.turn(&mut random);
        datagrams.turn(std::slice::from_ref(&to));
        if link.failed.is_some() {
            // The survivor has let go of us: go on with datagrams until we are killed.
            std::thread::yield_now();
        }
    }
}

/// Not a test: what this binary does when it was started as a peer.
#[test]
fn started_as_a_peer() {
    if let Ok(seed) = std::env::var(CHILD) {
        peer(seed.parse().unwrap());
    }
}

struct Process {
    child: Child,
    _stdin: ChildStdin,
    card: Card,
    link: Link,
    to: AddressHandle,
}

impl Process {
    fn start(device: &Device, arena: &Arena, datagrams: &Datagrams, seed: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "started_as_a_peer", "--nocapture"])
            .env(CHILD, seed.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let card = stdout
            .lines()
            .map_while(Result::ok)
            .find(|line| line.starts_with('@'))
            .map(|line| Card::from_text(&line))
            .expect("a peer introduces itself");
        let mut link = Link::new(device, arena);
        let own = Card {
            connected: link.pair.address().clone(),
            datagrams: datagrams.pair.address().clone(),
            exposed: link.exposed.remote_address(),
        };
        writeln!(stdin, "{}", own.to_text()).unwrap();
        let to = device.create_address_handle(&card.datagrams).unwrap();
        link.connect(&card);
        Self {
            child,
            _stdin: stdin,
            card,
            link,
            to,
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn seed() -> u64 {
    let seed = std::env::var("ROUNDEL_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(rand::random);
    println!("ROUNDEL_SEED={seed}");
    seed
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .filter(|line| line.contains("memfd:roundel"))
        .count()
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn peers_killed_under_load_never_wedge_the_survivor() {
    let kills: usize = std::env::var("ROUNDEL_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(200);
    const PEERS: usize = 3;
    let mut random = StdRng::seed_from_u64(seed());
    let device = device();
    let arena = arena(&device);
    let mut datagrams = Datagrams::new(&device, &arena);
    let idle = arena.usage().allocated;
    let mut peers: Vec<Process> = Vec::new();
    let (mut messages, mut baseline) = (0, None);
    let start = Instant::now();
    for kill in 0..kills {
        while peers.len() < PEERS {
            let seed = random.random();
            peers.push(Process::start(&device, &arena, &datagrams, seed));
        }
        // Some are killed while they still connect, most in the middle of their work.
        let moment = Instant::now() + Duration::from_micros(random.random_range(0..20_000));
        while Instant::now() < moment {
            for peer in &mut peers {
                peer.link.turn(&mut random);
            }
            let to: Vec<_> = peers.iter().map(|peer| peer.to.clone()).collect();
            datagrams.turn(&to);
        }
        let mut dead = peers.swap_remove(random.random_range(0..PEERS));
        dead.kill();
        let killed = Instant::now();
        while dead.link.pair.state() != QueuePairState::Error || dead.link.posted > 0 {
            dead.link.turn(&mut random);
            let to = [dead.to.clone()];
            datagrams.turn(&to);
            for peer in &mut peers {
                peer.link.turn(&mut random);
                assert_eq!(peer.link.failed, None, "a living peer's queue pair broke");
            }
            assert!(
                killed.elapsed() < PATIENCE,
                "kill {kill}: in {:?} with {} posted",
                dead.link.pair,
                dead.link.posted
            );
        }
        messages += dead.link.received;
        if kill % 20 == 0 {
            drop(dead);
            drop(std::mem::take(&mut peers));
            until("all receives are ours again", || {
                datagrams.turn(&[]);
                arena.usage().allocated == idle
            });
            datagrams.all_receives_work(&device);
            arena.shrink();
            let now = (open_descriptors(), mappings());
            until("the peers' connections are closed", || {
                baseline.is_none_or(|before| (open_descriptors(), mappings()) <= before)
            });
            baseline.get_or_insert(now);
        }
    }
    println!(
        "{kills} kills in {:?}, {messages} messages and {} datagrams received",
        start.elapsed(),
        datagrams.received
    );
}

#[test]
fn a_stopped_peer_does_not_hang_destruction() {
    use rustix::process::Signal;
    let mut random = StdRng::seed_from_u64(seed());
    for round in 0..30 {
        let device = device();
        let arena = arena(&device);
        let mut datagrams = Datagrams::new(&device, &arena);
        let mut peer = Process::start(&device, &arena, &datagrams, random.random());
        let moment = Instant::now() + Duration::from_micros(random.random_range(0..10_000));
        while Instant::now() < moment {
            peer.link.turn(&mut random);
            datagrams.turn(&[peer.to.clone()]);
        }
        peer.signal(Signal::STOP);
        for _ in 0..100 {
            peer.link.turn(&mut random);
            datagrams.turn(&[peer.to.clone()]);
        }
        let stopped = Instant::now();
        let Process { card, .. } = &peer;
        let late = device.create_address_handle(&card.datagrams).unwrap();
        drop((datagrams, late));
        peer.link = Link::new(&device, &arena);
        arena.shrink();
        assert!(
            stopped.elapsed() < Duration::from_secs(1),
            "destroying took {:?}",
            stopped.elapsed()
        );
        // What it was inside of comes back when it leaves, or dies.
        if round % 2 == 0 {
            peer.signal(Signal::CONT);
        } else {
            peer.kill();
        }
        drop(device);
        let left = peer.link.posted + peer.link.free.len();
        until("the memory came back", || {
            arena.usage().allocated <= (left + 1) * RC_BYTES
        });
    }
}

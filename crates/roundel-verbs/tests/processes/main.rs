//! Providers between real processes: this binary starts itself again as the peers. They are killed
//! and stopped at random moments under load; the survivor must never hang, and its memory must come
//! back. `shm` and `tcp` run here, `rdma` in the virtual machine.
//!
//! `ROUNDEL_SEED` repeats a run, `ROUNDEL_KILLS` sets its length.

mod load;

use load::{Card, Datagrams, Link, PATIENCE, RC_BYTES, arena, device, is_rdma};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roundel_testbed::{Machine, Place, in_machine};
use roundel_verbs::CompletionStatus::{RemoteAccess, RetryExceeded};
use roundel_verbs::{AddressHandle, Arena, CompletionStatus, Device, QueuePairState};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

const CHILD: &str = "ROUNDEL_VERBS_CHILD";
const CHILD_DEVICE: &str = "ROUNDEL_VERBS_CHILD_DEVICE";

/// What the peers do until they are killed.
fn peer(seed: u64) {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let mut random = StdRng::seed_from_u64(seed);
    let name = std::env::var(CHILD_DEVICE).unwrap();
    let device = device(&name);
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
    if is_rdma(&name) {
        println!("+");
    }
    loop {
        link.turn(&mut random);
        datagrams.turn(std::slice::from_ref(&to));
        breathe(&name);
        if link.failed.is_some() {
            // The survivor has let go of us: go on with datagrams until we are killed.
            std::thread::yield_now();
        }
    }
}

/// Soft-RoCE needs the processor itself: whoever leaves it none waits in vain for acknowledgements.
fn breathe(name: &str) {
    if is_rdma(name) {
        std::thread::sleep(Duration::from_millis(1));
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
    /// Starts a peer on the device of this name; the others are the survivor's.
    fn start(name: &str, device: &Device, arena: &Arena, datagrams: &Datagrams, seed: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "started_as_a_peer", "--nocapture"])
            .env(CHILD, seed.to_string())
            .env(CHILD_DEVICE, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut lines = stdout.lines().map_while(Result::ok);
        let card = lines
            .find(|line| line.starts_with('@'))
            .map(|line| Card::from_text(&line))
            .expect("a peer introduces itself");
        let mut link = Link::new(device, arena);
        let own = Card {
            connected: link.pair.address().clone(),
            datagrams: datagrams.pair.address().clone(),
            exposed: link.exposed.remote_address(),
        };
        let to = device.create_address_handle(&card.datagrams).unwrap();
        link.connect(&card);
        writeln!(stdin, "{}", own.to_text()).unwrap();
        if is_rdma(name) {
            // A device gives up on a peer that is not connected in half a second.
            lines
                .find(|line| line.starts_with('+'))
                .expect("a peer connects");
        }
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

/// Names of devices, the survivor's first; the peers' in turn. In shared memory no name is needed.
fn peer_name(names: &[String], index: usize) -> &str {
    names
        .get((index + 1) % names.len().max(1))
        .map_or("", String::as_str)
}

fn survivor_name(names: &[String]) -> &str {
    names.first().map_or("", String::as_str)
}

fn kills(default: usize) -> usize {
    let wanted = std::env::var("ROUNDEL_KILLS").ok();
    wanted
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(default)
}

#[test]
fn peers_killed_under_load_never_wedge_the_survivor() {
    kill_peers(&[], kills(200));
}

#[test]
fn tcp_peers_killed_under_load_never_wedge_the_survivor() {
    kill_peers(&["127.0.0.1".to_owned()], kills(100));
}

/// As above; a device needs half a second to notice, and starting processes takes a while there.
#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn rdma_peers_killed_under_load_never_wedge_the_survivor() {
    const NAME: &str = "rdma_peers_killed_under_load_never_wedge_the_survivor";
    if let Place::Machine(names) = in_machine(NAME, Machine::default()) {
        kill_peers(&names, kills(6));
    }
}

fn kill_peers(names: &[String], kills: usize) {
    const PEERS: usize = 3;
    let mut random = StdRng::seed_from_u64(seed());
    let device = device(survivor_name(names));
    let arena = arena(&device);
    let mut datagrams = Datagrams::new(&device, &arena);
    let idle = arena.usage().allocated;
    let mut peers: Vec<Process> = Vec::new();
    let (mut messages, mut baseline) = (0, None);
    let mut ends: HashMap<Option<CompletionStatus>, usize> = HashMap::new();
    let start = Instant::now();
    for kill in 0..kills {
        while peers.len() < PEERS {
            let seed = random.random();
            let name = peer_name(names, peers.len());
            peers.push(Process::start(name, &device, &arena, &datagrams, seed));
        }
        // Some are killed while they still connect, most in the middle of their work.
        let slowness = if is_rdma(survivor_name(names)) { 10 } else { 1 };
        let moment = Duration::from_micros(slowness * random.random_range(0..20_000));
        let start = Instant::now();
        while start.elapsed() < moment {
            for peer in &mut peers {
                peer.link.turn(&mut random);
            }
            let to: Vec<_> = peers.iter().map(|peer| peer.to.clone()).collect();
            datagrams.turn(&to);
            breathe(survivor_name(names));
        }
        let mut dead = peers.swap_remove(random.random_range(0..PEERS));
        dead.kill();
        let killed = Instant::now();
        while dead.link.pair.state() != QueuePairState::Error || dead.link.posted > 0 {
            dead.link.turn(&mut random);
            let to = [dead.to.clone()];
            datagrams.turn(&to);
            breathe(survivor_name(names));
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
        *ends.entry(dead.link.failed).or_default() += 1;
        if is_rdma(survivor_name(names)) {
            // The system may take a dead process's memory from the device before its queue pairs.
            let expected = [RetryExceeded, RemoteAccess].map(Some);
            let failed = dead.link.failed;
            assert!(
                expected.contains(&failed),
                "kill {kill} ended in {failed:?}"
            );
        }
        if kill % (kills / 10).clamp(3, 20) == 0 {
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
        "{kills} kills in {:?}, {messages} messages and {} datagrams received; first failures: \
         {ends:?}",
        start.elapsed(),
        datagrams.received
    );
}

#[test]
fn a_stopped_peer_does_not_hang_destruction() {
    stop_peers(&[], 30);
}

#[test]
fn a_stopped_tcp_peer_does_not_hang_destruction() {
    stop_peers(&["127.0.0.1".to_owned()], 30);
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn a_stopped_rdma_peer_does_not_hang_destruction() {
    const NAME: &str = "a_stopped_rdma_peer_does_not_hang_destruction";
    if let Place::Machine(names) = in_machine(NAME, Machine::default()) {
        stop_peers(&names, 6);
    }
}

fn stop_peers(names: &[String], rounds: usize) {
    use rustix::process::Signal;
    let mut random = StdRng::seed_from_u64(seed());
    for round in 0..rounds {
        let device = device(survivor_name(names));
        let arena = arena(&device);
        let mut datagrams = Datagrams::new(&device, &arena);
        let name = peer_name(names, 0);
        let mut peer = Process::start(name, &device, &arena, &datagrams, random.random());
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
            stopped.elapsed() < PATIENCE,
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

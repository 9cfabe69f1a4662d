//! Model checks of the lock-free parts: every interleaving of a few steps, under the memory
//! model of the language.
//!
//! ```text
//! RUSTFLAGS="--cfg roundel_loom" CARGO_TARGET_DIR=target/loom \
//!     cargo test --release -p roundel-verbs --lib loom
//! ```
#![allow(unsafe_code)] // Reaches the checked memory that receives name.

use super::connected_ring::{self, Completed, Posted};
use super::datagram_ring::{self, Slot};
use super::layout::{
    Line, PAIR_ERROR, PAIR_INIT, PAIR_READY, PairEntry, PeerWords, QueueEntry, SlotEntry, life,
};
use super::sync::{AtomicU32, AtomicU64, Ordering};
use super::wakeup;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

const INCARNATION: u32 = 7;

fn pair(state: u32) -> PairEntry {
    PairEntry {
        life: AtomicU64::new(life(INCARNATION, state)),
        queue_key: AtomicU32::new(0),
        receive_queue: AtomicU32::new(0),
        send_queue: AtomicU32::new(0),
        ring_slots: AtomicU32::new(0),
        ring_at: AtomicU64::new(0),
        peer_pair: AtomicU64::new(0),
        posted: Line(AtomicU64::new(0)),
        peers: Line(PeerWords {
            taken: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
        }),
        inside: Line(AtomicU64::new(0)),
    }
}

fn slots(count: usize) -> Vec<SlotEntry> {
    (0..count)
        .map(|_| SlotEntry {
            claim: AtomicU64::new(0),
            at: AtomicU64::new(0),
            length: AtomicU32::new(0),
            bytes: AtomicU32::new(0),
            immediate: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            source_pair: AtomicU32::new(0),
        })
        .collect()
}

fn queue() -> QueueEntry {
    QueueEntry {
        armed: AtomicU32::new(0),
        channel: AtomicU32::new(0),
    }
}

/// A ring with the memory that its receives name: the checker sees every access to it that is
/// not ordered.
struct Ring {
    /// Of the receiver.
    pair: PairEntry,
    /// Of the sender.
    sender: PairEntry,
    slots: Vec<SlotEntry>,
    memory: Vec<UnsafeCell<u32>>,
    queue: QueueEntry,
}

impl Ring {
    fn new(state: u32, count: usize) -> Arc<Self> {
        let ring = Self {
            pair: pair(state),
            sender: pair(PAIR_READY),
            slots: slots(count),
            memory: (0..count).map(|_| UnsafeCell::new(0)).collect(),
            queue: queue(),
        };
        datagram_ring::reset(&ring.pair, INCARNATION);
        Arc::new(ring)
    }

    fn connected(count: usize) -> Arc<Self> {
        let ring = Self::new(PAIR_READY, count);
        connected_ring::reset(&ring.pair);
        ring
    }

    /// Writes the memory of a receive, as its holder.
    fn fill(&self, posted: Posted, value: u32) {
        // SAFETY: the checker fails the test if this is not ordered with every other access.
        self.memory[posted.at as usize].with_mut(|cell| unsafe { *cell = value });
    }

    fn read(&self, at: usize) -> u32 {
        // SAFETY: as in `fill`.
        self.memory[at].with(|cell| unsafe { *cell })
    }
}

fn posted(at: usize) -> Posted {
    Posted {
        at: at as u64,
        length: 4,
    }
}

fn completed(bytes: u32) -> Completed {
    Completed {
        bytes,
        ..Completed::default()
    }
}

/// Messages pass through a ring of two slots that wraps around; memory is never touched by both.
#[test]
fn loom_connected_ring_hands_memory_over() {
    let mut model = loom::model::Builder::new();
    // Without a bound it takes more than a minute.
    model.preemption_bound = Some(2);
    model.check(|| {
        const MESSAGES: u64 = 3;
        let ring = Ring::connected(2);
        let peer = {
            let ring = ring.clone();
            thread::spawn(move || {
                for sequence in 0..MESSAGES {
                    let receive = loop {
                        match connected_ring::next(&ring.pair, &ring.slots, sequence) {
                            Some(receive) => break receive,
                            None => thread::yield_now(),
                        }
                    };
                    ring.fill(receive, sequence as u32 + 10);
                    let done = completed(sequence as u32);
                    connected_ring::complete(&ring.pair, &ring.slots, sequence, done);
                }
            })
        };
        let (mut next, mut polled) = (0, 0);
        while polled < MESSAGES {
            while next < MESSAGES && next - polled < 2 {
                let receive = posted(next as usize % 2);
                connected_ring::post(&ring.pair, &ring.slots, next, receive);
                next += 1;
            }
            match connected_ring::poll(&ring.pair, &ring.slots, polled) {
                Some(done) => {
                    assert_eq!(u64::from(done.bytes), polled);
                    assert_eq!(ring.read(polled as usize % 2), polled as u32 + 10);
                    polled += 1;
                }
                None => thread::yield_now(),
            }
        }
        peer.join().unwrap();
    });
}

/// Once the owner has closed its queue pair and sees nobody inside, nobody writes any more.
#[test]
fn loom_owner_never_misses_who_is_inside() {
    loom::model(|| {
        let ring = Ring::connected(1);
        connected_ring::post(&ring.pair, &ring.slots, 0, posted(0));
        let peer = {
            let ring = ring.clone();
            thread::spawn(move || {
                for visit in 0..2 {
                    if connected_ring::enter(&ring.sender, visit, &ring.pair, INCARNATION) {
                        ring.fill(posted(0), 1);
                        connected_ring::leave(&ring.sender, visit);
                    }
                }
            })
        };
        connected_ring::close(&ring.pair, INCARNATION, PAIR_ERROR);
        match connected_ring::inside(&ring.sender, INCARNATION) {
            None => ring.fill(posted(0), 2),
            Some(visit) => {
                while connected_ring::inside(&ring.sender, INCARNATION) == Some(visit) {
                    thread::yield_now();
                }
                ring.fill(posted(0), 3);
            }
        }
        peer.join().unwrap();
    });
}

/// A peer of another incarnation is never let in.
#[test]
fn loom_stale_peer_stays_outside() {
    loom::model(|| {
        let ring = Ring::connected(1);
        let peer = {
            let ring = ring.clone();
            thread::spawn(move || {
                assert!(!connected_ring::enter(
                    &ring.sender,
                    0,
                    &ring.pair,
                    INCARNATION - 1
                ));
            })
        };
        // The owner does not look whether a stale peer is inside: it never is.
        ring.fill(posted(0), 1);
        peer.join().unwrap();
    });
}

/// A sender that finds no receive and sleeps is woken by the post, or has seen it.
#[test]
fn loom_waiting_sender_is_woken() {
    loom::model(|| {
        let ring = Ring::connected(1);
        let sender = {
            let ring = ring.clone();
            thread::spawn(move || {
                let look = || connected_ring::next(&ring.pair, &ring.slots, 0).is_some();
                look() || {
                    connected_ring::announce_waiting(&ring.pair);
                    look()
                }
            })
        };
        connected_ring::post(&ring.pair, &ring.slots, 0, posted(0));
        let woken = connected_ring::take_waiting(&ring.pair);
        let found = sender.join().unwrap();
        assert!(found || woken, "the sender sleeps for ever");
    });
}

/// The same for a sender whose peer is not connected yet.
#[test]
fn loom_sender_waits_for_connect() {
    loom::model(|| {
        let ring = Ring::new(PAIR_INIT, 1);
        connected_ring::reset(&ring.pair);
        let sender = {
            let ring = ring.clone();
            thread::spawn(move || {
                let enter =
                    |visit| connected_ring::enter(&ring.sender, visit, &ring.pair, INCARNATION);
                enter(0) || {
                    connected_ring::announce_waiting(&ring.pair);
                    enter(1)
                }
            })
        };
        let ready = life(INCARNATION, PAIR_READY);
        ring.pair.life.store(ready, Ordering::Release);
        let woken = connected_ring::take_waiting(&ring.pair);
        let entered = sender.join().unwrap();
        assert!(entered || woken, "the sender sleeps for ever");
    });
}

/// A sleeper's last poll sees the completion, or it is signalled; of two wakers one does so.
#[test]
fn loom_sleeper_is_woken() {
    loom::model(|| {
        let ring = Ring::connected(2);
        for at in 0..2 {
            connected_ring::post(&ring.pair, &ring.slots, at, posted(at as usize));
        }
        let other = Arc::new(AtomicU32::new(0));
        let wakers = [
            thread::spawn({
                let ring = ring.clone();
                move || {
                    connected_ring::complete(&ring.pair, &ring.slots, 0, completed(1));
                    wakeup::take_armed(&ring.queue)
                }
            }),
            thread::spawn({
                let (ring, other) = (ring.clone(), other.clone());
                move || {
                    other.store(1, Ordering::Release);
                    wakeup::take_armed(&ring.queue)
                }
            }),
        ];
        assert!(!wakeup::arm(&ring.queue), "nobody else arms");
        let one = connected_ring::poll(&ring.pair, &ring.slots, 0).is_some();
        let two = other.load(Ordering::Acquire) == 1;
        let signals = wakers
            .into_iter()
            .map(|waker| u32::from(waker.join().unwrap()))
            .sum::<u32>();
        assert!(signals <= 1, "one arming, two signals");
        assert!(signals == 1 || (one && two), "the sleeper sleeps for ever");
        assert_eq!(wakeup::is_armed(&ring.queue), signals == 0);
    });
}

/// Two peers claim from one ring: no receive goes to both, none is lost, memory is handed over.
#[test]
fn loom_datagram_slots_are_claimed_once() {
    loom::model(|| {
        let ring = Ring::new(PAIR_READY, 2);
        let peer = |token: u32| {
            let ring = ring.clone();
            thread::spawn(move || {
                let claim = datagram_ring::claim(&ring.pair, &ring.slots, INCARNATION, token);
                if let Some((sequence, receive)) = claim {
                    ring.fill(receive, token);
                    let done = completed(token);
                    datagram_ring::complete(&ring.slots, INCARNATION, sequence, done);
                }
                claim.is_some()
            })
        };
        for at in 0..2 {
            let receive = posted(at);
            datagram_ring::post(&ring.pair, &ring.slots, INCARNATION, at as u64, receive);
        }
        let peers = [peer(1), peer(2)];
        // The owner looks on.
        let mut seen = [false; 2];
        let mut look = || {
            for (at, seen) in seen.iter_mut().enumerate().filter(|(_, seen)| !**seen) {
                if let Slot::Done(done) = datagram_ring::look(&ring.slots, INCARNATION, at as u64) {
                    assert_eq!(ring.read(at), done.bytes);
                    *seen = true;
                }
            }
        };
        look();
        for peer in peers {
            assert!(peer.join().unwrap(), "there was a receive for each");
        }
        look();
        assert_eq!(seen, [true, true]);
    });
}

/// The owner posts while two peers claim: each receive goes to at most one.
#[test]
fn loom_datagram_posting_races_with_claiming() {
    loom::model(|| {
        let ring = Ring::new(PAIR_READY, 1);
        let peer = |token: u32| {
            let ring = ring.clone();
            thread::spawn(move || {
                let claim = datagram_ring::claim(&ring.pair, &ring.slots, INCARNATION, token);
                let Some((sequence, receive)) = claim else {
                    return false;
                };
                ring.fill(receive, token);
                let done = completed(token);
                datagram_ring::complete(&ring.slots, INCARNATION, sequence, done);
                true
            })
        };
        let peers = [peer(1), peer(2)];
        datagram_ring::post(&ring.pair, &ring.slots, INCARNATION, 0, posted(0));
        let mut taken = 0;
        if let Slot::Done(done) = datagram_ring::look(&ring.slots, INCARNATION, 0) {
            assert_eq!(ring.read(0), done.bytes);
            taken += 1;
            // The slot's next life.
            datagram_ring::post(&ring.pair, &ring.slots, INCARNATION, 1, posted(0));
        }
        let claimed = peers
            .into_iter()
            .map(|peer| u64::from(peer.join().unwrap()))
            .sum::<u64>();
        assert!(claimed <= 1 + taken, "a receive went to two peers");
        let last = datagram_ring::look(&ring.slots, INCARNATION, taken);
        if claimed == taken {
            assert_eq!(last, Slot::Posted);
        } else {
            assert!(matches!(last, Slot::Done(_)));
        }
    });
}

/// A peer stops right after its claim, before it moves the cursor: the others go on.
#[test]
fn loom_datagram_cursor_is_helped_on() {
    loom::model(|| {
        let ring = Ring::new(PAIR_READY, 3);
        for at in 0..3 {
            let receive = posted(at);
            datagram_ring::post(&ring.pair, &ring.slots, INCARNATION, at as u64, receive);
        }
        assert!(datagram_ring::claim_and_stop(
            &ring.slots,
            INCARNATION,
            0,
            9
        ));
        let peer = |token: u32| {
            let ring = ring.clone();
            thread::spawn(move || {
                let claim = datagram_ring::claim(&ring.pair, &ring.slots, INCARNATION, token);
                let (sequence, receive) = claim.expect("there is a receive for each");
                ring.fill(receive, token);
                sequence
            })
        };
        let (one, two) = (peer(1), peer(2));
        let mut sequences = [one.join().unwrap(), two.join().unwrap()];
        sequences.sort_unstable();
        assert_eq!(sequences, [1, 2]);
        let look = |sequence| datagram_ring::look(&ring.slots, INCARNATION, sequence);
        assert_eq!(look(0), Slot::Claimed(9));
    });
}

/// The owner takes a receive back while a peer claims it: one of them gets it.
#[test]
fn loom_datagram_revoke_or_claim() {
    loom::model(|| {
        let ring = Ring::new(PAIR_READY, 1);
        datagram_ring::post(&ring.pair, &ring.slots, INCARNATION, 0, posted(0));
        let peer = {
            let ring = ring.clone();
            thread::spawn(move || {
                let claim = datagram_ring::claim(&ring.pair, &ring.slots, INCARNATION, 1);
                if let Some((_, receive)) = claim {
                    ring.fill(receive, 1);
                }
                claim.is_some()
            })
        };
        let revoked = datagram_ring::revoke(&ring.slots, INCARNATION, 0);
        if revoked {
            ring.fill(posted(0), 2);
        }
        assert_ne!(peer.join().unwrap(), revoked);
    });
}

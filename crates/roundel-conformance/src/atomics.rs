//! Atomic operations on remote words.

use super::fixture::*;
use super::report::{CaseResult, Failure, ensure, ensure_eq, ensure_err};
use super::{Case, Provider, Verdict};
use roundel_verbs::counters::Opcode;
use roundel_verbs::memory::{ArenaOptions, RemoteAddress};
use roundel_verbs::queue_pair::QueuePairState;
use roundel_verbs::work::CompletionStatus::{Flushed, RemoteAccess, Success};
use roundel_verbs::work::SendOperation::{CompareAndSwap, FetchAndAdd};
use roundel_verbs::work::{ATOMIC_BYTES, Completion, Payload, SendOperation};
use std::sync::atomic::Ordering;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "atomics: the word as it was comes back",
        verbs: "fetch-and-add and compare-and-swap change an aligned 64-bit word in one step and \
                return what it was before",
        run: results,
    },
    Case {
        name: "atomics: two queue pairs at once lose no addition",
        verbs: "atomics of one device are atomic with each other, whatever queue pairs they come from",
        run: concurrent,
    },
    Case {
        name: "atomics: in order with the requests around them",
        verbs: "a WRITE is carried out before the atomic after it, a READ after the atomic before it",
        run: in_order,
    },
    Case {
        name: "atomics: a word that is not aligned, or not of 8 bytes, is refused",
        verbs: "the responder refuses an address that is no multiple of 8; here: when it is posted",
        run: misaligned,
    },
    Case {
        name: "atomics: wrong keys and ranges",
        verbs: "the rkey and the range are checked as for WRITE: remote access error, both queue \
                pairs break, the word stays",
        run: wrong_key,
    },
    Case {
        name: "atomics: are counted",
        verbs: "(counters of this object model) messages and payload bytes per opcode",
        run: counted,
    },
];

/// Two nodes with a connection, unless the device has no atomics.
macro_rules! connection {
    ($provider:expr) => {{
        let c = Connection::open($provider)?;
        if !c.a.device.capabilities().atomics {
            return Ok(Verdict::Differs("there are no atomic operations".into()));
        }
        c
    }};
}

/// Posts an atomic operation.
fn post_atomic(
    node: &Node<'_>,
    pair: &roundel_verbs::QueuePair,
    operation: SendOperation,
) -> Result<(), Failure> {
    post(pair, 1, operation, node.owned(&[0xff; ATOMIC_BYTES])?)
}

/// The word that an atomic operation brought back.
fn word_of(completion: &Completion) -> Result<u64, Failure> {
    let bytes = bytes_of(completion)?;
    let word = bytes.try_into().map_err(|bytes: Vec<u8>| {
        Failure(format!("{} bytes came back of an atomic", bytes.len()))
    })?;
    Ok(u64::from_le_bytes(word))
}

fn results(provider: &dyn Provider) -> CaseResult {
    let c = connection!(provider);
    let exposed = c.b.arena.allocate_exposed(64)?;
    let at = exposed.remote_address().offset(16);
    let swap = |compare, swap| CompareAndSwap { at, compare, swap };
    let steps = [
        (FetchAndAdd { at, add: 5 }, 0, 5),
        (swap(5, u64::MAX), 5, u64::MAX),
        (swap(5, 6), u64::MAX, u64::MAX),
        (FetchAndAdd { at, add: 3 }, u64::MAX, 2),
        (FetchAndAdd { at, add: 0 }, 2, 2),
        (swap(2, 0x0102_0304_0506_0708), 2, 0x0102_0304_0506_0708),
    ];
    for (operation, before, after) in steps {
        post_atomic(&c.a, &c.qa, operation)?;
        let done = c.a.sent(1)?;
        expect(&done, &[(1, Success)])?;
        ensure_eq!(done[0].opcode, operation.opcode(), "opcode");
        ensure_eq!(done[0].bytes, ATOMIC_BYTES, "bytes of {operation:?}");
        ensure_eq!(word_of(&done[0])?, before, "what {operation:?} returned");
        let word = exposed.word(16).load(Ordering::Acquire);
        ensure_eq!(word, after, "the word after {operation:?}");
    }
    for neighbour in [8, 24] {
        let word = exposed.word(neighbour).load(Ordering::Acquire);
        ensure_eq!(word, 0, "the word at {neighbour}");
    }
    c.b.silent()?;
    Ok(Verdict::Passed)
}

fn concurrent(provider: &dyn Provider) -> CaseResult {
    let each = rounds(provider, 4000);
    let c = connection!(provider);
    let exposed = c.b.arena.allocate_exposed(64)?;
    let at = exposed.remote_address();
    let second = Node::open(provider)?;
    let (other, _peer) = connect(&second, &c.b, &connected_options())?;
    let sides = [(&c.a, &c.qa), (&second, &other)].map(|(node, pair)| {
        // The parts of a node that the threads need. The node borrows a provider that need not be Sync.
        (node.arena.clone(), node.sends.clone(), pair)
    });
    let found = std::thread::scope(|scope| {
        let threads = sides.map(|(arena, sends, pair)| {
            scope.spawn(move || -> Result<Vec<u64>, Failure> {
                let mut before = Vec::new();
                let (mut posted, mut done) = (0, Vec::new());
                let end = now() + PATIENCE;
                while before.len() < each as usize {
                    while posted < each && posted - (before.len() as u64) < 16 {
                        let payload = Payload::Owned {
                            buffer: arena.allocate(ATOMIC_BYTES)?,
                            length: ATOMIC_BYTES,
                        };
                        post(pair, posted, FetchAndAdd { at, add: 1 }, payload)?;
                        posted += 1;
                    }
                    sends.poll(&mut done, 16);
                    for completion in done.drain(..) {
                        ensure_eq!(completion.status, Success, "status");
                        before.push(word_of(&completion)?);
                    }
                    ensure!(now() < end, "only {} of {each} additions", before.len());
                    std::thread::yield_now();
                }
                Ok(before)
            })
        });
        threads.map(|thread| match thread.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    });
    let mut all = Vec::new();
    for before in found {
        let before = before?;
        ensure!(
            before.is_sorted(),
            "one queue pair's additions are in order"
        );
        all.extend(before);
    }
    all.sort_unstable();
    ensure!(
        all.iter().copied().eq(0..2 * each),
        "an addition was lost, or carried out twice"
    );
    let word = exposed.word(0).load(Ordering::Acquire);
    ensure_eq!(word, 2 * each, "the sum");
    Ok(Verdict::Passed)
}

fn in_order(provider: &dyn Provider) -> CaseResult {
    let c = connection!(provider);
    let exposed = c.b.arena.allocate_exposed(64)?;
    let at = exposed.remote_address();
    for round in 1..=rounds(provider, 100) {
        post_sends(
            &c.qa,
            vec![
                request(0, SendOperation::Write(at), inline(&round.to_le_bytes())?),
                request(1, FetchAndAdd { at, add: 1000 }, c.a.owned(&[0; 8])?),
                request(2, SendOperation::Read(at), c.a.owned(&[0; 8])?),
            ],
        )?;
        let done = c.a.sent(3)?;
        expect(&done, &[(0, Success), (1, Success), (2, Success)])?;
        ensure_eq!(word_of(&done[1])?, round, "what the addition found");
        ensure_eq!(word_of(&done[2])?, round + 1000, "what the READ found");
    }
    Ok(Verdict::Passed)
}

fn misaligned(provider: &dyn Provider) -> CaseResult {
    let c = connection!(provider);
    let exposed = c.b.arena.allocate_exposed(64)?;
    let at = exposed.remote_address();
    let shared = Payload::Shared {
        buffer: c.a.filled(&[0; 8])?.share(),
        length: 8,
    };
    let wrong = [
        (at.offset(1), c.a.owned(&[0; 8])?),
        (at.offset(4), c.a.owned(&[0; 8])?),
        (at, c.a.owned(&[0; 7])?),
        (at, c.a.owned(&[0; 16])?),
        (at, inline(&[0; 8])?),
        (at, shared),
        (at, Payload::Empty),
    ];
    for (at, payload) in wrong {
        let length = payload.len();
        let mut requests = vec![request(1, FetchAndAdd { at, add: 1 }, payload)];
        let refused = c.qa.post_send(&mut requests);
        ensure_err!(refused, InvalidRequest(_), "{length} bytes at {at:?}");
        ensure_eq!(
            requests[0].payload.len(),
            length,
            "a refused request's payload"
        );
    }
    ensure_eq!(exposed.word(0).load(Ordering::Acquire), 0, "the word");
    post_atomic(&c.a, &c.qa, FetchAndAdd { at, add: 1 })?;
    expect(&c.a.sent(1)?, &[(1, Success)])?;
    Ok(Verdict::Passed)
}

fn wrong_key(provider: &dyn Provider) -> CaseResult {
    let mut c = connection!(provider);
    // A region of its own: neighbours in the same region may be reached.
    let arena = c.b.device.arena(ArenaOptions {
        segment_bytes: 4096,
        ..ArenaOptions::default()
    });
    let exposed = arena.allocate_exposed(4096)?;
    let right = exposed.remote_address();
    let plain = c.b.filled(&[0; 64])?;
    let wrong = [
        right.offset(4096),
        RemoteAddress {
            address: right.address - 8,
            ..right
        },
        RemoteAddress {
            remote_key: right.remote_key ^ 1,
            ..right
        },
        RemoteAddress {
            remote_key: 0,
            ..right
        },
        RemoteAddress {
            address: plain.address(),
            remote_key: plain.local_key(),
        },
    ];
    for (index, at) in wrong.into_iter().enumerate() {
        let add = FetchAndAdd { at, add: 1 };
        let (compare, swap) = (0, 1);
        for operation in [add, CompareAndSwap { at, compare, swap }] {
            c.again()?;
            post_atomic(&c.a, &c.qa, operation)?;
            post(&c.qa, 2, SendOperation::Send, inline(b"after")?)?;
            expect(&c.a.sent(2)?, &[(1, RemoteAccess), (2, Flushed)])?;
            for state in [c.qa.state(), c.qb.state()] {
                ensure_eq!(
                    state,
                    QueuePairState::Error,
                    "state after wrong address {index}"
                );
            }
        }
    }
    let mut bytes = vec![0xff; 4096];
    exposed.read(0, &mut bytes);
    ensure!(bytes.iter().all(|byte| *byte == 0), "memory changed");
    Ok(Verdict::Passed)
}

fn counted(provider: &dyn Provider) -> CaseResult {
    let c = connection!(provider);
    let exposed = c.b.arena.allocate_exposed(64)?;
    let at = exposed.remote_address();
    for _ in 0..3 {
        post_atomic(&c.a, &c.qa, FetchAndAdd { at, add: 1 })?;
    }
    // One that finds another value counts too.
    let (compare, swap) = (7, 1);
    post_atomic(&c.a, &c.qa, CompareAndSwap { at, compare, swap })?;
    c.a.sent(4)?;
    let counts = c.qa.counters();
    for (opcode, messages) in [(Opcode::FetchAndAdd, 3), (Opcode::CompareAndSwap, 1)] {
        ensure_eq!(counts.messages(opcode), messages, "messages of {opcode:?}");
        ensure_eq!(counts.bytes(opcode), 8 * messages, "bytes of {opcode:?}");
    }
    ensure_eq!(c.a.device.counters(), counts, "the device's counters");
    for opcode in Opcode::ALL {
        ensure_eq!(
            c.qb.counters().messages(opcode),
            0,
            "{opcode:?} at the responder"
        );
    }
    Ok(Verdict::Passed)
}

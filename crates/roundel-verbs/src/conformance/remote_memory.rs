//! WRITE and READ: bounds, keys, immediate data, visibility.

use super::fixture::*;
use super::report::{CaseResult, Failure, ensure, ensure_eq};
use super::{Case, Provider, Verdict};
use crate::counters::Opcode;
use crate::memory::{ArenaOptions, RemoteAddress};
use crate::queue_pair::QueuePairState;
use crate::work::CompletionStatus::{
    Flushed, LocalOperation, LocalProtection, RemoteAccess, Success,
};
use crate::work::{Payload, ReceiveRequest, SendOperation};
use std::sync::atomic::Ordering;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "remote memory: WRITE and READ move bytes without the peer",
        verbs: "one-sided operations complete at the initiator only",
        run: write_and_read,
    },
    Case {
        name: "remote memory: out of bounds",
        verbs: "an access that is not wholly inside the region ends with a remote access error and \
                breaks both queue pairs; nothing is written",
        run: bounds,
    },
    Case {
        name: "remote memory: a key that was never given",
        verbs: "a wrong rkey ends with a remote access error",
        run: bad_key,
    },
    Case {
        name: "remote memory: a stale key",
        verbs: "the rkey of a deregistered region ends with a remote access error, also when its \
                memory is in use again",
        run: stale_key,
    },
    Case {
        name: "remote memory: memory that is not exposed has no key",
        verbs: "a region without remote access rights cannot be reached",
        run: not_exposed,
    },
    Case {
        name: "remote memory: local memory of another device",
        verbs: "an lkey of another protection domain ends with a local protection error",
        run: foreign_memory,
    },
    Case {
        name: "remote memory: WRITE with immediate consumes a receive",
        verbs: "the receive completes with the immediate data and the number of bytes written; its \
                buffer is not used",
        run: write_with_immediate,
    },
    Case {
        name: "remote memory: WRITE with immediate waits for a receive",
        verbs: "without a posted receive it is retried like a SEND",
        run: write_with_immediate_waits,
    },
    Case {
        name: "remote memory: WRITE comes before the SEND after it",
        verbs: "a completed receive means that the WRITEs posted before its SEND have landed",
        run: write_then_send,
    },
    Case {
        name: "remote memory: exposed words are seen whole, the last byte last",
        verbs: "devices write in increasing address order, aligned words whole (InfiniBand in \
                practice; iWARP does not promise it)",
        run: visibility,
    },
];

fn write_and_read(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    for length in [1, 8, 24, 257, 4096, 100_000] {
        let remote = c.b.arena.allocate_exposed(length + 16)?;
        let bytes = pattern(length as u64, length);
        let at = remote.remote_address().offset(8);
        post(&c.qa, 1, SendOperation::Write(at), c.a.owned(&bytes)?)?;
        let sent = c.a.sent(1)?;
        expect(&sent, &[(1, Success)])?;
        ensure_eq!(sent[0].opcode, Opcode::Write, "opcode");
        let mut landed = vec![0xff; length + 16];
        remote.read(0, &mut landed);
        ensure!(
            landed[8..8 + length] == bytes
                && landed[..8] == [0; 8]
                && landed[8 + length..] == [0; 8],
            "{length} bytes landed elsewhere"
        );
        let into = Payload::Owned {
            buffer: c.a.arena.allocate(length)?,
            length,
        };
        post(&c.qa, 2, SendOperation::Read(at), into)?;
        let read = c.a.sent(1)?;
        expect(&read, &[(2, Success)])?;
        ensure_eq!(read[0].opcode, Opcode::Read, "opcode");
        ensure_eq!(read[0].bytes, length, "bytes read");
        ensure!(bytes_of(&read[0])? == bytes, "{length} bytes read differ");
    }
    c.b.silent()?;
    Ok(Verdict::Passed)
}

/// Tries an access that must fail, on a fresh connection; tells whether the responder's receive
/// ended with the error instead of being flushed.
fn refused(c: &Connection<'_>, operation: SendOperation) -> Result<bool, Failure> {
    c.b.post_receives(&c.qb, 77, 1, 64)?;
    post(&c.qa, 1, operation, c.a.owned(&[0xee; 16])?)?;
    post(&c.qa, 2, SendOperation::Send, inline(b"after")?)?;
    expect(&c.a.sent(2)?, &[(1, RemoteAccess), (2, Flushed)])?;
    ensure_eq!(c.qa.state(), QueuePairState::Error, "initiator's state");
    ensure_eq!(c.qb.state(), QueuePairState::Error, "responder's state");
    let received = c.b.received(1)?;
    let told = matches!(operation, SendOperation::WriteWithImmediate(..))
        && received[0].status == RemoteAccess;
    if !told {
        expect(&received, &[(77, Flushed)])?;
    }
    Ok(told)
}

fn verdict(told: bool) -> CaseResult {
    Ok(if told {
        Verdict::Differs(
            "the receive that a refused WRITE with immediate would have taken ends with the error"
                .into(),
        )
    } else {
        Verdict::Passed
    })
}

fn bounds(provider: &dyn Provider) -> CaseResult {
    let mut told = false;
    for offset in [-1i64, -8, -4096, 1, 49, 4096, i64::MIN] {
        for kind in 0..3 {
            let c = Connection::open(provider)?;
            // A region of its own: neighbours in the same region may be reached.
            let arena = c.b.device.arena(ArenaOptions {
                segment_bytes: 4096,
                ..ArenaOptions::default()
            });
            let remote = arena.allocate_exposed(4096)?;
            let base = remote.remote_address();
            let at = RemoteAddress {
                address: base.address.wrapping_add_signed(if offset > 0 {
                    4096 - 16 + offset
                } else {
                    offset
                }),
                ..base
            };
            told |= refused(&c, operation(kind, at))?;
            let mut bytes = vec![0; 4096];
            remote.read(0, &mut bytes);
            ensure!(
                bytes.iter().all(|byte| *byte == 0),
                "a refused WRITE at {offset} changed memory"
            );
        }
    }
    verdict(told)
}

fn operation(kind: usize, at: RemoteAddress) -> SendOperation {
    match kind {
        0 => SendOperation::Write(at),
        1 => SendOperation::Read(at),
        _ => SendOperation::WriteWithImmediate(at, 1),
    }
}

fn bad_key(provider: &dyn Provider) -> CaseResult {
    let mut told = false;
    for kind in 0..3 {
        for flip in [1u32, 1 << 12, 1 << 20, u32::MAX] {
            let c = Connection::open(provider)?;
            let remote = c.b.arena.allocate_exposed(64)?;
            let mut at = remote.remote_address();
            at.remote_key ^= flip;
            told |= refused(&c, operation(kind, at))?;
        }
    }
    verdict(told)
}

fn stale_key(provider: &dyn Provider) -> CaseResult {
    let mut told = false;
    for kind in 0..3 {
        let c = Connection::open(provider)?;
        let old = c.b.arena.allocate_exposed(64)?;
        let at = old.remote_address();
        drop(old);
        ensure!(c.b.arena.shrink() > 0, "the region is deregistered");
        let new = c.b.arena.allocate_exposed(64)?;
        ensure!(
            new.remote_address().remote_key != at.remote_key,
            "a key was used twice"
        );
        told |= refused(&c, operation(kind, at))?;
        ensure_eq!(new.word(0).load(Ordering::Acquire), 0, "new memory");
    }
    verdict(told)
}

fn not_exposed(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    let exposed = c.b.arena.allocate_exposed(64)?;
    let at = RemoteAddress {
        remote_key: 0,
        ..exposed.remote_address()
    };
    refused(&c, SendOperation::Read(at)).and_then(verdict)
}

fn foreign_memory(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    c.b.post_receives(&c.qb, 1, 1, 64)?;
    post(
        &c.qa,
        1,
        SendOperation::Send,
        c.b.owned(b"not of this device")?,
    )?;
    let sent = c.a.sent(1)?;
    let unspecific = sent[0].status == LocalOperation;
    if !unspecific {
        expect(&sent, &[(1, LocalProtection)])?;
    }
    ensure_eq!(c.qa.state(), QueuePairState::Error, "state");

    let c = Connection::open(provider)?;
    let mut receive = vec![ReceiveRequest {
        id: 1,
        buffer: Some(c.a.arena.allocate(64)?),
    }];
    match c.qb.post_receive(&mut receive) {
        Err(_) => {
            ensure!(
                receive.len() == 1 && receive[0].buffer.is_some(),
                "a refused receive keeps its buffer"
            );
            Ok(Verdict::Differs(
                "a receive into memory of another device is refused when it is posted, not when \
                 it is used"
                    .into(),
            ))
        }
        Ok(_) => {
            post(&c.qa, 1, SendOperation::Send, inline(b"x")?)?;
            let received = c.b.received(1)?;
            if unspecific && received[0].status == LocalOperation {
                return Ok(Verdict::Differs(
                    "the status says that the request was wrong, not what was wrong".into(),
                ));
            }
            expect(&received, &[(1, LocalProtection)])?;
            Ok(Verdict::Passed)
        }
    }
}

fn write_with_immediate(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    let remote = c.b.arena.allocate_exposed(4096)?;
    let bytes = pattern(3, 1000);
    post_receives(
        &c.qb,
        vec![
            ReceiveRequest {
                id: 5,
                buffer: Some(c.b.filled(b"untouched")?),
            },
            ReceiveRequest {
                id: 6,
                buffer: None,
            },
        ],
    )?;
    let at = remote.remote_address();
    let operation = SendOperation::WriteWithImmediate(at, 0x0102_0304);
    post(&c.qa, 1, operation, c.a.owned(&bytes)?)?;
    let operation = SendOperation::WriteWithImmediate(at.offset(2000), 5);
    post(&c.qa, 2, operation, Payload::Empty)?;
    let sent = c.a.sent(2)?;
    expect(&sent, &[(1, Success), (2, Success)])?;
    ensure_eq!(sent[0].opcode, Opcode::WriteWithImmediate, "opcode");
    let received = c.b.received(2)?;
    expect(&received, &[(5, Success), (6, Success)])?;
    ensure_eq!(received[0].immediate, Some(0x0102_0304), "immediate");
    ensure_eq!(received[0].bytes, bytes.len(), "bytes");
    ensure!(
        received[0].written,
        "the bytes are not in the receive's buffer"
    );
    ensure_eq!(received[1].immediate, Some(5), "immediate");
    let mut untouched = [0; 9];
    if let Some(buffer) = &received[0].buffer {
        buffer.read(0, &mut untouched);
    }
    ensure_eq!(&untouched, b"untouched", "the receive's buffer");
    let mut landed = vec![0; bytes.len()];
    remote.read(0, &mut landed);
    ensure!(landed == bytes, "the WRITE landed elsewhere");
    Ok(Verdict::Passed)
}

fn write_with_immediate_waits(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    let remote = c.b.arena.allocate_exposed(64)?;
    let operation = SendOperation::WriteWithImmediate(remote.remote_address(), 1);
    post(&c.qa, 1, operation, inline(&1u64.to_le_bytes())?)?;
    c.a.silent()?;
    post_receives(
        &c.qb,
        vec![ReceiveRequest {
            id: 2,
            buffer: None,
        }],
    )?;
    expect(&c.a.sent(1)?, &[(1, Success)])?;
    expect(&c.b.received(1)?, &[(2, Success)])?;
    ensure_eq!(remote.word(0).load(Ordering::Acquire), 1, "written");
    Ok(Verdict::Passed)
}

fn write_then_send(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    let remote = c.b.arena.allocate_exposed(64)?;
    for round in 1..=rounds(provider, 100) {
        c.b.post_receives(&c.qb, round, 1, 64)?;
        let write = SendOperation::Write(remote.remote_address());
        post_sends(
            &c.qa,
            vec![
                request(1, write, inline(&round.to_le_bytes())?),
                request(2, SendOperation::Send, Payload::Empty),
            ],
        )?;
        c.b.received(1)?;
        ensure_eq!(
            remote.word(0).load(Ordering::Acquire),
            round,
            "written before"
        );
        c.a.sent(2)?;
    }
    Ok(Verdict::Passed)
}

fn visibility(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    if !c.a.device.capabilities().write_in_address_order {
        return Ok(Verdict::Differs(
            "the order in which a WRITE's bytes become visible is not promised".into(),
        ));
    }
    let rounds = rounds(provider, 300);
    // Words first: every value read was written, never a mixture.
    let word = c.b.arena.allocate_exposed(64)?;
    let to_word = word.remote_address();
    // Then a message whose last byte is polled, as a ring with a valid flag does it.
    const LENGTH: usize = 1000;
    let message = c.b.arena.allocate_exposed(LENGTH)?;
    let to_message = message.remote_address();
    let Connection {
        a,
        b: _b,
        qa,
        qb: _qb,
    } = c;
    // The writing side runs on its own thread and is paced by what the polling side stores.
    let turn = &std::sync::atomic::AtomicU64::new(1);
    std::thread::scope(|scope| {
        let arena = a.arena.clone();
        let sends = a.sends.clone();
        let writer = scope.spawn(move || -> Result<(), crate::VerbsError> {
            for round in 1..=rounds {
                while turn.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                }
                let byte = (round % 255) as u8 + 1;
                for (to, bytes) in [(to_word, vec![byte; 8]), (to_message, vec![byte; LENGTH])] {
                    let mut buffer = arena.allocate(bytes.len())?;
                    buffer.write(0, &bytes);
                    let length = bytes.len();
                    let payload = Payload::Owned { buffer, length };
                    qa.post_send(&mut vec![request(round, SendOperation::Write(to), payload)])?;
                }
                let mut done = Vec::new();
                while done.len() < 2 {
                    sends.poll(&mut done, 2);
                }
            }
            Ok(())
        });
        let outcome = (|| {
            for round in 1..=rounds {
                let byte = (round % 255) as u8 + 1;
                turn.store(round, Ordering::Release);
                let end = now() + PATIENCE;
                let mut last = [0];
                while last[0] != byte {
                    let seen = word.word(0).load(Ordering::Acquire).to_le_bytes();
                    ensure!(seen == [seen[0]; 8], "a torn word: {seen:?}");
                    message.read(LENGTH - 1, &mut last);
                    ensure!(now() < end, "the last byte of WRITE {round} never came");
                }
                std::sync::atomic::fence(Ordering::Acquire);
                let mut bytes = [0; LENGTH];
                message.read(0, &mut bytes);
                ensure!(
                    bytes == [byte; LENGTH],
                    "the last byte of WRITE {round} came before others"
                );
            }
            Ok(Verdict::Passed)
        })();
        turn.store(u64::MAX, Ordering::Release);
        match writer.join() {
            Ok(written) => written?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        outcome
    })
}

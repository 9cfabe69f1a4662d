//! WRITE and READ: bounds, keys, immediate data, visibility.

use super::fixture::*;
use super::lacking::*;
use super::report::{CaseResult, ensure, ensure_eq};
use super::{Case, Provider, Verdict};
use roundel_verbs::counters::Opcode;
use roundel_verbs::memory::RemoteAddress;
use roundel_verbs::queue_pair::QueuePairState;
use roundel_verbs::work::CompletionStatus::{
    Failed, Flushed, LocalOperation, LocalProtection, RemoteAccess, Success,
};
use roundel_verbs::work::{Payload, ReceiveRequest, SendOperation};
use std::sync::atomic::Ordering;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "remote memory: WRITE and READ move bytes without the peer",
        verbs: "one-sided operations complete at the initiator only",
        run: write_and_read,
    },
    Case {
        name: "remote memory: no bytes need no key",
        verbs: "address and rkey of a WRITE or READ of 0 bytes are not looked at (InfiniBand C9-88)",
        run: no_bytes,
    },
    Case {
        name: "remote memory: more READs than the device has outstanding",
        verbs: "READs beyond the device's limit wait in the send queue, in order",
        run: many_reads,
    },
    Case {
        name: "remote memory: READs that do not wait",
        verbs: "a READ goes through the send queue, into registered memory",
        run: read_at_once,
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
        name: "remote memory: the last byte of a WRITE is seen last",
        verbs: "devices write in increasing address order (InfiniBand in practice; iWARP does not \
                promise it); that aligned words are seen whole is not promised",
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
        arrive(&c.a, &c.qa, &c.b)?;
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

fn no_bytes(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    let nowhere = RemoteAddress {
        address: 0,
        remote_key: 0,
    };
    let buffer = c.a.arena.allocate(8)?;
    let into = Payload::Owned { buffer, length: 0 };
    post(&c.qa, 1, SendOperation::Write(nowhere), Payload::Empty)?;
    post(&c.qa, 2, SendOperation::Read(nowhere), into)?;
    if lacks_immediate(&c)? {
        expect(&c.a.sent(2)?, &[(1, Success), (2, Success)])?;
        return Ok(Verdict::Differs(NO_IMMEDIATE.into()));
    }
    post_receives(
        &c.qb,
        vec![ReceiveRequest {
            id: 3,
            buffer: None,
        }],
    )?;
    let credit = SendOperation::WriteWithImmediate(nowhere, 17);
    post(&c.qa, 3, credit, Payload::Empty)?;
    expect(&c.a.sent(3)?, &[(1, Success), (2, Success), (3, Success)])?;
    let received = c.b.received(1)?;
    expect(&received, &[(3, Success)])?;
    ensure_eq!(
        (received[0].immediate, received[0].bytes),
        (Some(17), 0),
        "what the receive is told"
    );
    Ok(Verdict::Passed)
}

fn many_reads(provider: &dyn Provider) -> CaseResult {
    const LENGTH: usize = 10_000;
    let c = Connection::open(provider)?;
    let source = c.b.arena.allocate_exposed(64 * LENGTH)?;
    let bytes = pattern(5, 64 * LENGTH);
    let at = source.remote_address();
    for (index, part) in bytes.chunks(LENGTH).enumerate() {
        let to = at.offset(index * LENGTH);
        post(&c.qa, 0, SendOperation::Write(to), c.a.owned(part)?)?;
    }
    c.a.sent(64)?;
    let mut requests = Vec::new();
    for id in 0..64 {
        let buffer = c.a.arena.allocate(LENGTH)?;
        let into = Payload::Owned {
            buffer,
            length: LENGTH,
        };
        let from = at.offset(id as usize * LENGTH);
        requests.push(request(id, SendOperation::Read(from), into));
    }
    post_sends(&c.qa, requests)?;
    let read = c.a.sent(64)?;
    expect(&read, &(0..64).map(|id| (id, Success)).collect::<Vec<_>>())?;
    for (completion, part) in read.iter().zip(bytes.chunks(LENGTH)) {
        ensure!(
            bytes_of(completion)? == part,
            "READ {} brought other bytes",
            completion.id
        );
    }
    Ok(Verdict::Passed)
}

fn read_at_once(provider: &dyn Provider) -> CaseResult {
    let mut c = Connection::open(provider)?;
    if !c.a.device.capabilities().reads_at_once {
        let remote = c.b.arena.allocate_exposed(8)?;
        let read = c.qa.read_at_once(remote.remote_address(), &mut [0; 8]);
        ensure!(read.is_err(), "{read:?} without the capability");
        return Ok(Verdict::Passed);
    }
    let mut bytes_read = 0;
    for length in [0, 1, 8, 24, 257, 4096, 100_000] {
        let bytes = pattern(length as u64, length);
        let remote = c.b.arena.allocate_exposed(length + 16)?;
        let at = remote.remote_address().offset(8);
        if length > 0 {
            post(&c.qa, 1, SendOperation::Write(at), c.a.owned(&bytes)?)?;
            expect(&c.a.sent(1)?, &[(1, Success)])?;
        }
        let mut target = vec![0xff; length + 2];
        let status = c.qa.read_at_once(at, &mut target[1..=length])?;
        ensure_eq!(status, Success, "status of {length} bytes");
        ensure!(
            target[1..=length] == bytes && (target[0], target[length + 1]) == (0xff, 0xff),
            "{length} bytes read differ"
        );
        let mut target = vec![0xff; 3];
        let status = c.qa.read_at_once_append(at, length, &mut target)?;
        ensure_eq!(status, Success, "status of {length} bytes to append");
        ensure!(
            target[..3] == [0xff; 3] && target[3..] == bytes,
            "{length} bytes appended differ"
        );
        bytes_read += 2 * length as u64;
    }
    let counters = c.qa.counters();
    let counted = (
        counters.messages(Opcode::Read),
        counters.bytes(Opcode::Read),
    );
    ensure_eq!(counted, (14, bytes_read), "READs counted");
    c.a.silent()?;
    c.b.silent()?;
    for wrong in ["key", "bounds", "stale"] {
        c.again()?;
        let remote = c.b.arena.allocate_exposed(64)?;
        let mut at = remote.remote_address();
        match wrong {
            "key" => at.remote_key ^= 1 << 12,
            "bounds" => at.address = at.address.wrapping_sub(1 << 40),
            _ => {
                drop(remote);
                ensure!(c.b.arena.shrink() > 0, "the region is deregistered");
            }
        }
        let mut target = [0xff; 64];
        let status = c.qa.read_at_once(at, &mut target)?;
        ensure_eq!(status, RemoteAccess, "status of a wrong {wrong}");
        ensure_eq!(target, [0xff; 64], "what a wrong {wrong} read");
        ensure_eq!(
            c.qa.state(),
            QueuePairState::Error,
            "state after a wrong {wrong}"
        );
        let status = c.qa.read_at_once(at, &mut target)?;
        ensure_eq!(status, Flushed, "status once broken");
    }
    Ok(Verdict::Differs(
        "READs may also go into memory that is not registered, and are over when the call returns"
            .into(),
    ))
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
    let vague = [LocalOperation, Failed];
    let unspecific = vague.contains(&sent[0].status);
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
            if unspecific && vague.contains(&received[0].status) {
                return Ok(Verdict::Differs(VAGUE_STATUS.into()));
            }
            expect(&received, &[(1, LocalProtection)])?;
            Ok(Verdict::Passed)
        }
    }
}

fn write_with_immediate(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    if lacks_immediate(&c)? {
        return Ok(Verdict::Differs(NO_IMMEDIATE.into()));
    }
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
    if lacks_immediate(&c)? {
        return Ok(Verdict::Differs(NO_IMMEDIATE.into()));
    }
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
    // Words first: whole, or at least complete when their last byte has come.
    let whole_words = c.a.device.capabilities().write_whole_words;
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
        let writer = scope.spawn(move || -> Result<(), roundel_verbs::VerbsError> {
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
                    if whole_words || seen[7] == byte {
                        ensure!(seen == [seen[0]; 8], "a torn word: {seen:?}");
                    }
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

//! Remote keys: what they open, and what happens to whoever has the wrong one.

use super::fixture::*;
use super::lacking::*;
use super::report::{CaseResult, Failure, ensure, ensure_eq};
use super::{Case, Provider, Verdict};
use roundel_verbs::memory::{ArenaOptions, RemoteAddress};
use roundel_verbs::queue_pair::QueuePairState;
use roundel_verbs::work::CompletionStatus::{Flushed, RemoteAccess, Success};
use roundel_verbs::work::SendOperation;
use std::sync::atomic::Ordering;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "permissions: out of bounds",
        verbs: "an access that is not wholly inside the region ends with a remote access error and \
                breaks both queue pairs; nothing is written",
        run: bounds,
    },
    Case {
        name: "permissions: a key that was never given",
        verbs: "a wrong rkey ends with a remote access error",
        run: bad_key,
    },
    Case {
        name: "permissions: a stale key",
        verbs: "the rkey of a deregistered region ends with a remote access error, also when its \
                memory is in use again",
        run: stale_key,
    },
    Case {
        name: "permissions: memory that is not exposed has no key",
        verbs: "a region without remote access rights cannot be reached",
        run: not_exposed,
    },
];

/// Tries an access that must fail, on a fresh connection; tells whether the responder's receive
/// ended with the error instead of being flushed.
fn refused(c: &Connection<'_>, operation: SendOperation) -> Result<bool, Failure> {
    c.b.post_receives(&c.qb, 77, 1, 64)?;
    post(&c.qa, 1, operation, c.a.owned(&[0xee; 16])?)?;
    post(&c.qa, 2, SendOperation::Send, inline(b"after")?)?;
    if !completes_on_arrival(&c.a) {
        let sent = c.a.sent(2)?;
        ensure_eq!((sent[0].id, sent[1].id), (1, 2), "requests");
        both_break(c)?;
        let received = c.b.received(1)?;
        // What is behind a READ need not wait for it.
        let overtaken = matches!(operation, SendOperation::Read(_))
            && (received[0].id, received[0].status) == (77, Success);
        if !overtaken {
            expect(&received, &[(77, Flushed)])?;
        }
        return Ok(false);
    }
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

fn verdict(c: &Connection<'_>, told: bool) -> CaseResult {
    Ok(if told {
        Verdict::Differs(
            "the receive that a refused WRITE with immediate would have taken ends with the error"
                .into(),
        )
    } else {
        verdict_of_refusals(&c.a)
    })
}

/// A WRITE, a READ and, where it can be, a WRITE with immediate.
fn kinds(c: &Connection<'_>) -> std::ops::Range<usize> {
    0..if c.a.device.capabilities().immediate_data {
        3
    } else {
        2
    }
}

fn bounds(provider: &dyn Provider) -> CaseResult {
    let mut told = false;
    let mut c = Connection::open(provider)?;
    for offset in [-1i64, -8, -4096, 1, 49, 4096, i64::MIN] {
        for kind in kinds(&c) {
            c.again()?;
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
    verdict(&c, told)
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
    let mut c = Connection::open(provider)?;
    for kind in kinds(&c) {
        for flip in [1u32, 1 << 12, 1 << 20, u32::MAX] {
            c.again()?;
            let remote = c.b.arena.allocate_exposed(64)?;
            let mut at = remote.remote_address();
            at.remote_key ^= flip;
            told |= refused(&c, operation(kind, at))?;
        }
    }
    verdict(&c, told)
}

fn stale_key(provider: &dyn Provider) -> CaseResult {
    let mut told = false;
    let mut c = Connection::open(provider)?;
    for kind in kinds(&c) {
        c.again()?;
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
    verdict(&c, told)
}

fn not_exposed(provider: &dyn Provider) -> CaseResult {
    let mut c = Connection::open(provider)?;
    let exposed = c.b.arena.allocate_exposed(64)?;
    let at = RemoteAddress {
        remote_key: 0,
        ..exposed.remote_address()
    };
    let mut told = refused(&c, SendOperation::Read(at))?;
    // Devices use the same numbers for both kinds of keys: rights must tell them apart.
    let plain = c.b.filled(&[0; 64])?;
    let at = RemoteAddress {
        address: plain.address(),
        remote_key: plain.local_key(),
    };
    if c.a.device.capabilities().exposes_all_memory {
        return Ok(Verdict::Differs(
            "a peer that knows its key reaches it".into(),
        ));
    }
    for kind in kinds(&c) {
        c.again()?;
        told |= refused(&c, operation(kind, at))?;
    }
    let mut bytes = [0xff; 64];
    plain.read(0, &mut bytes);
    ensure_eq!(bytes, [0; 64], "memory that is not exposed");
    verdict(&c, told)
}

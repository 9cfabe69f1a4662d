//! Arenas: growing, shrinking, quotas, and memory that comes back.

use super::fixture::*;
use super::lacking::*;
use super::report::{CaseResult, ensure, ensure_eq};
use super::{Case, Provider, Verdict};
use roundel_verbs::error::VerbsError;
use roundel_verbs::memory::ArenaOptions;
use roundel_verbs::queue_pair::QueuePairState;
use roundel_verbs::work::CompletionStatus::{Flushed, RetryExceeded, Success};
use roundel_verbs::work::{Payload, SendOperation};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "memory: an arena grows and shrinks",
        verbs: "(memory of this object model) segments are registered on demand and deregistered \
                when no buffer uses them",
        run: grow_and_shrink,
    },
    Case {
        name: "memory: the quota holds",
        verbs: "(memory of this object model) an allocation above the quota is an error that says so",
        run: quota,
    },
    Case {
        name: "memory: an idle segment of the other kind makes room",
        verbs: "(memory of this object model) exposed and plain memory share one quota",
        run: other_kind,
    },
    Case {
        name: "memory: buffers do not overlap",
        verbs: "registered regions are what their owner makes of them",
        run: no_overlap,
    },
    Case {
        name: "memory: dropping a queue pair returns what was posted",
        verbs: "ibv_destroy_qp returns once the device does not touch posted memory any more",
        run: dropped_queue_pair,
    },
    Case {
        name: "memory: a dropped connection leaves nothing behind",
        verbs: "memory may be deregistered after the queue pair was destroyed",
        run: nothing_left,
    },
    Case {
        name: "memory: a dead peer's queue pairs break and flush",
        verbs: "when the peer's node is down, requests end with retry exceeded and the queue pair \
                breaks",
        run: dead_peer,
    },
    Case {
        name: "memory: a dead peer is noticed by who asks",
        verbs: "a queue pair without requests under way does not learn that its peer is gone",
        run: idle_dead_peer,
    },
];

fn grow_and_shrink(provider: &dyn Provider) -> CaseResult {
    let device = provider.open()?;
    let arena = device.arena(ArenaOptions {
        registered_bytes_max: 1 << 24,
        segment_bytes: 1 << 16,
    });
    ensure_eq!(arena.usage().registered, 0, "registered before use");
    for _ in 0..3 {
        let mut buffers = Vec::new();
        for _ in 0..64 {
            buffers.push(arena.allocate(10_000)?);
        }
        buffers.push(arena.allocate(1 << 20)?);
        let usage = arena.usage();
        ensure!(
            usage.allocated >= 64 * 10_000 + (1 << 20) && usage.registered >= usage.allocated,
            "{usage:?}"
        );
        let kept = buffers.swap_remove(7);
        drop(buffers);
        arena.shrink();
        let usage = arena.usage();
        ensure_eq!(usage.registered, 1 << 16, "registered for one buffer");
        drop(kept);
        arena.shrink();
        let usage = arena.usage();
        ensure_eq!(
            (usage.registered, usage.allocated),
            (0, 0),
            "after the last"
        );
        ensure!(usage.registered_max >= 1 << 20, "{usage:?}");
    }
    Ok(Verdict::Passed)
}

fn quota(provider: &dyn Provider) -> CaseResult {
    let device = provider.open()?;
    // Not a multiple of any page.
    let limit = 300_001;
    let arena = device.arena(ArenaOptions {
        registered_bytes_max: limit,
        segment_bytes: 1 << 16,
    });
    let mut buffers = Vec::new();
    let refused = loop {
        match arena.allocate(10_000) {
            Ok(buffer) => buffers.push(buffer),
            Err(error) => break error,
        }
        ensure!(buffers.len() <= 30, "more than the quota was handed out");
    };
    ensure!(
        matches!(refused, VerbsError::OutOfRegisteredMemory { .. }),
        "{refused}"
    );
    ensure!(buffers.len() >= 20, "only {} of 30 fitted", buffers.len());
    ensure!(
        arena.usage().registered_max <= limit,
        "{:?} is above the quota of {limit}",
        arena.usage()
    );
    buffers.pop();
    buffers.push(arena.allocate(10_000)?);
    ensure!(arena.allocate(0).is_err(), "a buffer of 0 bytes");
    ensure!(arena.allocate(usize::MAX).is_err(), "a buffer of all bytes");
    ensure!(
        arena.allocate(usize::MAX - 4096).is_err(),
        "nearly all bytes"
    );
    Ok(Verdict::Passed)
}

fn other_kind(provider: &dyn Provider) -> CaseResult {
    let device = provider.open()?;
    let arena = device.arena(ArenaOptions {
        registered_bytes_max: 1 << 17,
        segment_bytes: 1 << 17,
    });
    let plain = arena.allocate(1 << 17)?;
    ensure!(arena.allocate_exposed(64).is_err(), "above the quota");
    drop(plain);
    let exposed = arena.allocate_exposed(1 << 17)?;
    ensure!(arena.allocate(64).is_err(), "above the quota");
    drop(exposed);
    arena.allocate(1 << 17)?;
    Ok(Verdict::Passed)
}

fn no_overlap(provider: &dyn Provider) -> CaseResult {
    let device = provider.open()?;
    let arena = device.arena(ArenaOptions {
        segment_bytes: 1 << 14,
        ..ArenaOptions::default()
    });
    let mut buffers = Vec::new();
    for round in 0..200u64 {
        let length = 1 + (round * 37 % 3000) as usize;
        let mut buffer = arena.allocate(length)?;
        ensure_eq!(buffer.len(), length, "length");
        buffer.write(0, &pattern(round, length));
        buffers.push((round, buffer));
        if round % 3 == 0 {
            buffers.swap_remove((round as usize * 7) % buffers.len());
        }
    }
    for (round, buffer) in &buffers {
        let mut bytes = vec![0; buffer.len()];
        buffer.read(0, &mut bytes);
        ensure!(
            bytes == pattern(*round, buffer.len()),
            "buffer {round} changed"
        );
    }
    Ok(Verdict::Passed)
}

fn dropped_queue_pair(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    c.a.post_receives(&c.qa, 0, 16, 4096)?;
    let ud = has_datagrams(&c.a)?.then(|| c.a.datagrams()).transpose()?;
    if let Some(ud) = &ud {
        c.a.post_receives(ud, 0, 16, 4096)?;
    }
    for id in 0..16 {
        post(&c.qa, id, SendOperation::Send, c.a.owned(&[0; 4096])?)?;
    }
    let shared = c.a.filled(&[1; 4096])?.share();
    let payload = Payload::Shared {
        buffer: shared.clone(),
        length: 4096,
    };
    post(&c.qa, 16, SendOperation::Send, payload)?;
    let posted = if ud.is_some() { 49 } else { 33 };
    ensure!(
        c.a.arena.usage().allocated >= posted * 4096 || !waits_for_receive(&c.a),
        "posted"
    );
    let (arena, qa) = (c.a.arena.clone(), c.qa);
    drop(qa);
    let datagrams = ud.is_some();
    drop(ud);
    drop(shared);
    until(provider, "the posted buffers came back", || {
        arena.usage().allocated == 0
    })?;
    c.a.silent()?;
    Ok(verdict(datagrams))
}

fn nothing_left(provider: &dyn Provider) -> CaseResult {
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let datagrams = has_datagrams(&a)?;
    for round in 0..rounds(provider, 50) {
        let (qa, qb) = connect(&a, &b, &connected_options())?;
        b.post_receives(&qb, 0, 8, 1024)?;
        let exposed = b.arena.allocate_exposed(1024)?;
        let at = exposed.remote_address();
        post(&qa, 0, SendOperation::Write(at), a.owned(&[1; 1000])?)?;
        post(&qa, 1, SendOperation::Send, a.owned(&[1; 1000])?)?;
        let mut messages = 1;
        let mut unreliable = None;
        if datagrams {
            let (da, db) = (a.datagrams()?, b.datagrams()?);
            b.post_receives(&db, 0, 8, 1024)?;
            post_datagram(&da, &a.handle(&db)?, 2, a.owned(&[1; 900])?)?;
            unreliable = Some((da, db));
            messages += 1;
        }
        if round % 2 == 0 {
            a.sent(messages + 1)?;
            b.received(messages)?;
        }
        drop(unreliable);
        match round % 3 {
            0 => drop((qa, qb)),
            1 => drop((qb, qa)),
            _ => {}
        }
    }
    for node in [&a, &b] {
        let arena = node.arena.clone();
        until(provider, "all buffers came back", || {
            arena.usage().allocated == 0
        })?;
        arena.shrink();
        ensure_eq!(arena.usage().registered, 0, "registered in the end");
        node.silent()?;
    }
    Ok(verdict(datagrams))
}

/// Of a case with datagrams, which may have gone without.
fn verdict(datagrams: bool) -> Verdict {
    if datagrams {
        Verdict::Passed
    } else {
        Verdict::Differs(NO_DATAGRAMS.into())
    }
}

fn idle_dead_peer(provider: &dyn Provider) -> CaseResult {
    let Connection { a, b, qa, qb } = Connection::open(provider)?;
    a.post_receives(&qa, 10, 2, 64)?;
    drop((b, qb));
    if a.device.capabilities().breaks_with_peer {
        expect(&a.received(2)?, &[(10, Flushed), (11, Flushed)])?;
        return Ok(Verdict::Differs(
            "an idle queue pair breaks by itself".into(),
        ));
    }
    a.silent()?;
    ensure_eq!(qa.state(), QueuePairState::ReadyToSend, "state");
    // A request of no bytes finds out.
    let nowhere = roundel_verbs::RemoteAddress {
        address: 0,
        remote_key: 0,
    };
    post(&qa, 1, SendOperation::Write(nowhere), Payload::Empty)?;
    expect(&a.sent(1)?, &[(1, RetryExceeded)])?;
    expect(&a.received(2)?, &[(10, Flushed), (11, Flushed)])?;
    Ok(Verdict::Passed)
}

fn dead_peer(provider: &dyn Provider) -> CaseResult {
    let Connection { a, b, qa, qb } = Connection::open(provider)?;
    let ud = has_datagrams(&a)?.then(|| a.datagrams()).transpose()?;
    if let Some(ud) = &ud {
        a.post_receives(ud, 90, 2, 128)?;
    }
    a.post_receives(&qa, 10, 2, 64)?;
    post(&qb, 1, SendOperation::Send, inline(b"last words")?)?;
    b.sent(1)?;
    arrive(&b, &qb, &a)?;
    // Where SENDs do not wait for a receive, this one would break the connection by itself.
    let waits = waits_for_receive(&a);
    if waits {
        post(&qa, 5, SendOperation::Send, a.owned(b"never received")?)?;
    }
    drop((b, qb));
    until(provider, "the survivor's queue pair broke", || {
        qa.state() == QueuePairState::Error
    })?;
    if !waits {
        post(&qa, 5, SendOperation::Send, a.owned(b"never received")?)?;
    }
    let sent = a.sent(1)?;
    ensure!(
        sent[0].status != Success && sent[0].buffer.is_some(),
        "{sent:?}"
    );
    let received = a.received(2)?;
    expect(&received, &[(10, Success), (11, Flushed)])?;
    ensure_eq!(bytes_of(&received[0])?, b"last words", "payload");
    // Datagrams do not mind.
    let Some(ud) = ud else {
        return Ok(verdict(false));
    };
    ensure_eq!(ud.state(), QueuePairState::ReadyToSend, "state");
    post_datagram(&ud, &a.handle(&ud)?, 1, inline(b"alive")?)?;
    expect(&a.received(1)?, &[(90, Success)])?;
    Ok(Verdict::Passed)
}

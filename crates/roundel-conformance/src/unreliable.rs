//! UC: in order to one peer, but what the peer cannot take is lost, and the sender never hears of it.

use super::fixture::*;
use super::report::{CaseResult, Failure, ensure, ensure_eq, ensure_err, fail};
use super::{Case, Provider, Verdict};
use roundel_verbs::queue_pair::QueuePairState::{Error, ReadyToSend};
use roundel_verbs::queue_pair::{QueuePairOptions, Transport};
use roundel_verbs::work::CompletionStatus::{Flushed, LocalLength, LocalOperation, Success};
use roundel_verbs::work::SendOperation::{
    Read, Send, SendWithImmediate, Write, WriteWithImmediate,
};
use roundel_verbs::work::{ATOMIC_BYTES, ReceiveRequest, SendOperation};
use std::sync::atomic::Ordering;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "unreliable connections: SEND and WRITE arrive in order",
        verbs: "UC carries SEND, WRITE and their forms with immediate data, of any length, in order",
        run: in_order,
    },
    Case {
        name: "unreliable connections: without a posted receive messages are dropped",
        verbs: "a SEND, or a WRITE with immediate, that finds no receive is dropped silently; it \
                succeeds, and so does what follows",
        run: dropped,
    },
    Case {
        name: "unreliable connections: a receive that is too small breaks its own side",
        verbs: "the receive completes with an error and its queue pair breaks; the SEND succeeds and \
                the sender's queue pair stays",
        run: too_small,
    },
    Case {
        name: "unreliable connections: a WRITE with a wrong key is dropped",
        verbs: "nothing is written; the WRITE succeeds and neither queue pair breaks",
        run: wrong_key,
    },
    Case {
        name: "unreliable connections: READ and atomics are refused",
        verbs: "ibv_post_send fails: they need answers",
        run: refused,
    },
    Case {
        name: "unreliable connections: whoever is gone is not missed",
        verbs: "requests to a queue pair that is not connected, broken or destroyed succeed",
        run: gone,
    },
    Case {
        name: "unreliable connections: the error state flushes",
        verbs: "as on RC",
        run: flush,
    },
];

fn options() -> QueuePairOptions {
    QueuePairOptions {
        transport: Transport::UnreliableConnection,
        ..connected_options()
    }
}

/// A connection, unless the device has none of these.
macro_rules! connection {
    ($provider:expr) => {{
        let node = Node::open($provider)?;
        if !node
            .device
            .capabilities()
            .transports
            .contains(&Transport::UnreliableConnection)
        {
            let refused = node.queue_pair(&options());
            ensure!(
                refused.is_err(),
                "made although there are none: {:?}",
                refused.ok()
            );
            return Ok(Verdict::Differs(
                "there are no unreliable connections".into(),
            ));
        }
        let other = Node::open($provider)?;
        Connection::between(node, other, &options())?
    }};
}

fn in_order(provider: &dyn Provider) -> CaseResult {
    let c = connection!(provider);
    c.b.post_receives(&c.qb, 0, 48, 20_000)?;
    let exposed = c.b.arena.allocate_exposed(20_000)?;
    let at = exposed.remote_address();
    for id in 0..16u64 {
        let length = 8 + (id as usize * 1237) % 20_000;
        let bytes = pattern(id, length);
        post(&c.qa, 3 * id, Send, c.a.owned(&bytes)?)?;
        let immediate = SendWithImmediate(id as u32);
        post(&c.qa, 3 * id + 1, immediate, inline(&id.to_le_bytes())?)?;
        let write = WriteWithImmediate(at, 100 + id as u32);
        post(&c.qa, 3 * id + 2, write, c.a.owned(&bytes)?)?;
        let received = c.b.received(3)?;
        let wanted: Vec<_> = (3 * id..3 * id + 3).map(|id| (id, Success)).collect();
        expect(&received, &wanted)?;
        expect(&c.a.sent(3)?, &wanted)?;
        ensure!(
            bytes_of(&received[0])? == bytes,
            "{length} bytes came out different"
        );
        ensure_eq!(
            received[1].immediate,
            Some(id as u32),
            "immediate data of a SEND"
        );
        ensure_eq!(bytes_of(&received[1])?, id.to_le_bytes(), "payload");
        let told = (
            received[2].immediate,
            received[2].bytes,
            received[2].written,
        );
        ensure_eq!(
            told,
            (Some(100 + id as u32), length, true),
            "WRITE with immediate"
        );
        let mut landed = vec![0; length];
        exposed.read(0, &mut landed);
        ensure!(landed == bytes, "{length} bytes were written differently");
    }
    post(&c.qa, 1, Write(at), inline(&7u64.to_le_bytes())?)?;
    c.b.post_receives(&c.qb, 1, 1, 64)?;
    post(&c.qa, 2, Send, inline(b"after")?)?;
    c.b.received(1)?;
    ensure_eq!(
        exposed.word(0).load(Ordering::Acquire),
        7,
        "written before the SEND"
    );
    expect(&c.a.sent(2)?, &[(1, Success), (2, Success)])?;
    Ok(Verdict::Passed)
}

fn dropped(provider: &dyn Provider) -> CaseResult {
    let c = connection!(provider);
    let exposed = c.b.arena.allocate_exposed(64)?;
    let write = WriteWithImmediate(exposed.remote_address(), 1);
    post(&c.qa, 1, Send, inline(b"lost")?)?;
    post(&c.qa, 2, write, inline(&1u64.to_le_bytes())?)?;
    expect(&c.a.sent(2)?, &[(1, Success), (2, Success)])?;
    c.b.silent()?;
    ensure_eq!(
        exposed.word(0).load(Ordering::Acquire),
        0,
        "the dropped WRITE"
    );
    c.b.post_receives(&c.qb, 5, 1, 64)?;
    c.b.silent()?;
    for id in 3..6 {
        post(&c.qa, id, Send, inline(&id.to_le_bytes())?)?;
    }
    expect(&c.a.sent(3)?, &[(3, Success), (4, Success), (5, Success)])?;
    let received = c.b.received(1)?;
    expect(&received, &[(5, Success)])?;
    ensure_eq!(
        bytes_of(&received[0])?,
        3u64.to_le_bytes(),
        "the SEND that found a receive"
    );
    c.b.silent()?;
    ensure_eq!(
        (c.qa.state(), c.qb.state()),
        (ReadyToSend, ReadyToSend),
        "states"
    );
    Ok(Verdict::Passed)
}

fn too_small(provider: &dyn Provider) -> CaseResult {
    let c = connection!(provider);
    c.b.post_receives(&c.qb, 1, 2, 10)?;
    post(&c.qa, 1, Send, inline(&[1; 11])?)?;
    expect(&c.a.sent(1)?, &[(1, Success)])?;
    let received = c.b.received(2)?;
    expect(&received[1..], &[(2, Flushed)])?;
    ensure_eq!(c.qb.state(), Error, "the receiver's state");
    ensure_eq!(c.qa.state(), ReadyToSend, "the sender's state");
    post(&c.qa, 2, Send, inline(b"to nobody")?)?;
    expect(&c.a.sent(1)?, &[(2, Success)])?;
    ensure_eq!(c.qa.state(), ReadyToSend, "the sender's state");
    match received[0].status {
        LocalLength => Ok(Verdict::Passed),
        LocalOperation => Ok(Verdict::Differs(VAGUE_STATUS.into())),
        other => fail!("the receive ended as {other:?}"),
    }
}

fn wrong_key(provider: &dyn Provider) -> CaseResult {
    let c = connection!(provider);
    let exposed = c.b.arena.allocate_exposed(64)?;
    let mut at = exposed.remote_address();
    at.remote_key ^= 1 << 12;
    let receive = |id| vec![ReceiveRequest { id, buffer: None }];
    post_receives(&c.qb, receive(1))?;
    post(&c.qa, 1, Write(at), inline(&[0xee; 16])?)?;
    post(
        &c.qa,
        2,
        Write(exposed.remote_address().offset(64 << 20)),
        inline(&[0xee; 16])?,
    )?;
    expect(&c.a.sent(2)?, &[(1, Success), (2, Success)])?;
    c.b.silent()?;
    ensure_eq!(exposed.word(0).load(Ordering::Acquire), 0, "memory");
    ensure_eq!(
        (c.qa.state(), c.qb.state()),
        (ReadyToSend, ReadyToSend),
        "states"
    );
    let write = WriteWithImmediate(exposed.remote_address(), 9);
    post(&c.qa, 3, write, inline(&9u64.to_le_bytes())?)?;
    expect(&c.b.received(1)?, &[(1, Success)])?;
    ensure_eq!(
        exposed.word(0).load(Ordering::Acquire),
        9,
        "memory after a good WRITE"
    );
    Ok(Verdict::Passed)
}

fn refused(provider: &dyn Provider) -> CaseResult {
    let c = connection!(provider);
    let at = c.b.arena.allocate_exposed(64)?.remote_address();
    let swap = SendOperation::CompareAndSwap {
        at,
        compare: 0,
        swap: 1,
    };
    for operation in [Read(at), swap, SendOperation::FetchAndAdd { at, add: 1 }] {
        let mut requests = vec![request(1, operation, c.a.owned(&[0; ATOMIC_BYTES])?)];
        let refused = c.qa.post_send(&mut requests);
        ensure_err!(refused, UnsupportedOnTransport { .. }, "{operation:?}");
        ensure_eq!(
            requests[0].payload.len(),
            ATOMIC_BYTES,
            "a refused request's buffer"
        );
    }
    c.a.silent()?;
    Ok(Verdict::Passed)
}

fn gone(provider: &dyn Provider) -> CaseResult {
    let Connection { a, b, qa, qb } = connection!(provider);
    let unconnected = (a.queue_pair(&options())?, b.queue_pair(&options())?);
    unconnected.0.connect(unconnected.1.address())?;
    b.post_receives(&unconnected.1, 1, 1, 64)?;
    post(&unconnected.0, 1, Send, inline(b"early")?)?;
    expect(&a.sent(1)?, &[(1, Success)])?;
    b.silent()?;
    a.post_receives(&qa, 10, 2, 64)?;
    let ask = |peer: &str| -> Result<(), Failure> {
        post(&qa, 2, Send, a.owned(b"not missed")?)?;
        let sent = a.sent(1)?;
        expect(&sent, &[(2, Success)])?;
        ensure!(sent[0].buffer.is_some(), "the buffer comes back");
        a.silent()?;
        ensure_eq!(qa.state(), ReadyToSend, "state with a peer that is {peer}");
        Ok(())
    };
    qb.modify_to_error();
    ask("broken")?;
    drop(qb);
    ask("destroyed")?;
    drop((unconnected, b));
    ask("gone with its device")?;
    Ok(Verdict::Passed)
}

fn flush(provider: &dyn Provider) -> CaseResult {
    let c = connection!(provider);
    c.a.post_receives(&c.qa, 10, 3, 64)?;
    c.qa.modify_to_error();
    expect(
        &c.a.received(3)?,
        &[(10, Flushed), (11, Flushed), (12, Flushed)],
    )?;
    post(&c.qa, 1, Send, c.a.owned(b"late")?)?;
    expect(&c.a.sent(1)?, &[(1, Flushed)])?;
    ensure_eq!(c.qb.state(), ReadyToSend, "the peer's state");
    Ok(Verdict::Passed)
}

//! SEND and receive: order, lengths, immediate data.

use super::fixture::*;
use super::lacking::*;
use super::report::{CaseResult, ensure, ensure_eq};
use super::{Case, Provider, Verdict};
use roundel_verbs::counters::Opcode;
use roundel_verbs::work::CompletionStatus::{
    Flushed, LocalLength, LocalOperation, RemoteInvalidRequest, RemoteOperation, Success,
};
use roundel_verbs::work::{Payload, ReceiveRequest, SendOperation};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "messages: SEND fills the receive that was posted first",
        verbs: "receives are consumed in posting order, each by one SEND; both sides complete",
        run: in_order,
    },
    Case {
        name: "messages: every length arrives whole",
        verbs: "a SEND of 0 bytes up to the receive's size arrives byte for byte",
        run: lengths,
    },
    Case {
        name: "messages: immediate data",
        verbs: "SEND with immediate hands 32 bits to the receive's completion, SEND does not",
        run: immediate,
    },
    Case {
        name: "messages: a receive that is too small breaks both sides",
        verbs: "the receive completes with a local length error, the SEND with a remote invalid \
                request error; both queue pairs go to the error state",
        run: too_small,
    },
    Case {
        name: "messages: a receive without a buffer takes an empty message",
        verbs: "a receive with no scatter entries takes a SEND of 0 bytes",
        run: without_buffer,
    },
    Case {
        name: "messages: a shared buffer goes to many",
        verbs: "one registered buffer may be named by many work requests at once",
        run: shared,
    },
    Case {
        name: "messages: connected to itself",
        verbs: "two queue pairs of one device connect to each other, and one to itself",
        run: loopback,
    },
];

fn in_order(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    for round in 0..5u64 {
        c.b.post_receives(&c.qb, round * 100, 40, 64)?;
        let mut requests = Vec::new();
        for id in 0..40 {
            let payload = c.a.owned(&(round * 100 + id).to_le_bytes())?;
            requests.push(request(id, SendOperation::Send, payload));
        }
        post_sends(&c.qa, requests)?;
        let sent = c.a.sent(40)?;
        let wanted: Vec<_> = (0..40).map(|id| (id, Success)).collect();
        expect(&sent, &wanted)?;
        ensure!(
            sent.iter()
                .all(|s| s.buffer.is_some() && s.opcode == Opcode::Send),
            "a send's completion gives its buffer back: {sent:?}"
        );
        let received = c.b.received(40)?;
        let wanted: Vec<_> = (round * 100..round * 100 + 40)
            .map(|id| (id, Success))
            .collect();
        expect(&received, &wanted)?;
        for completion in &received {
            ensure_eq!(completion.opcode, Opcode::Receive, "opcode");
            ensure_eq!(completion.queue_pair, c.qb.number(), "queue pair");
            ensure_eq!(
                bytes_of(completion)?,
                completion.id.to_le_bytes(),
                "payload"
            );
            ensure_eq!(completion.immediate, None, "immediate");
        }
    }
    Ok(Verdict::Passed)
}

fn lengths(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    for length in [0, 1, 7, 8, 63, 64, 65, 4095, 4096, 4097, 65536, 1 << 20] {
        let bytes = pattern(length as u64, length);
        c.b.post_receives(&c.qb, 1, 1, length.max(1))?;
        post(&c.qa, 2, SendOperation::Send, c.a.owned(&bytes)?)?;
        expect(&c.a.sent(1)?, &[(2, Success)])?;
        let received = c.b.received(1)?;
        ensure_eq!(received[0].bytes, length, "length");
        ensure!(
            bytes_of(&received[0])? == bytes,
            "{length} bytes came out different"
        );
    }
    Ok(Verdict::Passed)
}

fn immediate(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    if lacks_immediate(&c)? {
        return Ok(Verdict::Differs(NO_IMMEDIATE.into()));
    }
    c.b.post_receives(&c.qb, 1, 2, 64)?;
    post(
        &c.qa,
        1,
        SendOperation::SendWithImmediate(0xdead_beef),
        inline(b"imm")?,
    )?;
    post(&c.qa, 2, SendOperation::Send, inline(b"plain")?)?;
    let received = c.b.received(2)?;
    ensure_eq!(received[0].immediate, Some(0xdead_beef), "immediate");
    ensure_eq!(bytes_of(&received[0])?, b"imm", "payload");
    ensure_eq!(received[1].immediate, None, "immediate of a plain SEND");
    expect(&c.a.sent(2)?, &[(1, Success), (2, Success)])?;
    Ok(Verdict::Passed)
}

fn too_small(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    c.b.post_receives(&c.qb, 1, 1, 100)?;
    c.b.post_receives(&c.qb, 2, 1, 100)?;
    post(&c.qa, 5, SendOperation::Send, c.a.owned(&[1; 101])?)?;
    if !completes_on_arrival(&c.a) {
        not_taken(&c.a, &c.qa, 5, RemoteInvalidRequest)?;
        let received = c.b.received(2)?;
        ensure!(
            (received[0].id, received[1].id, received[1].status) == (1, 2, Flushed)
                && received[0].status != Success
                && received.iter().all(|r| r.buffer.is_some()),
            "{received:?}"
        );
        both_break(&c)?;
        return Ok(Verdict::Differs(NO_ARRIVAL.into()));
    }
    let sent = c.a.sent(1)?;
    let received = c.b.received(2)?;
    let unspecific = (sent[0].status, received[0].status) == (RemoteOperation, LocalOperation);
    if unspecific {
        expect(&received[1..], &[(2, Flushed)])?;
    } else {
        expect(&sent, &[(5, RemoteInvalidRequest)])?;
        expect(&received, &[(1, LocalLength), (2, Flushed)])?;
    }
    ensure!(
        received.iter().all(|r| r.buffer.is_some()),
        "a failed receive gives its buffer back"
    );
    for pair in [&c.qa, &c.qb] {
        ensure_eq!(pair.state(), roundel_verbs::QueuePairState::Error, "state");
    }
    Ok(if unspecific {
        Verdict::Differs("both ends break with a status that does not say why".into())
    } else {
        Verdict::Passed
    })
}

fn without_buffer(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    let empty = |id| ReceiveRequest { id, buffer: None };
    post_receives(&c.qb, vec![empty(1), empty(2)])?;
    let (second, immediate) = if lacks_immediate(&c)? {
        (SendOperation::Send, None)
    } else {
        (SendOperation::SendWithImmediate(9), Some(9))
    };
    post(&c.qa, 1, SendOperation::Send, Payload::Empty)?;
    post(&c.qa, 2, second, Payload::Empty)?;
    let received = c.b.received(2)?;
    expect(&received, &[(1, Success), (2, Success)])?;
    ensure_eq!(received[1].immediate, immediate, "immediate");
    ensure!(
        received[0].buffer.is_none(),
        "there was no buffer to give back"
    );
    Ok(Verdict::Passed)
}

fn shared(provider: &dyn Provider) -> CaseResult {
    let a = Node::open(provider)?;
    let mut peers = Vec::new();
    for _ in 0..4 {
        let b = Node::open(provider)?;
        let (qa, qb) = connect(&a, &b, &connected_options())?;
        peers.push((b, qa, qb));
    }
    let bytes = pattern(1, 5000);
    let buffer = a.filled(&bytes)?.share();
    let waits = waits_for_receive(&a);
    for (b, qa, qb) in &peers {
        if !waits {
            b.post_receives(qb, 1, 1, 8192)?;
        }
        let payload = Payload::Shared {
            buffer: buffer.clone(),
            length: bytes.len(),
        };
        post(qa, 1, SendOperation::Send, payload)?;
    }
    // Nobody has polled: every request still holds the buffer.
    let Err(buffer) = buffer.try_into_owned() else {
        return Err(super::report::Failure(
            "a posted shared buffer was given back".into(),
        ));
    };
    for (b, _, qb) in peers.iter().filter(|_| waits) {
        b.post_receives(qb, 1, 1, 8192)?;
    }
    let sent = a.sent(peers.len())?;
    ensure!(sent.iter().all(|s| s.status == Success), "{sent:?}");
    for (b, _, _) in &peers {
        ensure!(
            bytes_of(&b.received(1)?[0])? == bytes,
            "a member got other bytes"
        );
    }
    ensure!(
        buffer.try_into_owned().is_ok(),
        "the buffer is free after the last completion"
    );
    Ok(Verdict::Passed)
}

fn loopback(provider: &dyn Provider) -> CaseResult {
    let device = provider.open()?;
    let a = Node::on(provider, device.clone())?;
    let b = Node::on(provider, device)?;
    let (qa, qb) = connect(&a, &b, &connected_options())?;
    b.post_receives(&qb, 1, 1, 64)?;
    post(&qa, 1, SendOperation::Send, inline(b"around")?)?;
    ensure_eq!(bytes_of(&b.received(1)?[0])?, b"around", "payload");
    expect(&a.sent(1)?, &[(1, Success)])?;

    let own = a.queue_pair(&connected_options())?;
    if let Err(refused) = own.connect(own.address()) {
        ensure!(
            matches!(refused, roundel_verbs::VerbsError::Unsupported { .. }),
            "{refused}"
        );
        return Ok(Verdict::Differs(
            "a queue pair does not connect to itself".into(),
        ));
    }
    a.post_receives(&own, 7, 1, 64)?;
    post(&own, 8, SendOperation::Send, inline(b"self")?)?;
    ensure_eq!(bytes_of(&a.received(1)?[0])?, b"self", "payload");
    expect(&a.sent(1)?, &[(8, Success)])?;
    Ok(Verdict::Passed)
}

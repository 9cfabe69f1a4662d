//! The state machine of a queue pair, and the flush of what is posted when it breaks.

use super::fixture::*;
use super::lacking::*;
use super::report::{CaseResult, ensure, ensure_eq, ensure_err};
use super::{Case, Provider, Verdict};
use roundel_verbs::queue_pair::QueuePairState::{Error, Init, ReadyToSend};
use roundel_verbs::work::CompletionStatus::{Flushed, RetryExceeded, Success};
use roundel_verbs::work::SendOperation;
use std::time::Duration;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "state: posting to the send queue needs a ready queue pair",
        verbs: "ibv_post_send fails in INIT; ibv_post_recv works",
        run: init,
    },
    Case {
        name: "state: connecting twice is refused",
        verbs: "ibv_modify_qp to RTR fails in RTS and in ERR",
        run: connect_twice,
    },
    Case {
        name: "state: the verb must suit the transport",
        verbs: "a UD queue pair is not connected; WRITE and READ do not exist on UD",
        run: transport,
    },
    Case {
        name: "state: the error state flushes both queues in order",
        verbs: "on the way to ERR every posted request completes as flushed, in posting order",
        run: flush,
    },
    Case {
        name: "state: posting to a broken queue pair completes as flushed",
        verbs: "work requests posted in ERR are taken and flushed",
        run: post_in_error,
    },
    Case {
        name: "state: what had arrived before the break is delivered first",
        verbs: "completions that were generated stay on the queue, flushed ones follow",
        run: arrived_then_flushed,
    },
    Case {
        name: "state: the peer of a broken queue pair learns at its next request",
        verbs: "the next request to a queue pair in ERR ends with retry exceeded",
        run: peer_learns,
    },
    Case {
        name: "state: a send that waits is told when the peer breaks",
        verbs: "a SEND in RNR retry ends with retry exceeded once the peer leaves RTS",
        run: waiting_send_learns,
    },
    Case {
        name: "state: a request to a destroyed queue pair fails",
        verbs: "requests to a destroyed queue pair end with retry exceeded",
        run: destroyed,
    },
    Case {
        name: "state: a queue pair that names another peer is not reached",
        verbs: "packets from a queue pair that is not the connected one are discarded",
        run: not_mutual,
    },
    Case {
        name: "state: queue pairs may be destroyed as they break",
        verbs: "ibv_destroy_qp waits for nothing but the acknowledgement of events",
        run: destroyed_while_breaking,
    },
    Case {
        name: "state: a datagram queue pair flushes too",
        verbs: "UD queue pairs flush on the way to ERR",
        run: flush_datagrams,
    },
];

fn init(provider: &dyn Provider) -> CaseResult {
    let a = Node::open(provider)?;
    let pair = a.queue_pair(&connected_options())?;
    ensure_eq!(pair.state(), Init, "state");
    let mut requests = vec![request(1, SendOperation::Send, a.owned(b"early")?)];
    let refused = pair.post_send(&mut requests);
    ensure_err!(refused, InvalidState { state: Init, .. });
    ensure!(
        requests.len() == 1 && requests[0].payload.len() == 5,
        "a refused request keeps its buffer"
    );
    a.post_receives(&pair, 1, 1, 64)?;
    a.silent()?;
    Ok(Verdict::Passed)
}

fn connect_twice(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    ensure_eq!(c.qa.state(), ReadyToSend, "state");
    let again = c.qa.connect(c.qb.address());
    ensure_err!(again, InvalidState { .. });
    c.qa.modify_to_error();
    let again = c.qa.connect(c.qb.address());
    ensure_err!(again, InvalidState { .. });
    ensure_eq!(c.qa.state(), Error, "state");
    Ok(Verdict::Passed)
}

fn transport(provider: &dyn Provider) -> CaseResult {
    let a = Node::open(provider)?;
    let rc = a.queue_pair(&connected_options())?;
    let refused = rc.activate();
    ensure_err!(refused, UnsupportedOnTransport { .. });
    datagrams_needed!(provider);
    let ud = a.datagrams()?;
    let refused = ud.connect(rc.address());
    ensure_err!(refused, UnsupportedOnTransport { .. });
    let target = a.arena.allocate_exposed(64)?.remote_address();
    let handle = a.handle(&ud)?;
    for operation in [
        SendOperation::Write(target),
        SendOperation::Read(target),
        SendOperation::WriteWithImmediate(target, 1),
    ] {
        let mut write = request(1, operation, a.owned(b"x")?);
        write.destination = Some(handle.clone());
        let refused = ud.post_send(&mut vec![write]);
        ensure_err!(refused, UnsupportedOnTransport { .. }, "{operation:?}");
    }
    let refused = ud.post_send(&mut vec![request(1, SendOperation::Send, inline(b"x")?)]);
    ensure_err!(
        refused,
        InvalidRequest(_),
        "a datagram without a destination"
    );
    Ok(Verdict::Passed)
}

fn flush(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    c.a.post_receives(&c.qa, 10, 3, 64)?;
    // Where SENDs do not wait for a receive, none stays posted.
    let sends = if waits_for_receive(&c.a) { 3 } else { 0 };
    for id in 0..sends {
        post(
            &c.qa,
            id,
            SendOperation::Send,
            c.a.owned(b"nobody waits for it")?,
        )?;
    }
    c.a.silent()?;
    c.qa.modify_to_error();
    ensure_eq!(c.qa.state(), Error, "state");
    let sent = c.a.sent(sends as usize)?;
    let wanted: Vec<_> = (0..sends).map(|id| (id, Flushed)).collect();
    expect(&sent, &wanted)?;
    let received = c.a.received(3)?;
    expect(&received, &[(10, Flushed), (11, Flushed), (12, Flushed)])?;
    ensure!(
        sent.iter().chain(&received).all(|c| c.buffer.is_some()),
        "flushed requests give their buffers back"
    );
    c.a.silent()?;
    Ok(match sends {
        0 => Verdict::Differs(NO_WAITING.into()),
        _ => Verdict::Passed,
    })
}

fn post_in_error(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    c.qa.modify_to_error();
    post(&c.qa, 1, SendOperation::Send, c.a.owned(b"x")?)?;
    c.a.post_receives(&c.qa, 2, 2, 64)?;
    expect(&c.a.sent(1)?, &[(1, Flushed)])?;
    expect(&c.a.received(2)?, &[(2, Flushed), (3, Flushed)])?;

    let unconnected = c.a.queue_pair(&connected_options())?;
    unconnected.modify_to_error();
    c.a.post_receives(&unconnected, 5, 1, 64)?;
    post(&unconnected, 6, SendOperation::Send, inline(b"x")?)?;
    expect(&c.a.received(1)?, &[(5, Flushed)])?;
    expect(&c.a.sent(1)?, &[(6, Flushed)])?;
    Ok(Verdict::Passed)
}

fn arrived_then_flushed(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    c.b.post_receives(&c.qb, 0, 4, 64)?;
    for id in 0..2 {
        post(&c.qa, id, SendOperation::Send, inline(b"kept")?)?;
    }
    expect(&c.a.sent(2)?, &[(0, Success), (1, Success)])?;
    arrive(&c.a, &c.qa, &c.b)?;
    c.qb.modify_to_error();
    let received = c.b.received(4)?;
    expect(
        &received,
        &[(0, Success), (1, Success), (2, Flushed), (3, Flushed)],
    )?;
    ensure_eq!(bytes_of(&received[1])?, b"kept", "payload");
    Ok(Verdict::Passed)
}

fn peer_learns(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    c.a.post_receives(&c.qa, 9, 1, 64)?;
    c.b.post_receives(&c.qb, 9, 1, 64)?;
    c.qb.modify_to_error();
    post(&c.qa, 1, SendOperation::Send, inline(b"x")?)?;
    not_taken(&c.a, &c.qa, 1, RetryExceeded)?;
    expect(&c.a.received(1)?, &[(9, Flushed)])?;
    Ok(verdict_of_refusals(&c.a))
}

fn waiting_send_learns(provider: &dyn Provider) -> CaseResult {
    waiting_needed!(provider);
    let c = Connection::open(provider)?;
    post(&c.qa, 1, SendOperation::Send, inline(b"x")?)?;
    post(&c.qa, 2, SendOperation::Send, inline(b"y")?)?;
    c.a.silent()?;
    c.qb.modify_to_error();
    expect(&c.a.sent(2)?, &[(1, RetryExceeded), (2, Flushed)])?;
    Ok(Verdict::Passed)
}

fn destroyed(provider: &dyn Provider) -> CaseResult {
    let Connection { a, b, qa, qb } = Connection::open(provider)?;
    let address = qb.address().clone();
    b.post_receives(&qb, 1, 1, 64)?;
    drop(qb);
    post(&qa, 1, SendOperation::Send, inline(b"x")?)?;
    not_taken(&a, &qa, 1, RetryExceeded)?;
    // The address stays stale, whoever has its number now.
    let others: Vec<_> = (0..20)
        .map(|_| b.queue_pair(&connected_options()))
        .collect::<Result<_, _>>()?;
    ensure!(
        others.iter().all(|other| *other.address() != address),
        "an address was used twice"
    );
    let late = a.queue_pair(&connected_options())?;
    late.connect(&address)?;
    post(&late, 2, SendOperation::Send, inline(b"x")?)?;
    expect(&a.sent(1)?, &[(2, RetryExceeded)])?;
    b.silent()?;
    Ok(verdict_of_refusals(&a))
}

fn not_mutual(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    let stranger = c.a.queue_pair(&connected_options())?;
    stranger.connect(c.qb.address())?;
    c.b.post_receives(&c.qb, 1, 1, 64)?;
    post(&stranger, 1, SendOperation::Send, inline(b"stranger")?)?;
    expect(&c.a.sent(1)?, &[(1, RetryExceeded)])?;
    c.b.silent()?;
    post(&c.qa, 2, SendOperation::Send, inline(b"friend")?)?;
    ensure_eq!(bytes_of(&c.b.received(1)?[0])?, b"friend", "payload");
    Ok(Verdict::Passed)
}

fn destroyed_while_breaking(provider: &dyn Provider) -> CaseResult {
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let mut at = b.arena.allocate_exposed(64)?.remote_address();
    at.remote_key ^= 1 << 12;
    let rounds = rounds(provider, 1600);
    for round in 0..rounds {
        let (qa, qb) = connect(&a, &b, &connected_options())?;
        b.post_receives(&qb, 0, 4, 64)?;
        post(&qa, 1, SendOperation::Write(at), a.owned(&[1; 64])?)?;
        // At moments around the break.
        let moment = now() + Duration::from_micros(round * 37 % 100 * provider.slowness());
        while now() < moment {
            provider.idle();
        }
        if round % 2 == 0 {
            drop((qb, qa));
        } else {
            drop((qa, qb));
        }
    }
    for node in [&a, &b] {
        node.silent()?;
        ensure_eq!(node.arena.usage().allocated, 0, "bytes still allocated");
    }
    Ok(Verdict::Passed)
}

fn flush_datagrams(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let a = Node::open(provider)?;
    let ud = a.datagrams()?;
    a.post_receives(&ud, 1, 3, 128)?;
    let handle = a.handle(&ud)?;
    post_datagram(&ud, &handle, 7, inline(b"kept")?)?;
    expect(&a.sent(1)?, &[(7, Success)])?;
    ud.modify_to_error();
    expect(&a.received(3)?, &[(1, Success), (2, Flushed), (3, Flushed)])?;
    a.post_receives(&ud, 4, 1, 128)?;
    expect(&a.received(1)?, &[(4, Flushed)])?;
    post_datagram(&ud, &handle, 8, inline(b"late")?)?;
    expect(&a.sent(1)?, &[(8, Flushed)])?;
    Ok(Verdict::Passed)
}

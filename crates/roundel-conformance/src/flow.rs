//! Receivers that are not ready, and queues that are full.

use super::fixture::*;
use super::lacking::*;
use super::report::{CaseResult, Failure, ensure, ensure_eq, ensure_err};
use super::{Case, Provider, Verdict};
use roundel_verbs::queue_pair::{QueuePairOptions, QueuePairState};
use roundel_verbs::work::CompletionStatus::{Flushed, ReceiverNotReady, RetryExceeded, Success};
use roundel_verbs::work::{Payload, ReceiveRequest, SendOperation};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "flow: a SEND waits for a receive",
        verbs: "with rnr_retry 7 a SEND is retried until a receive is posted; order is kept",
        run: send_waits,
    },
    Case {
        name: "flow: requests wait as long as the receiver takes",
        verbs: "with rnr_retry 7 there is no end of waiting, also with more requests and READs behind",
        run: waits_long,
    },
    Case {
        name: "flow: a SEND waits for the peer to connect",
        verbs: "requests to a queue pair that is not in RTR yet are retried",
        run: send_waits_for_connect,
    },
    Case {
        name: "flow: a peer that does not connect in time",
        verbs: "a queue pair in INIT drops requests: they end with retry exceeded, as those to a dead \
                peer",
        run: never_connected,
    },
    Case {
        name: "flow: a finite retry count ends",
        verbs: "when rnr_retry is exhausted the SEND ends with RNR retry exceeded, the queue pair \
                breaks and the rest is flushed",
        run: retries_end,
    },
    Case {
        name: "flow: a SEND that waits needs no polling",
        verbs: "the device retries by itself, whether or not anybody polls the completion queue",
        run: goes_on_unpolled,
    },
    Case {
        name: "flow: nothing overtakes a SEND that waits",
        verbs: "requests of one send queue are carried out in order, a WRITE after a waiting SEND too",
        run: no_overtaking,
    },
    Case {
        name: "flow: a full send queue is back-pressure",
        verbs: "ibv_post_send gives ENOMEM with the first request that did not fit; here: how many \
                fitted",
        run: full_send_queue,
    },
    Case {
        name: "flow: a slot of the send queue is free when its completion was polled",
        verbs: "the provider reclaims send queue entries at polling",
        run: freed_by_polling,
    },
    Case {
        name: "flow: a full receive queue is back-pressure",
        verbs: "ibv_post_recv gives ENOMEM with the first request that did not fit",
        run: full_receive_queue,
    },
    Case {
        name: "flow: depths above the device's limit are refused",
        verbs: "ibv_create_qp fails above max_qp_wr",
        run: depth_limit,
    },
    Case {
        name: "flow: queues as deep as the device's limit",
        verbs: "ibv_create_qp takes max_qp_wr; the completion queue must have room for it",
        run: deepest,
    },
    Case {
        name: "flow: polling takes no more than asked for",
        verbs: "ibv_poll_cq returns at most num_entries completions, the rest later",
        run: poll_limit,
    },
];

fn send_waits(provider: &dyn Provider) -> CaseResult {
    waiting_needed!(provider);
    let c = Connection::open(provider)?;
    for id in 0..5u64 {
        post(
            &c.qa,
            id,
            SendOperation::Send,
            c.a.owned(&id.to_le_bytes())?,
        )?;
    }
    c.a.silent()?;
    for id in 0..5u64 {
        c.b.post_receives(&c.qb, id, 1, 64)?;
        expect(&c.a.sent(1)?, &[(id, Success)])?;
        ensure_eq!(bytes_of(&c.b.received(1)?[0])?, id.to_le_bytes(), "payload");
    }
    Ok(Verdict::Passed)
}

fn waits_long(provider: &dyn Provider) -> CaseResult {
    waiting_needed!(provider);
    let c = Connection::open(provider)?;
    let exposed = c.b.arena.allocate_exposed(65_536)?;
    let at = exposed.remote_address();
    let mut requests = vec![request(
        0,
        SendOperation::Read(at),
        c.a.owned(&[0; 60_000])?,
    )];
    for id in 1..4 {
        let payload = c.a.owned(&pattern(id, 20_000))?;
        requests.push(request(id, SendOperation::Send, payload));
        let into = c.a.owned(&[0; 60_000])?;
        requests.push(request(10 + id, SendOperation::Read(at), into));
    }
    post_sends(&c.qa, requests)?;
    expect(&c.a.sent(1)?, &[(0, Success)])?;
    for id in 1..4u64 {
        // Longer than a device takes to give up on a peer that does not answer.
        std::thread::sleep(DEAD_PEER);
        c.a.silent()?;
        ensure_eq!(c.qa.state(), QueuePairState::ReadyToSend, "state");
        c.b.post_receives(&c.qb, id, 1, 20_000)?;
        expect(&c.a.sent(2)?, &[(id, Success), (10 + id, Success)])?;
        ensure!(
            bytes_of(&c.b.received(1)?[0])? == pattern(id, 20_000),
            "message {id} came out different"
        );
    }
    Ok(Verdict::Passed)
}

/// The first queue pair is connected and has sent, the second is not connected yet.
fn half_connected(provider: &dyn Provider) -> Result<Connection<'_>, Failure> {
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let options = connected_options();
    let (qa, qb) = (a.queue_pair(&options)?, b.queue_pair(&options)?);
    b.post_receives(&qb, 1, 1, 64)?;
    qa.connect(qb.address())?;
    post(&qa, 1, SendOperation::Send, inline(b"early")?)?;
    Ok(Connection { a, b, qa, qb })
}

fn send_waits_for_connect(provider: &dyn Provider) -> CaseResult {
    let Connection { a, b, qa, qb } = half_connected(provider)?;
    a.silent()?;
    qb.connect(qa.address())?;
    expect(&a.sent(1)?, &[(1, Success)])?;
    ensure_eq!(bytes_of(&b.received(1)?[0])?, b"early", "payload");
    Ok(Verdict::Passed)
}

fn never_connected(provider: &dyn Provider) -> CaseResult {
    let Connection { a, b, qa, qb } = half_connected(provider)?;
    if a.device.capabilities().waits_for_connection {
        std::thread::sleep(DEAD_PEER);
        a.silent()?;
        qb.connect(qa.address())?;
        expect(&a.sent(1)?, &[(1, Success)])?;
        expect(&b.received(1)?, &[(1, Success)])?;
        return Ok(Verdict::Differs(
            "requests wait until the peer connects, however long it takes".into(),
        ));
    }
    expect(&a.sent(1)?, &[(1, RetryExceeded)])?;
    ensure_eq!(qa.state(), QueuePairState::Error, "state");
    b.silent()?;
    Ok(Verdict::Passed)
}

fn retries_end(provider: &dyn Provider) -> CaseResult {
    waiting_needed!(provider);
    for rnr_retry in [0, 2] {
        let options = QueuePairOptions {
            rnr_retry,
            ..connected_options()
        };
        let c = Connection::with(provider, &options)?;
        post(&c.qa, 1, SendOperation::Send, inline(b"x")?)?;
        let mut second = vec![request(2, SendOperation::Send, inline(b"y")?)];
        c.qa.post_send(&mut second)?;
        expect(&c.a.sent(2)?, &[(1, ReceiverNotReady), (2, Flushed)])?;
        ensure_eq!(c.qa.state(), QueuePairState::Error, "state");
    }
    Ok(Verdict::Passed)
}

fn goes_on_unpolled(provider: &dyn Provider) -> CaseResult {
    waiting_needed!(provider);
    let c = Connection::open(provider)?;
    post(&c.qa, 1, SendOperation::Send, inline(b"patient")?)?;
    c.b.silent()?;
    c.b.post_receives(&c.qb, 1, 1, 64)?;
    if c.a.device.capabilities().progress_without_polling {
        expect(&c.b.received(1)?, &[(1, Success)])?;
        return Ok(Verdict::Passed);
    }
    expect(&c.a.sent(1)?, &[(1, Success)])?;
    expect(&c.b.received(1)?, &[(1, Success)])?;
    Ok(Verdict::Differs(
        "a SEND that waits is tried again when its completion queue is polled, which its sleeper \
         is woken for"
            .into(),
    ))
}

fn no_overtaking(provider: &dyn Provider) -> CaseResult {
    waiting_needed!(provider);
    let c = Connection::open(provider)?;
    let target = c.b.arena.allocate_exposed(64)?;
    post(&c.qa, 1, SendOperation::Send, inline(b"first")?)?;
    let write = SendOperation::Write(target.remote_address());
    post(&c.qa, 2, write, inline(&7u64.to_le_bytes())?)?;
    c.a.silent()?;
    ensure_eq!(
        target.word(0).load(std::sync::atomic::Ordering::Acquire),
        0,
        "the WRITE went ahead of the SEND"
    );
    c.b.post_receives(&c.qb, 1, 1, 64)?;
    expect(&c.a.sent(2)?, &[(1, Success), (2, Success)])?;
    ensure_eq!(
        target.word(0).load(std::sync::atomic::Ordering::Acquire),
        7,
        "the WRITE"
    );
    Ok(Verdict::Passed)
}

fn full_send_queue(provider: &dyn Provider) -> CaseResult {
    let options = QueuePairOptions {
        send_depth: 4,
        ..connected_options()
    };
    let c = Connection::with(provider, &options)?;
    let waits = waits_for_receive(&c.a);
    if !waits {
        c.b.post_receives(&c.qb, 0, 10, 64)?;
    }
    let mut requests = Vec::new();
    for id in 0..10u64 {
        requests.push(request(
            id,
            SendOperation::Send,
            c.a.owned(&id.to_le_bytes())?,
        ));
    }
    // Devices round depths up: at least four are taken.
    let taken = c.qa.post_send(&mut requests)?;
    ensure!(taken >= 4, "{taken} of a depth of 4 fitted");
    ensure_eq!(requests.len(), 10 - taken, "what did not fit stays");
    if let Some(request) = requests.first() {
        ensure_eq!(request.id, taken as u64, "the first that did not fit");
        ensure!(
            matches!(request.payload, Payload::Owned { length: 8, .. }),
            "what did not fit keeps its buffer"
        );
    }
    for id in 0..10u64 {
        if waits {
            c.b.post_receives(&c.qb, id, 1, 64)?;
        }
        expect(&c.a.sent(1)?, &[(id, Success)])?;
        c.qa.post_send(&mut requests)?;
        ensure_eq!(bytes_of(&c.b.received(1)?[0])?, id.to_le_bytes(), "payload");
    }
    ensure!(requests.is_empty(), "everything fitted in the end");
    Ok(Verdict::Passed)
}

fn freed_by_polling(provider: &dyn Provider) -> CaseResult {
    let options = QueuePairOptions {
        send_depth: 2,
        ..connected_options()
    };
    let c = Connection::with(provider, &options)?;
    c.b.post_receives(&c.qb, 0, 64, 64)?;
    let mut requests = (0..64)
        .map(|id| Ok(request(id, SendOperation::Send, inline(b"x")?)))
        .collect::<Result<Vec<_>, super::report::Failure>>()?;
    let mut done = 0;
    let mut completions = Vec::new();
    until(provider, "all sends went through", || {
        // A failure to post shows as no progress.
        let _ = c.qa.post_send(&mut requests);
        done += c.a.sends.poll(&mut completions, 1);
        done == 64
    })?;
    expect(
        &completions,
        &(0..64).map(|id| (id, Success)).collect::<Vec<_>>(),
    )?;
    Ok(Verdict::Passed)
}

fn full_receive_queue(provider: &dyn Provider) -> CaseResult {
    for datagram in [false, true] {
        let (a, b) = (Node::open(provider)?, Node::open(provider)?);
        if datagram && !has_datagrams(&a)? {
            return Ok(Verdict::Differs(NO_DATAGRAMS.into()));
        }
        let options = QueuePairOptions {
            receive_depth: 3,
            ..if datagram {
                datagram_options()
            } else {
                connected_options()
            }
        };
        let (qa, qb) = if datagram {
            let (qa, qb) = (a.queue_pair(&options)?, b.queue_pair(&options)?);
            qa.activate()?;
            qb.activate()?;
            (qa, qb)
        } else {
            connect(&a, &b, &options)?
        };
        let mut requests = Vec::new();
        for id in 0..8 {
            requests.push(ReceiveRequest {
                id,
                buffer: Some(b.arena.allocate(128)?),
            });
        }
        let taken = qb.post_receive(&mut requests)?;
        ensure!(taken >= 3, "{taken} of a depth of 3 fitted");
        ensure!(
            requests.iter().all(|r| r.buffer.is_some()),
            "what did not fit keeps its buffer"
        );
        ensure_eq!(
            qb.post_receive(&mut requests)?,
            0,
            "fitting into a full queue"
        );
        for id in 0..8u64 {
            let mut send = request(id, SendOperation::Send, inline(&id.to_le_bytes())?);
            send.destination = datagram.then(|| a.handle(&qb)).transpose()?;
            post_sends(&qa, vec![send])?;
            a.sent(1)?;
            let received = b.received(1)?;
            expect(&received, &[(id, Success)])?;
            qb.post_receive(&mut requests)?;
        }
        ensure!(requests.is_empty(), "everything fitted in the end");
    }
    Ok(Verdict::Passed)
}

fn depth_limit(provider: &dyn Provider) -> CaseResult {
    let a = Node::open(provider)?;
    let options = QueuePairOptions {
        send_depth: a.device.capabilities().work_requests_max + 1,
        ..connected_options()
    };
    let refused = a.device.create_queue_pair(&options, &a.sends, &a.receives);
    ensure_err!(refused, DeviceLimit { .. });
    Ok(Verdict::Passed)
}

fn deepest(provider: &dyn Provider) -> CaseResult {
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let depth = a.device.capabilities().work_requests_max;
    let receives = b.device.create_completion_queue(1, None)?;
    let options = connected_options();
    let deep = QueuePairOptions {
        receive_depth: depth,
        ..connected_options()
    };
    let (qa, qb) = (
        a.queue_pair(&options)?,
        b.device.create_queue_pair(&deep, &b.sends, &receives)?,
    );
    qa.connect(qb.address())?;
    qb.connect(qa.address())?;
    let empty = |id| ReceiveRequest { id, buffer: None };
    post_receives(&qb, (0..depth as u64).map(empty).collect())?;
    for id in 0..64 {
        post(&qa, id, SendOperation::Send, Payload::Empty)?;
    }
    a.sent(64)?;
    qb.modify_to_error();
    let found = wait_for(provider, &receives, depth)?;
    let status = |id| if id < 64 { Success } else { Flushed };
    let wanted: Vec<_> = (0..depth as u64).map(|id| (id, status(id))).collect();
    let found: Vec<_> = found.iter().map(|c| (c.id, c.status)).collect();
    ensure!(
        found == wanted,
        "{depth} receives did not complete in order"
    );
    Ok(Verdict::Passed)
}

fn poll_limit(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    c.b.post_receives(&c.qb, 0, 10, 64)?;
    for id in 0..10 {
        post(&c.qa, id, SendOperation::Send, inline(b"x")?)?;
    }
    for queue in [&c.a.sends, &c.b.receives] {
        let mut found = Vec::new();
        until(provider, "the first completion", || {
            queue.poll(&mut found, 1) > 0
        })?;
        ensure_eq!(queue.poll(&mut found, 0), 0, "polling for none");
        let end = now() + PATIENCE;
        while found.len() < 10 && now() < end {
            let before = found.len();
            let count = queue.poll(&mut found, 3);
            ensure!(count <= 3, "{count} completions of at most 3");
            ensure_eq!(found.len() - before, count, "completions appended");
            provider.idle();
        }
        expect(&found, &(0..10).map(|id| (id, Success)).collect::<Vec<_>>())?;
    }
    Ok(Verdict::Passed)
}

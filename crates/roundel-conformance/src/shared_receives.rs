//! Shared receive queues: many queue pairs, one supply of receives.

use super::fixture::*;
use super::lacking::*;
use super::report::{CaseResult, Failure, ensure, ensure_eq, ensure_err, fail};
use super::{Case, Provider, Verdict};
use roundel_verbs::capabilities::GRH_BYTES;
use roundel_verbs::completion_queue::CompletionQueue;
use roundel_verbs::queue_pair::QueuePairState::{Error, ReadyToSend};
use roundel_verbs::queue_pair::{QueuePair, QueuePairOptions};
use roundel_verbs::shared_receive::SharedReceiveQueue;
use roundel_verbs::work::CompletionStatus::{Flushed, ReceiverNotReady, Success};
use roundel_verbs::work::{ReceiveRequest, SendOperation};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "shared receives: queue pairs take them in posting order",
        verbs: "whichever queue pair gets a message takes the first receive; the completion comes to \
                its completion queue and names it",
        run: in_order,
    },
    Case {
        name: "shared receives: datagrams take them too",
        verbs: "UD queue pairs can take their receives from a shared receive queue",
        run: datagrams,
    },
    Case {
        name: "shared receives: a full queue is back-pressure",
        verbs: "ibv_post_srq_recv gives ENOMEM with the first request that did not fit",
        run: full,
    },
    Case {
        name: "shared receives: an empty queue lets senders wait",
        verbs: "a SEND that finds no receive is retried as often as rnr_retry says",
        run: empty,
    },
    Case {
        name: "shared receives: its queue pairs take no receives of their own",
        verbs: "ibv_post_recv fails on a queue pair with a shared receive queue",
        run: own_receives,
    },
    Case {
        name: "shared receives: a broken queue pair leaves them to the others",
        verbs: "receives of a shared queue belong to no queue pair and are not flushed with one",
        run: broken,
    },
    Case {
        name: "shared receives: a destroyed queue pair leaves them to the others",
        verbs: "as above; what it had received and nobody polled is given up",
        run: destroyed,
    },
    Case {
        name: "shared receives: dropping everything returns all buffers",
        verbs: "ibv_destroy_srq returns once the device does not touch posted memory any more",
        run: dropped,
    },
    Case {
        name: "shared receives: many queue pairs need no more completions than receives",
        verbs: "a completion queue must have room for what its queue pairs can have completed at a \
                time, which the shared queue bounds",
        run: many,
    },
];

/// A node with a shared receive queue, unless there are none.
macro_rules! shared {
    ($provider:expr, $depth:expr) => {{
        let b = Node::open($provider)?;
        let shared = b.device.create_shared_receive_queue($depth);
        if b.device.capabilities().shared_receive_queues_max == 0 {
            ensure_err!(shared, Unsupported { .. }, "made although there are none");
            return Ok(Verdict::Differs(
                "there are no shared receive queues".into(),
            ));
        }
        (b, shared?)
    }};
}

fn post_shared(
    node: &Node<'_>,
    shared: &SharedReceiveQueue,
    first: u64,
    count: u64,
    length: usize,
) -> Result<(), Failure> {
    let mut requests = Vec::new();
    for id in first..first + count {
        let buffer = Some(node.arena.allocate(length)?);
        requests.push(ReceiveRequest { id, buffer });
    }
    shared.post_receive(&mut requests)?;
    ensure!(
        requests.is_empty(),
        "{} receives did not fit",
        requests.len()
    );
    Ok(())
}

/// A queue pair of `b` with the shared queue, connected to one of `a`; that of `a` first.
fn join(
    a: &Node<'_>,
    b: &Node<'_>,
    shared: &SharedReceiveQueue,
    options: &QueuePairOptions,
    receives: &CompletionQueue,
) -> Result<(QueuePair, QueuePair), Failure> {
    let qa = a.queue_pair(options)?;
    let qb = b
        .device
        .create_queue_pair_with_shared_receives(options, &b.sends, receives, shared)?;
    qa.connect(qb.address())?;
    qb.connect(qa.address())?;
    Ok((qa, qb))
}

fn in_order(provider: &dyn Provider) -> CaseResult {
    let (b, shared) = shared!(provider, 64);
    let nodes = [Node::open(provider)?, Node::open(provider)?];
    let elsewhere = b.device.create_completion_queue(64, None)?;
    let mut pairs = Vec::new();
    for index in 0..4 {
        let receives = if index == 3 { &elsewhere } else { &b.receives };
        let a = &nodes[index % 2];
        pairs.push((a, join(a, &b, &shared, &connected_options(), receives)?));
    }
    post_shared(&b, &shared, 0, 40, 64)?;
    let (operation, immediate) = if b.device.capabilities().immediate_data {
        (SendOperation::SendWithImmediate(1), Some(1))
    } else {
        (SendOperation::Send, None)
    };
    for id in 0..40u64 {
        let turn = (id * 7 % 4) as usize;
        let (a, (qa, qb)) = &pairs[turn];
        post(qa, id, operation, inline(&id.to_le_bytes())?)?;
        expect(&a.sent(1)?, &[(id, Success)])?;
        let queue = if turn == 3 { &elsewhere } else { &b.receives };
        let received = wait_for(provider, queue, 1)?;
        expect(&received, &[(id, Success)])?;
        ensure_eq!(received[0].queue_pair, qb.number(), "queue pair");
        ensure_eq!(bytes_of(&received[0])?, id.to_le_bytes(), "payload");
        ensure_eq!(received[0].immediate, immediate, "immediate");
    }
    b.silent()?;
    Ok(Verdict::Passed)
}

fn datagrams(provider: &dyn Provider) -> CaseResult {
    let (b, shared) = shared!(provider, 16);
    datagrams_needed!(provider);
    let a = Node::open(provider)?;
    let qa = a.datagrams()?;
    let (rc, rc_peer) = join(&a, &b, &shared, &connected_options(), &b.receives)?;
    let ud = b.device.create_queue_pair_with_shared_receives(
        &datagram_options(),
        &b.sends,
        &b.receives,
        &shared,
    )?;
    ud.activate()?;
    let to = a.handle(&ud)?;
    post_shared(&b, &shared, 0, 4, 256)?;
    for id in 0..4u64 {
        if id % 2 == 0 {
            post_datagram(&qa, &to, id, inline(&id.to_le_bytes())?)?;
        } else {
            post(&rc, id, SendOperation::Send, inline(&id.to_le_bytes())?)?;
        }
        let received = b.received(1)?;
        expect(&received, &[(id, Success)])?;
        let (pair, header) = if id % 2 == 0 {
            (&ud, GRH_BYTES)
        } else {
            (&rc_peer, 0)
        };
        ensure_eq!(received[0].queue_pair, pair.number(), "queue pair");
        ensure_eq!(
            datagram_of(&received[0], header)?,
            id.to_le_bytes(),
            "payload"
        );
    }
    a.sent(4)?;
    post_datagram(&qa, &to, 9, inline(b"lost")?)?;
    expect(&a.sent(1)?, &[(9, Success)])?;
    b.silent()?;
    Ok(Verdict::Passed)
}

fn full(provider: &dyn Provider) -> CaseResult {
    let (b, shared) = shared!(provider, 4);
    let a = Node::open(provider)?;
    let (qa, _qb) = join(&a, &b, &shared, &connected_options(), &b.receives)?;
    let mut requests = Vec::new();
    for id in 0..10 {
        let buffer = Some(b.arena.allocate(64)?);
        requests.push(ReceiveRequest { id, buffer });
    }
    let taken = shared.post_receive(&mut requests)?;
    ensure_eq!(taken, 4, "receives of a depth of 4 that fitted");
    ensure!(
        requests.iter().all(|r| r.buffer.is_some()),
        "what did not fit keeps its buffer"
    );
    ensure_eq!(requests[0].id, 4, "the first that did not fit");
    ensure_eq!(
        shared.post_receive(&mut requests)?,
        0,
        "fitting into a full queue"
    );
    for id in 0..10u64 {
        post(&qa, id, SendOperation::Send, inline(&id.to_le_bytes())?)?;
        a.sent(1)?;
        let received = b.received(1)?;
        expect(&received, &[(id, Success)])?;
        let fitted = shared.post_receive(&mut requests)?;
        ensure_eq!(
            fitted,
            usize::from(id < 6),
            "fitting after receive {id} was polled"
        );
    }
    let limit = b.device.capabilities().shared_receives_max;
    let refused = b.device.create_shared_receive_queue(limit + 1);
    ensure_err!(refused, DeviceLimit { .. });
    Ok(Verdict::Passed)
}

fn empty(provider: &dyn Provider) -> CaseResult {
    let (b, shared) = shared!(provider, 4);
    waiting_needed!(provider);
    let a = Node::open(provider)?;
    let impatient = QueuePairOptions {
        rnr_retry: 1,
        ..connected_options()
    };
    let (qa, _qb) = join(&a, &b, &shared, &connected_options(), &b.receives)?;
    let (other, _other_peer) = join(&a, &b, &shared, &impatient, &b.receives)?;
    post(&other, 1, SendOperation::Send, inline(b"impatient")?)?;
    expect(&a.sent(1)?, &[(1, ReceiverNotReady)])?;
    post(&qa, 2, SendOperation::Send, inline(b"patient")?)?;
    a.silent()?;
    post_shared(&b, &shared, 7, 1, 64)?;
    expect(&a.sent(1)?, &[(2, Success)])?;
    let received = b.received(1)?;
    expect(&received, &[(7, Success)])?;
    ensure_eq!(bytes_of(&received[0])?, b"patient", "payload");
    Ok(Verdict::Passed)
}

fn own_receives(provider: &dyn Provider) -> CaseResult {
    let (b, shared) = shared!(provider, 4);
    let a = Node::open(provider)?;
    let (_qa, qb) = join(&a, &b, &shared, &connected_options(), &b.receives)?;
    let buffer = Some(b.arena.allocate(64)?);
    let mut requests = vec![ReceiveRequest { id: 1, buffer }];
    let refused = qb.post_receive(&mut requests);
    ensure_err!(refused, InvalidRequest(_));
    ensure!(
        requests.len() == 1 && requests[0].buffer.is_some(),
        "a refused receive keeps its buffer"
    );
    Ok(Verdict::Passed)
}

fn broken(provider: &dyn Provider) -> CaseResult {
    let (b, shared) = shared!(provider, 16);
    let a = Node::open(provider)?;
    let (_q1, p1) = join(&a, &b, &shared, &connected_options(), &b.receives)?;
    let (q2, p2) = join(&a, &b, &shared, &connected_options(), &b.receives)?;
    let (q3, p3) = join(&a, &b, &shared, &connected_options(), &b.receives)?;
    post_shared(&b, &shared, 0, 4, 64)?;
    p1.modify_to_error();
    b.silent()?;
    // A message that is too long breaks its own queue pair and uses one receive up.
    post(&q2, 1, SendOperation::Send, a.owned(&[0; 65])?)?;
    a.sent(1)?;
    let received = b.received(1)?;
    ensure!(
        received[0].id == 0 && ![Success, Flushed].contains(&received[0].status),
        "{received:?}"
    );
    until(provider, "its queue pair breaks", || p2.state() == Error)?;
    for id in 1..4u64 {
        post(&q3, id, SendOperation::Send, inline(&id.to_le_bytes())?)?;
        let received = b.received(1)?;
        expect(&received, &[(id, Success)])?;
        ensure_eq!(bytes_of(&received[0])?, id.to_le_bytes(), "payload");
    }
    ensure_eq!(p3.state(), ReadyToSend, "the state of the other queue pair");
    b.silent()?;
    Ok(Verdict::Passed)
}

fn destroyed(provider: &dyn Provider) -> CaseResult {
    let (b, shared) = shared!(provider, 8);
    let a = Node::open(provider)?;
    let (q1, p1) = join(&a, &b, &shared, &connected_options(), &b.receives)?;
    let (q2, _p2) = join(&a, &b, &shared, &connected_options(), &b.receives)?;
    post_shared(&b, &shared, 0, 8, 64)?;
    let before = b.arena.usage().allocated;
    // Two messages that nobody polls.
    for id in 0..2 {
        post(&q1, id, SendOperation::Send, inline(b"not polled")?)?;
    }
    expect(&a.sent(2)?, &[(0, Success), (1, Success)])?;
    arrive(&a, &q1, &b)?;
    drop(p1);
    let after = b.arena.usage().allocated;
    ensure_eq!(after, before / 8 * 6, "bytes still posted");
    post_shared(&b, &shared, 8, 2, 64)?;
    for id in 2..10u64 {
        post(&q2, id, SendOperation::Send, inline(&id.to_le_bytes())?)?;
        let received = b.received(1)?;
        expect(&received, &[(id, Success)])?;
        ensure_eq!(bytes_of(&received[0])?, id.to_le_bytes(), "payload");
    }
    b.silent()?;
    Ok(Verdict::Passed)
}

fn dropped(provider: &dyn Provider) -> CaseResult {
    let (b, shared) = shared!(provider, 16);
    let a = Node::open(provider)?;
    for round in 0..rounds(provider, 60) {
        let queue = if round % 2 == 0 {
            shared.clone()
        } else {
            b.device.create_shared_receive_queue(16)?
        };
        let (q1, p1) = join(&a, &b, &queue, &connected_options(), &b.receives)?;
        let (q2, p2) = join(&a, &b, &queue, &connected_options(), &b.receives)?;
        if round < 2 || round % 2 == 1 {
            post_shared(&b, &queue, 0, 16, 512)?;
        }
        post(&q1, 0, SendOperation::Send, a.owned(&[1; 500])?)?;
        post(&q2, 1, SendOperation::Send, a.owned(&[2; 500])?)?;
        match round % 3 {
            // With messages under way, with messages nobody polled, and with none.
            0 => {}
            1 => drop(a.sent(2)?),
            _ => {
                let sent = a.sent(2)?;
                for completion in b.received(2)? {
                    let buffer = completion.buffer;
                    queue.post_receive(&mut vec![ReceiveRequest { id: 0, buffer }])?;
                }
                drop(sent);
            }
        }
        if round % 4 < 2 {
            // The handle goes first: the queue pairs keep the queue.
            drop(queue);
            drop((p1, q1, q2, p2));
        } else {
            drop((q2, p2, p1, q1));
        }
        let mut stale = Vec::new();
        a.sends.poll(&mut stale, 8);
        if !stale.is_empty() {
            fail!("a completion of a queue pair that is gone: {stale:?}");
        }
        if round % 2 == 0 {
            let usage = b.arena.usage().allocated;
            post_shared(&b, &shared, 0, 16 - usage as u64 / 512, 512)?;
        }
    }
    drop(shared);
    for node in [&a, &b] {
        let allocated = node.arena.usage().allocated;
        ensure_eq!(allocated, 0, "bytes allocated in the end");
        node.arena.shrink();
        ensure_eq!(
            node.arena.usage().registered,
            0,
            "bytes registered in the end"
        );
        node.silent()?;
    }
    Ok(Verdict::Passed)
}

fn many(provider: &dyn Provider) -> CaseResult {
    const PAIRS: usize = 24;
    let limit = Node::open(provider)?
        .device
        .capabilities()
        .shared_receives_max;
    let (b, shared) = shared!(provider, limit.min(4096));
    let a = Node::open(provider)?;
    let receives = b.device.create_completion_queue(1, None)?;
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        pairs.push(join(&a, &b, &shared, &connected_options(), &receives)?);
    }
    let total = 16 * PAIRS as u64;
    post_shared(&b, &shared, 0, total, 16)?;
    for id in 0..16u64 {
        for (qa, _) in &pairs {
            post(qa, id, SendOperation::Send, inline(&id.to_le_bytes())?)?;
        }
    }
    a.sent(total as usize)?;
    let received = wait_for(provider, &receives, total as usize)?;
    let mut ids: Vec<u64> = received.iter().map(|completion| completion.id).collect();
    ids.sort_unstable();
    ensure!(
        ids.into_iter().eq(0..total),
        "a receive was used twice, or not at all"
    );
    for (_, qb) in &pairs {
        let own = received.iter().filter(|c| c.queue_pair == qb.number());
        let messages = own.map(bytes_of).collect::<Result<Vec<_>, _>>()?;
        let wanted = (0..16u64).map(|id| id.to_le_bytes().to_vec());
        ensure!(
            messages.into_iter().eq(wanted),
            "a queue pair's messages, in order"
        );
    }
    Ok(Verdict::Passed)
}

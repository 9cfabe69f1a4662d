//! Completion queues of many queue pairs: nothing overruns them, and nothing stale is in them.

use super::fixture::*;
use super::lacking::*;
use super::report::{CaseResult, Failure, ensure, ensure_eq};
use super::{Case, Provider, Verdict};
use roundel_verbs::completion_queue::CompletionQueue;
use roundel_verbs::queue_pair::{QueuePair, QueuePairOptions};
use roundel_verbs::work::CompletionStatus::{Flushed, Success};
use roundel_verbs::work::SendOperation;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "completion queues: more queue pairs than its depth lose nothing",
        verbs: "a completion queue that is too small overruns and breaks its queue pairs; here it \
                grows with them",
        run: no_overrun,
    },
    Case {
        name: "completion queues: flushes of many queue pairs fit too",
        verbs: "as above, when every queue pair breaks with full queues",
        run: all_flushed,
    },
    Case {
        name: "completion queues: queue pairs that are gone leave nothing",
        verbs: "completions of a destroyed queue pair are not returned any more",
        run: come_and_go,
    },
    Case {
        name: "completion queues: nothing stale hides what is fresh",
        verbs: "(a rule of this object model: polling returns none only when there is none)",
        run: fresh_behind_stale,
    },
    Case {
        name: "completion queues: growing keeps what is on them",
        verbs: "ibv_resize_cq keeps completions",
        run: growing,
    },
    Case {
        name: "completion queues: two threads poll one",
        verbs: "ibv_poll_cq is thread safe; each completion is returned once",
        run: two_threads,
    },
];

/// A queue pair of `node` with completion queues of one entry each, and its peer at `other`.
fn pair_on(
    node: &Node<'_>,
    sends: &CompletionQueue,
    receives: &CompletionQueue,
    other: &Node<'_>,
    options: &QueuePairOptions,
) -> Result<(QueuePair, QueuePair), Failure> {
    let pair = node.device.create_queue_pair(options, sends, receives)?;
    let peer = other.queue_pair(options)?;
    pair.connect(peer.address())?;
    peer.connect(pair.address())?;
    Ok((pair, peer))
}

fn no_overrun(provider: &dyn Provider) -> CaseResult {
    const PAIRS: usize = 12;
    const EACH: u64 = 64;
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    // One for both directions, and one for each.
    let both = b.device.create_completion_queue(1, None)?;
    let sends = b.device.create_completion_queue(1, None)?;
    let receives = b.device.create_completion_queue(1, None)?;
    let mut pairs = Vec::new();
    for index in 0..PAIRS {
        let queues = if index % 2 == 0 {
            (&both, &both)
        } else {
            (&sends, &receives)
        };
        pairs.push(pair_on(&b, queues.0, queues.1, &a, &connected_options())?);
    }
    for (pair, peer) in &pairs {
        b.post_receives(pair, 0, EACH as usize, 8)?;
        a.post_receives(peer, 0, EACH as usize, 8)?;
    }
    for id in 0..EACH {
        for (pair, peer) in &pairs {
            post(peer, id, SendOperation::Send, inline(&id.to_le_bytes())?)?;
            post(pair, id, SendOperation::Send, inline(&id.to_le_bytes())?)?;
        }
    }
    let total = PAIRS * EACH as usize;
    a.sent(total)?;
    a.received(total)?;
    // Only now, with every queue pair's queues full of completions.
    let mut found = wait_for(provider, &both, total)?;
    found.extend(wait_for(provider, &sends, total / 2)?);
    found.extend(wait_for(provider, &receives, total / 2)?);
    for (pair, _) in &pairs {
        let own = |receive: bool| {
            found.iter().filter(move |completion| {
                completion.queue_pair == pair.number()
                    && (completion.opcode == roundel_verbs::Opcode::Receive) == receive
            })
        };
        for receive in [false, true] {
            let ids = own(receive).map(|completion| (completion.id, completion.status));
            ensure!(
                ids.eq((0..EACH).map(|id| (id, Success))),
                "completions of {pair:?}: {:?}",
                own(receive).collect::<Vec<_>>()
            );
        }
        for completion in own(true) {
            ensure_eq!(
                bytes_of(completion)?,
                completion.id.to_le_bytes(),
                "payload"
            );
        }
    }
    b.silent()?;
    Ok(Verdict::Passed)
}

fn all_flushed(provider: &dyn Provider) -> CaseResult {
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let queue = b.device.create_completion_queue(1, None)?;
    let mut pairs = Vec::new();
    // Where SENDs do not wait for a receive, none stays posted.
    let sends = if waits_for_receive(&b) { 64 } else { 0 };
    for _ in 0..8 {
        let (pair, peer) = pair_on(&b, &queue, &queue, &a, &connected_options())?;
        b.post_receives(&pair, 100, 64, 8)?;
        for id in 0..sends {
            // The peer has no receives: they wait.
            post(&pair, id, SendOperation::Send, inline(b"waits")?)?;
        }
        pairs.push((pair, peer));
    }
    for (pair, _) in &pairs {
        pair.modify_to_error();
    }
    let found = wait_for(provider, &queue, 8 * (sends as usize + 64))?;
    ensure!(
        found.iter().all(|completion| completion.status == Flushed),
        "something was not flushed"
    );
    for (pair, _) in &pairs {
        let own = found.iter().filter(|c| c.queue_pair == pair.number());
        let (sent, receives): (Vec<_>, Vec<_>) = own.map(|c| c.id).partition(|id| *id < 100);
        ensure!(sent.into_iter().eq(0..sends), "sends flushed in order");
        ensure!(
            receives.into_iter().eq(100..164),
            "receives flushed in order"
        );
    }
    Ok(match sends {
        0 => Verdict::Differs(NO_WAITING.into()),
        _ => Verdict::Passed,
    })
}

fn come_and_go(provider: &dyn Provider) -> CaseResult {
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let queue = b.device.create_completion_queue(1, None)?;
    let (lasting, lasting_peer) = pair_on(&b, &queue, &queue, &a, &connected_options())?;
    let mut expected = 0;
    for round in 0..rounds(provider, 400) {
        let (pair, peer) = pair_on(&b, &queue, &queue, &a, &connected_options())?;
        b.post_receives(&pair, 1000, 32, 64)?;
        a.post_receives(&peer, 1000, 32, 64)?;
        for id in 0..32 {
            post(&peer, id, SendOperation::Send, inline(b"never polled")?)?;
            post(&pair, id, SendOperation::Send, inline(b"never polled")?)?;
        }
        // The one that stays has something on the queue, in between the others'.
        if round % 4 == 0 && expected < 64 {
            b.post_receives(&lasting, expected, 1, 8)?;
            post(
                &lasting_peer,
                expected,
                SendOperation::Send,
                inline(&expected.to_le_bytes())?,
            )?;
            expected += 1;
            a.sent(1 + 32)?;
        } else {
            a.sent(32)?;
        }
        a.received(32)?;
        match round % 3 {
            0 => drop((pair, peer)),
            1 => drop((peer, pair)),
            _ => {
                pair.modify_to_error();
                drop((pair, peer));
            }
        }
    }
    let kept = wait_for(provider, &queue, expected as usize)?;
    expect(
        &kept,
        &(0..expected).map(|id| (id, Success)).collect::<Vec<_>>(),
    )?;
    drop(kept);
    let mut stale = Vec::new();
    ensure_eq!(queue.poll(&mut stale, 64), 0, "completions left");
    ensure_eq!(b.arena.usage().allocated, 0, "bytes still allocated");
    drop((lasting, lasting_peer));
    Ok(Verdict::Passed)
}

fn fresh_behind_stale(provider: &dyn Provider) -> CaseResult {
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let queue = b.device.create_completion_queue(8, None)?;
    let (first, first_peer) = pair_on(&b, &queue, &queue, &a, &connected_options())?;
    let (second, second_peer) = pair_on(&b, &queue, &queue, &a, &connected_options())?;
    a.post_receives(&first_peer, 0, 4, 64)?;
    a.post_receives(&second_peer, 0, 4, 64)?;
    for id in 0..4 {
        post(&first, id, SendOperation::Send, inline(b"stale")?)?;
    }
    a.received(4)?;
    post(&second, 9, SendOperation::Send, inline(b"fresh")?)?;
    a.received(1)?;
    // The receiver has them; the acknowledgements take a little longer.
    std::thread::sleep(SILENCE);
    drop(first);
    let mut found = Vec::new();
    ensure_eq!(
        queue.poll(&mut found, 1),
        1,
        "completions of the first poll"
    );
    expect(&found, &[(9, Success)])?;
    Ok(Verdict::Passed)
}

fn growing(provider: &dyn Provider) -> CaseResult {
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let queue = b.device.create_completion_queue(1, None)?;
    let options = QueuePairOptions {
        send_depth: 8,
        receive_depth: 8,
        ..connected_options()
    };
    let mut pairs: Vec<(QueuePair, QueuePair)> = Vec::new();
    // Every queue pair finds the completions of those before it on the queue.
    for count in 0..24u64 {
        let (pair, peer) = pair_on(&b, &queue, &queue, &a, &options)?;
        b.post_receives(&pair, count, 1, 8)?;
        post(
            &peer,
            count,
            SendOperation::Send,
            inline(&count.to_le_bytes())?,
        )?;
        a.sent(1)?;
        pairs.push((pair, peer));
    }
    let found = wait_for(provider, &queue, 24)?;
    for (completion, (pair, _)) in found.iter().zip(&pairs) {
        ensure_eq!(completion.queue_pair, pair.number(), "queue pair");
        ensure_eq!(
            bytes_of(completion)?,
            completion.id.to_le_bytes(),
            "payload"
        );
    }
    Ok(Verdict::Passed)
}

fn two_threads(provider: &dyn Provider) -> CaseResult {
    let messages = rounds(provider, 4000);
    let c = Connection::open(provider)?;
    c.b.post_receives(&c.qb, 0, 64, 8)?;
    let taken = parking_lot::Mutex::new(Vec::new());
    let (queue, qb, taken) = (&c.b.receives, &c.qb, &taken);
    let end = now() + PATIENCE;
    // Where SENDs do not wait for a receive, there are no more than there are receives.
    let window = if waits_for_receive(&c.a) {
        u64::MAX
    } else {
        64
    };
    let take = || -> Result<(), Failure> {
        loop {
            let mut found = Vec::new();
            queue.poll(&mut found, 3);
            for completion in found {
                let bytes = bytes_of(&completion)?;
                let buffer = completion.buffer;
                post_receives(qb, vec![roundel_verbs::ReceiveRequest { id: 0, buffer }])?;
                taken.lock().push(bytes);
            }
            let count = taken.lock().len();
            if count as u64 >= messages {
                return Ok(());
            }
            ensure!(now() < end, "only {count} of {messages} came");
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let takers = [scope.spawn(take), scope.spawn(take)];
        let mut requests = (0..messages)
            .map(|id| Ok(request(id, SendOperation::Send, inline(&id.to_le_bytes())?)))
            .collect::<Result<Vec<_>, Failure>>()?;
        let mut sent = Vec::new();
        while (sent.len() as u64) < messages && now() < end {
            let posted = messages - requests.len() as u64;
            let room = window.saturating_sub(posted - taken.lock().len() as u64);
            let mut next: Vec<_> = requests
                .drain(..requests.len().min(room.min(messages) as usize))
                .collect();
            c.qa.post_send(&mut next)?;
            requests.splice(..0, next);
            c.a.sends.poll(&mut sent, 64);
            provider.idle();
        }
        for taker in takers {
            taker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok::<_, Failure>(())
    })?;
    let mut taken = taken.lock().clone();
    taken.sort_by_key(|bytes| bytes.iter().rev().copied().collect::<Vec<_>>());
    let wanted = (0..messages).map(|id| id.to_le_bytes().to_vec());
    ensure!(
        taken.into_iter().eq(wanted),
        "a message came twice, or never"
    );
    Ok(Verdict::Passed)
}

//! Completions that race the arming of their queue: whoever sleeps is woken, however close it was.

use super::channels::{Sleeper, asleep, sleeper};
use super::fixture::*;
use super::report::{CaseResult, Failure, ensure, ensure_eq};
use super::{Case, Provider, Verdict};
use roundel_verbs::completion_queue::CompletionQueue;
use roundel_verbs::queue_pair::QueuePair;
use roundel_verbs::work::CompletionStatus::Success;
use roundel_verbs::work::{ReceiveRequest, SendOperation};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "arming: completions that race it are not forgotten",
        verbs: "ibv_req_notify_cq, then ibv_poll_cq once more: a completion is found by the poll or \
                raises the event",
        run: races,
    },
    Case {
        name: "arming: one thread sleeps for many queues",
        verbs: "armed queues of one channel each raise their own event",
        run: many_queues,
    },
    Case {
        name: "arming: two threads arm one queue",
        verbs: "arming an armed queue changes nothing",
        run: two_threads,
    },
    Case {
        name: "arming: a queue that grows stays armed",
        verbs: "ibv_resize_cq does not disarm",
        run: growing,
    },
    Case {
        name: "arming: sends and receives of one queue",
        verbs: "completions of either direction raise the event",
        run: both_directions,
    },
];

/// Sends one message after the other, each a moment after the one before was taken. The moments
/// sweep over what the receiver does from its last poll to its sleep.
fn send_at_all_moments(
    pair: &QueuePair,
    sends: &CompletionQueue,
    taken: &AtomicU64,
    messages: u64,
) -> Result<(), Failure> {
    let mut done = Vec::new();
    let taken_before = |id| {
        let end = now() + PATIENCE;
        while taken.load(Ordering::Acquire) < id {
            ensure!(now() < end, "message {} was never taken", id - 1);
            std::thread::yield_now();
        }
        Ok(())
    };
    for id in 0..messages {
        taken_before(id)?;
        for _ in 0..id * 37 % 2000 {
            std::hint::spin_loop();
        }
        post(pair, id, SendOperation::Send, inline(&id.to_le_bytes())?)?;
        sends.poll(&mut done, 64);
    }
    // A queue pair that is dropped may take its last message with it.
    taken_before(messages)
}

/// Takes a message and posts its receive again.
fn take(
    completion: roundel_verbs::Completion,
    pair: &QueuePair,
    taken: &AtomicU64,
) -> Result<(), Failure> {
    let count = taken.load(Ordering::Relaxed);
    ensure_eq!(completion.status, Success, "status of message {count}");
    ensure_eq!(bytes_of(&completion)?, count.to_le_bytes(), "message");
    let buffer = completion.buffer;
    post_receives(pair, vec![ReceiveRequest { id: 0, buffer }])?;
    taken.store(count + 1, Ordering::Release);
    Ok(())
}

fn races(provider: &dyn Provider) -> CaseResult {
    let messages = rounds(provider, 10_000);
    let (a, b) = (Node::open(provider)?, sleeper!(provider));
    let (qa, qb) = connect(&a, &b.node, &connected_options())?;
    b.node.post_receives(&qb, 0, 4, 8)?;
    let taken = &AtomicU64::new(0);
    std::thread::scope(|scope| {
        let sends = a.sends.clone();
        let sender = scope.spawn(move || send_at_all_moments(&qa, &sends, taken, messages));
        let received = (0..messages).try_for_each(|_| {
            let completion = asleep(&b.node.receives)?.remove(0);
            take(completion, &qb, taken)
        });
        received.and(join(sender))
    })?;
    Ok(Verdict::Passed)
}

/// What a thread came to.
fn join(thread: std::thread::ScopedJoinHandle<'_, Result<(), Failure>>) -> Result<(), Failure> {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn many_queues(provider: &dyn Provider) -> CaseResult {
    const QUEUES: usize = 5;
    let messages = rounds(provider, 4000);
    let (a, b) = (Node::open(provider)?, sleeper!(provider));
    let mut work = Vec::new();
    for _ in 0..QUEUES {
        let receives = b.node.device.create_completion_queue(8, Some(&b.channel))?;
        let options = connected_options();
        let pair = b
            .node
            .device
            .create_queue_pair(&options, &b.node.sends, &receives)?;
        let peer = a.queue_pair(&options)?;
        pair.connect(peer.address())?;
        peer.connect(pair.address())?;
        b.node.post_receives(&pair, 0, 4, 8)?;
        work.push((pair, peer, receives, AtomicU64::new(0)));
    }
    std::thread::scope(|scope| {
        let senders: Vec<_> = work
            .iter()
            .map(|(_, peer, _, taken)| {
                let sends = a.sends.clone();
                scope.spawn(move || send_at_all_moments(peer, &sends, taken, messages))
            })
            .collect();
        let poll_all = || -> Result<usize, Failure> {
            let mut count = 0;
            for (pair, _, receives, taken) in &work {
                let mut found = Vec::new();
                count += receives.poll(&mut found, 4);
                for completion in found {
                    take(completion, pair, taken)?;
                }
            }
            Ok(count)
        };
        let receive = || -> Result<(), Failure> {
            let mut left = QUEUES as u64 * messages;
            while left > 0 {
                for (_, _, receives, _) in &work {
                    receives.arm();
                }
                let count = poll_all()?;
                left -= count as u64;
                if count == 0 {
                    ensure!(
                        b.readable(PATIENCE)?,
                        "no event although {left} messages are to come"
                    );
                    b.channel.acknowledge();
                }
            }
            Ok(())
        };
        let received = receive();
        senders.into_iter().map(join).fold(received, Result::and)
    })?;
    Ok(Verdict::Passed)
}

fn two_threads(provider: &dyn Provider) -> CaseResult {
    let messages = rounds(provider, 4000);
    let (a, b) = (Node::open(provider)?, sleeper!(provider));
    let (qa, qb) = connect(&a, &b.node, &connected_options())?;
    b.node.post_receives(&qb, 0, 4, 8)?;
    let taken = &AtomicU64::new(0);
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sends = a.sends.clone();
        let sender = scope.spawn(move || send_at_all_moments(&qa, &sends, taken, messages));
        let receives = b.node.receives.clone();
        let other = scope.spawn(move || {
            while !done.load(Ordering::Acquire) {
                receives.arm();
                std::thread::yield_now();
            }
            Ok(())
        });
        let received = (0..messages).try_for_each(|_| {
            let completion = asleep(&b.node.receives)?.remove(0);
            take(completion, &qb, taken)
        });
        done.store(true, Ordering::Release);
        received.and(join(sender)).and(join(other))
    })?;
    Ok(Verdict::Passed)
}

fn growing(provider: &dyn Provider) -> CaseResult {
    let (a, b) = (Node::open(provider)?, sleeper!(provider));
    let queue = b.node.device.create_completion_queue(1, Some(&b.channel))?;
    let mut pairs = Vec::new();
    queue.arm();
    for _ in 0..6 {
        let options = connected_options();
        let pair = b.node.device.create_queue_pair(&options, &queue, &queue)?;
        let peer = a.queue_pair(&options)?;
        pair.connect(peer.address())?;
        peer.connect(pair.address())?;
        pairs.push((pair, peer));
    }
    let (pair, peer) = &pairs[3];
    b.node.post_receives(pair, 0, 1, 8)?;
    post(peer, 1, SendOperation::Send, inline(b"wake up")?)?;
    ensure!(
        b.readable(PATIENCE)?,
        "no event of a queue that has grown since it was armed"
    );
    wait_for(provider, &queue, 1)?;
    Ok(Verdict::Passed)
}

fn both_directions(provider: &dyn Provider) -> CaseResult {
    let (a, b) = (Node::open(provider)?, sleeper!(provider));
    let queue = b.node.device.create_completion_queue(8, Some(&b.channel))?;
    let options = connected_options();
    let pair = b.node.device.create_queue_pair(&options, &queue, &queue)?;
    let peer = a.queue_pair(&options)?;
    pair.connect(peer.address())?;
    peer.connect(pair.address())?;
    for round in 0..rounds(provider, 200) {
        a.post_receives(&peer, round, 1, 8)?;
        b.node.post_receives(&pair, round, 1, 8)?;
        let from = if round % 2 == 0 { &peer } else { &pair };
        std::thread::scope(|scope| -> Result<(), Failure> {
            let sender = scope.spawn(move || post(from, round, SendOperation::Send, inline(b"x")?));
            let found = asleep(&queue)?;
            expect(&found, &[(round, Success)])?;
            join(sender)
        })?;
        // The other end's completion, and what is left for the next round.
        if round % 2 == 0 {
            a.sent(1)?;
            post(&pair, round, SendOperation::Send, inline(b"y")?)?;
            expect(&asleep(&queue)?, &[(round, Success)])?;
            a.received(1)?;
        } else {
            a.received(1)?;
            post(&peer, round, SendOperation::Send, inline(b"y")?)?;
            expect(&asleep(&queue)?, &[(round, Success)])?;
            a.sent(1)?;
        }
    }
    Ok(Verdict::Passed)
}

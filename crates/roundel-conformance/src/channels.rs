//! Completion channels: nobody who sleeps is forgotten, blocking or in a task.

use super::fixture::*;
use super::lacking::*;
use super::report::{CaseResult, Failure, ensure, ensure_eq};
use super::{Case, Provider, Verdict};
use roundel_verbs::completion_queue::{CompletionChannel, CompletionQueue, until_ready};
use roundel_verbs::queue_pair::{QueuePair, QueuePairOptions};
use roundel_verbs::work::CompletionStatus::{Flushed, ReceiverNotReady, Success};
use roundel_verbs::work::{Completion, ReceiveRequest, SendOperation};
use std::future::Future;
use std::task::Poll;
use std::time::Duration;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "channels: arming makes one event",
        verbs: "ibv_req_notify_cq asks for one event at the next completion; without it there is none",
        run: one_event,
    },
    Case {
        name: "channels: what came before the arming makes no event",
        verbs: "completions that were on the queue before ibv_req_notify_cq raise no event: poll \
                again after it",
        run: before_arming,
    },
    Case {
        name: "channels: a blocking wait ends at its timeout",
        verbs: "poll(2) on the channel's descriptor with a timeout",
        run: timeout,
    },
    Case {
        name: "channels: ping-pong between sleepers loses no wake-up",
        verbs: "a thread that arms, polls and sleeps is woken by every completion after its poll",
        run: ping_pong,
    },
    Case {
        name: "channels: a sleeper is woken for a send that had to wait",
        verbs: "send completions raise events too",
        run: late_send,
    },
    Case {
        name: "channels: a sleeper is woken when retries end",
        verbs: "the error completion of an exhausted RNR retry raises an event",
        run: retries_end,
    },
    Case {
        name: "channels: a sleeper is woken by the break",
        verbs: "flushed completions raise events",
        run: break_wakes,
    },
    Case {
        name: "channels: tasks on one channel each get their wake-up",
        verbs: "many completion queues may share one channel",
        run: tasks,
    },
    Case {
        name: "channels: two tasks wait for one queue",
        verbs: "an event wakes whoever waits; which of them polls first does not matter",
        run: two_tasks_one_queue,
    },
    Case {
        name: "channels: the driver ends with its channel",
        verbs: "(a rule of this object model: nothing is kept alive by being watched)",
        run: driver_ends,
    },
];

/// A node whose queues share a channel.
pub(crate) struct Sleeper<'a> {
    pub node: Node<'a>,
    pub channel: CompletionChannel,
}

impl<'a> Sleeper<'a> {
    /// `None` when the provider has no channels.
    pub(crate) fn open(provider: &'a dyn Provider) -> Result<Option<Self>, Failure> {
        let device = provider.open()?;
        if device.capabilities().completion_channels_max == 0 {
            return Ok(None);
        }
        let channel = device.create_channel()?;
        let mut node = Node::on(provider, device)?;
        node.sends = node.device.create_completion_queue(64, Some(&channel))?;
        node.receives = node.device.create_completion_queue(64, Some(&channel))?;
        Ok(Some(Self { node, channel }))
    }

    /// Whether there is an event, now or before the timeout.
    pub(crate) fn readable(&self, timeout: Duration) -> Result<bool, Failure> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.channel, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        poll(&mut fds, Some(&timeout))
            .map(|ready| ready > 0)
            .map_err(|errno| Failure(format!("poll: {errno}")))
    }
}

macro_rules! sleeper {
    ($provider:expr) => {
        match Sleeper::open($provider)? {
            Some(sleeper) => sleeper,
            None => return Ok(Verdict::Differs("there are no completion channels".into())),
        }
    };
}

pub(crate) use sleeper;

fn one_event(provider: &dyn Provider) -> CaseResult {
    let (a, b) = (Node::open(provider)?, sleeper!(provider));
    let (qa, qb) = connect(&a, &b.node, &connected_options())?;
    b.node.post_receives(&qb, 0, 6, 64)?;
    post(&qa, 0, SendOperation::Send, inline(b"not armed")?)?;
    ensure!(!b.readable(SILENCE)?, "an event without arming");
    b.node.received(1)?;
    b.node.receives.arm();
    b.node.receives.arm();
    ensure!(!b.readable(SILENCE)?, "an event without a completion");
    for id in 1..4 {
        post(&qa, id, SendOperation::Send, inline(b"armed once")?)?;
    }
    ensure!(b.readable(PATIENCE)?, "no event for the first completion");
    b.channel.acknowledge();
    ensure!(!b.readable(SILENCE)?, "more than one event for one arming");
    ensure_eq!(b.node.received(3)?.len(), 3, "completions");
    b.node.receives.arm();
    post(&qa, 4, SendOperation::Send, inline(b"again")?)?;
    ensure!(b.readable(PATIENCE)?, "no event after arming again");
    Ok(Verdict::Passed)
}

fn before_arming(provider: &dyn Provider) -> CaseResult {
    let (a, b) = (Node::open(provider)?, sleeper!(provider));
    let (qa, qb) = connect(&a, &b.node, &connected_options())?;
    b.node.post_receives(&qb, 0, 2, 64)?;
    post(&qa, 1, SendOperation::Send, inline(b"early")?)?;
    a.sent(1)?;
    arrive(&a, &qa, &b.node)?;
    b.node.receives.arm();
    let mut found = Vec::new();
    ensure_eq!(
        b.node.receives.poll(&mut found, 8),
        1,
        "polling after arming"
    );
    Ok(Verdict::Passed)
}

fn timeout(provider: &dyn Provider) -> CaseResult {
    let b = sleeper!(provider);
    let start = now();
    let wanted = Duration::from_millis(30);
    let found = b.node.receives.wait(&mut Vec::new(), 1, 10, wanted)?;
    ensure_eq!(found, 0, "completions");
    let took = start.elapsed();
    ensure!(took >= wanted && took < PATIENCE, "it took {took:?}");
    let unwatched = b.node.device.create_completion_queue(4, None)?;
    ensure!(
        unwatched.wait(&mut Vec::new(), 1, 0, wanted).is_err(),
        "waiting on a queue without a channel"
    );
    Ok(Verdict::Passed)
}

/// Waits without spinning until something came.
pub(crate) fn asleep(queue: &CompletionQueue) -> Result<Vec<Completion>, Failure> {
    let mut found = Vec::new();
    queue.wait(&mut found, 1, 0, PATIENCE)?;
    if found.is_empty() {
        return Err(Failure("a sleeper was not woken".into()));
    }
    Ok(found)
}

/// The two completion queues of a node. A node borrows the provider, which need not be `Sync`: another thread has only
/// these.
struct Queues {
    sends: CompletionQueue,
    receives: CompletionQueue,
}

impl Queues {
    fn of(node: &Node<'_>) -> Self {
        Self {
            sends: node.sends.clone(),
            receives: node.receives.clone(),
        }
    }

    fn echo(&self, pair: &QueuePair, rounds: u64, begins: bool) -> Result<(), Failure> {
        let mut sent = Vec::new();
        for round in 0..rounds {
            let ball = round.to_le_bytes();
            let throw = || post(pair, round, SendOperation::Send, inline(&ball)?);
            if begins {
                throw()?;
            }
            let completion = asleep(&self.receives)?.remove(0);
            ensure_eq!(bytes_of(&completion)?, ball, "ball");
            let request = ReceiveRequest {
                id: round,
                buffer: completion.buffer,
            };
            post_receives(pair, vec![request])?;
            if !begins {
                throw()?;
            }
            self.sends.poll(&mut sent, 64);
        }
        let end = now() + PATIENCE;
        while (sent.len() as u64) < rounds && now() < end {
            self.sends.poll(&mut sent, 64);
            std::thread::yield_now();
        }
        let succeeded = sent.iter().filter(|one| one.status == Success).count();
        ensure_eq!(succeeded as u64, rounds, "sends that completed");
        Ok(())
    }
}

fn ping_pong(provider: &dyn Provider) -> CaseResult {
    let rounds = rounds(provider, 2000);
    let (a, b) = (sleeper!(provider), sleeper!(provider));
    let (qa, qb) = connect(&a.node, &b.node, &connected_options())?;
    a.node.post_receives(&qa, 0, 2, 64)?;
    b.node.post_receives(&qb, 0, 2, 64)?;
    let (first, second) = (Queues::of(&a.node), Queues::of(&b.node));
    // A queue pair that is dropped may take its last message with it.
    let qb = &qb;
    std::thread::scope(|scope| {
        let second = scope.spawn(move || second.echo(qb, rounds, false));
        let first = first.echo(&qa, rounds, true);
        let second = second
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        first.and(second)
    })?;
    Ok(Verdict::Passed)
}

fn late_send(provider: &dyn Provider) -> CaseResult {
    waiting_needed!(provider);
    let (a, b) = (sleeper!(provider), Node::open(provider)?);
    let (qa, qb) = connect(&a.node, &b, &connected_options())?;
    post(&qa, 3, SendOperation::Send, inline(b"patient")?)?;
    std::thread::scope(|scope| {
        let buffer = b.arena.allocate(64)?;
        let qb = &qb;
        scope.spawn(move || {
            std::thread::sleep(SILENCE);
            let buffer = Some(buffer);
            let _ = qb.post_receive(&mut vec![ReceiveRequest { id: 1, buffer }]);
        });
        expect(&asleep(&a.node.sends)?, &[(3, Success)])
    })?;
    expect(&b.received(1)?, &[(1, Success)])?;
    Ok(Verdict::Passed)
}

fn retries_end(provider: &dyn Provider) -> CaseResult {
    waiting_needed!(provider);
    let (a, b) = (sleeper!(provider), Node::open(provider)?);
    let options = QueuePairOptions {
        rnr_retry: 3,
        ..connected_options()
    };
    let (qa, _qb) = connect(&a.node, &b, &options)?;
    post(&qa, 3, SendOperation::Send, inline(b"impatient")?)?;
    expect(&asleep(&a.node.sends)?, &[(3, ReceiverNotReady)])?;
    Ok(Verdict::Passed)
}

fn break_wakes(provider: &dyn Provider) -> CaseResult {
    let b = sleeper!(provider);
    let a = Node::open(provider)?;
    let (qa, qb) = connect(&a, &b.node, &connected_options())?;
    b.node.post_receives(&qb, 1, 1, 64)?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(SILENCE);
            qb.modify_to_error();
        });
        expect(&asleep(&b.node.receives)?, &[(1, Flushed)])
    })?;
    drop(qa);
    Ok(Verdict::Passed)
}

fn on_runtime(
    channels: &[&CompletionChannel],
    work: impl Future<Output = Result<(), Failure>>,
) -> CaseResult {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure(format!("no runtime: {error}")))?;
    runtime.block_on(async {
        for channel in channels {
            tokio::spawn(channel.drive()?);
        }
        match tokio::time::timeout(PATIENCE, work).await {
            Ok(done) => done.map(|()| Verdict::Passed),
            Err(_) => Err(Failure("a task was not woken".into())),
        }
    })
}

async fn next(queue: &CompletionQueue) -> Completion {
    let mut found = Vec::new();
    until_ready(&[queue], |_| {
        if queue.poll(&mut found, 1) > 0 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    found.remove(0)
}

fn tasks(provider: &dyn Provider) -> CaseResult {
    const PAIRS: usize = 4;
    let rounds = rounds(provider, 300);
    let (a, b) = (sleeper!(provider), sleeper!(provider));
    let mut work = Vec::new();
    for _ in 0..PAIRS {
        for (node, channel) in [(&a.node, &a.channel), (&b.node, &b.channel)] {
            let sends = node.device.create_completion_queue(64, Some(channel))?;
            let receives = node.device.create_completion_queue(64, Some(channel))?;
            let pair = node
                .device
                .create_queue_pair(&connected_options(), &sends, &receives)?;
            node.post_receives(&pair, 0, 4, 64)?;
            work.push((pair, sends, receives));
        }
    }
    for pairs in work.chunks_exact(2) {
        pairs[0].0.connect(pairs[1].0.address())?;
        pairs[1].0.connect(pairs[0].0.address())?;
    }
    on_runtime(&[&a.channel, &b.channel], async move {
        let mut tasks = tokio::task::JoinSet::new();
        for (index, (pair, sends, receives)) in work.into_iter().enumerate() {
            tasks.spawn(async move {
                for round in 0..rounds {
                    if index % 2 == 0 || round > 0 {
                        post(&pair, round, SendOperation::Send, inline(b"ball")?)?;
                        expect(&[next(&sends).await], &[(round, Success)])?;
                    }
                    let completion = next(&receives).await;
                    ensure_eq!(completion.status, Success, "status");
                    let buffer = completion.buffer;
                    post_receives(&pair, vec![ReceiveRequest { id: 0, buffer }])?;
                }
                // The second of a pair owes its last answer; both stay until it was received.
                if index % 2 == 1 {
                    post(&pair, rounds, SendOperation::Send, inline(b"ball")?)?;
                    next(&sends).await;
                }
                Ok::<_, Failure>((pair, sends, receives))
            });
        }
        let mut done = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            done.push(ended.map_err(|error| Failure(error.to_string()))??);
        }
        Ok(())
    })
}

fn two_tasks_one_queue(provider: &dyn Provider) -> CaseResult {
    let messages = rounds(provider, 400);
    let (a, b) = (Node::open(provider)?, sleeper!(provider));
    let (qa, qb) = connect(&a, &b.node, &connected_options())?;
    b.node.post_receives(&qb, 0, 32, 64)?;
    let receives = &b.node.receives;
    let taken = std::sync::atomic::AtomicU64::new(0);
    let (taken, qb) = (&taken, &qb);
    // Where SENDs do not wait for a receive, there are no more than there are receives.
    let window = if waits_for_receive(&a) { u64::MAX } else { 32 };
    let take = || async move {
        loop {
            let mut found = Vec::new();
            until_ready(&[receives], |_| {
                use std::sync::atomic::Ordering::SeqCst;
                if receives.poll(&mut found, 1) > 0 || taken.load(SeqCst) >= messages {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            let Some(completion) = found.pop() else {
                return Ok::<_, Failure>(());
            };
            if taken.load(std::sync::atomic::Ordering::SeqCst) >= messages {
                // The sender has gone, and what is left was flushed.
                return Ok(());
            }
            ensure_eq!(completion.status, Success, "status");
            let buffer = completion.buffer;
            post_receives(qb, vec![ReceiveRequest { id: 0, buffer }])?;
            if taken.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1 == messages {
                // The other one waits for a message that will not come.
                receives.wake();
            }
        }
    };
    std::thread::scope(|scope| {
        let sends = a.sends.clone();
        let sender = scope.spawn(move || -> Result<(), Failure> {
            let mut done = Vec::new();
            let end = now() + PATIENCE;
            for id in 0..messages {
                let mut one = vec![request(id, SendOperation::Send, inline(b"x")?)];
                let room = || id - taken.load(std::sync::atomic::Ordering::SeqCst) < window;
                while !room() && now() < end {
                    std::thread::yield_now();
                }
                while !one.is_empty() {
                    qa.post_send(&mut one)?;
                    sends.poll(&mut done, 64);
                    std::thread::yield_now();
                }
            }
            let end = now() + PATIENCE;
            // A queue pair that is dropped may take its last message with it.
            let received = || taken.load(std::sync::atomic::Ordering::SeqCst);
            while (done.len() as u64).min(received()) < messages && now() < end {
                sends.poll(&mut done, 64);
                std::thread::yield_now();
            }
            Ok(())
        });
        let verdict = on_runtime(&[&b.channel], async {
            let (one, two) = tokio::join!(take(), take());
            one.and(two)
        });
        match sender.join() {
            Ok(sent) => sent.and(verdict),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn driver_ends(provider: &dyn Provider) -> CaseResult {
    let b = sleeper!(provider);
    on_runtime(&[], async move {
        let driver = tokio::spawn(b.channel.drive()?);
        tokio::task::yield_now().await;
        drop(b);
        driver.await.map_err(|error| Failure(error.to_string()))
    })
}

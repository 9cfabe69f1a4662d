//! Load: both directions at once with few receives, and connections that come and go under it.

use super::fixture::*;
use super::lacking::*;
use super::report::{CaseResult, Failure, ensure, ensure_eq};
use super::{Case, Provider, Verdict};
use roundel_verbs::queue_pair::QueuePairOptions;
use roundel_verbs::work::CompletionStatus::Success;
use roundel_verbs::work::{ReceiveRequest, SendOperation, SendRequest};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "load: both directions at once with one receive each",
        verbs: "a SEND that waits for a receive does not keep its queue pair from receiving",
        run: symmetric,
    },
    Case {
        name: "load: a stream keeps its order however it is polled",
        verbs: "reliable connections deliver in order, whatever sizes batches have",
        run: batches,
    },
    Case {
        name: "load: two threads, one at each end",
        verbs: "verbs are thread safe",
        run: threads,
    },
];

struct Side<'n, 'p> {
    node: &'n Node<'p>,
    pair: roundel_verbs::QueuePair,
    to_send: Vec<SendRequest>,
    sent: u64,
    received: u64,
}

impl Side<'_, '_> {
    /// Does what can be done; returns whether anything was.
    fn turn(&mut self, hold: bool) -> Result<bool, Failure> {
        let before = (self.sent, self.received, self.to_send.len());
        self.pair.post_send(&mut self.to_send)?;
        let mut found = Vec::new();
        self.node.sends.poll(&mut found, 4);
        for completion in found.drain(..) {
            ensure_eq!(completion.status, Success, "status of a send");
            ensure_eq!(completion.id, self.sent, "order of sends");
            self.sent += 1;
        }
        if !hold {
            self.node.receives.poll(&mut found, 4);
            for completion in found.drain(..) {
                ensure_eq!(completion.status, Success, "status of a receive");
                ensure_eq!(
                    bytes_of(&completion)?,
                    self.received.to_le_bytes(),
                    "order of receives"
                );
                self.received += 1;
                let buffer = completion.buffer;
                post_receives(&self.pair, vec![ReceiveRequest { id: 0, buffer }])?;
            }
        }
        Ok(before != (self.sent, self.received, self.to_send.len()))
    }
}

fn symmetric(provider: &dyn Provider) -> CaseResult {
    waiting_needed!(provider);
    let messages = rounds(provider, 3000);
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let options = QueuePairOptions {
        send_depth: 8,
        receive_depth: 1,
        ..connected_options()
    };
    let (qa, qb) = connect(&a, &b, &options)?;
    let mut sides = Vec::new();
    for (node, pair) in [(&a, qa), (&b, qb)] {
        node.post_receives(&pair, 0, 1, 8)?;
        let to_send = (0..messages)
            .map(|id| Ok(request(id, SendOperation::Send, inline(&id.to_le_bytes())?)))
            .collect::<Result<_, Failure>>()?;
        sides.push(Side {
            node,
            pair,
            to_send,
            sent: 0,
            received: 0,
        });
    }
    let mut end = now() + PATIENCE;
    let mut step = 0u64;
    while sides.iter().any(|s| s.sent + s.received < 2 * messages) {
        step += 1;
        let mut moved = false;
        for (index, side) in sides.iter_mut().enumerate() {
            // Now and then one side does not look at what it received.
            moved |= side.turn((step / 7 + index as u64).is_multiple_of(3))?;
        }
        if moved {
            end = now() + PATIENCE;
        }
        ensure!(now() < end, "no progress at step {step}");
        provider.idle();
    }
    Ok(Verdict::Passed)
}

fn batches(provider: &dyn Provider) -> CaseResult {
    let messages = rounds(provider, 5000);
    let c = Connection::open(provider)?;
    // Where SENDs do not wait for a receive, there are no more than there are receives.
    let window = if waits_for_receive(&c.a) {
        messages
    } else {
        13
    };
    c.b.post_receives(&c.qb, 0, 13, 8)?;
    let mut next = 0u64;
    let mut requests: Vec<SendRequest> = Vec::new();
    let (mut sent, mut received) = (0u64, 0u64);
    let end = now() + PATIENCE;
    while received < messages {
        while next < messages.min(received + window) && requests.len() < 1 + (next % 17) as usize {
            let payload = inline(&next.to_le_bytes())?;
            requests.push(request(next, SendOperation::Send, payload));
            next += 1;
        }
        c.qa.post_send(&mut requests)?;
        let mut found = Vec::new();
        c.a.sends.poll(&mut found, 1 + (sent % 5) as usize);
        for completion in found.drain(..) {
            ensure_eq!(completion.id, sent, "order of sends");
            sent += 1;
        }
        c.b.receives.poll(&mut found, 1 + (received % 9) as usize);
        let mut again = Vec::new();
        for completion in found {
            ensure_eq!(bytes_of(&completion)?, received.to_le_bytes(), "order");
            received += 1;
            let buffer = completion.buffer;
            again.push(ReceiveRequest { id: 0, buffer });
        }
        post_receives(&c.qb, again)?;
        ensure!(now() < end, "only {received} of {messages} came");
        provider.idle();
    }
    Ok(Verdict::Passed)
}

fn threads(provider: &dyn Provider) -> CaseResult {
    let messages = rounds(provider, 20_000);
    let c = Connection::open(provider)?;
    // As above.
    let window = if waits_for_receive(&c.a) {
        messages
    } else {
        16
    };
    let ready = &AtomicU64::new(0);
    c.b.post_receives(&c.qb, 0, 16, 1024)?;
    // By reference: a queue pair that is dropped may take its last messages with it.
    let (qa, sends, arena) = (&c.qa, c.a.sends.clone(), c.a.arena.clone());
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || -> Result<(), Failure> {
            let mut free = (0..8)
                .map(|_| arena.allocate(1024))
                .collect::<Result<Vec<_>, _>>()?;
            let (mut next, mut done) = (0u64, 0u64);
            let mut waiting = Vec::new();
            let end = now() + 3 * PATIENCE;
            while done < messages {
                while next < messages.min(ready.load(Ordering::Acquire) + window)
                    && let Some(mut buffer) = free.pop()
                {
                    let length = 8 + (next % 1000) as usize;
                    let mut bytes = vec![next as u8; length];
                    bytes[..8].copy_from_slice(&next.to_le_bytes());
                    buffer.write(0, &bytes);
                    let payload = roundel_verbs::Payload::Owned { buffer, length };
                    waiting.push(request(next, SendOperation::Send, payload));
                    next += 1;
                }
                qa.post_send(&mut waiting)?;
                let mut found = Vec::new();
                sends.poll(&mut found, 64);
                for completion in found {
                    ensure_eq!(completion.status, Success, "status");
                    free.extend(completion.buffer);
                    done += 1;
                }
                ensure!(now() < end, "only {done} of {messages} were sent");
                std::thread::yield_now();
            }
            Ok(())
        });
        let end = now() + 3 * PATIENCE;
        let mut expected = 0u64;
        let mut take = || -> Result<(), Failure> {
            while expected < messages {
                let mut found = Vec::new();
                c.b.receives.poll(&mut found, 8);
                for completion in found {
                    let bytes = bytes_of(&completion)?;
                    ensure_eq!(bytes.len(), 8 + (expected % 1000) as usize, "length");
                    ensure_eq!(bytes[..8], expected.to_le_bytes(), "order");
                    ensure!(
                        bytes[8..].iter().all(|byte| *byte == expected as u8),
                        "message {expected} is not whole"
                    );
                    expected += 1;
                    let buffer = completion.buffer;
                    post_receives(&c.qb, vec![ReceiveRequest { id: 0, buffer }])?;
                    ready.store(expected, Ordering::Release);
                }
                ensure!(now() < end, "only {expected} of {messages} came");
                provider.idle();
            }
            Ok(())
        };
        let taken = take();
        if taken.is_err() {
            c.qb.modify_to_error();
        }
        match sender.join() {
            Ok(sent) => taken.and(sent).map(|()| Verdict::Passed),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

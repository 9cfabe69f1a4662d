//! UD: who gets a datagram, what is in front of it, and what is dropped.

use super::fixture::*;
use super::lacking::datagrams_needed;
use super::report::{CaseResult, ensure, ensure_eq, ensure_err};
use super::{Case, Provider, Verdict};
use roundel_verbs::capabilities::GRH_BYTES;
use roundel_verbs::error::VerbsError;
use roundel_verbs::queue_pair::QueuePairState::{Error, ReadyToSend};
use roundel_verbs::queue_pair::{QUEUE_KEY_MAX, QueuePairOptions};
use roundel_verbs::work::CompletionStatus::{Flushed, LocalLength, LocalOperation, Success};
use roundel_verbs::work::{Payload, SendOperation, SendRequest};
use std::collections::BTreeMap;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "datagrams: arrive behind a global routing header",
        verbs: "the payload starts 40 bytes into the receive; the completion counts them and names \
                the sending queue pair",
        run: header,
    },
    Case {
        name: "datagrams: without a posted receive they are dropped",
        verbs: "a datagram that finds no receive is dropped silently, its send succeeds",
        run: dropped,
    },
    Case {
        name: "datagrams: at most one MTU",
        verbs: "a UD message is at most one MTU; ibv_post_send or its completion fails above it",
        run: limit,
    },
    Case {
        name: "datagrams: a wrong queue key is dropped",
        verbs: "a datagram whose Q_Key is not the receiver's is dropped silently",
        run: wrong_key,
    },
    Case {
        name: "datagrams: a privileged queue key is refused",
        verbs: "a Q_Key with its highest bit set is for privileged users, and means the sender's own",
        run: privileged_key,
    },
    Case {
        name: "datagrams: to a dead queue pair are dropped",
        verbs: "an address handle outlives its queue pair; sends to it succeed and go nowhere",
        run: dead_queue_pair,
    },
    Case {
        name: "datagrams: to a dead device are dropped",
        verbs: "sends to a node that is down succeed and go nowhere",
        run: dead_device,
    },
    Case {
        name: "datagrams: immediate data",
        verbs: "UD SEND carries immediate data",
        run: immediate,
    },
    Case {
        name: "datagrams: a receive that is too small",
        verbs: "the receive completes with a local length error, which breaks the queue pair, or the \
                datagram is dropped",
        run: too_small,
    },
    Case {
        name: "datagrams: one send queue reaches many",
        verbs: "each send request names its destination",
        run: one_to_many,
    },
    Case {
        name: "datagrams: many send to one at once",
        verbs: "datagrams of all sources share one receive queue, each arrives whole and once",
        run: many_to_one,
    },
    Case {
        name: "datagrams: an unready queue pair drops them",
        verbs: "datagrams to a queue pair in INIT are dropped",
        run: not_ready,
    },
];

fn header(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let (qa, qb) = (a.datagrams()?, b.datagrams()?);
    let to = a.handle(&qb)?;
    ensure_eq!(b.device.capabilities().grh_bytes, GRH_BYTES, "GRH bytes");
    for length in [0, 1, 100, 4096] {
        let bytes = pattern(length as u64, length);
        b.post_receives(&qb, 3, 1, GRH_BYTES + 4096)?;
        post_datagram(&qa, &to, 1, a.owned(&bytes)?)?;
        expect(&a.sent(1)?, &[(1, Success)])?;
        let received = b.received(1)?;
        expect(&received, &[(3, Success)])?;
        ensure_eq!(received[0].bytes, GRH_BYTES + length, "bytes");
        ensure_eq!(received[0].source_queue_pair, qa.number(), "source");
        ensure!(
            datagram_of(&received[0], GRH_BYTES)? == bytes,
            "{length} bytes came out different"
        );
    }
    Ok(Verdict::Passed)
}

fn dropped(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let (qa, qb) = (a.datagrams()?, b.datagrams()?);
    let to = a.handle(&qb)?;
    post_datagram(&qa, &to, 1, inline(b"lost")?)?;
    expect(&a.sent(1)?, &[(1, Success)])?;
    // It may complete before it is there.
    b.silent()?;
    b.post_receives(&qb, 1, 1, 256)?;
    b.silent()?;
    for id in 0..3u64 {
        post_datagram(&qa, &to, id, inline(&id.to_le_bytes())?)?;
    }
    a.sent(3)?;
    let received = b.received(1)?;
    ensure_eq!(
        datagram_of(&received[0], GRH_BYTES)?,
        0u64.to_le_bytes(),
        "the datagram that found a receive"
    );
    b.silent()?;
    Ok(Verdict::Passed)
}

fn limit(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let a = Node::open(provider)?;
    let qa = a.datagrams()?;
    let to = a.handle(&qa)?;
    let limit = a.device.capabilities().ud_message_bytes_max;
    ensure!(
        (256..=4096).contains(&limit),
        "a UD message of {limit} bytes is no MTU"
    );
    let refused = qa.post_send(&mut vec![SendRequest {
        id: 1,
        operation: SendOperation::Send,
        payload: a.owned(&vec![0; limit + 1])?,
        destination: Some(to),
    }]);
    ensure_err!(refused, InvalidRequest(_));
    Ok(Verdict::Passed)
}

fn wrong_key(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let (qa, qb) = (a.datagrams()?, b.datagrams()?);
    b.post_receives(&qb, 1, 2, 256)?;
    let mut address = qb.address().clone();
    address.queue_key ^= 1;
    let wrong = a.device.create_address_handle(&address)?;
    post_datagram(&qa, &wrong, 1, inline(b"stray")?)?;
    expect(&a.sent(1)?, &[(1, Success)])?;
    b.silent()?;
    post_datagram(&qa, &a.handle(&qb)?, 2, inline(b"right")?)?;
    ensure_eq!(
        datagram_of(&b.received(1)?[0], GRH_BYTES)?,
        b"right",
        "payload"
    );
    Ok(Verdict::Passed)
}

fn privileged_key(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let node = Node::open(provider)?;
    let options = QueuePairOptions {
        queue_key: QUEUE_KEY_MAX + 1,
        ..datagram_options()
    };
    let refused = node
        .device
        .create_queue_pair(&options, &node.sends, &node.receives);
    ensure_err!(refused, InvalidRequest(_));
    let mut address = node.datagrams()?.address().clone();
    address.queue_key = u32::MAX;
    let refused = node.device.create_address_handle(&address);
    ensure!(
        matches!(refused, Err(VerbsError::InvalidRequest(_))),
        "a handle for such a key"
    );
    Ok(Verdict::Passed)
}

fn dead_queue_pair(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let (qa, qb) = (a.datagrams()?, b.datagrams()?);
    let to = a.handle(&qb)?;
    b.post_receives(&qb, 1, 4, 256)?;
    drop(qb);
    let mut others = Vec::new();
    for _ in 0..10 {
        let other = b.datagrams()?;
        b.post_receives(&other, 9, 1, 256)?;
        others.push(other);
    }
    post_datagram(&qa, &to, 1, inline(b"ghost")?)?;
    expect(&a.sent(1)?, &[(1, Success)])?;
    b.silent()?;
    Ok(Verdict::Passed)
}

fn dead_device(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let a = Node::open(provider)?;
    let qa = a.datagrams()?;
    let to = {
        let b = Node::open(provider)?;
        let qb = b.datagrams()?;
        b.post_receives(&qb, 1, 4, 256)?;
        a.handle(&qb)?
    };
    for id in 0..20 {
        post_datagram(&qa, &to, id, a.owned(b"nobody there")?)?;
        expect(&a.sent(1)?, &[(id, Success)])?;
        provider.idle();
    }
    Ok(Verdict::Passed)
}

fn immediate(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let (qa, qb) = (a.datagrams()?, b.datagrams()?);
    b.post_receives(&qb, 1, 1, 256)?;
    post_sends(
        &qa,
        vec![SendRequest {
            id: 1,
            operation: SendOperation::SendWithImmediate(0xfeed_f00d),
            payload: Payload::Empty,
            destination: Some(a.handle(&qb)?),
        }],
    )?;
    let received = b.received(1)?;
    ensure_eq!(received[0].immediate, Some(0xfeed_f00d), "immediate");
    ensure_eq!(received[0].bytes, GRH_BYTES, "bytes");
    Ok(Verdict::Passed)
}

fn too_small(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let (qa, qb) = (a.datagrams()?, b.datagrams()?);
    b.post_receives(&qb, 1, 1, GRH_BYTES + 10)?;
    let to = a.handle(&qb)?;
    post_datagram(&qa, &to, 1, inline(&[1; 11])?)?;
    expect(&a.sent(1)?, &[(1, Success)])?;
    let end = now() + SILENCE;
    let mut found = Vec::new();
    while found.is_empty() && now() < end {
        b.receives.poll(&mut found, 1);
        provider.idle();
    }
    let state = qb.state();
    if found.is_empty() {
        ensure_eq!(state, ReadyToSend, "state after a datagram was dropped");
    } else {
        ensure_eq!(state, Error, "state after a receive failed");
    }
    match found.first().map(|completion| completion.status) {
        None | Some(LocalLength) => Ok(Verdict::Passed),
        Some(LocalOperation) => Ok(Verdict::Differs(VAGUE_STATUS.into())),
        Some(other) => Err(super::report::Failure(format!("ended as {other:?}"))),
    }
}

fn one_to_many(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let a = Node::open(provider)?;
    let qa = a.datagrams()?;
    let mut peers = Vec::new();
    let mut requests = Vec::new();
    for id in 0..8u64 {
        let b = Node::open(provider)?;
        let qb = b.datagrams()?;
        b.post_receives(&qb, id, 1, 256)?;
        requests.push(SendRequest {
            id,
            operation: SendOperation::Send,
            payload: a.owned(&id.to_le_bytes())?,
            destination: Some(a.handle(&qb)?),
        });
        peers.push((b, qb));
    }
    post_sends(&qa, requests)?;
    a.sent(8)?;
    for (id, (b, _)) in peers.iter().enumerate() {
        let received = b.received(1)?;
        ensure_eq!(
            datagram_of(&received[0], GRH_BYTES)?,
            (id as u64).to_le_bytes(),
            "payload"
        );
    }
    Ok(Verdict::Passed)
}

fn many_to_one(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    const SENDERS: usize = 4;
    let each = rounds(provider, 2000);
    let b = Node::open(provider)?;
    let qb = b.datagrams()?;
    b.post_receives(&qb, 0, 64, GRH_BYTES + 512)?;
    let mut senders = Vec::new();
    for _ in 0..SENDERS {
        let a = Node::open(provider)?;
        let qa = a.datagrams()?;
        let to = a.handle(&qb)?;
        senders.push((a, qa, to));
    }
    // Every sender in turn, so that a provider without threads runs this too; the receiver takes
    // turns with them. A datagram that finds no receive is dropped, and counted as such.
    let mut seen: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut take =
        |completions: Vec<roundel_verbs::Completion>| -> Result<(), super::report::Failure> {
            for completion in completions {
                ensure_eq!(completion.status, Success, "status");
                let bytes = datagram_of(&completion, GRH_BYTES)?;
                ensure!(bytes.len() >= 16, "a datagram of {} bytes", bytes.len());
                let number = u64::from_le_bytes(bytes[..8].try_into().unwrap_or_default());
                let length = 16 + (number % 400) as usize;
                ensure_eq!(bytes.len(), length, "length of datagram {number}");
                ensure!(
                    bytes[16..].iter().all(|byte| *byte == number as u8),
                    "datagram {number} is not whole"
                );
                let source = u64::from_le_bytes(bytes[8..16].try_into().unwrap_or_default());
                seen.entry(source).or_default().push(number);
                post_receives(
                    &qb,
                    vec![roundel_verbs::ReceiveRequest {
                        id: 0,
                        buffer: completion.buffer,
                    }],
                )?;
            }
            Ok(())
        };
    for number in 0..each {
        for (source, (a, qa, to)) in senders.iter().enumerate() {
            let mut bytes = vec![number as u8; 16 + (number % 400) as usize];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            bytes[8..16].copy_from_slice(&(source as u64).to_le_bytes());
            post_datagram(qa, to, number, a.owned(&bytes)?)?;
            a.sent(1)?;
        }
        let mut found = Vec::new();
        b.receives.poll(&mut found, 64);
        take(found)?;
    }
    let end = now() + SILENCE;
    while now() < end {
        let mut found = Vec::new();
        b.receives.poll(&mut found, 64);
        take(found)?;
        provider.idle();
    }
    for numbers in seen.values_mut() {
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        ensure_eq!(numbers.len(), count, "datagrams that came twice");
    }
    let count: usize = seen.values().map(Vec::len).sum();
    ensure!(
        count * 2 > SENDERS * each as usize,
        "only {count} datagrams came although receives were posted"
    );
    Ok(Verdict::Passed)
}

fn not_ready(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let qa = a.datagrams()?;
    let qb = b.queue_pair(&datagram_options())?;
    b.post_receives(&qb, 1, 2, 256)?;
    let to = a.handle(&qb)?;
    post_datagram(&qa, &to, 1, inline(b"early")?)?;
    expect(&a.sent(1)?, &[(1, Success)])?;
    b.silent()?;
    qb.activate()?;
    post_datagram(&qa, &to, 2, inline(b"in time")?)?;
    ensure_eq!(
        datagram_of(&b.received(1)?[0], GRH_BYTES)?,
        b"in time",
        "payload"
    );
    qb.modify_to_error();
    expect(&b.received(1)?, &[(2, Flushed)])?;
    Ok(Verdict::Passed)
}

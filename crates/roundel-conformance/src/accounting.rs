//! Counters per queue pair and opcode.

use super::fixture::*;
use super::lacking::*;
use super::report::{CaseResult, ensure_eq};
use super::{Case, Provider, Verdict};
use roundel_verbs::counters::{CounterSnapshot, Opcode};
use roundel_verbs::work::{Payload, SendOperation};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "accounting: each operation is counted where it was posted",
        verbs: "(counters of this object model) messages and payload bytes per queue pair and opcode",
        run: per_operation,
    },
    Case {
        name: "accounting: the device's counts are the sum of its queue pairs'",
        verbs: "(counters of this object model) destroyed queue pairs stay counted",
        run: device_sum,
    },
    Case {
        name: "accounting: what fails is not counted",
        verbs: "(counters of this object model) only what was carried out counts",
        run: failures,
    },
];

fn counts(snapshot: &CounterSnapshot) -> Vec<(u64, u64)> {
    Opcode::ALL
        .iter()
        .map(|opcode| (snapshot.messages(*opcode), snapshot.bytes(*opcode)))
        .collect()
}

fn per_operation(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    let remote = c.b.arena.allocate_exposed(4096)?;
    let at = remote.remote_address();
    let immediate = !lacks_immediate(&c)?;
    c.b.post_receives(&c.qb, 0, 8, 256)?;
    for _ in 0..3 {
        post(&c.qa, 0, SendOperation::Send, c.a.owned(&[0; 100])?)?;
    }
    let send = if immediate {
        SendOperation::SendWithImmediate(1)
    } else {
        SendOperation::Send
    };
    post(&c.qa, 0, send, Payload::Empty)?;
    for _ in 0..2 {
        post(&c.qa, 0, SendOperation::Write(at), inline(&[0; 16])?)?;
    }
    // In its place a WRITE and a SEND.
    let write = if immediate {
        SendOperation::WriteWithImmediate(at, 0)
    } else {
        SendOperation::Write(at)
    };
    post(&c.qa, 0, write, c.a.owned(&[0; 50])?)?;
    post(&c.qa, 0, SendOperation::Read(at), c.a.owned(&[0; 4096])?)?;
    c.a.sent(8)?;
    c.b.received(if immediate { 5 } else { 4 })?;
    ensure_eq!(
        counts(&c.qa.counters()),
        if immediate {
            vec![
                (4, 300),
                (2, 32),
                (1, 50),
                (1, 4096),
                (0, 0),
                (0, 0),
                (0, 0),
            ]
        } else {
            vec![(4, 300), (3, 82), (0, 0), (1, 4096), (0, 0), (0, 0), (0, 0)]
        },
        "send, write, write with immediate, read, receive at the initiator"
    );
    ensure_eq!(
        counts(&c.qb.counters()),
        [
            &[(0, 0); 6][..],
            &[if immediate { (5, 350) } else { (4, 300) }]
        ]
        .concat(),
        "send, write, write with immediate, read, receive at the responder"
    );
    Ok(if immediate {
        Verdict::Passed
    } else {
        Verdict::Differs(NO_IMMEDIATE.into())
    })
}

fn device_sum(provider: &dyn Provider) -> CaseResult {
    let (a, b) = (Node::open(provider)?, Node::open(provider)?);
    let datagrams = has_datagrams(&a)?;
    let before = a.device.counters();
    let mut sum = CounterSnapshot::default();
    for round in 0..3 {
        let (qa, qb) = connect(&a, &b, &connected_options())?;
        b.post_receives(&qb, 0, 1, 256)?;
        post(&qa, 0, SendOperation::Send, inline(&vec![0; round])?)?;
        a.sent(1)?;
        b.received(1)?;
        sum.merge(&qa.counters());
        if datagrams {
            let (da, db) = (a.datagrams()?, b.datagrams()?);
            b.post_receives(&db, 0, 1, 256)?;
            post_datagram(&da, &a.handle(&db)?, 0, inline(&[0; 10])?)?;
            a.sent(1)?;
            b.received(1)?;
            sum.merge(&da.counters());
        }
        ensure_eq!(
            counts(&a.device.counters().since(&before)),
            counts(&sum),
            "with living queue pairs"
        );
    }
    ensure_eq!(
        counts(&a.device.counters().since(&before)),
        counts(&sum),
        "after they were destroyed"
    );
    let wanted = if datagrams { (6, 33) } else { (3, 3) };
    ensure_eq!(
        (sum.messages(Opcode::Send), sum.bytes(Opcode::Send)),
        wanted,
        "messages and bytes"
    );
    Ok(if datagrams {
        Verdict::Passed
    } else {
        Verdict::Differs(NO_DATAGRAMS.into())
    })
}

fn failures(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    c.b.post_receives(&c.qb, 0, 1, 8)?;
    post(&c.qa, 0, SendOperation::Send, inline(&[0; 9])?)?;
    post(&c.qa, 1, SendOperation::Send, inline(&[0; 9])?)?;
    c.a.sent(2)?;
    c.b.received(1)?;
    ensure_eq!(c.qb.counters().bytes(Opcode::Receive), 0, "bytes");
    if !completes_on_arrival(&c.a) {
        return Ok(Verdict::Differs(NO_ARRIVAL.into()));
    }
    ensure_eq!(c.qa.counters().messages(Opcode::Send), 0, "messages");
    Ok(Verdict::Passed)
}

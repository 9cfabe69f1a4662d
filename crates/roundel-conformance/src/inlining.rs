//! Payloads inside the work request.

use super::fixture::*;
use super::lacking::arrive;
use super::report::{CaseResult, ensure, ensure_eq, ensure_err};
use super::{Case, Provider, Verdict};
use roundel_verbs::work::CompletionStatus::Success;
use roundel_verbs::work::{INLINE_BYTES_MAX, InlineBytes, Payload, SendOperation};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "inline: up to the device's limit",
        verbs: "inline payloads need no memory region and go up to max_inline_data",
        run: within,
    },
    Case {
        name: "inline: more than the device's limit is refused",
        verbs: "ibv_post_send fails when an inline payload is larger than max_inline_data",
        run: above,
    },
    Case {
        name: "inline: a WRITE",
        verbs: "inline works for SEND and WRITE",
        run: write,
    },
    Case {
        name: "inline: READ takes no inline payload",
        verbs: "IBV_SEND_INLINE is not allowed with READ",
        run: read,
    },
];

fn within(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    let limit = c.a.device.capabilities().inline_bytes_max;
    ensure!(
        limit > 0 && limit <= INLINE_BYTES_MAX,
        "limit of {limit} bytes"
    );
    for length in [0, 1, limit - 1, limit] {
        let bytes = pattern(length as u64, length);
        c.b.post_receives(&c.qb, 1, 1, INLINE_BYTES_MAX)?;
        post(&c.qa, 1, SendOperation::Send, inline(&bytes)?)?;
        let sent = c.a.sent(1)?;
        expect(&sent, &[(1, Success)])?;
        ensure!(sent[0].buffer.is_none(), "there is no buffer to give back");
        ensure_eq!(bytes_of(&c.b.received(1)?[0])?, bytes, "payload");
    }
    Ok(Verdict::Passed)
}

fn above(provider: &dyn Provider) -> CaseResult {
    ensure!(
        InlineBytes::new(&[0; INLINE_BYTES_MAX + 1]).is_none(),
        "more than any device takes"
    );
    let c = Connection::open(provider)?;
    let limit = c.a.device.capabilities().inline_bytes_max;
    if limit < INLINE_BYTES_MAX {
        let payload = inline(&vec![0; limit + 1])?;
        let refused =
            c.qa.post_send(&mut vec![request(1, SendOperation::Send, payload)]);
        ensure_err!(refused, InvalidRequest(_));
    }
    Ok(Verdict::Passed)
}

fn write(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    let target = c.b.arena.allocate_exposed(64)?;
    let operation = SendOperation::Write(target.remote_address().offset(8));
    post(&c.qa, 1, operation, inline(b"inline write")?)?;
    expect(&c.a.sent(1)?, &[(1, Success)])?;
    arrive(&c.a, &c.qa, &c.b)?;
    let mut bytes = [0; 12];
    target.read(8, &mut bytes);
    ensure_eq!(&bytes, b"inline write", "written");
    Ok(Verdict::Passed)
}

fn read(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    let source = c.b.arena.allocate_exposed(64)?;
    let read = SendOperation::Read(source.remote_address());
    let shared = Payload::Shared {
        buffer: c.a.filled(b"x")?.share(),
        length: 1,
    };
    for payload in [inline(b"x")?, Payload::Empty, shared] {
        let refused = c.qa.post_send(&mut vec![request(1, read, payload)]);
        ensure_err!(refused, InvalidRequest(_));
    }
    Ok(Verdict::Passed)
}

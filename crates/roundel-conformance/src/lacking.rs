//! What iWARP does not have, or does otherwise: how the cases see it, and how they tell.

use super::Provider;
use super::fixture::*;
use super::report::{CaseResult, Failure, Verdict, ensure, ensure_eq, ensure_err};
use roundel_verbs::RemoteAddress;
use roundel_verbs::queue_pair::{QueuePair, QueuePairState, Transport};
use roundel_verbs::work::CompletionStatus::{Flushed, Success};
use roundel_verbs::work::{Completion, CompletionStatus, Payload, SendOperation};

/// How a device differs that has no UD.
pub(crate) const NO_DATAGRAMS: &str = "there are no datagrams";
/// How a device differs whose SENDs do not wait for a receive.
pub(crate) const NO_WAITING: &str = "a SEND that finds no receive breaks the connection";
/// How a device differs whose requests complete before they have arrived.
pub(crate) const NO_ARRIVAL: &str =
    "a request may have completed before the peer refuses it, which breaks both ends";
/// How a device differs that has no immediate data.
pub(crate) const NO_IMMEDIATE: &str = "there is no immediate data";

/// Whether a node has UD queue pairs. Where there are none, none can be made.
pub(crate) fn has_datagrams(node: &Node<'_>) -> Result<bool, Failure> {
    let transports = &node.device.capabilities().transports;
    let has = transports.contains(&Transport::UnreliableDatagram);
    if !has {
        let made = node.queue_pair(&datagram_options());
        ensure!(
            made.is_err(),
            "made although there are none: {:?}",
            made.ok()
        );
    }
    Ok(has)
}

/// Ends a case that is about datagrams where there are none.
macro_rules! datagrams_needed {
    ($provider:expr) => {
        if !$crate::lacking::has_datagrams(&$crate::fixture::Node::open($provider)?)? {
            return Ok(Verdict::Differs($crate::lacking::NO_DATAGRAMS.into()));
        }
    };
}
pub(crate) use datagrams_needed;

pub(crate) fn waits_for_receive(node: &Node<'_>) -> bool {
    node.device.capabilities().waits_for_receive
}

/// Ends a case that is about SENDs which wait where they do not.
macro_rules! waiting_needed {
    ($provider:expr) => {
        if !$crate::lacking::waits_for_receive(&$crate::fixture::Node::open($provider)?) {
            return $crate::lacking::breaks_without_receive($provider);
        }
    };
}
pub(crate) use waiting_needed;

/// A SEND that finds no receive, where it does not wait for one.
pub(crate) fn breaks_without_receive(provider: &dyn Provider) -> CaseResult {
    let c = Connection::open(provider)?;
    c.a.post_receives(&c.qa, 9, 2, 64)?;
    post(&c.qa, 1, SendOperation::Send, inline(b"finds none")?)?;
    both_break(&c)?;
    expect(&c.a.received(2)?, &[(9, Flushed), (10, Flushed)])?;
    let sent = c.a.sent(1)?;
    ensure_eq!(sent[0].id, 1, "the SEND");
    post(&c.qa, 2, SendOperation::Send, inline(b"too late")?)?;
    expect(&c.a.sent(1)?, &[(2, Flushed)])?;
    Ok(Verdict::Differs(NO_WAITING.into()))
}

pub(crate) fn both_break(c: &Connection<'_>) -> Result<(), Failure> {
    for (pair, whose) in [(&c.qa, "the initiator"), (&c.qb, "the responder")] {
        until(c.a.provider, &format!("{whose} breaks"), || {
            pair.state() == QueuePairState::Error
        })?;
    }
    Ok(())
}

pub(crate) fn completes_on_arrival(node: &Node<'_>) -> bool {
    node.device.capabilities().completes_on_arrival
}

/// Where completions do not say so, waits until what was posted to a queue pair has arrived: a READ behind it is
/// answered after it.
pub(crate) fn arrive(a: &Node<'_>, pair: &QueuePair, b: &Node<'_>) -> Result<(), Failure> {
    if completes_on_arrival(a) {
        return Ok(());
    }
    let exposed = b.arena.allocate_exposed(8)?;
    let read = SendOperation::Read(exposed.remote_address());
    post(pair, 999, read, a.owned(&[0; 8])?)?;
    expect(&a.sent(1)?, &[(999, Success)])
}

/// The completion of a request that the peer does not take: as real verbs have it, or, where requests complete before
/// they have arrived, of any status, whereupon the queue pair breaks.
pub(crate) fn not_taken(
    a: &Node<'_>,
    pair: &QueuePair,
    id: u64,
    status: CompletionStatus,
) -> Result<Completion, Failure> {
    let mut sent = a.sent(1)?;
    if completes_on_arrival(a) {
        expect(&sent, &[(id, status)])?;
        ensure_eq!(pair.state(), QueuePairState::Error, "state");
    } else {
        ensure_eq!(sent[0].id, id, "the request");
        until(a.provider, "the queue pair breaks", || {
            pair.state() == QueuePairState::Error
        })?;
    }
    Ok(sent.remove(0))
}

/// Passed, or how it differs, for a case with requests that are [not taken](not_taken).
pub(crate) fn verdict_of_refusals(a: &Node<'_>) -> Verdict {
    if completes_on_arrival(a) {
        Verdict::Passed
    } else {
        Verdict::Differs(NO_ARRIVAL.into())
    }
}

/// Where there is no immediate data: a SEND and a WRITE that carry some are refused.
pub(crate) fn lacks_immediate(c: &Connection<'_>) -> Result<bool, Failure> {
    if c.a.device.capabilities().immediate_data {
        return Ok(false);
    }
    let nowhere = RemoteAddress {
        address: 0,
        remote_key: 0,
    };
    for operation in [
        SendOperation::SendWithImmediate(1),
        SendOperation::WriteWithImmediate(nowhere, 1),
    ] {
        let refused =
            c.qa.post_send(&mut vec![request(1, operation, Payload::Empty)]);
        ensure_err!(refused, InvalidRequest(_), "{operation:?}");
    }
    ensure_eq!(c.qa.state(), QueuePairState::ReadyToSend, "state");
    Ok(true)
}

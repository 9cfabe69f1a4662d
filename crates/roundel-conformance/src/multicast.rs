//! Multicast: one datagram to every member of a group.

use super::fixture::*;
use super::lacking::datagrams_needed;
use super::report::{CaseResult, Failure, ensure, ensure_eq, ensure_err};
use super::{Case, Provider, Verdict};
use roundel_verbs::capabilities::GRH_BYTES;
use roundel_verbs::multicast::MulticastGroup;
use roundel_verbs::queue_pair::{AddressHandle, QueuePair, QueuePairOptions};
use roundel_verbs::work::CompletionStatus::Success;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "multicast: one send reaches every member once",
        verbs: "a datagram to a group is received by each queue pair that is attached to it, on \
                whatever device, behind a global routing header",
        run: members,
    },
    Case {
        name: "multicast: who has not joined gets nothing",
        verbs: "queue pairs that are not attached, or to another group, do not receive it",
        run: strangers,
    },
    Case {
        name: "multicast: a queue pair that is gone is no member any more",
        verbs: "destroying a queue pair ends its membership, and nobody else's",
        run: leaving,
    },
    Case {
        name: "multicast: the queue key must be the member's",
        verbs: "a datagram whose Q_Key is not the member's is dropped there",
        run: wrong_key,
    },
    Case {
        name: "multicast: a sender that is a member",
        verbs: "the sending queue pair gets its own datagrams if it is attached to the group",
        run: own,
    },
    Case {
        name: "multicast: a member without a posted receive misses it",
        verbs: "as any datagram; the other members get it",
        run: no_receive,
    },
    Case {
        name: "multicast: joining twice is joining once",
        verbs: "ibv_attach_mcast of a queue pair that is attached changes nothing",
        run: twice,
    },
    Case {
        name: "multicast: joining is for datagrams",
        verbs: "ibv_attach_mcast fails on RC and UC queue pairs",
        run: connected,
    },
];

struct Member<'a> {
    node: Node<'a>,
    pair: QueuePair,
}

impl<'a> Member<'a> {
    /// A queue pair with four receives, not in any group yet.
    fn new(provider: &'a dyn Provider) -> Result<Self, Failure> {
        let node = Node::open(provider)?;
        let pair = node.datagrams()?;
        node.post_receives(&pair, 0, 4, GRH_BYTES + 4096)?;
        Ok(Self { node, pair })
    }

    /// The payload of the next datagram.
    fn next(&self) -> Result<Vec<u8>, Failure> {
        let received = self.node.received(1)?;
        ensure_eq!(received[0].status, Success, "status");
        datagram_of(&received[0], GRH_BYTES)
    }
}

fn group() -> MulticastGroup {
    MulticastGroup::new(rand::random(), QUEUE_KEY)
}

/// A sender, unless there is no multicast.
macro_rules! sender {
    ($provider:expr, $group:expr) => {{
        let sender = Member::new($provider)?;
        let to = sender.node.device.create_multicast_handle($group);
        if sender.node.device.capabilities().multicast_groups_max == 0 {
            for refused in [to.map(drop), sender.pair.join($group)] {
                ensure_err!(
                    refused,
                    Unsupported { .. },
                    "possible although there is none"
                );
            }
            return Ok(Verdict::Differs(
                "a datagram goes to one queue pair only".into(),
            ));
        }
        (sender, to?)
    }};
}

/// Sends a datagram, which succeeds whoever gets it.
fn send(from: &Member<'_>, to: &AddressHandle, text: &[u8]) -> Result<(), Failure> {
    post_datagram(&from.pair, to, 1, from.node.owned(text)?)?;
    expect(&from.node.sent(1)?, &[(1, Success)])
}

fn members(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let group = group();
    let (sender, to) = sender!(provider, &group);
    let mut members = Vec::new();
    for _ in 0..4 {
        let member = Member::new(provider)?;
        member.pair.join(&group)?;
        members.push(member);
    }
    let limit = sender.node.device.capabilities().ud_message_bytes_max;
    for length in [0, 1, 100, limit] {
        let bytes = pattern(length as u64, length);
        send(&sender, &to, &bytes)?;
        for member in &members {
            let received = member.node.received(1)?;
            ensure_eq!(received[0].status, Success, "status");
            ensure_eq!(received[0].bytes, GRH_BYTES + length, "bytes");
            let source = received[0].source_queue_pair;
            ensure_eq!(source, sender.pair.number(), "source");
            ensure!(
                datagram_of(&received[0], GRH_BYTES)? == bytes,
                "{length} bytes came out different"
            );
        }
    }
    for node in members.iter().map(|m| &m.node).chain([&sender.node]) {
        node.silent()?;
    }
    Ok(Verdict::Passed)
}

fn strangers(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let (group, other) = (group(), group());
    let (sender, to) = sender!(provider, &group);
    let to_other = sender.node.device.create_multicast_handle(&other)?;
    let [of_one, of_other, of_both, of_none] = [
        Member::new(provider)?,
        Member::new(provider)?,
        Member::new(provider)?,
        Member::new(provider)?,
    ];
    of_one.pair.join(&group)?;
    of_other.pair.join(&other)?;
    of_both.pair.join(&group)?;
    of_both.pair.join(&other)?;
    send(&sender, &to, b"first group")?;
    for member in [&of_one, &of_both] {
        ensure_eq!(member.next()?, b"first group", "payload");
    }
    send(&sender, &to_other, b"second group")?;
    for member in [&of_other, &of_both] {
        ensure_eq!(member.next()?, b"second group", "payload");
    }
    for member in [&of_one, &of_other, &of_both, &of_none, &sender] {
        member.node.silent()?;
    }
    Ok(Verdict::Passed)
}

fn leaving(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let group = group();
    let (sender, to) = sender!(provider, &group);
    let (stays, leaves) = (Member::new(provider)?, Member::new(provider)?);
    // A second one on the device of the one that leaves, and one that never joins.
    let neighbour = leaves.node.datagrams()?;
    for pair in [&stays.pair, &leaves.pair, &neighbour] {
        pair.join(&group)?;
    }
    send(&sender, &to, b"all")?;
    ensure_eq!(stays.next()?, b"all", "payload");
    ensure_eq!(leaves.next()?, b"all", "payload");
    let Member { node, pair } = leaves;
    let allocated = node.arena.usage().allocated;
    drop(pair);
    ensure!(
        node.arena.usage().allocated < allocated,
        "the receives of a member come back with its queue pair"
    );
    let unjoined = node.datagrams()?;
    node.post_receives(&unjoined, 20, 2, 256)?;
    node.post_receives(&neighbour, 30, 2, 256)?;
    send(&sender, &to, b"those who stay")?;
    ensure_eq!(stays.next()?, b"those who stay", "payload");
    let received = node.received(1)?;
    expect(&received, &[(30, Success)])?;
    ensure_eq!(received[0].queue_pair, neighbour.number(), "queue pair");
    node.silent()?;
    drop(neighbour);
    send(&sender, &to, b"one")?;
    ensure_eq!(stays.next()?, b"one", "payload");
    node.silent()?;
    let again = node.datagrams()?;
    again.join(&group)?;
    node.post_receives(&again, 40, 1, 256)?;
    send(&sender, &to, b"two")?;
    ensure_eq!(stays.next()?, b"two", "payload");
    expect(&node.received(1)?, &[(40, Success)])?;
    Ok(Verdict::Passed)
}

fn wrong_key(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let group = group();
    let (sender, to) = sender!(provider, &group);
    let member = Member::new(provider)?;
    member.pair.join(&group)?;
    let mut bytes = group.to_bytes();
    bytes[16] ^= 1;
    let other_key = MulticastGroup::from_bytes(&bytes)?;
    let wrong = sender.node.device.create_multicast_handle(&other_key)?;
    send(&sender, &wrong, b"wrong")?;
    member.node.silent()?;
    send(&sender, &to, b"right")?;
    ensure_eq!(member.next()?, b"right", "payload");
    let refused = member.pair.join(&other_key);
    ensure_err!(refused, InvalidRequest(_), "joining with another queue key");
    Ok(Verdict::Passed)
}

fn own(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let group = group();
    let (sender, to) = sender!(provider, &group);
    let member = Member::new(provider)?;
    member.pair.join(&group)?;
    sender.pair.join(&group)?;
    for text in [&b"one"[..], b"two"] {
        send(&sender, &to, text)?;
        ensure_eq!(member.next()?, text, "payload at the other member");
        ensure_eq!(sender.next()?, text, "payload at the sender");
    }
    sender.node.silent()?;
    member.node.silent()?;
    Ok(Verdict::Passed)
}

fn no_receive(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let group = group();
    let (sender, to) = sender!(provider, &group);
    let ready = Member::new(provider)?;
    let late = Node::open(provider)?;
    let pair = late.datagrams()?;
    ready.pair.join(&group)?;
    pair.join(&group)?;
    send(&sender, &to, b"missed")?;
    ensure_eq!(ready.next()?, b"missed", "payload");
    late.silent()?;
    late.post_receives(&pair, 5, 1, 256)?;
    late.silent()?;
    send(&sender, &to, b"caught")?;
    ensure_eq!(ready.next()?, b"caught", "payload");
    let received = late.received(1)?;
    expect(&received, &[(5, Success)])?;
    ensure_eq!(datagram_of(&received[0], GRH_BYTES)?, b"caught", "payload");
    Ok(Verdict::Passed)
}

fn twice(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let group = group();
    let (sender, to) = sender!(provider, &group);
    let member = Member::new(provider)?;
    member.pair.join(&group)?;
    member.pair.join(&group)?;
    send(&sender, &to, b"once")?;
    ensure_eq!(member.next()?, b"once", "payload");
    member.node.silent()?;
    let Member { node, pair } = member;
    drop(pair);
    ensure_eq!(
        node.arena.usage().allocated,
        0,
        "bytes allocated after it is gone"
    );
    Ok(Verdict::Passed)
}

fn connected(provider: &dyn Provider) -> CaseResult {
    datagrams_needed!(provider);
    let group = group();
    let (sender, _) = sender!(provider, &group);
    for transport in &sender.node.device.capabilities().transports {
        if !transport.is_connected() {
            continue;
        }
        let options = QueuePairOptions {
            transport: *transport,
            ..datagram_options()
        };
        let refused = sender.node.queue_pair(&options)?.join(&group);
        ensure_err!(refused, UnsupportedOnTransport { .. }, "{transport:?}");
    }
    Ok(Verdict::Passed)
}

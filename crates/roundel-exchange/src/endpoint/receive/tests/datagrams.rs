//! What datagrams do that connections do not: they overtake, are lost, and come from strangers.

use super::*;

#[tokio::test]
async fn datagrams_may_overtake_the_answer() {
    let mut early = 0;
    let mut pair = Pair::open_and(Design::SesqSr, 1 << 30, 12, |pair| {
        early = pair.send_all();
        assert_eq!(pair.receive(), 0, "nobody knows whose they are");
        assert_eq!(pair.receiver.early.len(), early);
    });
    assert_eq!(early, 12);
    assert_eq!(pair.receive(), 12);
    let sent = pair.send_all();
    assert!(sent >= 12, "{sent}");
    assert_eq!(pair.receive(), sent);
}

#[tokio::test]
async fn early_datagrams_of_a_closed_link_give_their_receives_back() {
    let mut pair = Pair::open_and(Design::SesqSr, 1 << 30, 12, |pair| {
        pair.send_all();
        pair.receive();
    });
    pair.receiver.close(pair.link);
    assert_eq!(pair.receive(), 0);
    assert!(pair.receiver.early.is_empty());
}

/// A link whose receiver asks again after a while.
fn patient_pair(interval: Duration) -> Pair {
    let set = |options: &mut ExchangeOptions| options.repeat_interval = interval;
    Pair::open_with(Design::SesqSr, 1 << 30, set, |_| ())
}

#[tokio::test]
async fn what_did_not_fit_is_sent_again() {
    let mut pair = patient_pair(Duration::from_millis(1));
    pair.receiver.links[0].grant = Grant::new(200);
    pair.receiver.say_credit(0, 0, 0).unwrap();
    // Twice the widest window, of which there are receives for some.
    assert_eq!(pair.send_all(), 32);
    let mut received = pair.receive();
    assert!(received < 32, "{received}");
    while received < 32 {
        assert!(pair.receiver.ended(pair.link).is_none());
        pair.receiver.repeat_credit(0).unwrap();
        pair.sender.listen();
        received += pair.receive();
        pair.sender.listen();
    }
    received += pair.receive();
    assert_eq!(received, 32);
    pair.receiver.repeat_credit(0).unwrap();
    pair.sender.listen();
    assert_eq!(pair.sender.kept(pair.group), 0);
}

#[tokio::test]
async fn a_receiver_that_asks_for_what_it_cannot_miss_gets_nothing() {
    let mut pair = Pair::open(Design::SesqSr, 1 << 30);
    assert!(pair.send() && pair.send() && pair.send());
    assert_eq!(pair.receive(), 3);
    let credit = |acknowledged| {
        Body::Credit(Credit {
            credit: 4,
            acknowledged,
        })
    };
    let missing = |first| {
        Body::Missing(Missing {
            first,
            bitmap: u64::MAX,
        })
    };
    pair.sender.listen();
    let kept = pair.sender.kept(pair.group);
    for (group, body) in [
        (0, credit(4)),
        (0, credit(u64::MAX)),
        (1, credit(3)),
        (u16::MAX, credit(3)),
        (0, missing(3)),
        (0, missing(u64::MAX)),
        (1, missing(0)),
        (u16::MAX, missing(0)),
    ] {
        pair.receiver.say(0, group, 0, body).unwrap();
        pair.sender.listen();
        assert_eq!(pair.sender.kept(pair.group), kept, "{body:?}");
        assert_eq!(pair.sender.report().repaired_messages, 0, "{body:?}");
    }
    pair.receiver.say(0, 0, 0, credit(3)).unwrap();
    pair.receiver.say(0, 0, 0, missing(0)).unwrap();
    pair.sender.listen();
    assert_eq!(pair.sender.kept(pair.group), 0);
    assert_eq!(pair.sender.report().repaired_messages, 0);
    assert_eq!(pair.receive(), 0);
}

#[tokio::test]
async fn a_source_that_tells_of_what_it_cannot_have_sent_is_asked_for_little() {
    let mut pair = patient_pair(Duration::from_secs(3600));
    let absurd = Sent {
        on_link: u64::MAX,
        to_group: u64::MAX,
    };
    pair.sender.say(pair.destination, 7, Body::Sent(absurd));
    assert_eq!(pair.receive(), 0);
    assert_eq!(pair.receiver.report().repair_asks, 1, "for one window");
    assert!(pair.receiver.ended(pair.link).is_none());
}

#[tokio::test]
async fn a_message_long_before_its_turn_ends_the_link() {
    let mut pair = Pair::open(Design::SesqSr, 1 << 30);
    pair.sender.skip_messages(pair.group, 32);
    assert!(pair.send());
    assert_eq!(pair.receive(), 0);
    let ended = pair.receiver.ended(pair.link);
    let broken = matches!(ended, Some(Err(ExchangeError::Protocol { .. })));
    assert!(broken, "{ended:?}");
}

/// A queue pair of somebody who knows the address, the queue key and the names of an exchange.
fn stranger_sends(fabric: &Fabric, to: &roundel_verbs::QueuePairAddress, messages: &[Vec<u8>]) {
    let queue = fabric.device.create_completion_queue(64, None).unwrap();
    // Numbers are each device's own: this one shall not be that of either side.
    let open = || send_ud::open(fabric, &queue, 64, None).unwrap();
    let other = [0, 1].map(|_| open());
    let stranger = open();
    assert!(other.iter().all(|other| other.number() < stranger.number()));
    let handle = fabric.device.create_address_handle(to).unwrap();
    for message in messages {
        let mut requests = vec![SendRequest {
            id: 0,
            operation: SendOperation::Send,
            payload: Payload::Inline(InlineBytes::new(message).unwrap()),
            destination: Some(handle.clone()),
        }];
        assert_eq!(stranger.post_send(&mut requests).unwrap(), 1);
    }
}

#[tokio::test]
async fn datagrams_of_strangers_change_nothing() {
    let mut pair = Pair::open(Design::SesqSr, 1 << 30);
    let device = fabric(1 << 20);
    let forged = |body| {
        let header = Header::of(EXCHANGE, SOURCE, 0, body);
        let mut message = header.emit().to_vec();
        message.resize(HEADER_LENGTH + header.payload_length() as usize, 0);
        message
    };
    let forged_data = forged(Body::Data(Data {
        frame_sequence: 9,
        rows: 1,
        frame_length: 8,
        offset: 0,
        payload_length: 8,
    }));
    let forged_credit = forged(Body::Credit(Credit {
        credit: 1000,
        acknowledged: 1,
    }));
    let messages = [
        Vec::new(),
        vec![0xa5; 3],
        vec![0; HEADER_LENGTH],
        vec![0xff; 128],
        forged_data[..70].to_vec(),
        forged_data,
        forged_credit,
    ];
    let receiver = pair.receiver.datagrams.as_ref().unwrap().address().clone();
    let sender = pair.sender.datagram_address().unwrap();
    stranger_sends(&device, &receiver, &messages);
    // What is longer than its receive breaks a datagram queue pair, as with any device: that nobody
    // does so is for the queue key to see to, which strangers do not know.
    let short = messages.into_iter();
    let short: Vec<_> = short
        .filter(|message| message.len() <= HEADER_LENGTH)
        .collect();
    stranger_sends(&device, &sender, &short);
    // They have used up receives until somebody looks.
    assert_eq!(pair.receive(), 0);
    // All that were not dropped would be in the way of these.
    for _ in 0..10 {
        assert!(pair.send());
        assert_eq!(pair.receive(), 1);
    }
    let done = pair.sender.finish(pair.destination);
    let mut done = std::pin::pin!(done);
    while futures::poll!(&mut done).is_pending() {
        assert!(pair.receiver.poll(&mut Vec::new(), 64), "it has not ended");
    }
    assert_eq!(pair.receiver.report().duplicates, 0);
}

//! What two endpoints alone can show: how windows grow, and what peers that break the rules do.

use super::super::send::{DestinationId, GroupId, Origin, SendEndpoint};
use super::*;
use crate::designs::{Design, Notification};
use crate::link::queue_pair::{empty_write, post};
use crate::loss::OnLoss;
use crate::wire::{Body, Credit, HEADER_LENGTH, Header, Missing, Sent};
use futures::FutureExt;
use roundel_verbs::{
    ArenaOptions, Device, Payload, SendOperation, SendRequest, TokioContext, shm, work::InlineBytes,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const EXCHANGE: u64 = 77;
const SOURCE: u32 = 3;

/// Where messages that are read go through the queue, as almost everywhere.
fn fabric(registered_bytes_max: usize) -> Fabric {
    let options = shm::ShmOptions {
        reads_at_once: false,
        ..shm::ShmOptions::default()
    };
    fabric_on(shm::open(options).unwrap(), registered_bytes_max)
}

fn fabric_on(device: Device, registered_bytes_max: usize) -> Fabric {
    let arena = device.arena(ArenaOptions {
        registered_bytes_max,
        segment_bytes: 64 << 10,
    });
    Fabric {
        arena,
        channel: device.create_channel().unwrap(),
        device,
        context: Arc::new(TokioContext::current()),
    }
}

/// The payload of a message.
struct Number(u32);

impl Origin for Number {
    fn read(&self, range: Range<usize>, write: &mut dyn FnMut(usize, &[u8])) {
        write(0, &u64::from(self.0).to_le_bytes()[range]);
    }
}

struct Pair {
    sender: SendEndpoint,
    destination: DestinationId,
    group: GroupId,
    receiver: ReceiveEndpoint,
    link: LinkId,
    sent: u32,
}

impl Pair {
    /// A link of messages of 512 bytes, whose window is 4 to 16 of them.
    fn open(design: Design, registered_bytes_max: usize) -> Self {
        Self::open_at(design, registered_bytes_max, 4)
    }

    /// One whose window starts with `start`.
    fn open_at(design: Design, registered_bytes_max: usize, start: usize) -> Self {
        Self::open_and(design, registered_bytes_max, start, |_| ())
    }

    /// One with which `between` is done after the sender has accepted and before the receiver
    /// has its answer.
    fn open_and(
        design: Design,
        registered_bytes_max: usize,
        start: usize,
        between: impl FnOnce(&mut Self),
    ) -> Self {
        Self::open_with(
            design,
            registered_bytes_max,
            |options| options.window.first = start,
            between,
        )
    }

    fn open_with(
        design: Design,
        registered_bytes_max: usize,
        set: impl FnOnce(&mut ExchangeOptions),
        between: impl FnOnce(&mut Self),
    ) -> Self {
        let theirs = fabric(registered_bytes_max);
        Self::open_on((fabric(1 << 30), theirs), design, set, between)
    }

    fn open_on(
        (ours, theirs): (Fabric, Fabric),
        design: Design,
        set: impl FnOnce(&mut ExchangeOptions),
        between: impl FnOnce(&mut Self),
    ) -> Self {
        let mut options = ExchangeOptions::new(design, 1, ours.device.capabilities());
        options.message_bytes = 512;
        options.window.least = 4;
        options.window.first = 4;
        options.window.most = match options.repairs() {
            true => 2 * 16,
            false => 16,
        };
        options.window.retires = false;
        options.repeat_interval = Duration::ZERO;
        options.missing_deadline = Duration::ZERO;
        set(&mut options);
        let sender = SendEndpoint::open(&ours, &options, EXCHANGE, SOURCE).unwrap();
        let mut receiver = ReceiveEndpoint::open(&theirs, &options).unwrap();
        let (link, offer) = receiver.offer("the sender").unwrap();
        let (destination, answer) = sender.accept(&offer, "the receiver").unwrap();
        let group = sender.group(&[destination]).unwrap();
        let mut pair = Self {
            sender,
            destination,
            group,
            receiver,
            link,
            sent: 0,
        };
        between(&mut pair);
        pair.receiver.connect(link, &answer).unwrap();
        pair
    }

    /// Sends one message, if there is a buffer and credit for it.
    fn send(&mut self) -> bool {
        let data = Data {
            frame_sequence: self.sent,
            rows: 1,
            frame_length: 8,
            offset: 0,
            payload_length: 8,
        };
        let sent = async {
            let mut buffer = self.sender.acquire(self.group).await?;
            buffer.write(0, &u64::from(self.sent).to_le_bytes());
            let origin: Arc<dyn Origin> = Arc::new(Number(self.sent));
            self.sender.put(buffer, 0, data, Some(&origin)).await
        };
        match sent.now_or_never() {
            Some(sent) => sent.unwrap(),
            None => return false,
        }
        self.sent += 1;
        true
    }

    fn send_all(&mut self) -> usize {
        std::iter::from_fn(|| self.send().then_some(())).count()
    }

    fn receive(&mut self) -> usize {
        let mut messages = Vec::new();
        while self.receiver.poll(&mut messages, 64) {}
        let count = messages.len();
        for message in messages {
            let mut payload = [0; 8];
            message.copy_payload(&mut payload).unwrap();
            assert_eq!(
                u64::from_le_bytes(payload),
                u64::from(message.data.frame_sequence)
            );
            self.receiver.release(message, true);
        }
        count
    }

    fn window(&self) -> usize {
        self.receiver.window(self.link)
    }
}

const BOTH: [Design; 2] = [Design::SesqSr, Design::SemqSr];

#[tokio::test]
async fn a_window_doubles_while_its_source_runs_out() {
    for design in BOTH {
        let mut pair = Pair::open(design, 1 << 30);
        let mut windows = Vec::new();
        for _ in 0..4 {
            let sent = pair.send_all();
            assert_eq!(pair.receive(), sent, "{design}");
            windows.push(pair.window());
        }
        assert_eq!(windows, [8, 16, 16, 16], "{design}");
    }
}

#[tokio::test]
async fn what_is_read_at_once_waits_at_its_source() {
    let device = || shm::open(shm::ShmOptions::default()).unwrap();
    let fabrics = (fabric_on(device(), 1 << 30), fabric_on(device(), 1 << 30));
    let mut pair = Pair::open_on(fabrics, Design::SemqRd, |_| (), |_| ());
    let queue = pair.receiver.report().registered_bytes;
    for window in [4, 8, 16, 16] {
        assert_eq!(pair.send_all(), window);
        let mut messages = Vec::new();
        while pair.receiver.poll(&mut messages, 64) {}
        assert_eq!(messages.len(), window);
        assert!(!pair.send(), "they are read and not released");
        for message in messages {
            let payload = message.payload().unwrap();
            let number = u64::from(message.data.frame_sequence);
            assert_eq!(payload.as_slice(), number.to_le_bytes());
            pair.receiver.release(message, true);
        }
    }
    assert_eq!(pair.receiver.report().registered_bytes, queue, "no buffer");
}

#[tokio::test]
async fn what_cannot_be_read_at_once_any_more_is_an_error() {
    let device = || shm::open(shm::ShmOptions::default()).unwrap();
    let fabrics = (fabric_on(device(), 1 << 30), fabric_on(device(), 1 << 30));
    let mut pair = Pair::open_on(fabrics, Design::SemqRd, |_| (), |_| ());
    assert!(pair.send());
    let mut messages = Vec::new();
    while pair.receiver.poll(&mut messages, 64) {}
    pair.sender.close(pair.destination, None);
    for message in messages {
        assert!(message.payload().is_err());
        assert!(message.copy_payload(&mut [0; 8]).is_err());
        pair.receiver.release(message, true);
    }
}

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

#[tokio::test]
async fn connections_wait_for_the_answer() {
    let mut pair = Pair::open_and(Design::SemqSr, 1 << 30, 12, |pair| {
        assert_eq!(pair.send_all(), 0);
    });
    assert_eq!(pair.send_all(), 12);
    assert_eq!(pair.receive(), 12);
}

#[tokio::test]
async fn a_window_starts_wide_unless_memory_is_short() {
    for (design, short) in [(Design::SesqSr, 8 << 10), (Design::SemqSr, 4 << 10)] {
        let mut pair = Pair::open_at(design, 1 << 30, 12);
        assert_eq!((pair.window(), pair.send_all()), (12, 12), "{design}");
        let mut pair = Pair::open_at(design, short, 12);
        assert_eq!((pair.window(), pair.send_all()), (4, 4), "{design}");
    }
}

#[tokio::test]
async fn a_window_stays_while_its_source_has_credit() {
    for design in BOTH {
        let mut pair = Pair::open(design, 1 << 30);
        for _ in 0..20 {
            assert!(pair.send() && pair.send());
            assert_eq!(pair.receive(), 2);
        }
        assert_eq!(pair.window(), 4, "{design}");
    }
}

/// What a reader takes that has more to do than to look for messages.
fn receive_busily(pair: &mut Pair) -> usize {
    let mut messages = Vec::new();
    pair.receiver.poll(&mut messages, 64);
    let count = messages.len();
    for message in messages {
        pair.receiver.release(message, true);
    }
    count
}

#[tokio::test]
async fn a_window_falls_while_its_reader_is_slow_and_rises_again() {
    for design in Design::every().filter(|design| design.endpoints(2) == 1) {
        let adapt = |options: &mut ExchangeOptions| options.window.retires = true;
        let mut pair = Pair::open_with(design, 1 << 30, adapt, |_| ());
        let mut received = 0;
        for expected in [16, 4, 16] {
            let registered = pair.receiver.report().registered_bytes;
            let before = pair.window();
            for _ in 0..40 {
                pair.send_all();
                received += match expected {
                    4 => receive_busily(&mut pair),
                    _ => pair.receive(),
                };
            }
            assert_eq!(pair.window(), expected, "{design}");
            let now = pair.receiver.report().registered_bytes;
            let bytes = pair.receiver.options.message_bytes as isize;
            assert_eq!(
                now as isize - registered as isize,
                (expected as isize - before as isize) * bytes,
                "{design}"
            );
        }
        received += pair.receive();
        assert_eq!(received, pair.sent as usize, "{design}");
    }
}

#[tokio::test]
async fn a_window_stays_when_memory_is_short() {
    // Half of it is in use at once.
    for (design, quota) in [(Design::SesqSr, 8 << 10), (Design::SemqSr, 4 << 10)] {
        let mut pair = Pair::open(design, quota);
        for _ in 0..4 {
            assert_eq!(pair.send_all(), 4, "{design}");
            assert_eq!(pair.receive(), 4, "{design}");
        }
        assert_eq!(pair.window(), 4, "{design}");
    }
}

#[tokio::test]
async fn what_finds_the_send_queue_full_is_posted_later() {
    for design in [Design::SemqRd, Design::SemqWr(Notification::MessageQueue)] {
        let mut pair = Pair::open(design, 1 << 30);
        let mut received = 0;
        for _ in 0..3 {
            pair.send_all();
            let connection = pair.receiver.links[0].connection().unwrap();
            // Nobody looks at what completes.
            while post(&connection.queue_pair, empty_write(0, None)) {}
            pair.receiver.pump_queues(0);
            received += pair.receive();
        }
        assert_eq!(received, pair.sent as usize, "{design}");
        assert!(received >= 12, "{design}: {received}");
    }
}

#[tokio::test]
async fn credit_wraps_around() {
    for design in BOTH {
        let mut pair = Pair::open(design, 1 << 30);
        for _ in 0..40 {
            pair.send_all();
            pair.receive();
        }
        // No credit is on its way now.
        let sent = pair.send_all();
        // As if 2^32 messages less a few had been sent before.
        let skipped = 0u32.wrapping_sub(pair.sent + 10);
        pair.receiver.links[0].grant.skip(skipped);
        pair.sender.skip_credit(pair.destination, skipped);
        assert_eq!(pair.receive(), sent, "{design}");
        for _ in 0..40 {
            let sent = pair.send_all();
            assert!(sent >= 3, "{design}: {sent}");
            assert_eq!(pair.receive(), sent, "{design}");
        }
    }
}

#[tokio::test]
async fn a_peer_that_grants_too_much_is_sent_what_fits() {
    for design in BOTH {
        let restart = |options: &mut ExchangeOptions| {
            options.on_loss = OnLoss::Restart;
            options.window.most = 16;
        };
        let mut pair = Pair::open_with(design, 1 << 30, restart, |_| ());
        pair.receiver.links[0].grant = Grant::new(200);
        pair.receiver.say_credit(0, 0, 0).unwrap();
        let sent = pair.send_all();
        match design {
            // Those beyond its receives wait in the send queue, as many as there are buffers.
            Design::SemqSr => {
                assert_eq!(sent, 4 + 16);
                let mut received = 0;
                for _ in 0..50 {
                    received += pair.receive();
                    pair.send();
                }
                assert!(received >= 50, "{received}");
                assert!(pair.receiver.ended(pair.link).is_none());
            }
            // Nothing holds them up, and those without a receive are lost.
            _ => {
                assert_eq!(sent, 200);
                let received = pair.receive() as u32;
                assert!(received < pair.sent);
                pair.receiver.on_silence();
                pair.send();
                pair.receive();
                pair.receiver.on_silence();
                let ended = pair.receiver.ended(pair.link);
                let missed = matches!(ended, Some(Err(ExchangeError::MessagesMissing { .. })));
                assert!(missed, "{ended:?}");
            }
        }
    }
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

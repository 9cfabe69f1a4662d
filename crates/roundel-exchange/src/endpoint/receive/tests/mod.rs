//! What two endpoints alone can show: how windows grow, and what peers that break the rules do.

mod datagrams;
mod read;
mod windows;

use super::super::send::{DestinationId, GroupId, Origin, SendEndpoint};
use super::*;
use crate::buffers::Rule;
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
        options.window.budget = usize::MAX;
        options.window.rule = Rule::Calm;
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
async fn connections_wait_for_the_answer() {
    let mut pair = Pair::open_and(Design::SemqSr, 1 << 30, 12, |pair| {
        assert_eq!(pair.send_all(), 0);
    });
    assert_eq!(pair.send_all(), 12);
    assert_eq!(pair.receive(), 12);
}

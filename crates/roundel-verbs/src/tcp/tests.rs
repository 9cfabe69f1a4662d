//! Peers that do not keep to the protocol: a socket of the test's own stands for them.

use super::address::{Identity, TcpAddress};
use super::frame::{Frame, HEADER_BYTES, Refusal};
use super::hello::{ANSWER_BYTES, Answer, HELLO_BYTES, Hello, Verdict};
use super::{TcpOptions, open};
use crate::address::{DeviceAddress, QueuePairAddress};
use crate::memory::RemoteAddress;
use crate::work::CompletionStatus::{self, Flushed, RetryExceeded, Success};
use crate::work::{Completion, InlineBytes};
use crate::{
    Arena, ArenaOptions, CompletionQueue, Device, Payload, QueuePair, QueuePairOptions,
    QueuePairState, ReceiveRequest, SendOperation, SendRequest, Transport,
};
use proptest::prelude::*;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// What must come, comes much sooner.
const PATIENCE: Duration = Duration::from_secs(10);

/// A device under test.
pub(super) struct Node {
    device: Device,
    arena: Arena,
    queue: CompletionQueue,
}

impl Node {
    pub(super) fn open() -> Self {
        let address = Ipv4Addr::LOCALHOST.into();
        let device = open(TcpOptions { address }).unwrap();
        Self {
            arena: device.arena(ArenaOptions {
                segment_bytes: 1 << 16,
                ..ArenaOptions::default()
            }),
            queue: device.create_completion_queue(64, None).unwrap(),
            device,
        }
    }

    pub(super) fn address(&self) -> TcpAddress {
        TcpAddress::decode(&self.device.address()).unwrap()
    }

    pub(super) fn pair(&self) -> QueuePair {
        let options = QueuePairOptions {
            transport: Transport::ReliableConnection,
            send_depth: 16,
            receive_depth: 16,
            rnr_retry: 7,
            queue_key: 0,
        };
        self.device
            .create_queue_pair(&options, &self.queue, &self.queue)
            .unwrap()
    }

    fn receive(&self, pair: &QueuePair, length: usize) {
        let buffer = Some(self.arena.allocate(length).unwrap());
        pair.post_receive(&mut vec![ReceiveRequest { id: 1, buffer }])
            .unwrap();
    }

    fn completions(&self, count: usize) -> Vec<Completion> {
        let mut found = Vec::new();
        let start = Instant::now();
        while found.len() < count {
            self.queue.poll(&mut found, count);
            assert!(start.elapsed() < PATIENCE, "only {found:?} came");
            std::thread::yield_now();
        }
        found
    }

    /// Proves that the device serves well-behaved peers.
    fn works(&self) {
        let (one, other) = (self.pair(), self.pair());
        self.receive(&other, 64);
        one.connect(other.address()).unwrap();
        other.connect(one.address()).unwrap();
        send(&one, SendOperation::Send);
        let done = self.completions(2);
        assert!(done.iter().all(|one| one.status == Success), "{done:?}");
    }
}

fn send(pair: &QueuePair, operation: SendOperation) {
    let payload = Payload::Inline(InlineBytes::new(b"hello").unwrap());
    let request = SendRequest {
        id: 2,
        operation,
        payload,
        destination: None,
    };
    pair.post_send(&mut vec![request]).unwrap();
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A listener that stands for a peer's device.
pub(super) struct Impostor {
    listener: TcpListener,
    address: TcpAddress,
}

impl Impostor {
    pub(super) fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = TcpAddress {
            listener: listener.local_addr().unwrap(),
            id: [7; 16],
            secret: [9; 16],
        };
        Self { listener, address }
    }

    /// The address of a queue pair of its.
    pub(super) fn pair(&self) -> QueuePairAddress {
        QueuePairAddress {
            device: self.address.encode(),
            number: 100_000,
            incarnation: 3,
            queue_key: 0,
        }
    }

    fn identity(&self) -> Identity {
        Identity {
            device: self.address.id,
            number: self.pair().number,
            incarnation: self.pair().incarnation,
        }
    }

    /// Takes a call, and says nothing.
    pub(super) fn take(&self) -> TcpStream {
        let (mut stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = [0; HELLO_BYTES];
        stream.read_exact(&mut bytes).unwrap();
        let hello = Hello::decode(&bytes).unwrap();
        assert_eq!(hello.secret, self.address.secret);
        stream
    }

    /// Takes a call and accepts it, with the secret of the caller's device as proof of who answers.
    pub(super) fn accept(&self, secret: [u8; 16], posted: u64) -> TcpStream {
        let mut stream = self.take();
        let answer = Answer {
            secret,
            verdict: Verdict::Accepted { posted },
        };
        stream.write_all(&answer.encode()).unwrap();
        stream
    }
}

/// A queue pair that is connected to an impostor, which has posted so many receives.
fn connected(node: &Node, posted: u64) -> (QueuePair, TcpStream) {
    let impostor = Impostor::new();
    let pair = node.pair();
    for _ in 0..2 {
        node.receive(&pair, 64);
    }
    pair.connect(&impostor.pair()).unwrap();
    let stream = impostor.accept(node.address().secret, posted);
    (pair, stream)
}

/// The next frame of a device.
pub(super) fn next(stream: &mut TcpStream) -> Frame {
    let mut bytes = [0; HEADER_BYTES];
    stream.read_exact(&mut bytes).unwrap();
    Frame::decode(&bytes).unwrap()
}

/// Whether the device neither says anything nor ends the connection.
pub(super) fn is_silent(stream: &mut TcpStream) -> bool {
    let short = Some(Duration::from_millis(50));
    stream.set_read_timeout(short).unwrap();
    let read = stream.read(&mut [0; 1]);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn a_peer_of_this_protocol_is_served() {
    let node = Node::open();
    let (_pair, mut stream) = connected(&node, 0);
    let frame = Frame::Send {
        length: 3,
        immediate: Some(5),
    };
    stream.write_all(&frame.encode()).unwrap();
    stream.write_all(b"abc").unwrap();
    let received = node.completions(1);
    assert_eq!((received[0].bytes, received[0].immediate), (3, Some(5)));
    let told = next(&mut stream);
    assert!(matches!(told, Frame::Acknowledge { done: 1, .. }));
}

#[test]
fn strangers_are_turned_away() {
    let node = Node::open();
    let (pair, other) = (node.pair(), node.pair());
    node.receive(&pair, 64);
    other.connect(pair.address()).unwrap();
    pair.connect(other.address()).unwrap();
    let own = node.address();
    let hello = Hello {
        secret: own.secret,
        number: pair.number(),
        incarnation: pair.address().incarnation,
        from: Impostor::new().identity(),
        reliable: true,
        posted: 0,
    };
    let with = |change: fn(&mut Hello)| {
        let mut hello = hello;
        change(&mut hello);
        hello.encode().to_vec()
    };
    let mut version = hello.encode().to_vec();
    version[8] ^= 0x40;
    let (silent, refused) = (None, Some(Verdict::Refused));
    let cases = [
        (b"GET / HTTP/1.1\r\n\r\n".repeat(20), silent),
        (vec![0xff; 100_000], silent),
        (with(|hello| hello.secret[3] ^= 1), silent),
        (version, refused),
        // With the secret, but not the peer of the queue pair; and to one that is not there.
        (with(|_| {}), refused),
        (with(|hello| hello.number += 1000), refused),
        (with(|hello| hello.incarnation ^= 1), refused),
        (with(|hello| hello.reliable = false), refused),
    ];
    for (index, (bytes, verdict)) in cases.into_iter().enumerate() {
        let mut stream = TcpStream::connect(own.listener).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may be closed before all is written.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let told = answer
            .first_chunk::<ANSWER_BYTES>()
            .map(|answer| Answer::decode(answer).unwrap().verdict);
        assert_eq!(told, verdict, "case {index}");
    }
    // Half a hello, and nothing at all, hold up nobody.
    let mut half = TcpStream::connect(own.listener).unwrap();
    half.write_all(&hello.encode()[..50]).unwrap();
    let _nothing = TcpStream::connect(own.listener).unwrap();
    send(&other, SendOperation::Send);
    let done = node.completions(2);
    assert!(done.iter().all(|one| one.status == Success), "{done:?}");
    node.works();
}

/// What ends the connection that it comes over.
#[test]
fn frames_that_cannot_be_break_their_queue_pair_only() {
    let at = RemoteAddress {
        address: 4096,
        remote_key: 77,
    };
    let (length, immediate) = (8, None);
    let frames = [
        Frame::Send {
            length: u32::MAX,
            immediate,
        },
        Frame::Write {
            at,
            length: u32::MAX,
            immediate,
        },
        Frame::Read {
            at,
            length: u32::MAX,
        },
        Frame::Acknowledge { done: 1, posted: 0 },
        Frame::Acknowledge {
            done: u64::MAX,
            posted: u64::MAX,
        },
        Frame::ReadResponse {
            sequence: 0,
            length,
        },
        Frame::ReadResponse {
            sequence: u64::MAX,
            length,
        },
        Frame::AtomicResponse {
            sequence: 0,
            word: 1,
        },
        Frame::Refuse {
            sequence: 0,
            refusal: Refusal::Access,
        },
    ];
    let node = Node::open();
    for frame in frames {
        let (pair, mut stream) = connected(&node, 0);
        stream.write_all(&frame.encode()).unwrap();
        until("it breaks", || pair.state() == QueuePairState::Error);
        let flushed = node.completions(2);
        assert!(flushed.iter().all(|one| one.status == Flushed), "{frame:?}");
        let mut rest = Vec::new();
        stream
            .read_to_end(&mut rest)
            .unwrap_or_else(|error| panic!("{frame:?}: not closed: {error}"));
    }
    node.works();
}

#[test]
fn messages_without_a_receive_break_the_connection() {
    let node = Node::open();
    let (pair, mut stream) = connected(&node, 0);
    let frame = Frame::Send {
        length: 0,
        immediate: None,
    };
    // Three, where two receives are posted: the third is more than was granted.
    stream.write_all(&frame.encode().repeat(3)).unwrap();
    let received = node.completions(2);
    assert!(received.iter().all(|one| one.status == Success));
    until("it breaks", || pair.state() == QueuePairState::Error);
    node.works();
}

#[test]
fn more_reads_than_allowed_break_the_connection() {
    let node = Node::open();
    let (pair, mut stream) = connected(&node, 0);
    let exposed = node.arena.allocate_exposed(1 << 20).unwrap();
    let frame = Frame::Read {
        at: exposed.remote_address(),
        length: 1 << 20,
    };
    // Nobody reads the answers, so they pile up, but only so many.
    stream.write_all(&frame.encode().repeat(1000)).unwrap();
    until("it breaks", || pair.state() == QueuePairState::Error);
    node.completions(2);
    node.works();
}

#[test]
fn half_a_message_and_the_end() {
    let node = Node::open();
    for (sent, of) in [(0, 64), (1, 64), (63, 64)] {
        let (pair, mut stream) = connected(&node, 0);
        let frame = Frame::Send {
            length: of,
            immediate: None,
        };
        stream.write_all(&frame.encode()).unwrap();
        stream.write_all(&vec![1; sent]).unwrap();
        drop(stream);
        let unfilled = |one: &Completion| one.status == Flushed && one.buffer.is_some();
        assert!(node.completions(2).iter().all(unfilled));
        assert_eq!(pair.state(), QueuePairState::Error);
    }
    let (pair, mut stream) = connected(&node, 0);
    stream.write_all(&[1; HEADER_BYTES - 1]).unwrap();
    drop(stream);
    node.completions(2);
    assert_eq!(pair.state(), QueuePairState::Error);
}

#[test]
fn a_write_that_ends_half_way_leaves_what_came() {
    let node = Node::open();
    let (_pair, mut stream) = connected(&node, 0);
    let exposed = node.arena.allocate_exposed(4096).unwrap();
    let frame = Frame::Write {
        at: exposed.remote_address(),
        length: 4096,
        immediate: None,
    };
    stream.write_all(&frame.encode()).unwrap();
    stream.write_all(&[1; 1000]).unwrap();
    drop(stream);
    node.completions(2);
    let mut bytes = [0; 4096];
    exposed.read(0, &mut bytes);
    assert!(bytes[1000..].iter().all(|byte| *byte == 0));
}

#[test]
fn sends_wait_for_what_is_granted_and_end_with_the_peer() {
    let node = Node::open();
    let (pair, mut stream) = connected(&node, 1);
    send(&pair, SendOperation::Send);
    send(&pair, SendOperation::Send);
    let message = next(&mut stream);
    assert!(matches!(message, Frame::Send { length: 5, .. }));
    stream.read_exact(&mut [0; 5]).unwrap();
    assert!(is_silent(&mut stream), "more than was granted");
    // The first is carried out, the second never.
    let acknowledge = Frame::Acknowledge { done: 1, posted: 1 };
    stream.write_all(&acknowledge.encode()).unwrap();
    assert_eq!(node.completions(1)[0].status, Success);
    drop(stream);
    let mut ended: Vec<CompletionStatus> =
        node.completions(3).iter().map(|one| one.status).collect();
    ended.sort_by_key(|status| *status != RetryExceeded);
    assert_eq!(ended, [RetryExceeded, Flushed, Flushed]);
}

#[test]
fn another_device_at_the_address_is_not_believed() {
    let node = Node::open();
    let impostor = Impostor::new();
    let pair = node.pair();
    pair.connect(&impostor.pair()).unwrap();
    let _stream = impostor.accept([1; 16], 0);
    until("it breaks", || pair.state() == QueuePairState::Error);
}

#[test]
fn addresses_that_are_none() {
    let node = Node::open();
    let pair = node.pair();
    let mut address = Impostor::new().pair();
    address.device = DeviceAddress::new(b"rtcp").unwrap();
    assert!(pair.connect(&address).is_err());
    assert_eq!(pair.state(), QueuePairState::Init);
    for ip in ["0.0.0.0", "::", "224.0.0.1", "192.0.2.1"] {
        let address = ip.parse().unwrap();
        assert!(open(TcpOptions { address }).is_err(), "{ip}");
    }
}

/// Frames whose kinds exist, and other bytes.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let header = (0u8..24, any::<[u8; HEADER_BYTES]>(), any::<bool>()).prop_map(
        |(kind, mut bytes, small)| {
            bytes[0] = kind;
            if small {
                // Lengths and numbers that may well be right.
                bytes[9..12].fill(0);
                bytes[25..32].fill(0);
                bytes[24] &= 3;
            }
            bytes.to_vec()
        },
    );
    let other = prop::collection::vec(any::<u8>(), 0..300);
    prop::collection::vec(prop_oneof![3 => header, 1 => other], 1..12)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_break_one_connection_at_most(bytes in noise()) {
        let node = Node::open();
        let (pair, mut stream) = connected(&node, 4);
        let exposed = node.arena.allocate_exposed(4096).unwrap();
        send(&pair, SendOperation::Send);
        send(&pair, SendOperation::Write(exposed.remote_address()));
        // It may be closed before all is written.
        let _ = stream.write_all(&bytes);
        drop(stream);
        until("it breaks", || pair.state() == QueuePairState::Error);
        let mut bytes = [0; 4096];
        exposed.read(0, &mut bytes);
        prop_assert!(bytes == [0; 4096], "nobody was given the key");
        node.completions(4);
        node.works();
    }
}

//! What the process of a host does: it connects, works, and says when its connection breaks.

use roundel_verbs::capabilities::GRH_BYTES;
use roundel_verbs::{
    Arena, ArenaOptions, Opcode, Payload, QueuePair, QueuePairAddress, QueuePairOptions,
    QueuePairState, ReceiveRequest, SendOperation, SendRequest, Transport, tcp,
};
use std::io::BufRead;
use std::net::IpAddr;
use std::time::Duration;

const BYTES: usize = 64 << 10;
const DEPTH: usize = 16;

/// What a connection carries while the cable is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Messages both ways, without end.
    Stream,
    /// No messages.
    Idle,
    /// One message, for which there is no receive.
    Wait,
    /// Datagrams that are longer than a packet, until one has come.
    Datagrams,
}

impl Work {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Idle => "idle",
            Self::Wait => "wait",
            Self::Datagrams => "datagrams",
        }
    }

    pub fn from_name(name: &str) -> Self {
        [Self::Stream, Self::Idle, Self::Wait, Self::Datagrams]
            .into_iter()
            .find(|work| work.name() == name)
            .unwrap()
    }
}

pub fn options(transport: Transport) -> QueuePairOptions {
    QueuePairOptions {
        transport,
        send_depth: DEPTH,
        receive_depth: DEPTH,
        rnr_retry: 7,
        queue_key: 4711,
    }
}

pub fn receive(pair: &QueuePair, arena: &Arena) {
    let buffer = Some(arena.allocate(BYTES).unwrap());
    pair.post_receive(&mut vec![ReceiveRequest { id: 0, buffer }])
        .unwrap();
}

/// Tells the other host of a queue pair, and hears of its.
fn exchange(pair: &QueuePair) -> QueuePairAddress {
    let hex: String = pair
        .address()
        .to_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    println!("\n@{hex}");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    let bytes: Vec<u8> = (0..line.trim().len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&line[at..at + 2], 16).unwrap())
        .collect();
    QueuePairAddress::from_bytes(&bytes).unwrap()
}

/// Sends the longest datagrams until one has come whole.
fn run_datagrams(address: IpAddr) {
    let device = tcp::open(tcp::TcpOptions { address }).unwrap();
    let length = device.capabilities().ud_message_bytes_max;
    let arena = device.arena(ArenaOptions::default());
    let queue = device.create_completion_queue(64, None).unwrap();
    let pair = device
        .create_queue_pair(&options(Transport::UnreliableDatagram), &queue, &queue)
        .unwrap();
    receive(&pair, &arena);
    pair.activate().unwrap();
    let to = device.create_address_handle(&exchange(&pair)).unwrap();
    let (mut received, mut rounds) = (0, 0);
    // The other one may have begun later: it gets more than were received here.
    while rounds < 100 {
        rounds += u32::from(received > 0);
        let mut buffer = arena.allocate(length).unwrap();
        buffer.write(0, &vec![0xa5; length]);
        let request = SendRequest {
            id: 1,
            operation: SendOperation::Send,
            payload: Payload::Owned { buffer, length },
            destination: Some(to.clone()),
        };
        pair.post_send(&mut vec![request]).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        let mut found = Vec::new();
        queue.poll(&mut found, 64);
        for completion in found {
            if completion.opcode == Opcode::Receive {
                assert_eq!(completion.bytes, GRH_BYTES + length);
                let mut bytes = vec![0; length];
                let buffer = completion.buffer.unwrap();
                buffer.read(GRH_BYTES, &mut bytes);
                assert!(bytes.iter().all(|byte| *byte == 0xa5));
                receive(&pair, &arena);
                received += 1;
                if received == 1 {
                    println!("\n!received");
                }
            }
        }
    }
}

/// Works until the connection breaks.
pub fn run(address: IpAddr, work: Work) {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    if work == Work::Datagrams {
        return run_datagrams(address);
    }
    let device = tcp::open(tcp::TcpOptions { address }).unwrap();
    let arena = device.arena(ArenaOptions::default());
    let channel = device.create_channel().unwrap();
    let queue = device.create_completion_queue(64, Some(&channel)).unwrap();
    let pair = device
        .create_queue_pair(&options(Transport::ReliableConnection), &queue, &queue)
        .unwrap();
    if work == Work::Stream {
        (0..DEPTH).for_each(|_| receive(&pair, &arena));
    }
    pair.connect(&exchange(&pair)).unwrap();
    let sends = match work {
        Work::Stream => DEPTH / 2,
        Work::Wait => 1,
        Work::Idle | Work::Datagrams => 0,
    };
    let send = |buffer| SendRequest {
        id: 1,
        operation: SendOperation::Send,
        payload: Payload::Owned {
            buffer,
            length: BYTES,
        },
        destination: None,
    };
    let mut requests: Vec<_> = (0..sends)
        .map(|_| send(arena.allocate(BYTES).unwrap()))
        .collect();
    let mut found = Vec::new();
    while pair.state() != QueuePairState::Error {
        pair.post_send(&mut requests).unwrap();
        queue
            .wait(&mut found, 64, 0, Duration::from_millis(50))
            .unwrap();
        for completion in found.drain(..) {
            match (completion.id, completion.buffer) {
                (1, Some(buffer)) => requests.push(send(buffer)),
                (_, buffer) => {
                    pair.post_receive(&mut vec![ReceiveRequest { id: 0, buffer }])
                        .unwrap();
                }
            }
        }
    }
    println!("\n!broken");
}

//! What the process of a host does: it connects, works, and says when its connection breaks.

use roundel_verbs::{
    Arena, ArenaOptions, Payload, QueuePair, QueuePairAddress, QueuePairOptions, QueuePairState,
    ReceiveRequest, SendOperation, SendRequest, Transport, tcp,
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
    /// Nothing.
    Idle,
    /// One message, for which there is no receive.
    Wait,
}

impl Work {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Idle => "idle",
            Self::Wait => "wait",
        }
    }

    pub fn from_name(name: &str) -> Self {
        [Self::Stream, Self::Idle, Self::Wait]
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

/// Works until the connection breaks.
pub fn run(address: IpAddr, work: Work) {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
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
    pair.connect(&QueuePairAddress::from_bytes(&bytes).unwrap())
        .unwrap();
    let sends = match work {
        Work::Stream => DEPTH / 2,
        Work::Idle => 0,
        Work::Wait => 1,
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

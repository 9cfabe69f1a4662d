//! What both sides do while peers are killed: messages of every kind on a connection and on datagrams.

use rand::Rng;
use rand::rngs::StdRng;
use roundel_verbs::{
    AddressHandle, Arena, ArenaOptions, Buffer, Completion, CompletionQueue, CompletionStatus,
    Device, ExposedBuffer, Payload, QueuePair, QueuePairAddress, QueuePairOptions, ReceiveRequest,
    RemoteAddress, SendOperation, SendRequest, Transport, rdma, shm, tcp,
};
use std::time::{Duration, Instant};

/// Nothing that a peer's death must bring about takes longer.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Nothing that is under way takes longer.
const SILENCE: Duration = Duration::from_millis(50);
pub const RC_BYTES: usize = 64 << 10;
pub const UD_BYTES: usize = 4096;
pub const GRH: usize = roundel_verbs::capabilities::GRH_BYTES;
pub const UD_RECEIVES: usize = 16;

/// What peers tell each other, as text over pipes.
pub struct Card {
    pub connected: QueuePairAddress,
    pub datagrams: QueuePairAddress,
    pub exposed: RemoteAddress,
}

impl Card {
    pub fn to_text(&self) -> String {
        let hex =
            |bytes: Vec<u8>| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
        format!(
            "@ {} {} {} {}",
            hex(self.connected.to_bytes()),
            hex(self.datagrams.to_bytes()),
            self.exposed.address,
            self.exposed.remote_key
        )
    }

    pub fn from_text(text: &str) -> Self {
        let words: Vec<&str> = text.split_whitespace().collect();
        let address = |hex: &str| {
            let bytes: Vec<u8> = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect();
            QueuePairAddress::from_bytes(&bytes).unwrap()
        };
        Self {
            connected: address(words[1]),
            datagrams: address(words[2]),
            exposed: RemoteAddress {
                address: words[3].parse().unwrap(),
                remote_key: words[4].parse().unwrap(),
            },
        }
    }
}

/// Opens the RDMA device of this name, a TCP device when the name is an address, or one in shared
/// memory when there is no name.
pub fn device(name: &str) -> Device {
    if name.is_empty() {
        shm::open(shm::ShmOptions::default()).unwrap()
    } else if let Ok(address) = name.parse() {
        tcp::open(tcp::TcpOptions { address }).unwrap()
    } else {
        rdma::open(&name.parse().unwrap()).unwrap()
    }
}

/// Whether a device of this name gives up soon on a peer that is not connected or leaves it no time.
pub fn is_rdma(name: &str) -> bool {
    !name.is_empty() && name.parse::<std::net::IpAddr>().is_err()
}

pub fn arena(device: &Device) -> Arena {
    device.arena(ArenaOptions {
        segment_bytes: 1 << 20,
        ..ArenaOptions::default()
    })
}

pub fn options(transport: Transport) -> QueuePairOptions {
    QueuePairOptions {
        transport,
        send_depth: 16,
        receive_depth: UD_RECEIVES,
        rnr_retry: 7,
        queue_key: 4711,
    }
}

pub fn receive(pair: &QueuePair, buffer: Buffer) {
    let mut request = vec![ReceiveRequest {
        id: 0,
        buffer: Some(buffer),
    }];
    pair.post_receive(&mut request).unwrap();
    assert!(request.is_empty(), "room for every receive");
}

/// One side of a reliable connection under load: SENDs and WRITEs of random sizes, both ways.
pub struct Link {
    pub pair: QueuePair,
    pub queue: CompletionQueue,
    pub exposed: ExposedBuffer,
    pub target: Option<RemoteAddress>,
    pub free: Vec<Buffer>,
    /// Buffers with posted requests.
    pub posted: usize,
    pub received: u64,
    pub failed: Option<CompletionStatus>,
}

impl Link {
    pub fn new(device: &Device, arena: &Arena) -> Self {
        let queue = device.create_completion_queue(64, None).unwrap();
        let pair = device
            .create_queue_pair(&options(Transport::ReliableConnection), &queue, &queue)
            .unwrap();
        for _ in 0..4 {
            receive(&pair, arena.allocate(RC_BYTES).unwrap());
        }
        Self {
            pair,
            queue,
            exposed: arena.allocate_exposed(RC_BYTES).unwrap(),
            target: None,
            free: (0..4).map(|_| arena.allocate(RC_BYTES).unwrap()).collect(),
            posted: 4,
            received: 0,
            failed: None,
        }
    }

    pub fn connect(&mut self, card: &Card) {
        self.target = Some(card.exposed);
        // The peer may be dead already: then the queue pair breaks, or is never connected.
        if self.pair.connect(&card.connected).is_err() {
            self.pair.modify_to_error();
        }
    }

    pub fn turn(&mut self, random: &mut StdRng) {
        let mut requests = Vec::new();
        while let Some(mut buffer) = self.free.pop() {
            let length = random.random_range(1..=RC_BYTES);
            buffer.write(0, &(length as u64).to_le_bytes()[..length.min(8)]);
            let operation = match (self.target, random.random_range(0..4)) {
                (Some(target), 0) => SendOperation::Write(target),
                (Some(target), 1) => SendOperation::Read(target),
                _ => SendOperation::Send,
            };
            requests.push(SendRequest {
                id: 1,
                operation,
                payload: Payload::Owned { buffer, length },
                destination: None,
            });
        }
        self.posted += self.pair.post_send(&mut requests).unwrap();
        for request in requests {
            if let Payload::Owned { buffer, .. } = request.payload {
                self.free.push(buffer);
            }
        }
        let mut found = Vec::new();
        self.queue.poll(&mut found, 16);
        for completion in found {
            self.posted -= 1;
            let buffer = completion.buffer.expect("every request had a buffer");
            if completion.status != CompletionStatus::Success {
                self.failed.get_or_insert(completion.status);
                self.free.clear();
                continue;
            }
            if completion.id == 0 {
                self.received += 1;
                if completion.bytes >= 8 {
                    let mut word = [0; 8];
                    buffer.read(0, &mut word);
                    assert_eq!(u64::from_le_bytes(word), completion.bytes as u64, "payload");
                }
                receive(&self.pair, buffer);
                self.posted += 1;
            } else {
                self.free.push(buffer);
            }
        }
    }
}

/// A datagram queue pair under load.
pub struct Datagrams {
    pub pair: QueuePair,
    pub queue: CompletionQueue,
    pub free: Vec<Buffer>,
    pub received: u64,
}

impl Datagrams {
    pub fn new(device: &Device, arena: &Arena) -> Self {
        let queue = device.create_completion_queue(64, None).unwrap();
        let pair = device
            .create_queue_pair(&options(Transport::UnreliableDatagram), &queue, &queue)
            .unwrap();
        pair.activate().unwrap();
        for _ in 0..UD_RECEIVES {
            receive(&pair, arena.allocate(GRH + UD_BYTES).unwrap());
        }
        Self {
            pair,
            queue,
            free: (0..8).map(|_| arena.allocate(UD_BYTES).unwrap()).collect(),
            received: 0,
        }
    }

    pub fn turn(&mut self, to: &[AddressHandle]) {
        let mut requests = Vec::new();
        for (index, to) in to.iter().cycle().take(self.free.len()).enumerate() {
            let Some(mut buffer) = self.free.pop() else {
                break;
            };
            let length = UD_BYTES - index;
            buffer.write(0, &(length as u64).to_le_bytes());
            requests.push(SendRequest {
                id: 1,
                operation: SendOperation::Send,
                payload: Payload::Owned { buffer, length },
                destination: Some(to.clone()),
            });
        }
        self.pair.post_send(&mut requests).unwrap();
        assert!(requests.is_empty(), "there are fewer buffers than slots");
        for completion in self.poll() {
            let buffer = completion.buffer.expect("every request had a buffer");
            if completion.id == 1 {
                self.free.push(buffer);
            } else {
                self.received += 1;
                let mut word = [0; 8];
                buffer.read(GRH, &mut word);
                let length = u64::from_le_bytes(word) as usize;
                assert_eq!(completion.bytes, GRH + length, "payload");
                receive(&self.pair, buffer);
            }
        }
    }

    pub fn poll(&self) -> Vec<Completion> {
        let mut found = Vec::new();
        self.queue.poll(&mut found, 64);
        for completion in &found {
            assert_eq!(completion.status, CompletionStatus::Success);
        }
        found
    }

    /// Takes what comes until nothing has come for a while.
    fn settle(&mut self) {
        let mut quiet = Instant::now();
        while quiet.elapsed() < SILENCE {
            let before = (self.received, self.free.len());
            self.turn(&[]);
            if before != (self.received, self.free.len()) {
                quiet = Instant::now();
            }
        }
    }

    /// Proves that every receive is there: as many datagrams as there are receives come back.
    pub fn all_receives_work(&mut self, device: &Device) {
        let own = device.create_address_handle(self.pair.address()).unwrap();
        self.turn(&[]);
        let before = self.received;
        let start = Instant::now();
        while self.received - before < 4 * UD_RECEIVES as u64 {
            self.turn(std::slice::from_ref(&own));
            assert!(
                start.elapsed() < PATIENCE,
                "datagrams to ourselves do not arrive any more"
            );
        }
        // Now each receive in turn, with nothing posted in between.
        self.settle();
        let mut came = Vec::new();
        for _ in 0..UD_RECEIVES {
            let mut buffer = self.free.pop().expect("no send is under way");
            buffer.write(0, &100u64.to_le_bytes());
            let mut request = vec![SendRequest {
                id: 1,
                operation: SendOperation::Send,
                payload: Payload::Owned {
                    buffer,
                    length: 100,
                },
                destination: Some(own.clone()),
            }];
            self.pair.post_send(&mut request).unwrap();
            let mut sent = 0;
            while sent == 0 {
                sent = self.sort(&mut came);
            }
        }
        let start = Instant::now();
        while came.len() < UD_RECEIVES {
            self.sort(&mut came);
            assert!(start.elapsed() < PATIENCE, "receives were lost");
        }
        for buffer in came {
            receive(&self.pair, buffer);
        }
    }

    /// Polls: buffers of sends are free again, those of receives go to `came`. Returns how many
    /// sends there were.
    fn sort(&mut self, came: &mut Vec<Buffer>) -> usize {
        let free = self.free.len();
        for completion in self.poll() {
            let buffer = completion.buffer.expect("every request had a buffer");
            if completion.id == 1 {
                self.free.push(buffer);
            } else {
                came.push(buffer);
            }
        }
        self.free.len() - free
    }
}

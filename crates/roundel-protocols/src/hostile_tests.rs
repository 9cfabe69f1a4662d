//! Peers that write what they like to memory that is looked at: garbage, frames that are cut short, lengths that
//! cannot be, trailers of long ago. Nobody may panic or read beyond a slot, others go on, and what is guarded is never
//! taken for a message that nobody sent.

use crate::message::frame::{Guard, Kind, Tail, Trailer, overhead};
use crate::message::offer::Offer;
use crate::{EndOptions, Fabric, Protocol, Requester, Responder};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use roundel_verbs::work::InlineBytes;
use roundel_verbs::{
    Completion, CompletionQueue, ExposedBuffer, Payload, QueuePair, QueuePairOptions,
    RemoteAddress, SendOperation, SendRequest, TokioContext, shm,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Connections of each end: one between them, and those of attackers, which break one after the other.
const CONNECTIONS: usize = 24;
const TIME: Duration = Duration::from_millis(1500);
const BYTES: usize = 100;
const PENDING: usize = 4;

fn fabric() -> Fabric {
    let device = shm::open(shm::ShmOptions::default()).unwrap();
    Fabric::new(device, Arc::new(TokioContext::current()))
}

/// Writes to an end over a connection that it has with it.
struct Attacker {
    fabric: Fabric,
    queue: CompletionQueue,
    pair: QueuePair,
    /// What it would have others write to.
    own: ExposedBuffer,
    /// The slots that it writes to, all of a connection.
    target: Vec<RemoteAddress>,
    slot_bytes: usize,
    immediate: bool,
    /// How many messages were taken from it.
    taken: Arc<AtomicU64>,
    stale: Vec<u8>,
    completions: Vec<Completion>,
}

impl Attacker {
    fn new(protocol: Protocol, asks: bool) -> Self {
        let way = if asks {
            protocol.requests()
        } else {
            protocol.responses()
        }
        .unwrap();
        let fabric = fabric();
        let queue = fabric.device.create_completion_queue(64, None).unwrap();
        let options = QueuePairOptions {
            transport: way.transport,
            send_depth: 16,
            receive_depth: 16,
            rnr_retry: 7,
            queue_key: 0,
        };
        let pair = fabric
            .device
            .create_queue_pair(&options, &queue, &queue)
            .unwrap();
        Self {
            own: fabric.arena.allocate_exposed(1 << 16).unwrap(),
            fabric,
            queue,
            pair,
            target: Vec::new(),
            slot_bytes: (BYTES + overhead(way)).next_multiple_of(64),
            immediate: way.consumes_receive(),
            taken: Arc::default(),
            stale: vec![0; 64],
            completions: Vec::new(),
        }
    }

    fn offer(&self, options: &EndOptions, asks: bool) -> Vec<u8> {
        let offer = Offer {
            connected: Some(self.pair.address().clone()),
            datagram: Some(self.pair.address().clone()),
            memory: Some(self.own.remote_address()),
            ..Offer::new(options, asks)
        };
        offer.to_bytes()
    }

    /// One more bad deed; whether its connection stands.
    fn write(&mut self, random: &mut ChaCha8Rng) -> bool {
        self.queue.poll(&mut self.completions, 64);
        self.completions.clear();
        let target = self.target[random.random_range(0..self.target.len())];
        // Most often what is waited for, where it is waited for.
        let ahead = if random.random() {
            0
        } else {
            random.random_range(0..6)
        };
        let sequence = self.taken.load(Ordering::Relaxed) + ahead;
        let slot = match random.random_ratio(1, 4) {
            true => random.random_range(0..PENDING),
            false => sequence as usize % PENDING,
        };
        let end = (slot + 1) * self.slot_bytes;
        let length = random.random_range(0..=BYTES);
        let payload: Vec<u8> = (0..length).map(|_| random.random()).collect();
        let kind = if random.random() {
            Kind::Plain
        } else {
            Kind::Refusal
        };
        let trailer = Trailer::new(length, kind, sequence, PENDING);
        let guard = random.random::<bool>().then(|| Guard {
            connection: random.random_range(0..3),
            nonce: random.random(),
        });
        let tail = Tail::new(&payload, trailer, guard);
        let frame = [&payload, tail.as_slice()].concat();
        let (at, bytes) = match random.random_range(0..6) {
            // Garbage, anywhere in the slots.
            0 => {
                let all = PENDING * self.slot_bytes;
                let length = random.random_range(1..=128.min(all));
                let garbage = (0..length).map(|_| random.random()).collect();
                (random.random_range(0..=all - length), garbage)
            }
            // A trailer alone, of a length that may be beyond the slot.
            1 => {
                let bits = random.random_range(1..24);
                let length = random.random_range(0..1 << bits);
                let word = Trailer { length, ..trailer }.to_word();
                (end - 8, word.to_le_bytes().to_vec())
            }
            // A message that cannot be, but for its marker.
            2 => {
                let word = trailer.to_word() | random.random::<u64>() >> 8;
                (end - 8, word.to_le_bytes().to_vec())
            }
            3 => (end - frame.len(), frame),
            // Cut short.
            4 => {
                let kept = random.random_range(0..frame.len());
                (end - frame.len(), frame[..kept].to_vec())
            }
            _ => (end - self.stale.len(), self.stale.clone()),
        };
        if bytes.is_empty() {
            return true;
        }
        if random.random_ratio(1, 4) && at + bytes.len() == end {
            self.stale.clone_from(&bytes);
        }
        let mut buffer = self.fabric.arena.allocate(bytes.len()).unwrap();
        buffer.write(0, &bytes);
        let to = target.offset(at);
        let operation = match self.immediate && random.random_ratio(9, 10) {
            true => {
                let wild = random.random_ratio(1, 500);
                let slot = if wild { random.random() } else { slot as u32 };
                SendOperation::WriteWithImmediate(to, slot)
            }
            false => SendOperation::Write(to),
        };
        let payload = match InlineBytes::new(&bytes).filter(|_| random.random()) {
            Some(inline) => Payload::Inline(inline),
            None => Payload::Owned {
                buffer,
                length: bytes.len(),
            },
        };
        let request = SendRequest {
            id: 0,
            operation,
            payload,
            destination: None,
        };
        self.pair.post_send(&mut vec![request]).unwrap();
        self.pair.state() != roundel_verbs::QueuePairState::Error
    }
}

/// A number, and what follows from it.
fn message(number: u64, salt: u8) -> Vec<u8> {
    let mut message = number.to_le_bytes().to_vec();
    message.extend((0..number % 90).map(|at| (number >> (at % 8)) as u8 ^ at as u8 ^ salt));
    message
}

fn number_of(message: &[u8]) -> u64 {
    message
        .first_chunk()
        .map_or(u64::MAX, |number| u64::from_le_bytes(*number))
}

/// Attackers on both sides of a conversation of this protocol, and what becomes of it.
fn run(protocol: Protocol, seed: u64) {
    let options = EndOptions {
        pending: PENDING,
        request_bytes: BYTES,
        response_bytes: BYTES,
        resend_after: Duration::from_millis(1),
        give_up_after: Duration::from_secs(60),
        ..EndOptions::new(protocol)
    };
    let (here, there) = (fabric(), fabric());
    let mut requester = Requester::open(&here, CONNECTIONS, &options).unwrap();
    let mut responder = Responder::open(&there, CONNECTIONS, 0, &options).unwrap();
    responder
        .connect(0, &requester.offer(0), "requester")
        .unwrap();
    requester
        .connect(0, &responder.offer(0), "responder")
        .unwrap();
    let read =
        |offer: &[u8], asks| Offer::parse(offer, &Offer::new(&options, asks), "end").unwrap();
    let mut attackers = Vec::new();
    let taken: Vec<[Arc<AtomicU64>; 2]> = (0..CONNECTIONS).map(|_| Default::default()).collect();
    for (at, taken) in taken.iter().enumerate().skip(1) {
        for asks in [true, false] {
            // Where answers go to memory they are attacked too.
            let way = if asks {
                protocol.requests()
            } else {
                protocol.responses()
            };
            let Some(way) = way.filter(|way| way.goes_to_memory()) else {
                continue;
            };
            let mut attacker = Attacker::new(protocol, asks);
            attacker.taken = taken[usize::from(asks)].clone();
            let (offer, honest) = match asks {
                true => (responder.offer(at), responder.offer(0)),
                false => (requester.offer(at), requester.offer(0)),
            };
            let offer = read(&offer, asks);
            attacker.target.extend(offer.memory);
            if way.is_lossy() {
                // It knows where the others' slots are, but not what guards them.
                attacker.target.extend(read(&honest, asks).memory);
            }
            attacker.pair.connect(&offer.connected.unwrap()).unwrap();
            let own = attacker.offer(&options, asks);
            match asks {
                true => responder.connect(at, &own, "attacker").unwrap(),
                false => requester.connect(at, &own, "attacker").unwrap(),
            }
            attackers.push(attacker);
        }
    }
    let stop = AtomicBool::new(false);
    let (mut answered, mut strange, mut next) = (0u64, 0u64, 0u64);
    let lossy = protocol.is_lossy();
    std::thread::scope(|scope| {
        let deeds = scope.spawn(|| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut deeds = 0u64;
            while !stop.load(Ordering::Relaxed) && !attackers.is_empty() {
                let at = random.random_range(0..attackers.len().min(2));
                if !attackers[at].write(&mut random) {
                    attackers.swap_remove(at);
                }
                deeds += 1;
                // What is guarded gets through between two deeds.
                if deeds.is_multiple_of(if lossy { 16 } else { 64 }) {
                    std::thread::yield_now();
                }
            }
            deeds
        });
        let context = here.context.clone();
        let begun = context.now();
        while context.now() < begun + TIME {
            let now = context.now();
            let handled = responder.poll(
                now,
                &mut |from: usize, bytes: &[u8], answer: &mut Vec<u8>| {
                    assert!(bytes.len() <= BYTES);
                    if from != 0 {
                        assert!(!lossy, "{protocol}: a message that nobody sent: {bytes:?}");
                        strange += 1;
                        taken[from][1].fetch_add(1, Ordering::Relaxed);
                        answer.extend(bytes);
                        return Ok(());
                    }
                    let number = number_of(bytes);
                    assert_eq!(bytes, message(number, 0), "{protocol}");
                    answer.extend(message(number, 1));
                    Ok(())
                },
            );
            handled.unwrap();
            let ended = requester.poll(now, |ended| {
                if ended.connection != 0 {
                    taken[ended.connection][0].fetch_add(1, Ordering::Relaxed);
                    return;
                }
                let response = ended.outcome.unwrap();
                assert_eq!(response, message(ended.token, 1), "{protocol}");
                answered += 1;
            });
            ended.unwrap();
            while requester.room(0) > 0 {
                assert!(
                    requester
                        .call(0, next, &message(next, 0), None, now)
                        .unwrap()
                );
                next += 1;
            }
            for at in (1..CONNECTIONS).filter(|_| !lossy) {
                // Until it is gone.
                while requester.room(at) > 0 && requester.call(at, 0, &[], None, now).is_ok() {}
            }
            requester.flush().unwrap();
            while responder
                .next_gone()
                .is_some_and(|(connection, _)| connection != 0)
            {}
        }
        stop.store(true, Ordering::Relaxed);
        let deeds = deeds.join().unwrap();
        println!("{protocol}: {deeds} deeds, {strange} strange requests, {answered} answered");
        assert!(deeds > 100, "{protocol}: {deeds}");
        assert!(answered > 50, "{protocol}: {answered} answered");
        assert_eq!(strange > 0, !lossy, "{protocol}: {strange}");
    });
}

#[tokio::test]
async fn whoever_writes_what_it_likes_harms_nobody_but_itself() {
    let protocols = [
        Protocol::WriteWrite,
        Protocol::WriteImmediate,
        Protocol::Herd,
        Protocol::UnreliableWrite,
    ];
    for (seed, protocol) in protocols.into_iter().enumerate() {
        run(protocol, seed as u64);
    }
}

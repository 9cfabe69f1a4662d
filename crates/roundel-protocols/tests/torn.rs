//! No torn message is ever read: ten million requests in shared memory, whose lengths differ from lap to lap over the
//! slots, written on one processor while the other looks. Each message says what it has to be.

use roundel_protocols::{EndOptions, Fabric, Handler, Protocol, Requester, Responder};
use roundel_verbs::{Context, TokioContext, shm};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use twox_hash::XxHash64;

/// Ten million in all; requests come to memory with all but the first, responses with all but WRITE/SEND and HERD.
const REQUESTS: [(Protocol, u64); 6] = [
    (Protocol::SendWrite, 1_000_000),
    (Protocol::WriteSend, 1_800_000),
    (Protocol::WriteWrite, 1_800_000),
    (Protocol::WriteImmediate, 1_800_000),
    (Protocol::Herd, 1_800_000),
    (Protocol::UnreliableWrite, 1_800_000),
];
const CONNECTIONS: usize = 2;
/// Calls pending, and the share of the requests, in tenths: with few the one thread waits for each message that the
/// other writes, with many they are at work at the same time.
const PENDING: [(usize, u64); 2] = [(4, 3), (64, 7)];
const BYTES_MAX: usize = 700;
/// Number and checksum. Messages that are shorter have a pattern of their length.
const HEAD_BYTES: usize = 12;
/// A thread that has found nothing so often lets the other run.
const SPINS: u32 = 50;

/// Bytes that messages are cut from.
struct Paper(Vec<u8>);

impl Paper {
    fn new() -> Self {
        let mut state = 7u64;
        let bytes = (0..1 << 16).map(|_| {
            state = mixed(state + 1);
            state as u8
        });
        Self(bytes.collect())
    }

    /// Appends the message of a number, on one of the two ways.
    fn message(&self, number: u64, way: u64, into: &mut Vec<u8>) {
        let drawn = mixed(number ^ way << 63);
        let length = drawn as usize % (BYTES_MAX + 1);
        let cut = &self.0[(drawn >> 32) as usize % (self.0.len() - BYTES_MAX)..][..length];
        if length < HEAD_BYTES {
            return into.extend((0..length).map(|at| (length * 16 + at) as u8));
        }
        let rest = &cut[HEAD_BYTES..];
        into.extend(number.to_le_bytes());
        into.extend((XxHash64::oneshot(0, rest) as u32 ^ number as u32).to_le_bytes());
        into.extend(rest);
    }

    /// The number that a message has, if it has one; an error where it is not the message of any number.
    fn number(&self, message: &[u8], way: u64) -> Result<Option<u64>, String> {
        let wrong = || format!("a torn message: {message:?}");
        if message.len() < HEAD_BYTES {
            let mut all = message.iter().enumerate();
            let right = all.all(|(at, byte)| *byte == (message.len() * 16 + at) as u8);
            return right.then_some(None).ok_or_else(wrong);
        }
        let (number, rest) = message.split_first_chunk::<8>().ok_or_else(wrong)?;
        let (checksum, rest) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
        let number = u64::from_le_bytes(*number);
        let length = mixed(number ^ way << 63) as usize % (BYTES_MAX + 1);
        let checksum = u32::from_le_bytes(*checksum) ^ number as u32;
        let right = length == message.len() && checksum == XxHash64::oneshot(0, rest) as u32;
        right.then_some(Some(number)).ok_or_else(wrong)
    }
}

fn mixed(number: u64) -> u64 {
    let mixed = (number ^ number >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 32).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// Answers a request with the response of its number; one without, with itself.
struct Answering {
    paper: Arc<Paper>,
    torn: Option<String>,
}

impl Handler for Answering {
    fn handle(
        &mut self,
        _connection: usize,
        request: &[u8],
        response: &mut Vec<u8>,
    ) -> Result<(), String> {
        match self.paper.number(request, 0) {
            Ok(Some(number)) => self.paper.message(number, 1, response),
            Ok(None) => response.extend(request),
            Err(torn) => self.torn = Some(torn),
        }
        Ok(())
    }
}

fn fabric() -> Fabric {
    let device = shm::open(shm::ShmOptions::default()).unwrap();
    Fabric::new(device, Arc::new(TokioContext::current()))
}

fn rest(idle: &mut u32) {
    *idle += 1;
    match *idle % SPINS {
        0 => std::thread::yield_now(),
        _ => std::hint::spin_loop(),
    }
}

/// Makes calls until so many were answered, and says what was wrong with their answers.
fn ask(requester: &mut Requester, context: &dyn Context, paper: &Paper, requests: u64) {
    let (mut begun, mut answered) = (0, 0);
    let (mut request, mut expected) = (Vec::new(), Vec::new());
    let mut idle = 0;
    while answered < requests {
        let now = context.now();
        let happened = requester.poll(now, |ended| {
            let number = ended.token;
            let response = ended.outcome.unwrap();
            expected.clear();
            paper.message(number, 0, &mut expected);
            if expected.len() >= HEAD_BYTES {
                expected.clear();
                paper.message(number, 1, &mut expected);
            }
            assert!(
                response == expected,
                "to {number}: a torn response {response:?}"
            );
            answered += 1;
        });
        let mut asked = false;
        for connection in 0..CONNECTIONS {
            while begun < requests && requester.room(connection) > 0 {
                request.clear();
                paper.message(begun, 0, &mut request);
                assert!(
                    requester
                        .call(connection, begun, &request, None, now)
                        .unwrap()
                );
                begun += 1;
                asked = true;
            }
        }
        requester.flush().unwrap();
        match happened.unwrap() == 0 && !asked {
            true => rest(&mut idle),
            false => idle = 0,
        }
    }
}

#[tokio::test]
async fn no_torn_message_is_read_among_ten_millions() {
    assert_eq!(REQUESTS.iter().map(|one| one.1).sum::<u64>(), 10_000_000);
    let paper = Arc::new(Paper::new());
    let runs = REQUESTS
        .into_iter()
        .flat_map(|one| PENDING.map(|share| (one, share)));
    for ((protocol, requests), (pending, tenths)) in runs {
        let requests = requests / 10 * tenths;
        let options = EndOptions {
            pending,
            request_bytes: BYTES_MAX,
            response_bytes: BYTES_MAX,
            ..EndOptions::new(protocol)
        };
        let (here, there) = (fabric(), fabric());
        let mut requester = Requester::open(&here, CONNECTIONS, &options).unwrap();
        let mut responder = Responder::open(&there, CONNECTIONS, 0, &options).unwrap();
        for at in 0..CONNECTIONS {
            responder
                .connect(at, &requester.offer(at), "requester")
                .unwrap();
            requester
                .connect(at, &responder.offer(at), "responder")
                .unwrap();
        }
        let context = here.context.clone();
        let begun = context.now();
        let stop = AtomicBool::new(false);
        let mut answering = Answering {
            paper: paper.clone(),
            torn: None,
        };
        std::thread::scope(|scope| {
            let answers = scope.spawn(|| {
                let mut idle = 0;
                while !stop.load(Ordering::Relaxed) && answering.torn.is_none() {
                    let now = there.context.now();
                    match responder.poll(now, &mut answering).unwrap() {
                        0 => rest(&mut idle),
                        _ => idle = 0,
                    }
                }
                if let Some(torn) = &answering.torn {
                    // Who asks would wait for the answer.
                    eprintln!("{protocol}: {torn}");
                    std::process::abort();
                }
            });
            ask(&mut requester, &*context, &paper, requests);
            stop.store(true, Ordering::Relaxed);
            answers.join().unwrap();
        });
        assert_eq!(responder.counts().0, requests, "{protocol}: each once");
        let seconds = (context.now() - begun).as_secs_f64();
        println!(
            "{protocol}, {pending} pending: {:.2} million requests per second, {} sent again",
            requests as f64 / seconds / 1e6,
            requester.resent()
        );
    }
}

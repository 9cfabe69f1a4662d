//! What must not pass: wrong bytes, wrong counts, and peers that say something else.

use super::bandwidth::Receiver;
use super::drive::drive;
use super::end::{End, Role};
use super::link::{Link, Stop};
use super::message::Message;
use super::test::tests::bandwidth_test;
use super::tests::{ONE_AT_A_TIME, device, every_test, rendezvous};
use super::verify::Verification;
use super::*;
use roundel_verbs::{Context, Device, Payload, Rendezvous, SendRequest, TokioContext};
use std::sync::Arc;

/// One end of a test that has not begun.
pub(super) struct Side {
    pub device: Device,
    pub end: End,
    pub link: Link,
    pub test: Test,
    pub role: Role,
    pub context: Arc<dyn Context>,
}

impl Side {
    pub fn verify(&mut self, seed: u64) -> Result<()> {
        let verification = Verification {
            end: &mut self.end,
            link: &mut self.link,
            test: &self.test,
            seed,
            role: self.role,
            device: self.device.capabilities(),
            context: &*self.context,
        };
        let done = verification.run();
        done.map_err(|error| self.link.explain(error))
    }
}

/// Both ends of a test, connected.
pub(super) async fn sides(test: &Test) -> [Side; 2] {
    let context: Arc<dyn Context> = Arc::new(TokioContext::current());
    let (first, second) = rendezvous().await;
    let side = |rendezvous: Box<dyn Rendezvous>, role, peer: &str| {
        let device = device();
        Side {
            end: End::create(&device, test, role, peer).unwrap(),
            link: Link::serve(rendezvous, peer.to_owned(), Stop::default(), &*context),
            device,
            test: test.clone(),
            role,
            context: context.clone(),
        }
    };
    let mut initiator = side(Box::new(second), Role::Initiator, "responder");
    let mut responder = side(Box::new(first), Role::Responder, "initiator");
    initiator.end.connect(&responder.end.offer()).unwrap();
    responder.end.connect(&initiator.end.offer()).unwrap();
    [initiator, responder]
}

/// Does something at both ends at a time.
pub(super) async fn both<T: Send + 'static>(
    sides: [Side; 2],
    work: impl Fn(Side) -> T + Clone + Send + 'static,
) -> [T; 2] {
    let [one, other] = sides.map(|side| {
        let work = work.clone();
        tokio::task::spawn_blocking(move || work(side))
    });
    [one.await.unwrap(), other.await.unwrap()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_not_those_expected_are_found() {
    let _alone = ONE_AT_A_TIME.lock().await;
    for test in every_test() {
        let right = both(sides(&test).await, |mut side| side.verify(7)).await;
        assert!(right.iter().all(Result::is_ok), "{test:?}: {right:?}");
        let wrong = both(sides(&test).await, |mut side| {
            side.verify(1000 * (1 + side.role as u64))
        })
        .await;
        let found = wrong
            .iter()
            .any(|done| matches!(done, Err(PerfError::WrongBytes { .. })));
        assert!(found, "{test:?}: {wrong:?}");
        let told = wrong
            .iter()
            .any(|done| matches!(done, Err(PerfError::PeerFailed { .. })));
        assert!(told, "{test:?}: {wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_never_come_are_missed() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let done = both(sides(&bandwidth_test()).await, |mut side| match side.role {
        Role::Initiator => {
            side.link.exchange(&Message::Sent(5))?;
            side.link.synchronize()
        }
        Role::Responder => {
            side.link.begin(&Message::Ready);
            let mut receiver = Receiver::new(&mut side.end, &*side.context);
            let done = drive(&mut receiver, Polling::Busy, &mut side.link);
            done.map_err(|error| side.link.explain(error))
        }
    })
    .await;
    let [Err(PerfError::PeerFailed { .. }), Err(missed)] = done else {
        panic!("{done:?}");
    };
    assert_eq!(
        missed.to_string(),
        "messages received: 5 expected, 0 found, with peer initiator"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_device_counted_otherwise_is_found() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let test = bandwidth_test();
    let sides = sides(&test).await;
    let idle = End::create(&sides[0].device, &test, Role::Initiator, "nobody").unwrap();
    idle.check_counters().unwrap();
    let done = both(sides, |mut side| {
        side.verify(7).and_then(|()| side.end.check_counters())
    })
    .await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    // Its device has sent what it knows nothing of.
    let error = idle.check_counters().unwrap_err();
    assert!(
        matches!(
            error,
            PerfError::Miscounted {
                expected: 0,
                found: 16,
                ..
            }
        ),
        "{error}"
    );
}

fn atomics() -> impl Iterator<Item = Test> {
    every_test().into_iter().filter(|test| {
        let is_bandwidth = test.measure == Measure::Bandwidth;
        test.verb.is_atomic() && is_bandwidth
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_word_that_no_atomic_changed_is_found() {
    let _alone = ONE_AT_A_TIME.lock().await;
    for test in atomics() {
        let done = both(sides(&test).await, |mut side| match side.role {
            // It only says that it has done a round.
            Role::Initiator => (0..4).try_for_each(|_| side.link.synchronize()),
            Role::Responder => side.verify(7),
        })
        .await;
        let [Err(PerfError::PeerFailed { .. }), Err(found)] = done else {
            panic!("{done:?}");
        };
        assert!(
            matches!(found, PerfError::WrongBytes { message: 2, .. }),
            "{found}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_atomic_that_brings_another_word_back_is_found() {
    let _alone = ONE_AT_A_TIME.lock().await;
    for test in atomics() {
        let done = both(sides(&test).await, |mut side| match side.role {
            Role::Initiator => side.verify(7),
            // It only says that it has prepared its word.
            Role::Responder => (0..2).try_for_each(|_| side.link.synchronize()),
        })
        .await;
        let [Err(found), Err(PerfError::PeerFailed { .. })] = done else {
            panic!("{done:?}");
        };
        assert!(
            matches!(found, PerfError::WrongBytes { message: 0, .. }),
            "{found}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn atomics_that_changed_nothing_are_missed() {
    let _alone = ONE_AT_A_TIME.lock().await;
    for test in atomics() {
        let [initiator, responder] = sides(&test).await;
        let change = |number| {
            let operation = initiator.end.operation(number, false).unwrap();
            let buffer = initiator.end.allocate().unwrap();
            let mut requests = vec![SendRequest {
                id: number,
                operation,
                payload: Payload::Owned { buffer, length: 8 },
                destination: None,
            }];
            assert_eq!(initiator.end.post(&mut requests).unwrap(), 1);
        };
        responder.end.clear_mark();
        responder.end.check_word(0).unwrap();
        (1..=3).for_each(change);
        responder.end.check_word(3).unwrap();
        let missed = responder.end.check_word(4).unwrap_err().to_string();
        let verb = test.verb.name();
        assert_eq!(
            missed,
            format!("changes of the word by {verb}: 4 expected, 3 found, with peer initiator")
        );
    }
}

/// What one end does when the other begins with these words.
async fn greeted_with(words: Vec<u8>) -> PerfError {
    let (first, mut second) = rendezvous().await;
    let (met, _) = tokio::join!(meet(device(), first), second.exchange(words));
    match met {
        Ok(session) => panic!("it met {:?}", session.peer()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn peers_that_are_something_else_are_refused() {
    let hello = |provider: &str| {
        let device = device();
        let mut facts = EndFacts::of(device.capabilities());
        facts.device.provider = provider.to_owned();
        Message::Hello(facts).emit()
    };
    for (words, told) in [
        (b"hello".to_vec(), "something else"),
        (Message::Finish.emit(), "began with Finish"),
        (hello("pigeon"), "\"pigeon\""),
        (
            [&b"rndlperf\x01\0\0\0"[..], b"{}"].concat(),
            "speaks version 1 of the perf protocol, this side 3",
        ),
    ] {
        let error = greeted_with(words).await.to_string();
        assert!(error.contains(told), "{error}");
    }
}

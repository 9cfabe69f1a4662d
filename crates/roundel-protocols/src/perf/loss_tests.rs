//! What unreliable transports lose: it must neither stop a measurement nor count as arrived.

use super::bandwidth::Receiver;
use super::drive::drive;
use super::end::Role;
use super::fault_tests::{Side, both, sides};
use super::latency::{Answerer, Asker, BUFFERS};
use super::message::Message;
use super::tests::{ONE_AT_A_TIME, every_test};
use super::*;
use roundel_verbs::{Opcode, Transport};

/// Messages of a run here: each that is lost takes a while.
const ASKED: u64 = 20;

fn lossy(measure: Measure) -> impl Iterator<Item = Test> {
    every_test().into_iter().filter(move |test| {
        let is_lossy = test.transport != Transport::ReliableConnection;
        is_lossy && test.measure == measure && [8, 4096].contains(&test.bytes)
    })
}

/// Asks; returns how many were answered.
fn ask(side: &mut Side, messages: u64) -> Result<u64> {
    let owned = (side.test.verb == Verb::Write).then_some(BUFFERS);
    let mut payloads = side.end.payloads(&side.test, owned)?;
    let length = Length::Messages(messages);
    let context = &*side.context;
    let mut asker = Asker::new(&mut side.end, &mut payloads, &side.test, length, context);
    drive(&mut asker, Polling::Busy, &mut side.link)?;
    assert_eq!(asker.messages(), messages);
    assert_eq!(asker.times().len(), asker.answered());
    Ok(asker.answered())
}

/// Takes the first message and does not answer it, as if it had been lost.
fn lose_one(side: &mut Side) -> Result<()> {
    loop {
        side.link.check()?;
        if side.test.verb == Verb::Write {
            if side.end.mark() != 0 {
                side.end.clear_mark();
                return Ok(());
            }
        } else if let Some(completion) = side.end.poll_one()? {
            assert_eq!(completion.opcode, Opcode::Receive);
            side.end.give_back(completion);
            return side.end.post_receives();
        }
    }
}

/// Answers; returns how many arrived.
fn answer(side: &mut Side) -> Result<u64> {
    let owned = (side.test.verb == Verb::Write).then_some(BUFFERS);
    let mut payloads = side.end.payloads(&side.test, owned)?;
    side.link.begin(&Message::Ready);
    let mut answerer = Answerer::new(&mut side.end, &mut payloads, &side.test, &*side.context);
    drive(&mut answerer, Polling::Busy, &mut side.link)?;
    Ok(answerer.messages())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_lost_message_the_others_are_answered() {
    let _alone = ONE_AT_A_TIME.lock().await;
    for test in lossy(Measure::Latency) {
        let done = both(sides(&test).await, |mut side| {
            side.link.synchronize()?;
            match side.role {
                Role::Initiator => {
                    let answered = ask(&mut side, ASKED)?;
                    side.link.exchange(&Message::Sent(ASKED))?;
                    side.link.synchronize()?;
                    Ok(answered)
                }
                Role::Responder => {
                    lose_one(&mut side)?;
                    let arrived = answer(&mut side)?;
                    side.link.synchronize()?;
                    Ok(arrived)
                }
            }
        })
        .await;
        let [Ok(answered), Ok(arrived)] = done else {
            let errors = done.map(|done: Result<u64>| done.err());
            panic!("{test:?}: {errors:?}");
        };
        // A busy host may lose more.
        assert!(
            (ASKED / 2..ASKED).contains(&answered),
            "{test:?}: {answered}"
        );
        assert!((answered..ASKED).contains(&arrived), "{test:?}: {arrived}");
    }
}

/// As an answer would, that came long ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_of_long_ago_is_no_answer() {
    let _alone = ONE_AT_A_TIME.lock().await;
    for test in lossy(Measure::Latency).filter(|test| test.verb == Verb::Write) {
        let done = both(sides(&test).await, |mut side| match side.role {
            Role::Initiator => {
                // That of the third message, which is not the first that is lost.
                side.end.set_memory(&vec![4; side.test.bytes]);
                let answered = ask(&mut side, 5)?;
                side.link.synchronize()?;
                Ok(answered)
            }
            Role::Responder => side.link.synchronize().map(|()| 0),
        })
        .await;
        assert!(matches!(done, [Ok(0), Ok(0)]), "{test:?}: {done:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_never_come_are_lost_when_it_is_quiet() {
    let _alone = ONE_AT_A_TIME.lock().await;
    for test in lossy(Measure::Bandwidth).filter(|test| test.verb != Verb::Write) {
        let done = both(sides(&test).await, |mut side| match side.role {
            Role::Initiator => {
                side.link.exchange(&Message::Sent(5))?;
                side.link.synchronize().map(|()| 0)
            }
            Role::Responder => {
                side.link.begin(&Message::Ready);
                let mut receiver = Receiver::new(&mut side.end, &*side.context);
                drive(&mut receiver, Polling::Busy, &mut side.link)?;
                let received = receiver.messages();
                side.link.synchronize().map(|()| received)
            }
        })
        .await;
        assert!(matches!(done, [Ok(0), Ok(0)]), "{test:?}: {done:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verb_of_which_nothing_arrives_is_not_verified() {
    let _alone = ONE_AT_A_TIME.lock().await;
    for test in lossy(Measure::Bandwidth) {
        let [_, done] = both(sides(&test).await, |mut side| match side.role {
            // It only says that it has sent: two rounds, with three waits for each other.
            Role::Initiator => (0..6).try_for_each(|_| side.link.synchronize()),
            Role::Responder => side.verify(7),
        })
        .await;
        let missed = done.unwrap_err();
        assert!(
            matches!(missed, PerfError::Miscounted { found: 0, .. }),
            "{test:?}: {missed}"
        );
    }
}

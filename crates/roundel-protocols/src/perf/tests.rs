//! Both ends in one process, on two devices in shared memory.

use super::test::tests::bandwidth_test;
use super::*;
use roundel_verbs::Blame as _;
use roundel_verbs::shm::{self, ShmOptions};
use roundel_verbs::{
    Context, Device, SocketListener, SocketOptions, SocketRendezvous, TokioContext, Transport,
};
use std::sync::Arc;

pub(super) fn device() -> Device {
    shm::open(ShmOptions::default()).unwrap()
}

pub(super) async fn rendezvous() -> (SocketRendezvous, SocketRendezvous) {
    let listener = SocketListener::bind(([127, 0, 0, 1], 0).into())
        .await
        .unwrap();
    let options = SocketOptions::default();
    let address = listener.address();
    let (first, second) = tokio::join!(
        listener.gather(2, &options),
        SocketRendezvous::join(address, 1, 2, &options)
    );
    (first.unwrap(), second.unwrap())
}

/// Tests that poll busily would only wait for each other's processors.
pub(super) static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Measures; also returns the responder's error, if it had one.
async fn measure(tests: Vec<Test>) -> Result<Vec<Measurement>> {
    let _alone = ONE_AT_A_TIME.lock().await;
    let context: Arc<dyn Context> = Arc::new(TokioContext::current());
    let (first, second) = rendezvous().await;
    let (responder, initiator) = tokio::join!(meet(device(), first), meet(device(), second));
    let mut responder = responder?.respond(context.clone())?;
    let mut initiator = initiator?.initiate(tests, context)?;
    let mut measurements = Vec::new();
    let mut failed = None;
    while let Some(measurement) = initiator.next().await {
        match measurement {
            Ok(measurement) => measurements.push(measurement),
            Err(error) => failed = Some(error),
        }
    }
    match (responder.next().await, failed) {
        // It knows best what happened to it.
        (Some(Err(error)), None | Some(PerfError::PeerLost { .. })) | (_, Some(error)) => {
            Err(error)
        }
        _ => Ok(measurements),
    }
}

pub(super) fn every_test() -> Vec<Test> {
    let mut tests = Vec::new();
    for transport in Transport::ALL {
        for verb in Verb::ALL.into_iter().filter(|verb| verb.is_on(transport)) {
            for measure in [Measure::Bandwidth, Measure::Latency] {
                let sizes: &[usize] = match verb.is_atomic() {
                    true => &[8],
                    false => &[1, 8, 13, 128, 4096],
                };
                for bytes in sizes.iter().copied() {
                    tests.push(Test {
                        measure,
                        verb,
                        transport,
                        bytes,
                        timed_runs: 2,
                        ..bandwidth_test()
                    });
                }
            }
        }
    }
    tests
}

fn assert_sane(measurement: &Measurement) {
    let Measurement { test, median, runs } = measurement;
    assert_eq!(runs.len(), test.timed_runs as usize, "{measurement:?}");
    assert_eq!(median.messages, 1000, "{measurement:?}");
    let counts = (test.transport, test.verb, test.measure);
    if counts
        == (
            Transport::UnreliableConnection,
            Verb::Write,
            Measure::Bandwidth,
        )
    {
        assert_eq!((median.received, median.lost), (None, None));
    } else {
        let (received, lost) = (median.received.unwrap(), median.lost.unwrap());
        assert_eq!(received + lost, median.messages, "{measurement:?}");
        if test.transport == Transport::ReliableConnection {
            assert_eq!(lost, 0, "{measurement:?}");
        }
    }
    assert!(median.seconds > 0.0 && median.messages_per_second > 0.0);
    assert_eq!(median.latency.is_some(), test.measure == Measure::Latency);
    if let Some(latency) = median.latency {
        let LatencyMicroseconds {
            min,
            p50,
            p90,
            p99,
            p99_9,
            max,
            mean,
        } = latency;
        assert!(
            0.0 < min && min <= p50 && p50 <= p90 && p90 <= p99 && p99 <= p99_9 && p99_9 <= max
        );
        assert!(min <= mean && mean <= max, "{measurement:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_is_measured() {
    let tests = every_test();
    let measurements = measure(tests.clone()).await.unwrap();
    assert_eq!(measurements.len(), tests.len());
    for (measurement, test) in measurements.iter().zip(&tests) {
        assert_eq!(measurement.test, *test);
        assert_sane(measurement);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sleepers_are_woken() {
    let tests: Vec<Test> = every_test()
        .into_iter()
        .filter(|test| test.bytes == 13 || test.verb.is_atomic())
        .map(|test| Test {
            polling: Polling::Event,
            poll_memory: false,
            ..test
        })
        .collect();
    for measurement in measure(tests).await.unwrap() {
        assert_sane(&measurement);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_by_time_end() {
    let tests: Vec<Test> = every_test()
        .into_iter()
        .filter(|test| test.bytes == 4096 || test.verb.is_atomic())
        .map(|test| Test {
            length: Length::Seconds(0.01),
            ..test
        })
        .collect();
    for measurement in measure(tests).await.unwrap() {
        assert!(measurement.median.messages > 0, "{measurement:?}");
        assert!(measurement.median.seconds >= 0.01, "{measurement:?}");
    }
}

/// More than one message at a time and buffers of which there are few.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_are_measured() {
    let test = |verb, measure| Test {
        verb,
        measure,
        bytes: (40 << 20) + 3,
        length: Length::Messages(7),
        ..bandwidth_test()
    };
    let tests: Vec<Test> = Verb::ALL
        .into_iter()
        .filter(|verb| !verb.is_atomic())
        .flat_map(|verb| [Measure::Bandwidth, Measure::Latency].map(|m| test(verb, m)))
        .collect();
    for measurement in measure(tests).await.unwrap() {
        assert_eq!(measurement.median.received, Some(7), "{measurement:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_that_the_device_cannot_do_is_refused() {
    let test = Test {
        bytes: 4097,
        transport: Transport::UnreliableDatagram,
        ..bandwidth_test()
    };
    let error = measure(vec![test]).await.unwrap_err();
    assert!(error.is_usage(), "{error}");
}

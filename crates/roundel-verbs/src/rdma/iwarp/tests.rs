//! Connections on Soft-iWARP devices, in the virtual machine: what the conformance suite does not look at.

use crate::device::Device;
use crate::loopback::{self, Check, Verdict};
use crate::queue_pair::{QueuePair, QueuePairOptions, QueuePairState, Transport};
use roundel_testbed::{Machine, Place, in_machine};
use std::time::{Duration, Instant};

/// The devices of the machine; none on the host, where the machine has run the test.
fn devices(test: &str) -> Option<Vec<Device>> {
    let machine = Machine {
        kind: "siw",
        ..Machine::default()
    };
    let test = format!("rdma::iwarp::tests::{test}");
    let Place::Machine(names) = in_machine(&test, machine) else {
        return None;
    };
    let open = |name: &String| crate::rdma::open(&name.parse().unwrap()).unwrap();
    Some(names.iter().map(open).collect())
}

fn pair(device: &Device) -> QueuePair {
    let queue = device.create_completion_queue(64, None).unwrap();
    let options = QueuePairOptions {
        transport: Transport::ReliableConnection,
        send_depth: 8,
        receive_depth: 8,
        rnr_retry: 7,
        queue_key: 0,
    };
    device.create_queue_pair(&options, &queue, &queue).unwrap()
}

/// How many threads this process has, and how many open descriptors.
fn count() -> (usize, usize) {
    let entries = |path: &str| std::fs::read_dir(path).unwrap().count();
    (entries("/proc/self/task"), entries("/proc/self/fd"))
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn queue_pairs_that_go_as_they_connect_leave_nothing() {
    let Some(devices) = devices("queue_pairs_that_go_as_they_connect_leave_nothing") else {
        return;
    };
    let before = count();
    let mut longest = Duration::ZERO;
    for round in 0..120u64 {
        let (a, b) = (pair(&devices[0]), pair(&devices[round as usize / 2 % 2]));
        let ends = [(&a, &b), (&b, &a)];
        let (from, to) = ends[round as usize % 2];
        from.connect(to.address()).unwrap();
        if !round.is_multiple_of(5) {
            to.connect(from.address()).unwrap();
        }
        // At moments around the making of the connection.
        std::thread::sleep(Duration::from_micros(round * 377 % 8000));
        let start = Instant::now();
        if round.is_multiple_of(3) {
            drop((a, b));
        } else {
            drop((b, a));
        }
        let took = start.elapsed();
        if took > Duration::from_millis(500) {
            println!("round {round} took {took:?}");
        }
        longest = longest.max(took);
    }
    assert!(
        longest < Duration::from_secs(2),
        "destroying took {longest:?}"
    );
    assert_eq!(count(), before, "threads and descriptors");
    drop(devices);
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn who_is_gone_or_has_another_peer_is_not_connected_to() {
    let Some(devices) = devices("who_is_gone_or_has_another_peer_is_not_connected_to") else {
        return;
    };
    let breaks = |pair: &QueuePair| {
        let end = Instant::now() + Duration::from_secs(8);
        while pair.state() != QueuePairState::Error {
            assert!(Instant::now() < end, "it never broke");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    // In both directions, as one of two calls.
    for (here, there) in [(0, 1), (1, 0)] {
        let (own, other) = (pair(&devices[here]), pair(&devices[there]));
        own.connect(other.address()).unwrap();
        other.connect(own.address()).unwrap();
        // Who would call is not missed before it has.
        std::thread::sleep(Duration::from_secs(4));
        drop(other);
        breaks(&own);
        let (taken, stranger) = (pair(&devices[there]), pair(&devices[here]));
        stranger.connect(taken.address()).unwrap();
        // The machine is slow.
        std::thread::sleep(Duration::from_secs(1));
        let second = pair(&devices[here]);
        let connected = taken.connect(second.address());
        // If the stranger calls, it was taken before.
        assert!(connected.is_err() || here > there, "{connected:?}");
    }
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn the_loopback_checks_find_what_iwarp_has() {
    let Some(devices) = devices("the_loopback_checks_find_what_iwarp_has") else {
        return;
    };
    let works = [
        Check::RegisteredMemory,
        Check::RcSend,
        Check::RcWrite,
        Check::RcRead,
        Check::Inline,
        Check::CompletionChannel,
        Check::SharedReceiveQueue,
    ];
    for outcome in loopback::run(&devices[0]) {
        let wanted = if works.contains(&outcome.check) {
            Verdict::Works
        } else {
            Verdict::NotSupported
        };
        assert_eq!(outcome.verdict, wanted, "{}", outcome.check.name());
    }
}

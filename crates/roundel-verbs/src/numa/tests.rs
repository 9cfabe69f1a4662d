//! Regions made up, and those of a machine that has two nodes.

use super::pages_of::pages_of;
use super::*;
use crate::memory::{Arena, ArenaOptions};
use crate::shm::ShmOptions;
use crate::{rdma, shm, tcp};
use roundel_testbed::{Machine, Place, in_machine};
use rustix::thread::sched_getaffinity;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

const KIB: usize = 1 << 10;

/// In a thread of its own, since a thread stays bound.
fn in_thread<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(act).join().unwrap())
}

#[test]
fn a_thread_is_in_the_region_that_it_is_bound_to() {
    let regions = Regions::made_up(3);
    assert_eq!(regions.current(), 0);
    for turn in 0..7 {
        let clone = regions.clone();
        let current = in_thread(move || {
            clone.bind(turn);
            clone.current()
        });
        assert_eq!(current, turn % 3);
        assert_eq!(regions.in_turn(turn).number(), turn % 3);
    }
    assert_eq!(regions.current(), 0);
    // Bound by those of another time.
    let current = in_thread(move || {
        regions.bind(2);
        (Regions::made_up(2).current(), Regions::one().current())
    });
    assert_eq!(current, (0, 0));
}

#[test]
fn a_simulated_thread_is_in_a_region_while_it_runs() {
    let regions = Regions::made_up(2);
    let inner = in_thread(move || {
        let inner = within(1, || (regions.current(), within(2, || regions.current())));
        (inner, regions.current())
    });
    assert_eq!(inner, ((1, 0), 0));
}

#[test]
fn a_processor_is_in_its_region() {
    let place = |node, processor| {
        let mut processors = CpuSet::new();
        processors.set(processor);
        let node = Some(node);
        super::Place { node, processors }
    };
    let regions = Regions(vec![place(3, 0), place(7, 5)].into());
    let found = [0, 5, 1, usize::MAX].map(|processor| regions.of_processor(processor));
    assert_eq!(found, [0, 1, 0, 0]);
    assert_eq!(regions.in_turn(1).node(), Some(7));
}

fn arena_of(options: ArenaOptions) -> Arena {
    shm::open(ShmOptions::default()).unwrap().arena(options)
}

#[test]
fn buffers_are_of_the_region_wanted_while_there_is_room() {
    let arena = arena_of(ArenaOptions {
        segment_bytes: 16 * KIB,
        registered_bytes_max: 32 * KIB,
    });
    let regions = Regions::made_up(3);
    let take = |turn| {
        let arena = arena.in_region(regions.in_turn(turn));
        let buffer = arena.allocate(4 * KIB).unwrap();
        (buffer.region().number(), buffer)
    };
    let (first, _of_first) = take(0);
    let (second, of_second) = take(1);
    assert_eq!((first, second), (0, 1));
    assert_eq!(arena.usage().registered, 32 * KIB);
    // The quota leaves no segment for the third; it finds room all the same.
    let rest: Vec<_> = (0..6).map(|_| take(2)).collect();
    let elsewhere: Vec<usize> = rest.iter().map(|(region, _)| *region).collect();
    assert_eq!(elsewhere, [0, 0, 0, 1, 1, 1]);
    let full = arena.in_region(regions.in_turn(2)).allocate(4 * KIB);
    assert!(full.is_err(), "{full:?}");
    drop((rest, of_second));
    assert_eq!(take(2).0, 2, "an idle segment makes room");
}

/// Pages of each node where a whole segment of an arena lies.
fn pages(arena: &Arena) -> BTreeMap<u32, usize> {
    let bytes = 3 << 20;
    let mut buffer = arena.allocate(bytes).unwrap();
    let fill = vec![1; bytes];
    buffer.write(0, &fill);
    let (nodes, page_kib) = pages_of(buffer.address());
    // Memory without a wish may be one mapping with other memory.
    let least = bytes / (page_kib * KIB);
    assert!(nodes.values().sum::<usize>() >= least, "{nodes:?}");
    nodes
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn memory_and_threads_are_where_they_are_wanted() {
    let test = "numa::tests::memory_and_threads_are_where_they_are_wanted";
    let machine = Machine {
        devices: 1,
        options: &["--numa", "2", "--cpus", "4"],
        ..Machine::default()
    };
    let Place::Machine(names) = in_machine(test, machine) else {
        return;
    };
    let regions = Regions::of_this_process();
    println!("{regions:?}");
    assert_eq!(regions.count(), 2);
    for turn in 0..4 {
        let clone = regions.clone();
        let (processors, region) = in_thread(move || {
            clone.bind(turn);
            (
                sched_getaffinity(None).unwrap(),
                clone.of_processor(sched_getcpu()),
            )
        });
        assert_eq!(region, turn % 2);
        assert!(processors == regions.0[turn % 2].processors);
        assert_eq!(processors.count(), 2);
    }
    let memory = ArenaOptions {
        segment_bytes: 3 << 20,
        ..ArenaOptions::default()
    };
    let devices = [
        rdma::open(&names[0].parse().unwrap()).unwrap(),
        shm::open(ShmOptions::default()).unwrap(),
        tcp::open(tcp::TcpOptions {
            address: Ipv4Addr::LOCALHOST.into(),
        })
        .unwrap(),
    ];
    for device in &devices {
        for thread in 0..2 {
            for turn in 0..2 {
                let region = regions.in_turn(turn);
                let arena = device.arena(memory);
                let found = in_thread(|| {
                    regions.bind(thread);
                    pages(&arena.in_region(region))
                });
                let nodes: Vec<u32> = found.into_keys().collect();
                assert_eq!(nodes, [region.node().unwrap()], "{device:?}");
            }
        }
    }
    // Earlier wishes for other memory at these addresses are forgotten.
    let found = in_thread(|| {
        regions.bind(1);
        let device = shm::open(ShmOptions::default()).unwrap();
        let wanted = device.arena(memory).in_region(regions.in_turn(0));
        let [first, then] = [wanted, device.arena(memory)].map(|arena| {
            let found = pages(&arena);
            arena.shrink();
            Vec::from_iter(found.into_keys())
        });
        (first, then)
    });
    assert_eq!(found, (vec![0], vec![1]));
}

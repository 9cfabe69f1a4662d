//! Joins on simulated rings: what they measure follows from what is charged, and the same join measures the same.

use roundel_experiments::ring::{
    Carrier, Keys, Method, RingJoin, RingMeasured, Stall, rates, simulate,
};
use roundel_ring::cost::{Shape, Size};
use roundel_verbs::sim::Parameters;

/// Of about 100 elements.
const ROWS: u64 = 8_000_000;

fn join(method: Method, hosts: usize) -> RingJoin {
    RingJoin {
        rows: ROWS,
        ..RingJoin::new("sim:iwarp10".parse().unwrap(), method, hosts)
    }
}

fn run(join: &RingJoin) -> RingMeasured {
    simulate(join).unwrap_or_else(|error| panic!("{join:?}: {error}"))
}

fn near(one: f64, other: f64) -> bool {
    (one / other - 1.0).abs() < 0.05
}

#[test]
fn every_host_joins_every_element_and_the_same_join_measures_the_same() {
    for method in [Method::Hash, Method::Merge] {
        for carrier in [Carrier::Rdma, Carrier::Tcp] {
            for hosts in [1, 2, 5] {
                let join = RingJoin {
                    carrier,
                    ..join(method, hosts)
                };
                let measured = run(&join);
                assert_eq!(measured, run(&join), "{join:?}");
                for host in &measured.hosts {
                    assert_eq!(host.elements, measured.hosts[0].elements);
                    let row = ROWS / hosts as u64 * (hosts as u64 - 1) * join.row_bytes as u64;
                    assert_eq!(host.bytes, row, "{join:?}");
                }
            }
        }
    }
}

#[test]
fn phases_are_as_rates_have_them() {
    for method in [Method::Hash, Method::Merge] {
        for hosts in [1, 4] {
            let join = join(method, hosts);
            let size = Size {
                rows: join.rows as f64,
                width: join.row_bytes as f64,
            };
            let shape = Shape {
                hosts: hosts as f64,
                threads: 1.0,
                spinning: size,
                stationary: size,
                found: 0.0,
                tested: false,
                result: 0.0,
            };
            let expected = rates::of_paper(&Parameters::iwarp10()).cyclo(&shape, method);
            let measured = run(&join);
            let set_up = expected.set_up.as_secs_f64() / rates::SET_UP_THREADS as f64;
            assert!(near(measured.set_up(), set_up), "{method:?} {measured:?}");
            let joins = expected.join.as_secs_f64() / join.threads as f64;
            assert!(near(measured.join(), joins), "{method:?} {measured:?}");
        }
    }
}

#[test]
fn a_link_that_is_busy_carries_its_bytes_and_one_that_is_not_lets_nobody_wait() {
    let merge = run(&join(Method::Merge, 6));
    assert!(merge.link_rate() > 1e9, "{merge:?}");
    assert!(merge.synchronisation() > 0.05 * merge.join(), "{merge:?}");
    let hash = run(&join(Method::Hash, 6));
    assert!(hash.synchronisation() < 0.05 * hash.join(), "{hash:?}");
    assert!(hash.load() > 0.95, "{hash:?}");
}

#[test]
fn a_kernel_that_copies_takes_the_processor_from_those_that_join() {
    let tcp = RingJoin {
        carrier: Carrier::Tcp,
        ..join(Method::Hash, 6)
    };
    let (tcp, rdma) = (run(&tcp), run(&join(Method::Hash, 6)));
    assert!(tcp.after_set_up() > 1.2 * rdma.after_set_up());
    let worked = |measured: &RingMeasured| measured.hosts[0].worked;
    assert!(worked(&tcp) > 1.2 * worked(&rdma));
}

#[test]
fn skew_is_shared_by_hosts() {
    let skewed = |hosts| RingJoin {
        keys: Keys::Zipf(0.8),
        ..join(Method::Hash, hosts)
    };
    let (one, six) = (run(&skewed(1)), run(&skewed(6)));
    let uniform = run(&join(Method::Hash, 1));
    assert!(one.join() > 2.0 * uniform.join());
    assert!(one.join() > 2.0 * six.after_set_up());
}

#[test]
fn who_stands_still_is_told_and_others_wait_in_the_end() {
    let seconds = 0.05;
    let stalled = RingJoin {
        stalls: vec![Stall {
            host: 2,
            after: 10,
            seconds,
        }],
        ..join(Method::Hash, 4)
    };
    let (plain, stalled) = (run(&join(Method::Hash, 4)), run(&stalled));
    assert_eq!(stalled.hosts[2].stalls.len(), 1);
    assert!(
        stalled
            .hosts
            .iter()
            .enumerate()
            .all(|(number, host)| number == 2 || host.stalls.is_empty())
    );
    assert!(stalled.after_set_up() >= plain.after_set_up() + 0.9 * seconds);
    assert!(!stalled.hosts[3].waits.is_empty());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let good = join(Method::Hash, 2);
    good.check().unwrap();
    let wrong = [
        RingJoin {
            hosts: 0,
            ..good.clone()
        },
        RingJoin {
            threads: 5,
            ..good.clone()
        },
        RingJoin {
            rows: 1,
            ..good.clone()
        },
        RingJoin {
            row_bytes: 4,
            ..good.clone()
        },
        RingJoin {
            element_bytes: 100,
            ..good.clone()
        },
        RingJoin {
            keys: Keys::Zipf(f64::NAN),
            ..good.clone()
        },
        join(Method::NestedLoops, 2),
    ];
    for wrong in wrong {
        assert!(wrong.check().is_err(), "{wrong:?}");
    }
}

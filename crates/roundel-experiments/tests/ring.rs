//! Joins on simulated hosts, on a ring and without one: what they measure follows from what is charged, and the same join
//! measures the same.

use roundel_experiments::figure::Verdict;
use roundel_experiments::kept::Kept;
use roundel_experiments::ring::{
    Carrier, Keys, Method, Program, RelationRows, RingJoin, RingMeasured, Stall, Way, rates,
    simulate,
};
use roundel_experiments::{NodeCommand, Options, choose_experiments, run_experiments};
use roundel_ring::cost::{Estimate, Rates, Shape, Size};
use roundel_verbs::sim::Parameters;

/// Of about 100 elements.
const ROWS: u64 = 8_000_000;

fn join(method: Method, hosts: usize) -> RingJoin {
    RingJoin {
        rows: RelationRows::alike(ROWS),
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
                rows: ROWS as f64,
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

/// A join by Roundel's code, of which each row of the larger relation finds a partner.
fn done(way: Way, method: Method, hosts: usize, spinning: u64, stationary: u64) -> RingJoin {
    RingJoin {
        way,
        program: Program::Roundel,
        rows: RelationRows {
            spinning,
            stationary,
        },
        keys: Keys::Zipf(0.0),
        predicate: (method != Method::Hash).then_some(0.5),
        ..join(method, hosts)
    }
}

#[test]
fn all_rows_are_sent_and_the_same_join_measures_the_same() {
    let (few, many) = (40_000, 800_000);
    for hosts in [1, 2, 5] {
        let others = hosts as u64 - 1;
        let share = |rows: u64| (rows / hosts as u64 * others * 12) as f64;
        for (way, method) in [
            (Way::Repartition, Method::Hash),
            (Way::Broadcast, Method::Hash),
            (Way::Broadcast, Method::Merge),
            (Way::Broadcast, Method::NestedLoops),
        ] {
            let join = done(way, method, hosts, few, many);
            let measured = run(&join);
            assert_eq!(measured, run(&join), "{join:?}");
            for host in &measured.hosts {
                let bytes = host.bytes as f64;
                match way {
                    Way::Broadcast => assert_eq!(bytes, share(few), "{join:?}"),
                    _ => assert!(
                        (bytes - share(few + many) / hosts as f64).abs() <= 0.01 * bytes,
                        "{join:?} {measured:?}"
                    ),
                }
            }
        }
    }
}

/// Seconds of a thread, in so many parts.
fn seconds(nanoseconds: f64, parts: usize) -> f64 {
    nanoseconds / 1e9 / parts as f64
}

#[test]
fn ways_without_a_ring_take_what_rates_have_for_their_rows() {
    let fabric = "sim:edr";
    let rates = rates::of_roundel(&Parameters::edr());
    let (few, many, hosts) = (1_000_000, 8_000_000, 4);
    let on = |join| {
        run(&RingJoin {
            fabric: fabric.parse().unwrap(),
            ..join
        })
    };
    // A fast link is no part of it.
    let broadcast = done(Way::Broadcast, Method::Hash, hosts, few, many);
    let measured = on(broadcast.clone());
    let collects = seconds(few as f64 * 12.0 * rates.code / 2.0, broadcast.threads);
    let builds = seconds(few as f64 * rates.build, 1);
    assert!(near(measured.set_up(), collects + builds), "{measured:?}");
    let probes = many as f64 * (rates.probe + rates.emit);
    let probes = seconds(probes, hosts * broadcast.threads);
    assert!(near(measured.join(), probes), "{measured:?}");

    let repartition = RingJoin {
        way: Way::Repartition,
        ..broadcast
    };
    let measured = on(repartition.clone());
    let row = rates.cluster + 12.0 * rates.code * 0.75;
    let all = few as f64 * (row + rates.build) + many as f64 * (row + rates.probe + rates.emit);
    let all = seconds(all, hosts * repartition.threads);
    assert!(near(measured.total(), all), "{measured:?} {all}");
}

#[test]
fn each_way_is_the_fastest_of_some_joins() {
    let fastest = |fabric: &str, method, spinning, stationary| {
        let ways: &[Way] = match method {
            Method::Hash => &[Way::Cyclo, Way::Repartition, Way::Broadcast],
            _ => &[Way::Cyclo, Way::Broadcast],
        };
        let seconds = |way: &Way| {
            run(&RingJoin {
                fabric: fabric.parse().unwrap(),
                ..done(*way, method, 4, spinning, stationary)
            })
            .total()
        };
        *ways
            .iter()
            .min_by(|one, other| seconds(one).total_cmp(&seconds(other)))
            .unwrap()
    };
    assert_eq!(
        fastest("sim:edr", Method::Hash, ROWS, ROWS),
        Way::Repartition
    );
    assert_eq!(
        fastest("sim:edr", Method::Hash, ROWS / 512, ROWS),
        Way::Broadcast
    );
    assert_eq!(
        fastest("sim:edr", Method::Merge, ROWS / 8, ROWS / 8),
        Way::Cyclo
    );
    assert_eq!(
        fastest("sim:iwarp10", Method::Hash, ROWS / 16, ROWS),
        Way::Cyclo
    );
}

/// A part of the grid of `ring-choice`.
#[test]
fn what_is_chosen_is_among_the_fastest() {
    let options = Options {
        fabric: "sim:iwarp10".parse().unwrap(),
        nodes: Vec::new(),
        threads: None,
        quick: true,
        runs: 1,
        node: NodeCommand {
            program: "none".into(),
            arguments: Vec::new(),
            hosts: None,
        },
        roundel: "none".into(),
        mpi: false,
        kept: Kept::default(),
        jobs: 1,
    };
    let chosen = choose_experiments(&["ring-choice".into()], &options).unwrap();
    let outcomes = run_experiments(chosen, &mut |_| {});
    let outcome = outcomes.into_iter().next().unwrap();
    let outcome = outcome.unwrap_or_else(|failed| panic!("{}", failed.error));
    let figure = &outcome.figures[0];
    assert_eq!(figure.findings[0].verdict, Verdict::Agrees, "{figure:?}");
    let long = |name: &str| {
        let series = figure.series.iter().find(|series| series.name == name);
        let points = series.unwrap().points.iter();
        points.filter(|point| point.median > 1.15).count()
    };
    // There is something to choose.
    for always in ["always on a ring", "never on a ring"] {
        assert!(long(always) > long("as chosen"), "{figure:?}");
    }
}

/// What is estimated is of the same rates, but not by the same steps: it is to be near.
#[test]
fn estimates_are_near_what_is_measured() {
    let parameters = Parameters::iwarp10();
    let rates = rates::of_roundel(&parameters);
    let near = |join: &RingJoin, estimate: fn(&Rates, &RingJoin) -> Estimate| {
        let (measured, estimated) = (run(join).total(), estimate(&rates, join).total());
        let ratio = measured / estimated.as_secs_f64();
        assert!((0.85..=1.15).contains(&ratio), "{ratio} of {join:?}");
    };
    near(
        &done(Way::Cyclo, Method::Hash, 4, ROWS / 4, ROWS),
        |rates, join| rates.cyclo(&join.shape(), join.method),
    );
    near(
        &done(Way::Repartition, Method::Hash, 4, ROWS / 4, ROWS),
        |rates, join| rates.repartition(&join.shape()),
    );
    near(
        &done(Way::Broadcast, Method::Hash, 4, ROWS / 4, ROWS),
        |rates, join| rates.broadcast(&join.shape(), join.method),
    );
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
            rows: RelationRows::alike(1),
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
        RingJoin {
            way: Way::Broadcast,
            ..good.clone()
        },
        done(Way::Repartition, Method::Merge, 2, 1000, 1000),
        RingJoin {
            keys: Keys::Zipf(0.5),
            ..done(Way::Repartition, Method::Hash, 2, 1000, 1000)
        },
        RingJoin {
            predicate: Some(2.0),
            ..good
        },
    ];
    for wrong in wrong {
        assert!(wrong.check().is_err(), "{wrong:?}");
    }
}

//! Settings on simulated hardware: everything that was sent arrives, with every design, with lengths only and with
//! all bytes; and the same setting measures the same.

use roundel_exchange::{Buffers, Design};
use roundel_experiments::run::simulate;
use roundel_experiments::setting::{Pattern, Transport};
use roundel_experiments::{Setting, fabric::FabricChoice};
use std::collections::BTreeMap;

fn setting(transport: Transport, fabric: &str) -> Setting {
    let fabric: FabricChoice = fabric.parse().unwrap();
    Setting {
        nodes: 3,
        threads: 2,
        rows: 1 << 12,
        seconds: 0.0003,
        buffers: Buffers::Fixed(2),
        ..Setting::new(transport, fabric)
    }
}

/// Runs it twice; bytes per second and node.
fn twice(setting: &Setting) -> f64 {
    let told = |error| panic!("{setting:?}: {error}");
    let measured = simulate(setting).unwrap_or_else(told);
    let again = simulate(setting).unwrap_or_else(told);
    assert_eq!(measured, again, "{setting:?}");
    measured.bytes_per_second
}

#[test]
fn every_design_moves_lengths_and_bytes_in_both_patterns() {
    for design in Design::every() {
        for fabric in ["sim:edr", "sim:edr:bytes"] {
            for pattern in [Pattern::Repartition, Pattern::Broadcast] {
                let setting = Setting {
                    pattern,
                    ..setting(Transport::Design(design), fabric)
                };
                assert!(twice(&setting) > 0.0, "{design} {fabric} {pattern:?}");
            }
        }
    }
}

#[test]
fn every_design_runs_with_adaptive_buffers() {
    for design in Design::every() {
        let setting = Setting {
            buffers: Buffers::Adaptive,
            seconds: 0.001,
            ..setting(Transport::Design(design), "sim:edr")
        };
        assert!(twice(&setting) > 0.0, "{design}");
    }
}

#[test]
fn every_generation_carries_a_design_that_it_has_transports_for() {
    let of = |transport, name: &str| Setting {
        seconds: 0.003,
        ..setting(transport, &format!("sim:{name}"))
    };
    for name in ["fdr", "edr", "qdr", "roce100", "iwarp10"] {
        let connected = of(Transport::Design(Design::SemqSr), name);
        assert!(twice(&connected) > 0.0, "{name}");
    }
    assert!(twice(&of(Transport::Sockets, "10gbe-tcp")) > 0.0);
    for (design, name) in [(Design::MesqSr, "iwarp10"), (Design::SemqSr, "10gbe-tcp")] {
        let error = simulate(&of(Transport::Design(design), name)).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(&design.to_string()), "{error}");
    }
}

#[test]
fn what_designs_are_compared_with_is_simulated_but_for_grpc() {
    let others = [
        Transport::Sockets,
        Transport::Mpi,
        Transport::Qperf,
        Transport::Partition,
        Transport::Consume,
        Transport::ZeroCopy(Design::MemqSr),
    ];
    for transport in others {
        let setting = Setting {
            seconds: 0.002,
            ..setting(transport, "sim:fdr")
        };
        assert!(twice(&setting) > 0.0, "{transport}");
    }
    let pings = Setting {
        nodes: 2,
        ..setting(Transport::PingPong, "sim:edr")
    };
    let round_trip = simulate(&pings).unwrap().endpoints().round_trip;
    assert!((1e-6..4e-6).contains(&round_trip), "{round_trip}");
    assert!(simulate(&setting(Transport::Grpc, "sim:edr")).is_err());
}

#[test]
fn a_node_that_works_longer_on_its_tuples_takes_fewer() {
    let fast = setting(Transport::Design(Design::MesqSr), "sim:edr");
    let slow = Setting {
        work: vec![200],
        ..fast.clone()
    };
    assert!(twice(&slow) < twice(&fast) / 2.0);
}

#[test]
fn threads_tell_what_they_spend_their_time_on() {
    for design in Design::every() {
        let slow = Setting {
            work: vec![200],
            ..setting(Transport::Design(design), "sim:edr")
        };
        for node in simulate(&slow).unwrap().nodes {
            let [sending, receiving] = [&node.spent.sending, &node.spent.receiving];
            let of = |spent: &BTreeMap<String, f64>, names: &[&str]| -> f64 {
                let parts = names.iter().filter_map(|name| spent.get(*name));
                parts.sum::<f64>() / spent.values().sum::<f64>()
            };
            let held_up = of(sending, &["credit", "buffer"]);
            assert!(held_up > 0.5, "{design}: {sending:?}");
            let works = of(receiving, &["computing"]);
            assert!(works > 0.5, "{design}: {receiving:?}");
        }
    }
}

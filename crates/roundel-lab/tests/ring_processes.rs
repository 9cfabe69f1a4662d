//! Joins on rings of processes: all pairs are found, over any device, and a join of which they are not is an error.

use roundel_experiments::NodeCommand;
use roundel_experiments::ring::{Carrier, Keys, Method, RelationRows, RingJoin};
use roundel_experiments::run::run_ring;

fn command() -> NodeCommand {
    NodeCommand {
        program: env!("CARGO_BIN_EXE_roundel-lab").into(),
        arguments: vec!["node".into()],
        hosts: None,
    }
}

fn join(method: Method, hosts: usize, fabric: &str) -> RingJoin {
    RingJoin {
        threads: 2,
        rows: RelationRows::alike(12_000),
        keys: Keys::Zipf(0.5),
        element_bytes: 16 << 10,
        ..RingJoin::new(fabric.parse().unwrap(), method, hosts)
    }
}

#[test]
fn all_pairs_are_found() {
    for fabric in ["shm", "tcp"] {
        for method in [Method::Hash, Method::Merge] {
            let found = [1, 3].map(|hosts| {
                let join = join(method, hosts, fabric);
                let told = |error| panic!("{join:?}: {error}");
                let measured = run_ring(&join, &command()).unwrap_or_else(told);
                assert!(measured.after_set_up() > 0.0);
                measured.hosts.iter().map(|host| host.pairs).sum::<u64>()
            });
            assert!(found.iter().all(|found| *found > 0), "{found:?}");
        }
    }
}

#[test]
fn what_is_simulated_only_is_refused() {
    let tcp = RingJoin {
        carrier: Carrier::Tcp,
        ..join(Method::Hash, 2, "shm")
    };
    assert!(run_ring(&tcp, &command()).is_err());
}

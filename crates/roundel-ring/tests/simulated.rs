//! Rings on simulated hardware: whatever the seed, all rows; and what a link carries.

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use roundel_ring::roundabout::{Next, Opening};
use roundel_ring::threads::JoinWork;
use roundel_ring::{
    Algorithm, Cyclo, JoinSpec, JoinThreads, JoinType, Output, RingError, RingHost, RingOptions,
    Roundabout, Window,
};
use roundel_verbs::sim::{Parameters, SimNode, Simulation};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Nodes of a simulation, with a ring around them.
struct Cluster {
    simulation: Simulation,
    nodes: Vec<SimNode>,
    observer: SimNode,
}

impl Cluster {
    fn new(generation: &str, hosts: usize, seed: u64) -> Self {
        let simulation = Simulation::new(Parameters::named(generation).unwrap(), seed);
        Self {
            nodes: (0..hosts).map(|_| simulation.add_node(2)).collect(),
            observer: simulation.add_node(1),
            simulation,
        }
    }

    fn ring(&self, options: RingOptions) -> Vec<Roundabout> {
        let host = |node: &SimNode| RingHost::new(node.device(), node.context()).unwrap();
        let hosts: Vec<_> = self.nodes.iter().map(host).collect();
        Opening::all(&hosts, options).unwrap()
    }

    /// Runs a task on each node; how long that took.
    fn run(&self, tasks: Vec<BoxFuture<'static, ()>>) -> Duration {
        let began = self.simulation.now();
        let ended: Vec<_> = self
            .nodes
            .iter()
            .zip(tasks)
            .map(|(node, task)| {
                let (end, ended) = futures::channel::oneshot::channel();
                node.spawn(
                    1,
                    Box::pin(async move {
                        task.await;
                        let _ = end.send(());
                    }),
                );
                ended
            })
            .collect();
        let all = futures::future::join_all(ended);
        let ended = self
            .simulation
            .run(&self.observer, Duration::from_secs(60), all);
        let ended = ended.expect("the ring comes to an end");
        assert!(ended.iter().all(Result::is_ok));
        self.simulation.now() - began
    }
}

/// A ring of the hosts of the paper at 10 Gb/s carries 1.1 GB/s on each link (section V-F), when nobody computes.
#[test]
fn a_link_of_ten_gigabits_carries_its_bytes() {
    const HOSTS: usize = 6;
    const ELEMENTS: u32 = 16;
    let cluster = Cluster::new("iwarp10", HOSTS, 1);
    let options = RingOptions::default();
    let turn = |mut ring: Roundabout| {
        async move {
            let payload = vec![7; ring.payload_bytes_max()];
            let mut begun = 0;
            loop {
                let element = match ring.next(begun < ELEMENTS).await.unwrap() {
                    Next::End => break,
                    Next::Element(element) => element,
                    Next::Blank(blank) => {
                        begun += 1;
                        ring.begin(blank, &payload, &[], begun == ELEMENTS)
                    }
                };
                ring.pass_on(element);
            }
            ring.finish().await.unwrap();
        }
        .boxed()
    };
    let took = cluster.run(cluster.ring(options).into_iter().map(turn).collect());
    // Each element crosses all links but the one to its origin.
    let crossed = u64::from(ELEMENTS) * (HOSTS - 1) as u64 * options.element_bytes as u64;
    let rate = crossed as f64 / took.as_secs_f64();
    assert!(rate >= 1.1e9, "{:.2} GB/s", rate / 1e9);
}

/// Joins where it is asked to: virtual threads have no other.
struct Here;

impl JoinThreads for Here {
    fn count(&self) -> usize {
        2
    }

    fn run(&self, work: JoinWork) -> BoxFuture<'static, Result<(), RingError>> {
        async move {
            work();
            Ok(())
        }
        .boxed()
    }
}

#[derive(Default)]
struct Kept(Mutex<Vec<(i64, i64)>>);

impl Output for Kept {
    fn take(&self, rows: RecordBatch) -> Result<(), RingError> {
        let column = |at: usize| {
            rows.column(at)
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        };
        self.0.lock().extend(column(0).into_iter().zip(column(1)));
        Ok(())
    }
}

fn rows(name: &str, keys: impl Iterator<Item = i64>) -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
    RecordBatch::try_from_iter([(name, keys)]).unwrap()
}

#[test]
fn a_join_has_all_rows_whatever_the_seed() {
    for seed in 0..20 {
        let hosts = 1 + seed as usize % 5;
        let cluster = Cluster::new("fdr", hosts, seed);
        let of = |side: i64, host: usize| {
            (0..200).map(move |at| (at * 7919 + side * 31 + host as i64 * 104_729) % 1000)
        };
        let kept = Arc::<Kept>::default();
        let schema = |name: &str| rows(name, std::iter::empty()).schema();
        let spec = JoinSpec {
            join_type: JoinType::Inner,
            algorithm: Algorithm::Merge {
                spinning: 0,
                stationary: 0,
                window: Window::Whole {
                    low: Bound::Included(-2),
                    high: Bound::Excluded(3),
                },
            },
            predicate: None,
            spinning: schema("r"),
            stationary: schema("s"),
        };
        let options = RingOptions {
            elements: 2,
            element_bytes: 1024,
        };
        let rings = cluster.ring(options).into_iter().enumerate();
        let tasks = rings.map(|(host, ring)| {
            let cyclo = Cyclo {
                spec: spec.clone(),
                threads: Arc::new(Here),
                context: cluster.nodes[host].context(),
                output: kept.clone(),
            };
            let (r, s) = (rows("r", of(0, host)), rows("s", of(1, host)));
            async move {
                let phases = cyclo.run(ring, vec![r], vec![s]).await.unwrap();
                assert_eq!(phases.rows, 200 * hosts as u64);
            }
            .boxed()
        });
        cluster.run(tasks.collect());
        let mut expected = Vec::new();
        for (one, other) in (0..hosts * hosts).map(|at| (at / hosts, at % hosts)) {
            for r in of(0, one) {
                let near = of(1, other).filter(|s| (-2..3).contains(&(s - r)));
                expected.extend(near.map(|s| (r, s)));
            }
        }
        let mut got = std::mem::take(&mut *kept.0.lock());
        got.sort_unstable();
        expected.sort_unstable();
        assert_eq!(got, expected, "seed {seed}");
    }
}

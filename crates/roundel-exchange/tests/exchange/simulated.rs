//! Every design on virtual time: it moves every row, and twice the same way.

use crate::cluster::{CREDIT_IN_MEMORY, Node, Options, Way, connect, own};
use crate::designs::{batch, check_verb, sent, units};
use arrow::array::RecordBatch;
use futures::TryStreamExt as _;
use roundel_exchange::{Design, ExchangeOptions, Fabric};
use roundel_verbs::ArenaOptions;
use roundel_verbs::sim::{Parameters, SimNode, Simulation};
use std::time::Duration;

/// More than any exchange here takes.
const LIMIT: Duration = Duration::from_secs(5);

/// How a run was.
#[derive(Debug, PartialEq)]
struct Run {
    took: Duration,
    trace: u64,
}

/// Nodes of a simulation, and the settings of the exchange between them.
pub fn open(
    simulation: &Simulation,
    way: Way,
    nodes: usize,
    threads: usize,
) -> (Vec<SimNode>, Vec<Node>, Options) {
    let hosts: Vec<SimNode> = (0..nodes).map(|_| simulation.add_node(threads)).collect();
    let capabilities = hosts[0].device().capabilities().clone();
    let options = ExchangeOptions::new(way.shuffled_by(), threads, &capabilities);
    let mut options = way.applied(options, threads, &capabilities);
    options.batch_rows = 1;
    // Of a multiplexer with two regions, one may overtake the other.
    options.ordered = matches!(way, Way::Multiplexer(_));
    let memory = ArenaOptions::default();
    let cluster: Vec<Node> = hosts
        .iter()
        .map(|host| {
            let fabric = Fabric::on(host.device(), memory, host.context()).unwrap();
            Node::on(fabric, &options)
        })
        .collect();
    (hosts, cluster, options)
}

/// Everybody sends to everybody.
fn run(way: Way, nodes: usize, threads: usize, batches: i64, rows: usize, seed: u64) -> Run {
    let design = way.shuffled_by();
    let simulation = Simulation::new(Parameters::edr(), seed);
    let (hosts, cluster, options) = open(&simulation, way, nodes, threads);
    let partitions = threads as u32;
    let schema = batch(0, 0, 0, 1).schema();
    let links = connect(&cluster, |node| own(node, partitions));
    let (done, all_done) = futures::channel::mpsc::unbounded::<()>();
    for (source, node) in cluster.iter().enumerate() {
        for (target, (destination, group)) in links.destinations[source].iter().enumerate() {
            let shuffle = node.shuffle.clone();
            let (destination, group) = (destination.clone(), group.clone());
            let done = done.clone();
            let send = async move {
                for number in 0..batches {
                    for partition in own(target, partitions) {
                        let batch = batch(source, partition, number, rows);
                        shuffle.send(&group, partition, &batch).await.unwrap();
                    }
                }
                shuffle.finish(&destination).await.unwrap();
                drop(done);
            };
            hosts[source].spawn(target, Box::pin(send));
        }
    }
    for (target, node) in cluster.iter().enumerate() {
        for (source, link) in links.links[target].iter().enumerate() {
            for partition in own(target, partitions) {
                let stream = node.receive.stream(link, partition, &schema).unwrap();
                let done = done.clone();
                let read = async move {
                    let got: Vec<RecordBatch> = stream.try_collect().await.unwrap();
                    let expected = sent(source, partition, batches, rows);
                    assert_eq!(got, expected, "{source} to {target}, partition {partition}");
                    drop(done);
                };
                hosts[target].spawn(partition as usize, Box::pin(read));
            }
        }
    }
    drop(done);
    let everyone = async move {
        use futures::StreamExt as _;
        all_done.collect::<Vec<()>>().await;
    };
    let ended = simulation.run(&hosts[0], LIMIT, everyone);
    assert_eq!(ended, Ok(()), "{way}, {nodes} nodes of {threads}");
    let ran = Run {
        took: simulation.now(),
        trace: simulation.trace(),
    };
    for node in cluster.iter().filter(|node| node.multiplexer.is_none()) {
        let report = node.shuffle.report();
        let queue_pairs = options
            .design
            .queue_pairs(nodes * units(&options), options.endpoints);
        assert_eq!(report.queue_pairs, queue_pairs, "Table 1");
        check_verb(design, &report.counters, &node.receive.report().counters);
    }
    ran
}

/// Every design, by endpoints, multiplexers, and units.
pub fn every() -> impl Iterator<Item = Way> {
    let designs = Design::every().map(Way::Endpoints);
    let multiplexed = Design::every().filter(|design| design.check_multiplexed().is_ok());
    let others = multiplexed.map(Way::Multiplexer);
    let classic = [Way::Classic(Design::MemqSr)];
    designs.chain(others).chain(classic).chain(CREDIT_IN_MEMORY)
}

#[test]
fn every_design_moves_every_row() {
    for design in every() {
        for (nodes, threads) in [(2, 1), (3, 2), (5, 3)] {
            let ran = run(design, nodes, threads, 5, 700, 1);
            assert!(ran.took > Duration::from_micros(10), "{design}: {ran:?}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_events() {
    for design in every() {
        let once = run(design, 3, 2, 4, 300, 7);
        assert_eq!(run(design, 3, 2, 4, 300, 7), once, "{design}");
        let other = run(design, 3, 2, 4, 301, 7);
        assert_ne!(other.trace, once.trace, "{design}");
    }
}

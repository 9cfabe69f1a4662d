//! All-to-all traffic through multiplexers on virtual time, with and without a schedule.

use arrow::array::{ArrayRef, FixedSizeBinaryArray, RecordBatch};
use futures::StreamExt as _;
use roundel_exchange::operator::Group;
use roundel_exchange::{
    Design, Destination, ExchangeOptions, Fabric, Multiplexer, MultiplexerOptions, Receive, Route,
    ScheduleReport, Scheduling, Shuffle, Unlimited,
};

use roundel_verbs::sim::{Parameters, SimNode, Simulation};
use roundel_verbs::{ArenaOptions, Regions};
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{meet, multiplexer};
use crate::random::Random;

/// Every node sends so many messages to every other one, which stand for longer ones by a factor.
#[derive(Clone, Copy)]
struct Traffic {
    nodes: usize,
    message_bytes: usize,
    payload_times: usize,
    messages: usize,
    /// To one after the other, in any order, by four tasks, as scattered rows are sent; or to all at once.
    scattered: bool,
}

/// Tasks of a node that scatter.
const SCATTERING: usize = 4;

/// Where a node sends to.
type Targets = Vec<(u32, Group, Destination)>;

impl Traffic {
    /// To whom the tasks of a node send, one message after the other.
    fn orders(&self, source: usize) -> Vec<Vec<usize>> {
        let others = self.nodes - 1;
        if !self.scattered {
            return (0..others).map(|to| vec![to; self.messages]).collect();
        }
        let tasks = 0..SCATTERING as u64;
        let order = |task| {
            let each = (0..self.messages / SCATTERING).flat_map(|_| 0..others);
            let mut order: Vec<usize> = each.collect();
            Random(source as u64 * 100 + task).shuffle(&mut order);
            order
        };
        tasks.map(order).collect()
    }

    /// How long it takes with this seed, and what the schedule of one node did.
    fn run(&self, seed: u64, scheduling: Scheduling) -> (Duration, ScheduleReport) {
        let parameters = Parameters::qdr().with_payload_times(self.payload_times);
        let (message_bytes, long_bytes) = (
            parameters.bytes_for(self.message_bytes),
            parameters.bytes_for(16 << 10),
        );
        let simulation = Simulation::new(parameters, seed);
        let hosts: Vec<SimNode> = (0..self.nodes).map(|_| simulation.add_node(4)).collect();
        let sizes = MultiplexerOptions {
            message_bytes,
            query_bytes: 4 * self.nodes * message_bytes,
            scheduling,
            long_bytes,
            ..MultiplexerOptions::new(hosts[0].device().capabilities())
        };
        let nodes: Vec<_> = hosts.iter().map(|host| Node::open(host, sizes)).collect();
        for (one, node) in nodes.iter().enumerate() {
            for other in &nodes[..one] {
                meet(&node.multiplexer, &other.multiplexer);
            }
        }
        // One message, with its preamble.
        let row = vec![7; message_bytes - 320];
        let column = FixedSizeBinaryArray::try_from_iter(std::iter::once(row)).unwrap();
        let batch = RecordBatch::try_from_iter([("row", Arc::new(column) as ArrayRef)]).unwrap();
        let (done, all_done) = futures::channel::mpsc::unbounded::<()>();
        let mut links = Vec::new();
        let mut targets: Vec<Targets> = hosts.iter().map(|_| Vec::new()).collect();
        for target in 0..self.nodes {
            for source in (0..self.nodes).filter(|source| *source != target) {
                let (from, to) = (&nodes[source], &nodes[target]);
                let partition = target as u32;
                let met = Some(from.multiplexer.id());
                let offered = to.receive.offer("source", met, partition..partition + 1);
                let (link, offers) = offered.unwrap();
                let (destination, answers) = from.shuffle.accept(&offers, "target").unwrap();
                to.receive.connect(&link, &answers).unwrap();
                let stream = to.receive.stream(&link, partition, &batch.schema());
                let mut stream = stream.unwrap();
                links.push(link);
                let read_all = done.clone();
                let read = async move {
                    while let Some(batch) = stream.next().await {
                        batch.unwrap();
                    }
                    drop(read_all);
                };
                hosts[target].spawn(source, Box::pin(read));
                let group = from.shuffle.group(std::slice::from_ref(&destination));
                targets[source].push((partition, group.unwrap(), destination));
            }
        }
        for (source, targets) in targets.into_iter().enumerate() {
            let (host, shuffle) = (&hosts[source], &nodes[source].shuffle);
            let (sent, all_sent) = futures::channel::mpsc::unbounded::<()>();
            for (thread, order) in self.orders(source).into_iter().enumerate() {
                let (shuffle, batch) = (shuffle.clone(), batch.clone());
                let (targets, sent) = (targets.clone(), sent.clone());
                let send = async move {
                    for to in order {
                        let (partition, group, _) = &targets[to];
                        shuffle.send(group, *partition, &batch).await.unwrap();
                    }
                    drop(sent);
                };
                host.spawn(thread, Box::pin(send));
            }
            let (shuffle, finished_all) = (shuffle.clone(), done.clone());
            let finish = async move {
                all_sent.collect::<Vec<()>>().await;
                let all = targets.iter().map(|(_, _, to)| shuffle.finish(to));
                futures::future::try_join_all(all).await.unwrap();
                drop(finished_all);
            };
            host.spawn(0, Box::pin(finish));
        }
        drop(done);
        let began = simulation.now();
        let all = async move {
            all_done.collect::<Vec<()>>().await;
        };
        simulation
            .run(&hosts[0], Duration::from_secs(10), all)
            .unwrap();
        let report = nodes[0].multiplexer.report().schedule;
        (simulation.now() - began, report)
    }
}

struct Node {
    multiplexer: Multiplexer,
    shuffle: Arc<Shuffle>,
    receive: Receive,
}

impl Node {
    fn open(host: &SimNode, sizes: MultiplexerOptions) -> Self {
        let fabric = Fabric::on(host.device(), ArenaOptions::default(), host.context()).unwrap();
        let multiplexer = multiplexer(&fabric, sizes, &Regions::one());
        let options = ExchangeOptions::new(Design::SemqSr, 1, host.device().capabilities());
        let route = Route::through(&multiplexer, 1, &Arc::default());
        let exchange = fabric.context.random();
        Self {
            shuffle: Arc::new(Shuffle::open(&fabric, &options, &route, exchange, 0).unwrap()),
            receive: Receive::open(&fabric, &options, &route, &(Arc::new(Unlimited) as _)).unwrap(),
            multiplexer,
        }
    }
}

const FLOWS: Traffic = Traffic {
    nodes: 16,
    message_bytes: 512 << 10,
    payload_times: 64,
    messages: 100,
    scattered: false,
};

/// The median over seeds: a trial that measures nodes while they come into step may decide wrongly.
fn median<const OF: usize>(measure: impl Fn(u64) -> [f64; OF]) -> [f64; OF] {
    let measured = [1, 2, 3].map(measure);
    std::array::from_fn(|of| {
        let mut each = measured.map(|one| one[of]);
        each.sort_unstable_by(f64::total_cmp);
        each[1]
    })
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

#[test]
fn a_schedule_makes_long_messages_faster() {
    let gains = median(|seed| {
        let (uncoordinated, none) = FLOWS.run(seed, Scheduling::Off);
        assert_eq!(none.phases, 0);
        [Scheduling::On, Scheduling::Auto].map(|scheduling| {
            let (scheduled, schedule) = FLOWS.run(seed, scheduling);
            assert!(schedule.phases > 15, "{schedule:?}");
            ratio(uncoordinated, scheduled)
        })
    });
    assert!(gains.iter().all(|gain| *gain >= 1.3), "{gains:?}");
}

#[test]
fn scattered_rows_lose_little() {
    // So long that a trial is little of it.
    let scattered = Traffic {
        scattered: true,
        nodes: 8,
        messages: 400,
        ..FLOWS
    };
    let [loss] = median(|seed| {
        let (uncoordinated, _) = scattered.run(seed, Scheduling::Off);
        let (tried, schedule) = scattered.run(seed, Scheduling::Auto);
        assert!(schedule.changes.is_multiple_of(2), "{schedule:?}");
        [ratio(tried, uncoordinated)]
    });
    assert!(loss <= 1.05, "{loss}");
}

#[test]
fn few_nodes_find_out_which_way_is_better() {
    // Many more than the first trial takes.
    let few = Traffic {
        nodes: 4,
        messages: 1600,
        ..FLOWS
    };
    let losses = median(|seed| {
        [false, true].map(|scattered| {
            let traffic = Traffic { scattered, ..few };
            let [off, on, auto] = Scheduling::ALL.map(|scheduling| traffic.run(seed, scheduling).0);
            ratio(auto, off.min(on))
        })
    });
    assert!(losses.iter().all(|loss| *loss <= 1.08), "{losses:?}");
}

#[test]
fn short_messages_are_not_held_up() {
    let traffic = Traffic {
        nodes: 16,
        message_bytes: 4 << 10,
        payload_times: 1,
        messages: 100,
        scattered: false,
    };
    let (uncoordinated, _) = traffic.run(1, Scheduling::Off);
    for scheduling in [Scheduling::On, Scheduling::Auto] {
        let (scheduled, _) = traffic.run(1, scheduling);
        let loss = ratio(scheduled, uncoordinated);
        assert!(
            loss <= 1.02,
            "{uncoordinated:?} and {scheduling} {scheduled:?}: {loss}"
        );
    }
}

//! All-to-all traffic through multiplexers on virtual time, with and without a schedule.

use arrow::array::{ArrayRef, FixedSizeBinaryArray, RecordBatch};
use futures::StreamExt as _;
use roundel_exchange::{
    Design, ExchangeOptions, Fabric, Multiplexer, MultiplexerOptions, Receive, Scheduling, Shuffle,
    Unlimited,
};

use roundel_verbs::sim::{Parameters, SimNode, Simulation};
use roundel_verbs::{ArenaOptions, Regions};
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{meet, multiplexer};

/// Every node sends so many messages to every other one, which stand for longer ones by a factor.
struct Traffic {
    nodes: usize,
    message_bytes: usize,
    payload_times: usize,
    messages: usize,
}

impl Traffic {
    /// How long it takes, and in how many phases of one node.
    fn run(&self, scheduling: Scheduling) -> (Duration, u64) {
        let parameters = Parameters::qdr().with_payload_times(self.payload_times);
        let (message_bytes, long_bytes) = (
            parameters.bytes_for(self.message_bytes),
            parameters.bytes_for(16 << 10),
        );
        let simulation = Simulation::new(parameters, 1);
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
        for target in 0..self.nodes {
            for source in (0..self.nodes).filter(|source| *source != target) {
                let (from, to) = (&nodes[source], &nodes[target]);
                let partition = target as u32;
                let offered =
                    to.receive
                        .offer_to(from.multiplexer.id(), "source", partition..partition + 1);
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
                let group = group.unwrap();
                let (shuffle, batch, sent_all) =
                    (from.shuffle.clone(), batch.clone(), done.clone());
                let messages = self.messages;
                let send = async move {
                    for _ in 0..messages {
                        shuffle.send(&group, partition, &batch).await.unwrap();
                    }
                    shuffle.finish(&destination).await.unwrap();
                    drop(sent_all);
                };
                hosts[source].spawn(target, Box::pin(send));
            }
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
        (simulation.now() - began, report.phases)
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
        let options = options.through(&multiplexer, 1);
        let exchange = fabric.context.random();
        Self {
            shuffle: Arc::new(Shuffle::open(&fabric, &options, exchange, 0).unwrap()),
            receive: Receive::open(&fabric, &options, &(Arc::new(Unlimited) as _)).unwrap(),
            multiplexer,
        }
    }
}

#[test]
fn a_schedule_makes_long_messages_faster() {
    let traffic = Traffic {
        nodes: 16,
        message_bytes: 512 << 10,
        payload_times: 64,
        messages: 100,
    };
    let (uncoordinated, none) = traffic.run(Scheduling::Off);
    assert_eq!(none, 0);
    let (scheduled, phases) = traffic.run(Scheduling::On);
    assert!(phases > 15, "{phases}");
    let gain = uncoordinated.as_secs_f64() / scheduled.as_secs_f64();
    assert!(gain >= 1.3, "{uncoordinated:?} and {scheduled:?}: {gain}");
}

#[test]
fn long_messages_to_several_are_scheduled_by_themselves() {
    let traffic = Traffic {
        nodes: 4,
        message_bytes: 64 << 10,
        payload_times: 1,
        messages: 30,
    };
    let (_, phases) = traffic.run(Scheduling::Auto);
    assert!(phases >= 3, "{phases}");
}

#[test]
fn short_messages_are_not_held_up() {
    let traffic = Traffic {
        nodes: 16,
        message_bytes: 4 << 10,
        payload_times: 1,
        messages: 100,
    };
    let (uncoordinated, _) = traffic.run(Scheduling::Off);
    for scheduling in [Scheduling::On, Scheduling::Auto] {
        let (scheduled, _) = traffic.run(scheduling);
        let loss = scheduled.as_secs_f64() / uncoordinated.as_secs_f64();
        assert!(
            loss <= 1.02,
            "{uncoordinated:?} and {scheduling} {scheduled:?}: {loss}"
        );
    }
}

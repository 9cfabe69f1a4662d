//! Every design moves every row, whatever the order of consumption and the sizes.

use crate::cluster::{Node, Options, connect, options, own, ways};
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use futures::TryStreamExt;
use roundel_exchange::operator::Group;
use roundel_exchange::{Design, Destination, ExchangeError, Verb};
use roundel_verbs::{CounterSnapshot, Opcode};
use std::ops::Range;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// A batch that tells where it is from.
pub fn batch(node: usize, partition: u32, number: i64, rows: usize) -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(
        (0..rows as i64).map(|row| number * 1_000_000 + row),
    ));
    let names: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..rows).map(|row| {
            format!("node {node} partition {partition} row {row}")
        })));
    RecordBatch::try_from_iter([("key", keys), ("name", names)]).unwrap()
}

/// So many batches of a node for a partition, in order.
pub fn sent(source: usize, partition: u32, batches: i64, rows: usize) -> Vec<RecordBatch> {
    let numbers = 0..batches;
    numbers
        .map(|number| batch(source, partition, number, rows))
        .collect()
}

/// Sends batches of a source, of so many rows, to partitions of one target in turn, as a task of its own.
pub fn feed(
    node: &Node,
    (destination, group): &(Destination, Group),
    partitions: Range<u32>,
    numbers: Range<i64>,
    (source, rows): (usize, usize),
) -> JoinHandle<Result<(), ExchangeError>> {
    let shuffle = node.shuffle.clone();
    let (destination, group) = (destination.clone(), group.clone());
    tokio::spawn(async move {
        for number in numbers {
            for partition in partitions.clone() {
                let batch = batch(source, partition, number, rows);
                shuffle.send(&group, partition, &batch).await?;
            }
        }
        shuffle.finish(&destination).await
    })
}

/// The number that a batch was made with.
pub fn number(batch: &RecordBatch) -> i64 {
    batch.column(0).as_primitive::<Int64Type>().value(0) / 1_000_000
}

async fn repartition(options: &Options, nodes: usize, batches: i64, rows: usize) {
    let cluster: Vec<Node> = (0..nodes).map(|_| Node::open(options)).collect();
    repartition_on(&cluster, batches, rows, options.ordered).await;
    for node in cluster.iter().filter(|node| node.multiplexer.is_none()) {
        let report = node.shuffle.report();
        let queue_pairs = options
            .design
            .queue_pairs(nodes * units(options), options.endpoints);
        assert_eq!(report.queue_pairs, queue_pairs, "Table 1");
        check_verb(
            options.design,
            &report.counters,
            &node.receive.report().counters,
        );
    }
}

/// Links from a node to each endpoint of another.
pub fn units(options: &Options) -> usize {
    if options.classic {
        options.endpoints
    } else {
        1
    }
}

/// Everybody sends to everybody; the partitions of a node are sent by different units, if it has any.
pub async fn repartition_on(cluster: &[Node], batches: i64, rows: usize, ordered: bool) {
    let partitions = 2u32;
    let schema = batch(0, 0, 0, 1).schema();
    let links = connect(cluster, |node| own(node, partitions));
    let mut tasks = Vec::new();
    for (source, node) in cluster.iter().enumerate() {
        for (target, (destination, group)) in links.destinations[source].iter().enumerate() {
            let shuffle = node.shuffle.clone();
            let (destination, group) = (destination.clone(), group.clone());
            tasks.push(tokio::spawn(async move {
                for number in 0..batches {
                    for partition in own(target, partitions) {
                        let batch = batch(source, partition, number, rows);
                        let group = group.by(partition as usize);
                        shuffle.send(&group, partition, &batch).await.unwrap();
                    }
                }
                shuffle.finish(&destination).await.unwrap();
            }));
        }
    }
    let mut readers = Vec::new();
    for (target, node) in cluster.iter().enumerate() {
        for (source, link) in links.links[target].iter().enumerate() {
            for partition in own(target, partitions) {
                let stream = node.receive.stream(link, partition, &schema).unwrap();
                readers.push(tokio::spawn(async move {
                    let mut got: Vec<RecordBatch> = stream.try_collect().await.unwrap();
                    if !ordered {
                        got.sort_by_key(number);
                    }
                    let expected = sent(source, partition, batches, rows);
                    assert_eq!(got, expected, "{source} to {target}, partition {partition}");
                }));
            }
        }
    }
    for task in readers.into_iter().chain(tasks) {
        tokio::time::timeout(std::time::Duration::from_secs(60), task)
            .await
            .expect("no exchange hangs")
            .unwrap();
    }
}

/// Rows travel by the verb of the design alone: what else a side posts are headers and entries of
/// queues.
pub fn check_verb(design: Design, source: &CounterSnapshot, receiver: &CounterSnapshot) {
    use Opcode::{Read, Send, Write, WriteWithImmediate};
    let by = |counters: &CounterSnapshot, opcodes: &[Opcode]| -> u64 {
        opcodes.iter().map(|opcode| counters.bytes(*opcode)).sum()
    };
    let writes = [Write, WriteWithImmediate];
    let rows = match design.verb() {
        Verb::Send => {
            let rows = by(source, &[Send]);
            assert_eq!(by(source, &[WriteWithImmediate]), 0, "{design}");
            assert!(
                by(source, &[Write]) < rows / 4,
                "{design}: questions for the bell"
            );
            rows
        }
        Verb::Write(_) => {
            assert_eq!(by(source, &[Send]), 0, "{design}");
            by(source, &writes)
        }
        Verb::Read => {
            assert_eq!(by(source, &[Send]) + by(receiver, &[Send]), 0, "{design}");
            let rows = by(receiver, &[Read]);
            assert!(
                by(source, &writes) < rows / 4,
                "{design}: entries of queues"
            );
            rows
        }
    };
    assert!(rows > 0, "{design}");
    // On iWARP a source reads a word at the end of each link, to know that all has arrived.
    assert!(
        by(source, &[Read]) < rows / 4,
        "{design}: questions for arrival"
    );
    assert!(
        by(receiver, &writes) < rows / 4,
        "{design}: credit and entries of queues"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repartition_on_every_design() {
    for design in ways() {
        for threads in [1, 2] {
            let mut options = options(design, threads);
            options.ordered = true;
            repartition(&options, 3, 20, 700).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_number_of_endpoints_between_one_and_one_per_thread() {
    for design in ways() {
        if design
            .design()
            .is_none_or(|design| design.endpoints(2) == 1)
        {
            continue;
        }
        let mut options = options(design, 4);
        options.endpoints = 2;
        options.ordered = true;
        repartition(&options, 2, 10, 300).await;
    }
}

/// Soft-RoCE loses its place in a SEND of several packets now and then when it sends some of them
/// again, and breaks the connection: with loss on the wire only short ones are fit for a test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repartition_with_messages_of_one_packet() {
    for design in ways() {
        let mut options = options(design, 2);
        options.message_bytes = options.message_bytes.min(4096);
        options.ordered = true;
        repartition(&options, 3, 20, 700).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiny_buffers_and_credit_frequencies() {
    for design in ways() {
        for (buffers, frequency) in [(2, 1), (2, 2), (3, 2), (8, 16)] {
            let mut options = options(design, 2);
            options.message_bytes = 512;
            options.window.least = buffers;
            options.window.most = buffers;
            options.credit_frequency = frequency;
            options.ordered = true;
            repartition(&options, 2, 3, 50).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_consumed_one_after_the_other() {
    for design in ways() {
        let options = options(design, 1);
        let cluster = [Node::open(&options), Node::open(&options)];
        let links = connect(&cluster, |node| own(node, 2));
        let schema = batch(0, 0, 0, 1).schema();
        let sender = feed(
            &cluster[0],
            &links.destinations[0][1],
            own(1, 2),
            0..50,
            (0, 2000),
        );
        // The second partition's rows come with the first's and must not hold them up.
        for partition in own(1, 2) {
            let receive = &cluster[1].receive;
            let stream = receive.stream(&links.links[1][0], partition, &schema);
            let got: Vec<RecordBatch> = stream.unwrap().try_collect().await.unwrap();
            let rows: usize = got.iter().map(RecordBatch::num_rows).sum();
            assert_eq!(rows, 50 * 2000, "{design} partition {partition}");
        }
        sender.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_string_larger_than_many_messages() {
    for design in ways() {
        let options = options(design, 1);
        let cluster = [Node::open(&options), Node::open(&options)];
        let links = connect(&cluster, |node| own(node, 1));
        let text: ArrayRef = Arc::new(StringArray::from(vec![Some("ab".repeat(5 << 19)), None]));
        let batch = RecordBatch::try_from_iter([("text", text)]).unwrap();
        let (destination, group) = links.destinations[0][1].clone();
        let (shuffle, sent) = (cluster[0].shuffle.clone(), batch.clone());
        let sender = tokio::spawn(async move {
            shuffle.send(&group, 1, &sent).await.unwrap();
            shuffle.finish(&destination).await.unwrap();
        });
        let stream = cluster[1]
            .receive
            .stream(&links.links[1][0], 1, &batch.schema())
            .unwrap();
        let got: Vec<RecordBatch> = stream.try_collect().await.unwrap();
        assert_eq!(got, [batch], "{design}");
        sender.await.unwrap();
    }
}

//! Rows that are scattered over partitions: each arrives once, where it belongs, whatever its type.

use crate::arrays::{Random, array, flat_types, nested_types};
use crate::cluster::{Node, Options, connect, options, own, ways};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::TryStreamExt;
use futures::future::{join_all, try_join_all};
use roundel_exchange::{Partitioner, Scatter};
use std::sync::Arc;

const NODES: usize = 2;
const PER_NODE: u32 = 2;
const PARTITIONS: u32 = NODES as u32 * PER_NODE;

/// A row's partition by its number, the same for all batches.
fn target(row: usize) -> u32 {
    (row as u32).wrapping_mul(2_654_435_761) % 11 % PARTITIONS
}

/// One row in so many goes to all partitions, where some do.
const FOR_ALL: usize = 7;

fn goes_to_all(row: usize) -> bool {
    row % FOR_ALL == 3
}

#[derive(Clone, Copy)]
struct ByRow {
    /// Some rows go to all partitions.
    some_to_all: bool,
}

impl Partitioner for ByRow {
    fn partitions(&self) -> usize {
        PARTITIONS as usize
    }

    fn has_rows_for_all(&self) -> bool {
        self.some_to_all
    }

    fn partition(&mut self, batch: &RecordBatch, targets: &mut Vec<u32>) -> Result<(), String> {
        targets.extend((0..batch.num_rows()).map(|row| {
            match self.some_to_all && goes_to_all(row) {
                true => PARTITIONS,
                false => target(row),
            }
        }));
        Ok(())
    }
}

/// The rows of a partition, by the arrow library.
fn expected(batches: &[RecordBatch], partition: u32, by: ByRow) -> RecordBatch {
    let parts: Vec<_> = batches
        .iter()
        .map(|batch| {
            let all = 0..batch.num_rows();
            let for_all = |row: &usize| by.some_to_all && goes_to_all(*row);
            let own = all.clone();
            let own = own.filter(|row| target(*row) == partition && !for_all(row));
            // Those that go to all come behind a partition's own.
            let rows = own.chain(all.filter(for_all));
            let rows = UInt32Array::from_iter_values(rows.map(|row| row as u32));
            take_record_batch(batch, &rows).unwrap()
        })
        .collect();
    concat_batches(&batches[0].schema(), &parts).unwrap()
}

/// Every node scatters the batches; what each partition got of each node.
async fn scatter(options: &Options, batches: &[RecordBatch]) -> Vec<Vec<RecordBatch>> {
    scatter_by(ByRow { some_to_all: false }, options, batches).await
}

async fn scatter_by(
    by: ByRow,
    options: &Options,
    batches: &[RecordBatch],
) -> Vec<Vec<RecordBatch>> {
    let cluster: Vec<Node> = (0..NODES).map(|_| Node::open(options)).collect();
    let links = connect(&cluster, |node| own(node, PER_NODE));
    let schema = batches[0].schema();
    let send = cluster.iter().enumerate().map(async |(source, node)| {
        let to = &links.destinations[source];
        let groups = (0..PARTITIONS).map(|p| to[(p / PER_NODE) as usize].1.clone());
        let mut scatter =
            Scatter::new(node.shuffle.clone(), groups.collect(), Box::new(by), source).unwrap();
        for batch in batches {
            assert!(scatter.send(batch).await.unwrap());
        }
        try_join_all(
            to.iter()
                .map(|(destination, _)| node.shuffle.finish(destination)),
        )
        .await
        .unwrap();
    });
    let mut readers = Vec::new();
    for (target, node) in cluster.iter().enumerate() {
        for link in &links.links[target] {
            for partition in own(target, PER_NODE) {
                let stream = node.receive.stream(link, partition, &schema).unwrap();
                readers.push(async move {
                    let got: Vec<RecordBatch> = stream.try_collect().await.unwrap();
                    let whole = expected(batches, partition, by);
                    let joined = concat_batches(&whole.schema(), &got).unwrap();
                    assert_eq!(joined, whole, "partition {partition}");
                    got
                });
            }
        }
    }
    let (got, _) = futures::join!(join_all(readers), join_all(send));
    got
}

fn schema(types: &[DataType]) -> SchemaRef {
    let fields = types.iter().enumerate();
    let fields = fields.map(|(at, data_type)| Field::new(at.to_string(), data_type.clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn batches(types: &[DataType], rows: &[usize]) -> Vec<RecordBatch> {
    let mut random = Random(5);
    rows.iter()
        .map(|rows| {
            let columns = types
                .iter()
                .map(|data_type| array(data_type, *rows, &mut random));
            RecordBatch::try_new(schema(types), columns.collect()).unwrap()
        })
        .collect()
}

/// All flat types, a nested one and a long string; in one process and between two; with rows for all partitions and
/// without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_design_scatters_rows_of_any_kind() {
    // Of values without bytes the arrow library, which says what is expected, picks no rows.
    let mut types = flat_types();
    types.retain(|data_type| *data_type != DataType::FixedSizeBinary(0));
    let flat = batches(&types, &[3000, 0, 1, 4, 2000]);
    let nested = batches(&nested_types()[..1], &[500]);
    let texts = (0..30).map(|row| "y".repeat(if row == 11 { 2 << 20 } else { row }));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let long = [RecordBatch::try_from_iter([("text", texts)]).unwrap()];
    for design in ways() {
        for (local, some_to_all) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut options = placed(options(design, 2), local);
            options.ordered = true;
            options.coupled = local || some_to_all;
            for batches in [&flat[..], &nested, &long] {
                scatter_by(ByRow { some_to_all }, &options, batches).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nested_column_makes_batches_travel_as_a_whole() {
    for nested in nested_types() {
        if matches!(nested, DataType::FixedSizeList(_, 0)) {
            continue;
        }
        let types = [DataType::Int64, nested, DataType::Utf8];
        let mut options = options(roundel_exchange::Design::default(), 1);
        options.ordered = true;
        scatter(&options, &batches(&types, &[500, 3])).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_longer_than_a_message() {
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..40).map(|row| "x".repeat(if row % 7 == 3 { 10_000 } else { row })),
    ));
    let batch = RecordBatch::try_from_iter([("text", texts)]).unwrap();
    for design in ways() {
        let mut options = options(design, 1);
        options.ordered = true;
        options.message_bytes = 4096;
        scatter(&options, &[batch.clone(), batch.clone()]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_frames_are_joined_to_batches() {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10_000));
    let batch = RecordBatch::try_from_iter([("key", keys)]).unwrap();
    for design in ways() {
        let mut options = options(design, 1);
        options.ordered = true;
        options.message_bytes = 1024;
        options.batch_rows = 1000;
        for got in scatter(&options, &vec![batch.clone(); 20]).await {
            let (last, full) = got.split_last().unwrap();
            let rows: Vec<_> = full.iter().map(RecordBatch::num_rows).collect();
            // Only silence makes a batch short before the end.
            let short = rows.iter().filter(|rows| **rows < 500).count();
            assert!(short * 4 <= rows.len(), "{design}: {rows:?}");
            assert!(rows.iter().all(|rows| *rows <= 1000), "{design}: {rows:?}");
            assert!(last.num_rows() <= 1000, "{design}");
        }
    }
}

/// Nodes in one process, or each in one of its own.
fn placed(options: Options, local: bool) -> Options {
    match local {
        true => options.in_one_process(),
        false => options,
    }
}

/// Two readers each want the exchange first that the other one wants last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coupled_exchanges_are_read_in_any_order() {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..8192));
    let batch = RecordBatch::try_from_iter([("key", keys)]).unwrap();
    for (design, local) in ways()
        .into_iter()
        .flat_map(|one| [(one, false), (one, true)])
    {
        let mut options = placed(options(design, 1), local);
        options.coupled = true;
        options.window.first = 2;
        options.window.most = 2;
        let exchanges = [0, 1].map(|_| {
            let cluster: Vec<Node> = (0..NODES).map(|_| Node::open(&options)).collect();
            let links = connect(&cluster, |node| own(node, PER_NODE));
            (cluster, links)
        });
        let mut tasks = Vec::new();
        for (cluster, links) in &exchanges {
            for (source, node) in cluster.iter().enumerate() {
                let to = links.destinations[source].clone();
                let groups = (0..PARTITIONS).map(|p| to[(p / PER_NODE) as usize].1.clone());
                let shuffle = node.shuffle.clone();
                let mut scatter = Scatter::new(
                    shuffle.clone(),
                    groups.collect(),
                    Box::new(ByRow { some_to_all: false }),
                    0,
                )
                .unwrap();
                let batch = batch.clone();
                tasks.push(tokio::spawn(async move {
                    for _ in 0..40 {
                        scatter.send(&batch).await.unwrap();
                    }
                    try_join_all(
                        to.iter()
                            .map(|(destination, _)| shuffle.finish(destination)),
                    )
                    .await
                    .unwrap();
                }));
            }
        }
        for target in 0..NODES {
            let order = if target == 0 { [0, 1] } else { [1, 0] };
            let mut turns = Vec::new();
            for exchange in order {
                let (cluster, links) = &exchanges[exchange];
                let streams = links.links[target].iter().flat_map(|link| {
                    own(target, PER_NODE).map(|partition| {
                        let receive = &cluster[target].receive;
                        receive.stream(link, partition, &batch.schema()).unwrap()
                    })
                });
                turns.push(streams.collect::<Vec<_>>());
            }
            tasks.push(tokio::spawn(async move {
                for streams in turns {
                    // To its end, before the next is looked at.
                    let read = streams.into_iter().map(|stream| {
                        tokio::spawn(stream.try_fold(0, async |sum, got| Ok(sum + got.num_rows())))
                    });
                    for rows in join_all(read).await {
                        assert!(rows.unwrap().unwrap() > 0);
                    }
                }
            }));
        }
        for task in tasks {
            tokio::time::timeout(std::time::Duration::from_secs(60), task)
                .await
                .unwrap_or_else(|_| panic!("{design}, local {local}: hangs"))
                .unwrap();
        }
    }
}

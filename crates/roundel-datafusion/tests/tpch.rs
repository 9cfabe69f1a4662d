//! TPC-H over datafusion-distributed's own transport and over Roundel's exchange: the same rows, and the same plans with the
//! same numbers of rows at every node.

mod common;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{Known, Worker, sorted};
use datafusion::arrow::array::RecordBatch;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateInputMode, AggregateOutputMode,
};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion_distributed::{
    ChannelResolver, DistributedExec, DistributedExt as _, DistributedMetricsFormat,
    SessionStateBuilderExt as _, rewrite_distributed_plan_with_metrics,
};
use parquet::arrow::ArrowWriter;
use roundel_datafusion::engine::collect as counters;
use roundel_datafusion::{ExchangeOptions, Fabric, RoundelExchange};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};
use url::Url;

const SCALE: f64 = 0.01;
const WORKERS: usize = 3;
/// Files of each table, one for each task: partitions of a task take each other's files, and how many groups a partial aggregate
/// then has would depend on which of them is first.
const FILES: i32 = WORKERS as i32;
/// Partitions of each task. With one, datafusion-distributed 4.0.0 returns wrong rows for queries 11 and 15.
const PARTITIONS: usize = 2;
/// Runs of which one has to have the measures of the other transport. How far a join reads that has enough differs now and then.
const ATTEMPTS: usize = 5;
const TABLES: [&str; 8] = [
    "customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier",
];

#[tokio::test(flavor = "multi_thread")]
async fn tpch_has_the_rows_and_measures_of_the_own_transport() {
    let directory = tempfile::tempdir().expect("a directory");
    write_tables(directory.path());
    let workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::start()).collect();
    let urls: Vec<Url> = workers.iter().map(|worker| worker.url.clone()).collect();
    let exchange = RoundelExchange::open(ExchangeOptions::default()).expect("an exchange");
    assert_eq!(exchange.fabric(&urls), Fabric::Shm);

    let theirs = context(&urls, None, directory.path()).await;
    let mut ours = Vec::new();
    for fabric in [Fabric::Shm, Fabric::Tcp] {
        let resolver = exchange.resolver_over(fabric).expect("a fabric");
        let context = context(&urls, Some(resolver), directory.path()).await;
        ours.push((fabric, context));
    }
    let mut stages = 0;
    for number in 1..=22 {
        let sql = query(number);
        let expected = Answer::of(&theirs, &sql).await;
        assert!(!expected.nodes.is_empty(), "query {number}");
        stages += usize::from(expected.is_distributed);
        for (fabric, context) in &ours {
            let mut other = Vec::new();
            for _ in 0..ATTEMPTS {
                let answer = Answer::of(context, &sql).await;
                assert_eq!(answer.rows, expected.rows, "query {number} on {fabric}");
                assert_eq!(answer.nodes.len(), expected.nodes.len());
                let pairs = answer.nodes.into_iter().zip(expected.nodes.clone());
                other = pairs.filter(|(ours, theirs)| ours != theirs).collect();
                if other.is_empty() {
                    break;
                }
            }
            assert!(other.is_empty(), "query {number} on {fabric}: {other:?}");
        }
    }
    assert_eq!(stages, 22, "all queries ran on the workers");
    for (fabric, _) in ours {
        let node = exchange.devices().get(fabric).expect("opened");
        let node = node.expect("has a device");
        let counted = counters(fabric, node, exchange.channels(), &urls).await;
        let bytes: u64 = counted.expect("they answer").bytes.values().sum();
        assert!(bytes > 10 << 20, "{bytes} bytes went over {fabric}");
    }
}

/// What a query gives.
struct Answer {
    /// As text, sorted.
    rows: Vec<String>,
    /// The nodes of its plan, top down, and how many rows came out of each over all tasks.
    nodes: Vec<(String, Option<usize>)>,
    is_distributed: bool,
}

impl Answer {
    async fn of(context: &SessionContext, sql: &str) -> Self {
        let frame = context.sql(sql).await.expect("a statement");
        let tasks = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await.expect("a plan");
        let batches = collect(plan.clone(), tasks).await.expect("rows");
        let is_distributed = plan.is::<DistributedExec>();
        let format = DistributedMetricsFormat::Aggregated;
        let plan = rewrite_distributed_plan_with_metrics(plan, format).await;
        let mut nodes = Vec::new();
        nodes_of(&plan.expect("measures"), &mut nodes);
        Self {
            rows: sorted(&batches),
            nodes,
            is_distributed,
        }
    }
}

/// Tells the nodes of a plan with their rows, where these are not a matter of time. Such are how many groups a partial aggregate
/// has, since partitions take each other's rows; how many rows are scattered before a join that needs no more says so; and how
/// many of its rows a sorted limit gives before the merge above it has enough. The nodes around count the rows that come in and
/// those that are taken. Returns whether the uppermost node is such a one.
fn nodes_of(plan: &Arc<dyn ExecutionPlan>, nodes: &mut Vec<(String, Option<usize>)>) -> bool {
    let at = nodes.len();
    nodes.push((plan.name().to_owned(), None));
    let sort = plan.downcast_ref::<SortExec>();
    let aggregate = plan.downcast_ref::<AggregateExec>();
    let mode = aggregate.map(|aggregate| aggregate.mode());
    let is_final = mode.is_some_and(|mode| mode.input_mode() == AggregateInputMode::Partial);
    let is_partial = mode.is_some_and(|mode| mode.output_mode() == AggregateOutputMode::Partial);
    let mut by_time = sort.is_some_and(|sort| sort.fetch().is_some());
    for child in plan.children() {
        by_time |= nodes_of(child, nodes);
    }
    by_time &= !plan.is::<SortPreservingMergeExec>() && !is_final;
    by_time |= is_partial;
    if !by_time && !plan.is::<RepartitionExec>() {
        nodes[at].1 = plan.metrics().and_then(|metrics| metrics.output_rows());
    }
    by_time
}

async fn context(
    urls: &[Url],
    resolver: Option<Arc<dyn ChannelResolver + Send + Sync>>,
    tables: &Path,
) -> SessionContext {
    let config = SessionConfig::new()
        .with_target_partitions(PARTITIONS)
        // Such a filter drops more or fewer rows, by when it is there.
        .set_bool("datafusion.optimizer.enable_dynamic_filter_pushdown", false);
    let mut state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_distributed_worker_resolver(Known(urls.to_vec()))
        .with_distributed_planner()
        .with_distributed_metrics_collection(true)
        .and_then(|state| state.with_distributed_file_scan_config_bytes_per_partition(1))
        .expect("settings");
    if let Some(resolver) = resolver {
        state = state.with_distributed_channel_resolver(resolver);
    }
    let context = SessionContext::from(state.build());
    for table in TABLES {
        let path = tables.join(table);
        let path = path.to_str().expect("UTF-8");
        let read = context.register_parquet(table, path, ParquetReadOptions::default());
        read.await.expect("a table");
    }
    context
}

/// The text of a query, which is in the crate of those who have data.
fn query(number: usize) -> String {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.push(format!(
        "../roundel-engine/src/tpch/queries/q{number:02}.sql"
    ));
    std::fs::read_to_string(path).expect("a query")
}

fn write_tables(directory: &Path) {
    for table in TABLES {
        let files = match table {
            "nation" | "region" => 1,
            _ => FILES,
        };
        std::fs::create_dir(directory.join(table)).expect("a directory");
        for file in 1..=files {
            let path = directory.join(table).join(format!("{file}.parquet"));
            write(&path, rows(table, file, files));
        }
    }
}

fn write(path: &Path, batches: Box<dyn Iterator<Item = RecordBatch>>) {
    let mut batches = batches.peekable();
    let schema = batches.peek().expect("rows").schema();
    let file = File::create(path).expect("a file");
    let mut writer = ArrowWriter::try_new(file, schema, None).expect("a writer");
    batches.for_each(|batch| writer.write(&batch).expect("written"));
    writer.close().expect("written");
}

/// One of so many parts of a table.
fn rows(table: &str, part: i32, parts: i32) -> Box<dyn Iterator<Item = RecordBatch>> {
    macro_rules! generate {
        ($generator:ident, $arrow:ident) => {
            Box::new(
                $arrow::new($generator::new(SCALE, part, parts)).map(|rows| rows.expect("rows")),
            )
        };
    }
    match table {
        "customer" => generate!(CustomerGenerator, CustomerArrow),
        "lineitem" => generate!(LineItemGenerator, LineItemArrow),
        "nation" => generate!(NationGenerator, NationArrow),
        "orders" => generate!(OrderGenerator, OrderArrow),
        "part" => generate!(PartGenerator, PartArrow),
        "partsupp" => generate!(PartSuppGenerator, PartSuppArrow),
        "region" => generate!(RegionGenerator, RegionArrow),
        _ => generate!(SupplierGenerator, SupplierArrow),
    }
}

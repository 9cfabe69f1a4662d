//! An application that has a design chosen for each stage of a query, and heavy keys of its joins spread, gets the rows that it
//! would get without.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{Known, Worker, sorted};
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion_distributed::{
    DistributedExt as _, DistributedMetricsFormat, SessionStateBuilderExt as _,
    rewrite_distributed_plan_with_metrics,
};
use roundel_datafusion::engine::Asked;
use roundel_datafusion::{
    Architecture, BuffersChoice, DesignChoice, ExchangeOptions, Fabric, RoundelExchange,
};
use url::Url;

const WORKERS: usize = 3;
const ROWS: i64 = 60_000;
const SQL: &str = "SELECT f.k % 10 AS g, count(*), sum(f.v), sum(d.v) FROM facts f JOIN keys d ON f.k = d.k GROUP BY 1";

#[tokio::test(flavor = "multi_thread")]
async fn heavy_keys_of_an_applications_joins_are_spread() {
    let directory = tempfile::tempdir().expect("a directory");
    // Half of the facts have one key.
    let heavy = "CASE value % 2 WHEN 0 THEN 7 ELSE value % 1000 END";
    write(directory.path(), "facts", heavy).await;
    write(directory.path(), "keys", "value % 1000").await;
    let workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::start()).collect();
    let urls: Vec<Url> = workers.iter().map(|worker| worker.url.clone()).collect();
    let alone = SessionContext::new();
    register(&alone, directory.path()).await;
    let expected = alone.sql(SQL).await.expect("a plan").collect().await;
    let expected = sorted(&expected.expect("rows"));

    let exchange = RoundelExchange::open(ExchangeOptions::default()).expect("an exchange");
    let fabric = exchange.fabric(&urls);
    assert_eq!(fabric, Fabric::Shm);
    let node = exchange.devices().get(fabric).expect("opened");
    let node = node.expect("has a device");
    let config = SessionConfig::new()
        .with_target_partitions(2)
        .set_u64(
            "datafusion.optimizer.hash_join_single_partition_threshold",
            0,
        )
        .set_u64(
            "datafusion.optimizer.hash_join_single_partition_threshold_rows",
            0,
        );
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_distributed_channel_resolver(exchange.resolver_over(fabric).expect("a fabric"))
        .with_distributed_worker_resolver(Known(urls.clone()))
        .with_distributed_planner()
        .with_distributed_metrics_collection(true)
        .and_then(|state| state.with_distributed_file_scan_config_bytes_per_partition(1))
        .expect("settings");
    let context = SessionContext::from(state.build());
    register(&context, directory.path()).await;
    let asked = Asked {
        architecture: Architecture::Endpoint,
        design: DesignChoice::Auto,
        endpoints: None,
        buffers: BuffersChoice::default(),
        threads: 2,
    };
    for spread in [false, true] {
        let frame = context.sql(SQL).await.expect("a statement");
        let tasks = frame.task_ctx();
        let plan = frame.create_physical_plan().await.expect("a plan");
        let mut designs = asked.designs(&plan, node).expect("designs");
        if spread {
            designs = designs.with_skewed_joins(&plan, &urls);
        }
        assert!(designs.to_string().contains("stage 1: "), "{designs}");
        let config = tasks.session_config().clone();
        let config = config.with_extension(Arc::new(designs.settings()));
        let tasks = Arc::new(tasks.with_session_config(config));
        let rows = collect(plan.clone(), tasks).await.expect("rows");
        assert_eq!(sorted(&rows), expected, "{designs}");
        let measures = measures_of(plan).await;
        // The facts have one, in each task that scatters them.
        let heavy = measures.iter().filter(|(name, _)| name == "heavy_keys");
        let heavy: usize = heavy.map(|(_, value)| value).sum();
        assert_eq!(heavy > 0, spread, "{designs}\n{measures:?}");
    }
}

/// What the nodes of a plan counted, by name.
async fn measures_of(plan: Arc<dyn ExecutionPlan>) -> Vec<(String, usize)> {
    let format = DistributedMetricsFormat::Aggregated;
    let plan = rewrite_distributed_plan_with_metrics(plan, format).await;
    let plan = plan.expect("measures");
    let mut measures = Vec::new();
    let mut nodes = vec![plan];
    while let Some(node) = nodes.pop() {
        let metrics = node.metrics().unwrap_or_default();
        for metric in metrics.iter() {
            let value = metric.value();
            measures.push((value.name().to_owned(), value.as_usize()));
        }
        nodes.extend(node.children().into_iter().cloned());
    }
    measures
}

/// A table of keys and numbers, in a file for each worker.
async fn write(directory: &Path, table: &str, key: &str) {
    let context = SessionContext::new();
    for file in 0..WORKERS {
        let path = directory.join(table).join(format!("{file}.parquet"));
        let sql = format!(
            "COPY (SELECT {key} AS k, value AS v FROM range(0, {ROWS}) WHERE value % {WORKERS} = {file}) TO '{}'",
            path.display()
        );
        let written = context
            .sql(&sql)
            .await
            .expect("a statement")
            .collect()
            .await;
        written.expect("written");
    }
}

async fn register(context: &SessionContext, directory: &Path) {
    for table in ["facts", "keys"] {
        let path = directory.join(table);
        let path = path.to_str().expect("UTF-8");
        let read = context.register_parquet(table, path, ParquetReadOptions::default());
        read.await.expect("a table");
    }
}

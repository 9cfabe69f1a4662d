//! Plans of a cluster of three workers, none of which runs.

use std::io::Write as _;
use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{CsvReadOptions, DataFrame, SessionConfig, SessionContext};
use datafusion_distributed::{
    DistributedExec, DistributedExt as _, SessionStateBuilderExt as _, WorkerResolver,
};
use tempfile::NamedTempFile;
use url::Url;

use super::*;
use crate::rules::node_rule;

/// A session of one process with these rules of the physical optimizer.
pub(super) fn context(config: SessionConfig, rules: Vec<Rule>) -> SessionContext {
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_physical_optimizer_rules(rules);
    SessionContext::from(state.build())
}

/// A session of one process with the rules of the physical optimizer that clusters have, but for rings.
pub(super) fn physical_context(config: SessionConfig) -> SessionContext {
    context(config, all_physical_rules())
}

fn all_physical_rules() -> Vec<Rule> {
    let rings = node_rule("rings", |_| Ok(None));
    physical_rules(rings, Arc::new(RuntimeEnv::default())).expect("all are there")
}

/// A session of one process with the rules of the logical optimizer that clusters have.
pub(super) fn logical_context(config: SessionConfig) -> SessionContext {
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_optimizer_rules(logical_rules())
        .with_relation_planners(vec![Arc::new(TrulyDeterminedRelations)]);
    SessionContext::from(state.build())
}

/// What a statement answers there.
pub(super) async fn rows(context: &SessionContext, sql: &str) -> Vec<RecordBatch> {
    let frame = context.sql(sql).await.expect(sql);
    frame.collect().await.expect(sql)
}

/// The values that a statement answers there, row by row, with blanks between them.
pub(super) async fn values(context: &SessionContext, sql: &str) -> String {
    let plan = context.state().create_logical_plan(sql).await;
    planned_values(context, plan.expect(sql)).await
}

/// Checks the values that each statement answers there.
pub(super) async fn answers(context: &SessionContext, right: &[(&str, &str)]) {
    for (sql, right) in right {
        assert_eq!(values(context, sql).await, *right, "{sql}");
    }
}

/// The values that a plan answers there.
pub(super) async fn planned_values(context: &SessionContext, plan: LogicalPlan) -> String {
    let frame = DataFrame::new(context.state(), plan);
    let mut values = Vec::new();
    for batch in frame.collect().await.expect("runs") {
        let options = FormatOptions::default().with_null("NULL");
        let columns = batch.columns().iter();
        let columns = columns.map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let columns: std::result::Result<Vec<_>, _> = columns.collect();
        let columns = columns.expect("values that can be shown");
        for row in 0..batch.num_rows() {
            values.extend(columns.iter().map(|column| column.value(row).to_string()));
        }
    }
    values.join(" ")
}

#[test]
fn rules_of_datafusion_have_the_names_by_which_they_are_found() {
    all_physical_rules();
    let rules = PhysicalOptimizer::new().rules;
    for name in unambiguous_filters::PUTS_FILTERS {
        place(&rules, name).expect(name);
    }
    let error = place(&rules, "NoSuchRule").expect_err("it is not there");
    assert!(error.to_string().contains("NoSuchRule"), "{error}");
    let logical = Optimizer::new().rules;
    let replaced = in_place_of_datafusions();
    let replaced = replaced.iter().map(|rule| rule.name());
    for name in replaced
        .chain([EliminateCrossJoin::new().name()])
        .chain(functional_dependencies::ASKS)
        .chain(leaf_projections::READS_FIELDS)
    {
        assert!(logical.iter().any(|rule| rule.name() == name), "{name}");
    }
}

struct ThreeWorkers;

impl WorkerResolver for ThreeWorkers {
    fn get_urls(&self) -> std::result::Result<Vec<Url>, DataFusionError> {
        let urls = (1..=3).map(|port| Url::parse(&format!("http://127.0.0.1:{port}/")));
        Ok(urls.map(|url| url.expect("a URL")).collect())
    }
}

/// A session that would spread a table of 30,000 rows over three workers, with the planner's limits or without.
async fn session(limits: bool) -> (SessionContext, ClusterPlanner, NamedTempFile) {
    let config = SessionConfig::new().with_target_partitions(2);
    let mut builder = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_physical_optimizer_rule(order_across_shuffles())
        .with_distributed_worker_resolver(ThreeWorkers)
        .with_distributed_planner()
        .with_distributed_file_scan_config_bytes_per_partition(1024)
        .expect("a setting");
    if limits {
        builder = builder.with_distributed_desired_task_count_handler(desired_task_count);
    }
    let planner = ClusterPlanner::around(&mut builder, Extensions::default()).expect("a planner");
    let context = SessionContext::from(builder.build());
    let mut file = tempfile::Builder::new()
        .suffix(".csv")
        .tempfile()
        .expect("a file");
    let rows: String = (0..30_000).map(|id| format!("{id},{}\n", id % 7)).collect();
    write!(file, "id,g\n{rows}").expect("writes");
    let path = file.path().to_str().expect("UTF-8");
    context
        .register_csv("t", path, CsvReadOptions::default())
        .await
        .expect("a table");
    (context, planner, file)
}

async fn logical(context: &SessionContext, sql: &str) -> (LogicalPlan, SessionState) {
    let state = context.state();
    let plan = state.create_logical_plan(sql).await.expect("SQL");
    (state.optimize(&plan).expect("optimizes"), state)
}

async fn in_stages(
    (context, planner): (&SessionContext, &ClusterPlanner),
    sql: &str,
) -> Result<Arc<dyn ExecutionPlan>> {
    let (plan, state) = logical(context, sql).await;
    planner.in_stages(&plan, &state).await
}

const ONE_TASK: [&str; 6] = [
    "SELECT sqrt(id) FROM t LIMIT 1",
    "SELECT count(*) FROM (SELECT id + 1 FROM t LIMIT 10)",
    "SELECT count(*) FROM (SELECT id + 1 FROM t LIMIT 9 OFFSET 20000)",
    "SELECT max(rn) FROM (SELECT row_number() OVER (ORDER BY id) rn FROM t)",
    "SELECT DISTINCT sum(id) OVER () FROM t",
    "SELECT g, count(*) FROM (SELECT * FROM t LIMIT 10) GROUP BY g",
];

#[tokio::test]
async fn the_check_refuses_what_would_answer_once_per_task() {
    let (context, planner, _file) = session(false).await;
    for sql in ONE_TASK {
        let refused = in_stages((&context, &planner), sql).await;
        let why = refused.err().unwrap_or_else(|| panic!("{sql} is planned"));
        assert!(why.to_string().contains("several tasks"), "{sql}: {why}");
        // It is planned all the same, for one task.
        let (plan, state) = logical(&context, sql).await;
        let planned = planner.plan(&plan, &state).await.expect(sql);
        assert!(planned.why_one_task.is_some(), "{sql}");
    }
}

#[tokio::test]
async fn limits_leave_nothing_for_the_check_to_refuse() {
    let (context, planner, _file) = session(true).await;
    for sql in ONE_TASK {
        in_stages((&context, &planner), sql).await.expect(sql);
    }
    // Stages that may be spread are.
    for sql in [
        "SELECT g, count(*) FROM t GROUP BY g",
        "SELECT count(*) FROM t a JOIN t b ON a.id = b.g",
        "SELECT g, row_number() OVER (PARTITION BY g ORDER BY id) FROM t",
    ] {
        let plan = in_stages((&context, &planner), sql).await.expect(sql);
        assert!(plan.is::<DistributedExec>(), "{sql}");
    }
}

#[tokio::test]
async fn functions_that_workers_lack_run_in_one_task() {
    let (context, planner, _file) = session(true).await;
    context.register_udf(create_udf(
        "twice",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        Arc::new(|arguments| {
            let numbers = ColumnarValue::values_to_arrays(arguments)?;
            let numbers = numbers[0].as_any().downcast_ref::<Int64Array>();
            let twice: Int64Array = numbers.expect("numbers").unary(|number| number * 2);
            Ok(ColumnarValue::Array(Arc::new(twice)))
        }),
    ));
    let sql = "SELECT twice(g), count(*) FROM t GROUP BY twice(g)";
    let (plan, state) = logical(&context, sql).await;
    let planned = planner.plan(&plan, &state).await.expect("a plan");
    let why = planned.why_one_task.expect("one task").to_string();
    assert!(why.contains("twice"), "{why}");
    let rows = datafusion::physical_plan::collect(planned.plan, context.task_ctx());
    let rows = rows.await.expect("runs");
    assert_eq!(rows.iter().map(|batch| batch.num_rows()).sum::<usize>(), 7);
}

#[tokio::test]
async fn recursive_terms_read_no_stream() {
    let (context, planner, _file) = session(true).await;
    let sql = "WITH RECURSIVE r(n) AS (SELECT min(id) FROM t UNION ALL \
               SELECT t.id FROM r JOIN t ON t.id = n + 1 WHERE n < 5) SELECT count(*) FROM r";
    let (plan, state) = logical(&context, sql).await;
    let planned = planner.plan(&plan, &state).await.expect("a plan");
    let rows = datafusion::physical_plan::collect(planned.plan, context.task_ctx());
    let rows = rows.await.expect("runs");
    let count = rows[0].column(0).as_any().downcast_ref::<Int64Array>();
    assert_eq!(count.expect("a count").value(0), 6);
}

#[tokio::test]
async fn windows_do_not_travel_backwards() {
    let (context, planner, _file) = session(true).await;
    let sql = "SELECT id, lead(id) OVER (PARTITION BY g ORDER BY id DESC) a, \
               lag(id) OVER (PARTITION BY g ORDER BY id) b FROM t";
    let plan = in_stages((&context, &planner), sql).await.expect("a plan");
    let shown = format!("{plan:?}");
    assert!(shown.contains("is_reversed: false"), "{shown}");
    assert!(!shown.contains("is_reversed: true"), "{shown}");
}

#[tokio::test]
async fn what_a_window_would_lose_keeps_it_in_one_task() {
    let (context, planner, _file) = session(true).await;
    for sql in [
        "SELECT count(*) FILTER (WHERE id > 5) OVER (PARTITION BY g) FROM t",
        "SELECT sum(id) FILTER (WHERE id > 5) OVER (PARTITION BY g ORDER BY id ROWS 3 PRECEDING) FROM t",
        "SELECT first_value(id) IGNORE NULLS OVER (PARTITION BY g ORDER BY id) FROM t",
        "SELECT lag(id) IGNORE NULLS OVER (PARTITION BY g ORDER BY id) FROM t",
    ] {
        let (plan, state) = logical(&context, sql).await;
        let planned = planner.plan(&plan, &state).await.expect("a plan");
        assert!(planned.why_one_task.is_some(), "{sql}");
    }
    for sql in [
        "SELECT count(id) OVER (PARTITION BY g) FROM t",
        "SELECT sum(id) OVER (PARTITION BY g ORDER BY id ROWS 3 PRECEDING) FROM t",
        "SELECT first_value(id) OVER (PARTITION BY g ORDER BY id) FROM t",
    ] {
        let plan = in_stages((&context, &planner), sql).await.expect(sql);
        assert!(plan.is::<DistributedExec>(), "{sql}");
    }
}

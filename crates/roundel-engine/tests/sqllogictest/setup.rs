//! Sessions as the suite expects them: its settings, functions and tables in a session over a cluster.
//!
//! What the suite registers for some of its files lives in the coordinator alone.

use std::panic::AssertUnwindSafe;
use std::path::Path;

use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::registry::FunctionRegistry as _;
use datafusion::prelude::SessionContext;
use datafusion_distributed::DistributedExt as _;
use datafusion_sqllogictest::{TestContext, is_spark_path};
use futures::FutureExt as _;
use roundel_engine::Session;

/// Partitions of a plan, as the suite has it.
const PARTITIONS: usize = 4;

/// The file whose tables are URLs.
const URL_TABLES: &str = "dynamic_file.slt";

/// What the suite itself runs a file with; `None` where it lacks something, such as data that the package does not ship.
pub async fn suite_context(file: &Path) -> Option<TestContext> {
    let made = AssertUnwindSafe(TestContext::try_new_for_test_file(file)).catch_unwind();
    made.await.ok().flatten()
}

/// Has a session be as the suite's own for a file, as long as what is returned lives.
pub async fn adopt(
    session: &Session,
    suite: &SessionContext,
    file: &Path,
) -> Result<Option<SessionContext>> {
    let ours = session.context();
    let theirs = suite.state();
    if is_spark_path(file) || file.ends_with("cast_extension_type_metadata.slt") {
        // Functions and types of its own.
        let planners = theirs.expr_planners().to_vec();
        let types = SessionStateBuilder::new_from_existing(theirs.clone())
            .type_planner()
            .clone();
        let mut builder =
            SessionStateBuilder::new_from_existing(ours.state()).with_expr_planners(planners);
        if let Some(types) = types {
            builder = builder.with_type_planner(types);
        }
        *ours.state_ref().write() = builder.build();
    }
    let mut urls = None;
    if file.ends_with(URL_TABLES) {
        let with_urls = ours.clone().enable_url_table();
        *ours.state_ref().write() = with_urls.state();
        urls = Some(with_urls);
    }
    let shared = ours.state_ref();
    {
        let mut state = shared.write();
        let options = state.config_mut().options_mut();
        let dialect = theirs.config_options().sql_parser.dialect;
        options.sql_parser.dialect = dialect;
        options.execution.target_partitions = PARTITIONS;
        options.catalog.information_schema = false;
        // Its files are so small that they would be read by one task.
        state.set_distributed_file_scan_config_bytes_per_partition(1)?;
        for (name, function) in theirs.scalar_functions() {
            if state.scalar_functions().get(name) != Some(function) {
                state.register_udf(function.clone())?;
            }
        }
        for (name, function) in theirs.aggregate_functions() {
            if state.aggregate_functions().get(name) != Some(function) {
                state.register_udaf(function.clone())?;
            }
        }
        for (name, function) in theirs.window_functions() {
            if state.window_functions().get(name) != Some(function) {
                state.register_udwf(function.clone())?;
            }
        }
    }
    tables(ours, suite).await?;
    Ok(urls)
}

async fn tables(ours: &SessionContext, suite: &SessionContext) -> Result<()> {
    for name in suite.catalog_names() {
        let catalog = suite.catalog(&name).expect("it was listed");
        let Some(own) = ours.catalog(&name) else {
            ours.register_catalog(name, catalog);
            continue;
        };
        for schema_name in catalog.schema_names() {
            let schema = catalog.schema(&schema_name).expect("it was listed");
            let Some(own) = own.schema(&schema_name) else {
                own.register_schema(&schema_name, schema)?;
                continue;
            };
            for table_name in schema.table_names() {
                if let Some(table) = schema.table(&table_name).await? {
                    own.register_table(table_name, table)?;
                }
            }
        }
    }
    Ok(())
}

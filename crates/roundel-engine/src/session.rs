//! A SQL session over a cluster.

use futures::future::BoxFuture;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
use datafusion_distributed::{
    DistributedExec, DistributedExt as _, SessionStateBuilderExt as _, display_plan_ascii,
};
use futures::{FutureExt as _, StreamExt as _, TryFutureExt as _, TryStreamExt as _};
use parking_lot::Mutex;

use crate::cluster::Core;
use crate::membership::LiveWorkers;
use crate::planner::{self, ClusterPlanner, Planned, RunSubquery, placement, with_values};
use crate::query::{Run, Watch, restarting, watched};
use crate::ring::{is_on_ring, measure_once};
use crate::settings::{self, ExchangeConfig, may_use_rings};
use crate::tables::memory_shard::needs_shards;
use crate::tables::{files, scan};
use crate::time_spent::TimeSpent;
use crate::tpch::TpchLayout;
use crate::{EngineError, Fabric, FabricReason, Result, tpch};

/// Bytes of a file that are worth a partition of a task. Small, so that all but tiny tables are
/// read by all workers, as memory tables are.
const FILE_BYTES_PER_PARTITION: usize = 64 << 10;

/// Hears how far loading or generating tables has come.
pub trait LoadProgress: Send + Sync {
    /// `rows_done` of `rows_total` rows of `table` are there. The total can be an estimate until
    /// the last call, in which both are equal.
    fn advance(&self, table: &str, rows_done: u64, rows_total: u64);
}

impl LoadProgress for () {
    fn advance(&self, _table: &str, _rows_done: u64, _rows_total: u64) {}
}

/// A SQL session over a cluster, with its own tables and settings.
pub struct Session {
    core: Arc<Core>,
    context: SessionContext,
    planner: ClusterPlanner,
    /// What carries its rows, when that is not the cluster's to choose.
    fixed: Option<Fabric>,
    /// The fabric that the context is set for.
    fabric: Mutex<Fabric>,
}

impl Session {
    pub(crate) fn new(core: Arc<Core>, fixed: Option<Fabric>) -> Result<Self> {
        let fabric = fixed.unwrap_or_else(|| core.fabrics.current().fabric);
        let mut config = SessionConfig::new()
            .with_target_partitions(core.options.partitions_per_task())
            .with_information_schema(true)
            .with_extension(Arc::clone(&core.catalog))
            .with_extension(Arc::new(files::Notices::default()));
        settings::keep_right(config.options_mut());
        let rings = planner::cyclo_joins(Arc::clone(&core.membership));
        let rules = planner::physical_rules(rings, Arc::clone(&core.runtime))?;
        let mut state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(config)
            .with_runtime_env(Arc::clone(&core.runtime))
            .with_analyzer_rules(planner::analyzer_rules())
            .with_optimizer_rules(planner::logical_rules())
            .with_relation_planners(vec![Arc::new(planner::TrulyDeterminedRelations)])
            .with_physical_optimizer_rules(rules)
            .with_distributed_worker_resolver(LiveWorkers(Arc::clone(&core.membership)))
            .with_distributed_channel_resolver(core.exchange.resolver_over(fabric)?)
            .with_distributed_planner()
            // The first that answers decides: no other may spread a stage that the planner limits.
            .with_distributed_desired_task_count_handler(planner::desired_task_count)
            .with_distributed_desired_task_count_handler(placement::desired_task_count)
            .with_distributed_desired_task_count_handler(scan::desired_task_count)
            .with_distributed_scale_up_leaf_node_handler(placement::scale_up_leaf)
            .with_distributed_scale_up_leaf_node_handler(scan::scale_up_leaf)
            .with_distributed_route_tasks_handler(placement::route_tasks)
            .with_distributed_compression(None)?
            // An isolated child of a union would get fewer tasks than its table has shards.
            .with_distributed_children_isolator_unions(false)?
            .with_distributed_file_scan_config_bytes_per_partition(FILE_BYTES_PER_PARTITION)?;
        core.options.extensions.add_all_codecs(&mut state);
        let planner = ClusterPlanner::around(&mut state, core.options.extensions.clone())?;
        let mut state = state.build();
        let own = ExchangeConfig::new(fabric, core.options.skew);
        settings::begin(state.config_mut(), own);
        core.options.extensions.add_functions(&mut state)?;
        let context = SessionContext::from(state);
        files::install(&context);
        Ok(Self {
            core,
            context,
            planner,
            fixed,
            fabric: Mutex::new(fabric),
        })
    }

    /// What carries the rows of the next query, and why; the context is set for it.
    fn next_fabric(&self) -> Result<FabricReason> {
        let reason = match self.fixed {
            Some(fabric) => FabricReason {
                fabric,
                why: "asked for".to_owned(),
            },
            None => self.core.fabrics.current(),
        };
        let mut set = self.fabric.lock();
        if *set != reason.fabric {
            let resolver = self.core.exchange.resolver_over(reason.fabric)?;
            let state = self.context.state_ref();
            let mut state = state.write();
            state.set_distributed_channel_resolver(resolver);
            settings::set_fabric(state.config_mut(), reason.fabric);
            *set = reason.fabric;
        }
        tracing::debug!(fabric = %reason, "query");
        Ok(reason)
    }

    /// Workers of the cluster that do not answer at present, each with the reason: queries run without them.
    pub fn missing_workers(&self) -> Vec<EngineError> {
        self.core.membership.missing()
    }

    /// Workers of the cluster, whether they answer or not.
    pub fn worker_count(&self) -> usize {
        self.core.membership.urls().len()
    }

    /// DataFusion's session context, to plan with or to register more tables in.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Registers a file, a directory of files, or those that a pattern matches, as a table: Parquet, CSV,
    /// TSV, JSON, Arrow IPC or Avro. The workers read it by the same path.
    pub fn register_file<'a>(&'a self, name: &'a str, path: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { files::register(&self.context, name, path).await })
    }

    /// What was guessed of tables of files since the last call, each a line for a person.
    pub fn take_notices(&self) -> Vec<String> {
        files::Notices::take(&self.context.copied_config())
    }

    /// Has every worker generate its shards of the TPC-H tables, in memory, and hold them while
    /// any session uses them. Sessions of a cluster share the tables of one scale and layout.
    pub fn load_tpch_memory<'a>(
        &'a self,
        scale: f64,
        layout: TpchLayout,
        progress: &'a dyn LoadProgress,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let tables = self.core.tables.load(scale, layout, progress).await?;
            tables.register(&self.context)
        })
    }

    /// Registers the TPC-H tables in a directory's Parquet files, which are generated first when
    /// the directory is empty or absent. A directory of another scale is refused.
    pub fn register_tpch_files<'a>(
        &'a self,
        dir: &'a Path,
        scale: f64,
        progress: &'a dyn LoadProgress,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            tpch::files::provide(dir, scale, progress).await?;
            tpch::files::register(&self.context, dir).await
        })
    }

    /// Plans and starts one SQL statement. Errors of the stream convert to
    /// [`crate::EngineError`], which names the worker that failed. Dropping the stream cancels
    /// the query on all workers.
    pub fn sql<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<SendableRecordBatchStream>> {
        Box::pin(async move {
            planner::check_length(sql)?;
            let fabric = self.next_fabric()?;
            settings::ship(&self.context)?;
            // The time of `now()` is that of the statement, also in its subqueries.
            let state = self.context.state();
            let subqueries = Subqueries {
                session: self,
                state: &state,
                fabric: fabric.fabric,
            };
            let dialect = state.config_options().sql_parser.dialect;
            let mut statement = state.sql_to_statement(&files::with_format(sql), &dialect)?;
            planner::check_clauses(&mut statement)?;
            planner::give_null_treatment(&mut statement, &|name, over| {
                let aggregate = state.aggregate_functions().get(name);
                match over {
                    true if state.window_functions().contains_key(name) => Some(true),
                    true => aggregate.map(|_| true),
                    false => aggregate.map(|f| f.supports_null_handling_clause()),
                }
            })?;
            let lower = state.config_options().sql_parser.enable_ident_normalization;
            let marked = planner::mark_names(&mut statement, lower);
            let mut plan = state.statement_to_plan(statement).await?;
            if marked {
                plan = planner::by_names(plan)?;
            }
            planner::check_depth(&plan)?;
            planner::check_outer_references(&plan)?;
            let plan = settings::checked(plan, &state)?;
            let plan = files::with_default_partition(plan, &state)?;
            let plan = planner::without_unique(plan);
            // A definition keeps its subqueries, which run when it is used.
            let plan = match plan {
                LogicalPlan::Statement(_) | LogicalPlan::Ddl(DdlStatement::CreateView(_)) => plan,
                plan => with_values(plan, &subqueries).await?,
            };
            let frame = self.context.execute_logical_plan(plan).await?;
            // Those of a prepared statement.
            let plan = with_values(frame.into_unoptimized_plan(), &subqueries).await?;
            let frame = DataFrame::new(state.clone(), plan);
            // A plan with measures shows its stages by itself.
            let (explained, stages) = match frame.logical_plan() {
                LogicalPlan::Explain(explain) => (Some(Arc::clone(&explain.plan)), true),
                LogicalPlan::Analyze(analyze) => (Some(Arc::clone(&analyze.input)), false),
                _ => (None, false),
            };
            let batches = self.run(frame, fabric.fabric).await?;
            Ok(match explained {
                Some(plan) => {
                    let rows = self.explanation(&plan, &fabric, stages).await?;
                    explain(batches, rows)?
                }
                None => batches,
            })
        })
    }

    /// What EXPLAIN says besides DataFusion's plans: the stages, and what carries their rows, and why.
    async fn explanation(
        &self,
        plan: &LogicalPlan,
        fabric: &FabricReason,
        stages: bool,
    ) -> Result<Vec<(&'static str, String)>> {
        let mut rows = Vec::new();
        let state = self.context.state();
        // DataFusion's rows tell of a statement that has no physical plan.
        let planned = match state.optimize(plan) {
            Ok(optimized) if reads_only(plan) => self.planner.plan(&optimized, &state).await.ok(),
            _ => None,
        };
        let Some(Planned { plan, why_one_task }) = planned else {
            return Ok(rows);
        };
        if let Some(why) = why_one_task {
            rows.push(("One task", why.strip_backtrace()));
        }
        if stages && plan.is::<DistributedExec>() {
            rows.push(("Stages", display_plan_ascii(plan.as_ref(), false)));
        }
        // A reason a line: all of them in one would make every row as wide.
        rows.push(("Fabric", fabric.to_string().replace("; ", ";\n")));
        let designs = self
            .core
            .designs(&plan, fabric.fabric, state.config_options())?;
        let designs = designs.map(|designs| ("Exchanges", designs.to_string()));
        rows.extend(designs.filter(|(_, stages)| !stages.is_empty()));
        Ok(rows)
    }

    /// Plans and starts a statement, and again, should it only read, when it is broken off before its first row.
    async fn run(&self, frame: DataFrame, fabric: Fabric) -> Result<SendableRecordBatchStream> {
        let plan = frame.logical_plan();
        let rings = may_use_rings(self.context.copied_config().options())?;
        if rings && has_joins(plan)? {
            measure_once(fabric, self.core.exchange.devices()).await;
        }
        let reads = reads_only(plan);
        let runs = (Arc::clone(&self.core), fabric);
        let run = start(frame.clone(), runs.clone()).await?;
        if !reads {
            return Ok(run.batches);
        }
        let core = Arc::clone(&self.core);
        let health = move |broken: Option<&EngineError>| match broken {
            Some(error) => core.fabrics.failed(fabric, error),
            None => core.fabrics.succeeded(fabric),
        };
        let again = move || start(frame.clone(), runs.clone()).boxed();
        Ok(restarting(run, health, again))
    }
}

/// Runs a statement's subqueries as queries of their own.
struct Subqueries<'a> {
    session: &'a Session,
    state: &'a SessionState,
    fabric: Fabric,
}

impl RunSubquery for Subqueries<'_> {
    fn run(&self, plan: LogicalPlan) -> BoxFuture<'_, DataFusionResult<Vec<ScalarValue>>> {
        Box::pin(async move {
            let two = DataFrame::new(self.state.clone(), plan).limit(0, Some(2))?;
            let run = self.session.run(two, self.fabric);
            let batches: Vec<RecordBatch> = run.await?.try_collect().await?;
            let columns = batches.iter().map(|batch| batch.column(0));
            let values = columns.flat_map(|column| {
                (0..column.len()).map(move |row| ScalarValue::try_from_array(column, row))
            });
            values.collect()
        })
    }
}

/// Whether a statement may have joins, which a subquery becomes too.
fn has_joins(plan: &LogicalPlan) -> DataFusionResult<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::Join(_) | LogicalPlan::Subquery(_));
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// The rows of EXPLAIN, and more.
fn explain(
    batches: SendableRecordBatchStream,
    rows: Vec<(&'static str, String)>,
) -> DataFusionResult<SendableRecordBatchStream> {
    let schema = batches.schema();
    let rows = texts(&schema, rows)?;
    let batches = batches.chain(futures::stream::once(async { Ok(rows) }));
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
}

/// Rows as EXPLAIN has them: two columns of text, whatever form it was asked for in.
fn texts(schema: &SchemaRef, rows: Vec<(&str, String)>) -> DataFusionResult<RecordBatch> {
    let (names, texts): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(names)),
        Arc::new(StringArray::from(texts)),
    ];
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// The rows of EXPLAIN ANALYZE, after where the time of `plan` went.
fn with_time_spent(
    batches: SendableRecordBatchStream,
    plan: Arc<dyn ExecutionPlan>,
    verbose: bool,
) -> SendableRecordBatchStream {
    let schema = batches.schema();
    let (begun, like) = (Instant::now(), Arc::clone(&schema));
    let told = async move {
        let explained: Vec<_> = batches.try_collect().await?;
        let spent = TimeSpent::of(&plan, begun.elapsed()).await?;
        let first = spent.iter().map(|spent| ("Time", spent.summary()));
        let first = texts(&like, first.collect())?;
        let all = spent.iter().filter(|_| verbose);
        let all = all.map(|spent| ("Time in full", format!("{:#}", spent.to_json())));
        let all = texts(&like, all.collect())?;
        let batches = std::iter::once(first).chain(explained).chain([all]);
        Ok(futures::stream::iter(batches.map(Ok)))
    };
    Box::pin(RecordBatchStreamAdapter::new(
        schema,
        told.try_flatten_stream(),
    ))
}

/// Plans a statement for the workers that live, says how the rows of each of its stages are exchanged, and starts it.
async fn start(frame: DataFrame, (core, fabric): (Arc<Core>, Fabric)) -> DataFusionResult<Run> {
    let workers = core.membership.live();
    let mut tasks = frame.task_ctx();
    let analyzes = match frame.logical_plan() {
        LogicalPlan::Analyze(analyze) => Some(analyze.verbose),
        _ => None,
    };
    let plan = frame.create_physical_plan().await?;
    if let Some(designs) = core.designs(&plan, fabric, tasks.session_config().options())? {
        let config = tasks.session_config().clone();
        let config = config.with_extension(Arc::new(designs.settings()));
        tasks = tasks.with_session_config(config);
    }
    let outlives_workers = is_on_ring(&plan)? && !needs_shards(&plan)?;
    let watch = Watch {
        membership: Arc::clone(&core.membership),
        workers,
        channels: core.exchange.channels().clone(),
        query: planner::query_id(&plan)?,
    };
    let analyzed = plan.children().first().copied().map(Arc::clone);
    let mut batches = execute_stream(plan, Arc::new(tasks))?;
    if let Some((verbose, plan)) = analyzes.zip(analyzed) {
        batches = with_time_spent(batches, plan, verbose);
    }
    let noticed = watch.clone();
    Ok(Run {
        batches: watched(batches, watch),
        outlives_workers,
        loss_noticed: async move { drop(noticed.lost().await) }.boxed(),
    })
}

/// Whether a statement may be run twice without anybody noticing.
fn reads_only(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Dml(_)
        | LogicalPlan::Ddl(_)
        | LogicalPlan::Copy(_)
        | LogicalPlan::Statement(_) => false,
        LogicalPlan::Analyze(analyze) => reads_only(&analyze.input),
        _ => true,
    }
}

//! What the suite talks to: DataFusion in this process, or a session over a cluster.
//!
//! This module must not know what a statement is expected to give.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::tree_node::TreeNode as _;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use datafusion_distributed::NetworkBoundaryExt as _;
use datafusion_sqllogictest::{
    DFColumnType, DFOutput, convert_batches, convert_schema_to_types, is_spark_path,
};
use futures::TryStreamExt as _;
use parking_lot::Mutex;
use roundel_engine::{EngineError, Session};
use sqllogictest::{AsyncDB, DBOutput};
use tokio_util::task::AbortOnDropHandle;

use crate::order::{self, Order};
use crate::shards::Shards;

/// A statement that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a statement failed, as DataFusion's own runner tells it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failed(String);

impl Failed {
    fn new(error: impl std::fmt::Display) -> Self {
        Self(format!("DataFusion error: {error}"))
    }
}

/// What was seen of the last statement besides its rows.
#[derive(Debug, Default, Clone, Copy)]
pub struct Seen {
    pub hung: bool,
    pub panicked: bool,
    /// Whether other processes had a part in it.
    pub distributed: bool,
    /// Whether its rows came in the order that it asks for.
    pub order: Order,
}

/// What runs the statements.
#[derive(Clone)]
pub enum Engine {
    /// DataFusion in this process.
    One(SessionContext),
    /// A session over worker processes.
    Cluster(Arc<Session>),
}

impl Engine {
    /// Where its tables and settings are.
    pub fn context(&self) -> &SessionContext {
        match self {
            Self::One(context) => context,
            Self::Cluster(session) => session.context(),
        }
    }
}

/// One database of the suite.
pub struct Db {
    engine: Engine,
    /// Keeps its memory tables in files, if it is to.
    shards: Option<Shards>,
    spark: bool,
    seen: Arc<Mutex<Seen>>,
}

impl Db {
    /// For a file's statements. `seen` tells of each of them, until the next.
    pub fn new(
        engine: Engine,
        shards: Option<Shards>,
        file: &Path,
        seen: Arc<Mutex<Seen>>,
    ) -> Self {
        Self {
            engine,
            shards,
            spark: is_spark_path(file),
            seen,
        }
    }

    /// The rows of a stream, as text.
    fn output(&self, schema: &SchemaRef, batches: Vec<RecordBatch>) -> Result<DFOutput, Failed> {
        let types = convert_schema_to_types(schema.fields());
        let rows = convert_batches(schema, batches, self.spark);
        let rows = rows.map_err(|error| Failed(error.to_string()))?;
        Ok(match rows.is_empty() && types.is_empty() {
            true => DBOutput::StatementComplete(0),
            false => DBOutput::Rows { types, rows },
        })
    }

    /// Runs what may hang or panic.
    async fn guarded<T: Send + 'static>(
        &self,
        run: impl Future<Output = Result<T, Failed>> + Send + 'static,
    ) -> Result<T, Failed> {
        let task = AbortOnDropHandle::new(tokio::spawn(run));
        match tokio::time::timeout(PATIENCE, task).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => {
                self.seen.lock().panicked = true;
                Err(Failed(format!("panicked: {panic}")))
            }
            Err(_) => {
                self.seen.lock().hung = true;
                Err(Failed(format!("hangs: no end after {PATIENCE:?}")))
            }
        }
    }
}

#[async_trait]
impl AsyncDB for Db {
    type Error = Failed;
    type ColumnType = DFColumnType;

    async fn run(&mut self, sql: &str) -> Result<DFOutput, Failed> {
        *self.seen.lock() = Seen::default();
        let context = self.engine.context().clone();
        // A baseline that is not looked at closer needs no second plan.
        let plan = match &self.shards {
            Some(_) => context.state().create_logical_plan(sql).await.ok(),
            None => None,
        };
        if let Some(shards) = &mut self.shards {
            shards.before(&context, plan.as_ref());
        }
        let run = run(
            self.engine.clone(),
            sql.to_owned(),
            plan.clone(),
            Arc::clone(&self.seen),
        );
        let result = self.guarded(run).await;
        if let Some(shards) = &mut self.shards {
            shards.after(&context, plan.as_ref()).await;
        }
        let (schema, batches) = result?;
        self.output(&schema, batches)
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "DataFusion"
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

type Rows = (SchemaRef, Vec<RecordBatch>);

async fn run(
    engine: Engine,
    sql: String,
    plan: Option<LogicalPlan>,
    seen: Arc<Mutex<Seen>>,
) -> Result<Rows, Failed> {
    let (schema, batches) = match &engine {
        Engine::One(context) => {
            let started = async { context.sql(&sql).await?.execute_stream().await };
            let all = async { collected(started.await?).await };
            all.await
                .map_err(|error| Failed::new(error.strip_backtrace()))
        }
        Engine::Cluster(session) => {
            let stream = session.sql(&sql).await.map_err(Failed::new)?;
            let all = collected(stream).await;
            all.map_err(|error| Failed::new(EngineError::from(error)))
        }
    }?;
    if let Some(plan) = plan.filter(is_query) {
        let state = engine.context().state();
        let distributed = is_distributed(&state, &plan).await;
        let order = order::of(&plan, &state, &batches);
        let mut seen = seen.lock();
        (seen.distributed, seen.order) = (distributed, order);
    }
    Ok((schema, batches))
}

async fn collected(stream: SendableRecordBatchStream) -> datafusion::error::Result<Rows> {
    let schema = stream.schema();
    Ok((schema, stream.try_collect().await?))
}

/// Whether a statement only reads, and is no question about plans.
fn is_query(plan: &LogicalPlan) -> bool {
    !matches!(
        plan,
        LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::Statement(_)
            | LogicalPlan::DescribeTable(_)
    )
}

async fn is_distributed(state: &SessionState, plan: &LogicalPlan) -> bool {
    let plan: Result<Arc<dyn ExecutionPlan>, _> = state.create_physical_plan(plan).await;
    let found = plan.and_then(|plan| plan.exists(|node| Ok(node.is_network_boundary())));
    found.unwrap_or(false)
}

//! Has the workers load the TPC-H tables into memory, and keeps them there while they are used.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use futures::future::try_join_all;
use parking_lot::Mutex;
use roundel_datafusion::Channels;
use roundel_datafusion::engine::status_error;
use tonic::Streaming;
use url::Url;
use uuid::Uuid;

use super::TpchLayout;
use super::generate::{KEY_COLUMN, Table, check_scale, generate};
use crate::membership::Membership;
use crate::protocol::control::control_client::ControlClient;
use crate::protocol::control::{ColumnStats, LoadReport, LoadRequest, TableRows};
use crate::tables::catalog::{ShardCatalog, ShardKey};
use crate::tables::memory_shard::{MemoryShardExec, Placement, SHARDS_MIN, Scan};
use crate::{EngineError, LoadProgress, PARTITIONS_PER_TASK_MIN, Result};

/// The TPC-H tables that the workers of a cluster hold for its sessions.
pub(crate) struct TpchTables {
    channels: Channels,
    membership: Arc<Membership>,
    /// Replicated tables, for the parts of plans that run in the coordinator.
    catalog: Arc<ShardCatalog>,
    partitions_per_task: usize,
    /// By the bits of their scale, and how they are dealt.
    loaded: Mutex<HashMap<(u64, TpchLayout), Weak<TableSet>>>,
}

/// TPC-H tables in the memory of a cluster's workers, for as long as this exists.
pub(crate) struct TableSet {
    name: String,
    /// The workers of the shards, in the shards' order, and their incarnations at loading.
    workers: Vec<(Url, String)>,
    tables: HashMap<Table, TableRows>,
    /// Partitions of each shard, where rows are dealt by the hash of a key; else 0.
    key_partitions: usize,
    catalog: Arc<ShardCatalog>,
    membership: Arc<Membership>,
    /// Open for as long as the workers are to hold the shards.
    _leases: Vec<Streaming<LoadReport>>,
}

impl fmt::Debug for TableSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableSet({})", self.name)
    }
}

impl Drop for TableSet {
    fn drop(&mut self) {
        self.catalog.remove_set(&self.name);
    }
}

impl TpchTables {
    pub(crate) fn new(
        channels: Channels,
        membership: Arc<Membership>,
        catalog: Arc<ShardCatalog>,
        partitions_per_task: usize,
    ) -> Self {
        Self {
            channels,
            membership,
            catalog,
            partitions_per_task,
            loaded: Mutex::default(),
        }
    }

    /// The tables at `scale`: those that another session uses already, or else new ones.
    pub(crate) async fn load(
        &self,
        scale: f64,
        layout: TpchLayout,
        progress: &dyn LoadProgress,
    ) -> Result<Arc<TableSet>> {
        check_scale(scale)?;
        let wanted = (scale.to_bits(), layout);
        let shared = self.loaded.lock().get(&wanted).cloned();
        if let Some(tables) = shared.and_then(|tables| tables.upgrade())
            && tables.check().is_ok()
        {
            tables.report(progress);
            return Ok(tables);
        }
        let tables = Arc::new(self.generate(scale, layout, progress).await?);
        tables.report(progress);
        let mut shared = self.loaded.lock();
        shared.retain(|_, tables| tables.strong_count() > 0);
        shared.insert(wanted, Arc::downgrade(&tables));
        Ok(tables)
    }

    async fn generate(
        &self,
        scale: f64,
        layout: TpchLayout,
        progress: &dyn LoadProgress,
    ) -> Result<TableSet> {
        let live = self.membership.live();
        if live.is_empty() {
            return Err(EngineError::WorkerLost {
                url: "any".to_owned(),
                reason: "no worker of the cluster answers".to_owned(),
            });
        }
        let shard_count = live.len().max(SHARDS_MIN);
        let workers: Vec<_> = live.iter().cloned().cycle().take(shard_count).collect();
        let name = Uuid::new_v4().to_string();
        let key_partitions = match layout {
            TpchLayout::Random => 0,
            TpchLayout::CoPartitioned => self.partitions_per_task,
        };
        let total = Totals::new(scale, live.len(), progress);
        let loads = live.iter().enumerate().map(|(worker, (url, _))| {
            let shards = (worker..shard_count).step_by(live.len());
            let request = LoadRequest {
                table_set: name.clone(),
                scale,
                shard_count: shard_count as u32,
                shards: shards.map(|shard| shard as u32).collect(),
                key_partitions: key_partitions as u32,
            };
            load_worker(&self.channels, worker, url, request, &total)
        });
        let loaded = tokio::select! {
            biased;
            loaded = try_join_all(loads) => loaded?,
            // Of a process that hangs, the connection does not break.
            lost = self.membership.lost(&live) => return Err(lost),
        };
        let (leases, reports): (Vec<_>, Vec<_>) = loaded.into_iter().unzip();

        for table in Table::ALL.into_iter().filter(|table| table.is_replicated()) {
            let batches = generate(table, scale, &[0], 1, &|_| true)?;
            let key = ShardKey {
                table_set: name.clone(),
                table: table.name().to_owned(),
                shard: 0,
                partition: 0,
            };
            self.catalog.insert(key, batches);
        }
        Ok(TableSet {
            name,
            workers,
            tables: sum(&reports),
            key_partitions,
            catalog: Arc::clone(&self.catalog),
            membership: Arc::clone(&self.membership),
            _leases: leases,
        })
    }
}

impl TableSet {
    fn report(&self, progress: &dyn LoadProgress) {
        for (table, rows) in &self.tables {
            progress.advance(table.name(), rows.rows, rows.rows);
        }
    }

    fn check(&self) -> Result<()> {
        self.workers
            .iter()
            .try_for_each(|(url, incarnation)| self.membership.check(url, incarnation))
    }

    /// Checks that every worker still holds its shard of `table`.
    pub(crate) fn check_shards(&self, table: &str) -> Result<()> {
        for (url, incarnation) in &self.workers {
            if self.membership.check(url, incarnation).is_err() {
                return Err(EngineError::ShardLost {
                    table: table.to_owned(),
                    url: url.to_string(),
                });
            }
        }
        Ok(())
    }

    /// The set's name in the catalogs of the workers.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Makes the tables known to a session under their own names. They are held for as long as
    /// the session knows them.
    pub(crate) fn register(self: &Arc<Self>, context: &SessionContext) -> Result<()> {
        let workers: Arc<[Url]> = self.workers.iter().map(|(url, _)| url.clone()).collect();
        if self.key_partitions > 0 {
            // DataFusion 55 makes a union of partitioned inputs an InterleaveExec and later refuses it, because
            // it has dropped the projections that gave their keys one name.
            let state = context.state_ref();
            let mut state = state.write();
            let options = state.config_mut().options_mut();
            options.optimizer.prefer_existing_union = true;
        }
        for (table, rows) in &self.tables {
            let placement = match table.is_replicated() {
                true => Placement::Replicated,
                false => Placement::Sharded {
                    shards: workers.len(),
                    workers: Arc::clone(&workers),
                },
            };
            let dealt_by = (self.key_partitions > 0 && !table.is_replicated())
                .then_some((KEY_COLUMN, self.key_partitions));
            let provider = MemoryShardTable {
                dealt_by,
                tables: Arc::clone(self),
                table: table.name().to_owned(),
                schema: table.schema(),
                placement,
                statistics: statistics(rows),
            };
            context.deregister_table(table.name())?;
            context.register_table(table.name(), Arc::new(provider))?;
        }
        Ok(())
    }
}

/// A memory table whose rows are in the workers.
#[derive(Debug)]
pub(crate) struct MemoryShardTable {
    /// The load that the table belongs to.
    pub(crate) tables: Arc<TableSet>,
    pub(crate) table: String,
    pub(crate) schema: SchemaRef,
    pub(crate) placement: Placement,
    /// The column by whose hash the rows were dealt, if they were, and the partitions of each shard.
    pub(crate) dealt_by: Option<(usize, usize)>,
    pub(crate) statistics: Statistics,
}

#[async_trait]
impl TableProvider for MemoryShardTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.statistics.clone())
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        if matches!(self.placement, Placement::Sharded { .. }) {
            self.tables.check_shards(&self.table)?;
        }
        let columns = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let mut statistics = self.statistics.clone().project(Some(&columns));
        // Of what is read only: the planner compares the sides of a join by it.
        let bytes = statistics.column_statistics.iter().map(|c| c.byte_size);
        statistics.total_byte_size = bytes.fold(Precision::Exact(0), |sum, b| sum.add(&b));
        Ok(Arc::new(MemoryShardExec::new(
            Scan {
                table_set: self.tables.name().to_owned(),
                table: self.table.clone(),
                schema: Arc::new(self.schema.project(&columns)?),
                partitions: match self.dealt_by {
                    Some((_, partitions)) => partitions,
                    None => session
                        .config()
                        .target_partitions()
                        .max(PARTITIONS_PER_TASK_MIN),
                },
                key: self.dealt_by.map(|(key, _)| key),
                statistics,
                columns,
            },
            self.placement.clone(),
        )))
    }
}

/// Has one worker load its shards; returns once they are there.
async fn load_worker(
    channels: &Channels,
    worker: usize,
    url: &Url,
    request: LoadRequest,
    totals: &Totals<'_>,
) -> Result<(Streaming<LoadReport>, LoadReport)> {
    let failed = |status: tonic::Status| match status.code() {
        tonic::Code::Internal | tonic::Code::InvalidArgument => {
            EngineError::Query(format!("worker {url}: {}", status.message()))
        }
        _ => status_error(url, &status).into(),
    };
    let mut client = ControlClient::new(channels.get(url).await?);
    let mut reports = client.load(request).await.map_err(failed)?.into_inner();
    loop {
        let report = reports.message().await.map_err(failed)?;
        let report = report.ok_or_else(|| EngineError::WorkerLost {
            url: url.to_string(),
            reason: "it broke off the load".to_owned(),
        })?;
        totals.advance(worker, &report);
        if report.complete {
            return Ok((reports, report));
        }
    }
}

/// Adds up what the workers report, for the one who watches.
struct Totals<'a> {
    scale: f64,
    progress: &'a dyn LoadProgress,
    /// The last report of each worker.
    reports: Mutex<Vec<LoadReport>>,
}

impl<'a> Totals<'a> {
    fn new(scale: f64, workers: usize, progress: &'a dyn LoadProgress) -> Self {
        Self {
            scale,
            progress,
            reports: Mutex::new(vec![LoadReport::default(); workers]),
        }
    }

    fn advance(&self, worker: usize, report: &LoadReport) {
        let mut reports = self.reports.lock();
        reports[worker] = report.clone();
        for (table, rows) in sum(&reports) {
            let total = table.rows(self.scale).max(rows.rows);
            if rows.rows > 0 {
                self.progress.advance(table.name(), rows.rows, total);
            }
        }
    }
}

/// Rows and bytes of the tables over all workers.
fn sum(reports: &[LoadReport]) -> HashMap<Table, TableRows> {
    let mut tables: HashMap<Table, TableRows> = HashMap::new();
    for rows in reports.iter().flat_map(|report| &report.tables) {
        // A name that is none of TPC-H's is a worker's mistake; it cannot matter here.
        let Some(table) = Table::by_name(&rows.table) else {
            continue;
        };
        let total = tables.entry(table).or_default();
        if table.is_replicated() {
            if total.rows < rows.rows || total.columns.is_empty() {
                *total = rows.clone();
            }
            continue;
        }
        total.rows += rows.rows;
        let columns = table.schema().fields().len();
        total.columns.resize(columns, ColumnStats::default());
        for (sum, column) in total.columns.iter_mut().zip(&rows.columns) {
            sum.add(column);
        }
    }
    tables
}

fn statistics(rows: &TableRows) -> Statistics {
    let bytes: u64 = rows.columns.iter().map(|column| column.bytes).sum();
    Statistics {
        num_rows: Precision::Exact(rows.rows as usize),
        total_byte_size: Precision::Exact(bytes as usize),
        column_statistics: rows
            .columns
            .iter()
            .map(ColumnStats::to_statistics)
            .collect(),
    }
}

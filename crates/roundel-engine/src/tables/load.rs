//! Has the workers load the TPC-H tables into memory, and keeps them there while they are used.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::prelude::SessionContext;
use futures::future::try_join_all;
use parking_lot::Mutex;
use roundel_datafusion::engine::status_error;
use tonic::Streaming;
use url::Url;
use uuid::Uuid;

use super::catalog::{ShardCatalog, ShardKey};
use super::column_stats::ColumnStats;
use super::memory_shard::MemoryShardTable;
use super::placement::{Placement, SHARDS_MIN};
use crate::cluster::Core;
use crate::cluster::membership::Membership;
use crate::control::client::ControlClient;
use crate::control::{LoadReport, LoadRequest, TableRows};
use crate::tpch::TpchLayout;
use crate::tpch::generate::{KEY_COLUMN, Table, check_scale, generate};
use crate::{EngineError, LoadProgress, Result};

/// Loaded tables by the bits of their scale, and how they are dealt.
pub(crate) type SharedTables = HashMap<(u64, TpchLayout), Weak<TableSet>>;

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

impl TableSet {
    /// The tables at `scale`: those that another session uses already, or else new ones.
    pub(crate) async fn load(
        core: &Core,
        scale: f64,
        layout: TpchLayout,
        progress: &dyn LoadProgress,
    ) -> Result<Arc<Self>> {
        check_scale(scale)?;
        let wanted = (scale.to_bits(), layout);
        let shared = core.tables.lock().get(&wanted).cloned();
        if let Some(tables) = shared.and_then(|tables| tables.upgrade())
            && tables.check().is_ok()
        {
            tables.report(progress);
            return Ok(tables);
        }
        let tables = Arc::new(Self::generate(core, scale, layout, progress).await?);
        tables.report(progress);
        let mut shared = core.tables.lock();
        shared.retain(|_, tables| tables.strong_count() > 0);
        shared.insert(wanted, Arc::downgrade(&tables));
        Ok(tables)
    }

    async fn generate(
        core: &Core,
        scale: f64,
        layout: TpchLayout,
        progress: &dyn LoadProgress,
    ) -> Result<Self> {
        let live = core.membership.live();
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
            TpchLayout::CoPartitioned => core.options.partitions_per_task(),
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
            load_worker(core, worker, url, request, &total)
        });
        let (leases, reports): (Vec<_>, Vec<_>) = try_join_all(loads).await?.into_iter().unzip();

        for table in Table::ALL.into_iter().filter(|table| table.is_replicated()) {
            let batches = generate(table, scale, &[0], 1, &|_| true)?;
            let key = ShardKey {
                table_set: name.clone(),
                table: table.name().to_owned(),
                shard: 0,
                partition: 0,
            };
            core.catalog.insert(key, batches);
        }
        Ok(Self {
            name,
            workers,
            tables: sum(&reports),
            key_partitions,
            catalog: Arc::clone(&core.catalog),
            membership: Arc::clone(&core.membership),
            _leases: leases,
        })
    }

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

/// Has one worker load its shards; returns once they are there.
async fn load_worker(
    core: &Core,
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
    let mut client = ControlClient::new(core.exchange.channels().get(url).await?);
    let mut reports = client.load(request).await.map_err(failed)?;
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

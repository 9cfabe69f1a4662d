//! Loads shards of TPC-H tables into a worker's catalog, and holds them for as long as the
//! coordinator keeps the load's stream open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use futures::Stream;
use tokio::task::JoinHandle;
use tonic::Status;

use crate::Result;
use crate::control::{LoadReport, LoadRequest, TableRows};
use crate::tables::catalog::{ShardCatalog, ShardKey};
use crate::tables::column_stats::{ColumnStats, measure};
use crate::tpch::generate::{Table, check_scale, generate};

/// How often a load reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Most shards that a table may be dealt into.
const SHARDS_MAX: u32 = 1 << 16;

/// Loads shards into one process's catalog.
#[derive(Clone)]
pub(crate) struct Loader {
    catalog: Arc<ShardCatalog>,
    threads: usize,
}

impl Loader {
    pub(crate) fn new(catalog: Arc<ShardCatalog>, threads: usize) -> Self {
        Self { catalog, threads }
    }

    /// Starts a load. The stream reports how far it is, says when it is complete, and from then
    /// on stays open; when it is dropped, the shards are.
    pub(crate) fn load(
        &self,
        request: LoadRequest,
    ) -> Result<impl Stream<Item = Result<LoadReport, Status>> + Send + use<>, Status> {
        check_scale(request.scale).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let shards_fit = request.shards.iter().all(|s| *s < request.shard_count);
        if !shards_fit || !(1..=SHARDS_MAX).contains(&request.shard_count) {
            return Err(Status::invalid_argument("no such shard"));
        }
        let lease = Lease {
            catalog: Arc::clone(&self.catalog),
            table_set: request.table_set.clone(),
            progress: Arc::default(),
        };
        let progress = Arc::clone(&lease.progress);
        let threads = self.threads;
        let job = tokio::task::spawn_blocking(move || load(&request, threads, &progress));
        Ok(futures::stream::unfold(
            Some(Load {
                job: Some(job),
                lease,
            }),
            async |load| load?.next().await,
        ))
    }
}

/// Rows of each table so far, and whether anyone still wants them.
#[derive(Default)]
struct Progress {
    rows: [AtomicU64; Table::ALL.len()],
    cancelled: AtomicBool,
}

/// Frees a load's shards when the coordinator no longer needs them.
struct Lease {
    catalog: Arc<ShardCatalog>,
    table_set: String,
    progress: Arc<Progress>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.progress.cancelled.store(true, Ordering::Relaxed);
        self.catalog.remove_set(&self.table_set);
    }
}

type Loaded = Vec<(ShardKey, Vec<RecordBatch>, Vec<ColumnStats>)>;

struct Load {
    /// `None` once the load is complete.
    job: Option<JoinHandle<Result<Loaded>>>,
    lease: Lease,
}

impl Load {
    async fn next(mut self) -> Option<(Result<LoadReport, Status>, Option<Self>)> {
        let Some(job) = &mut self.job else {
            // Complete: hold the lease until the stream is dropped.
            return std::future::pending().await;
        };
        let loaded = match tokio::time::timeout(REPORT_INTERVAL, job).await {
            Err(_) => return Some((Ok(self.report()), Some(self))),
            Ok(Ok(Ok(loaded))) => loaded,
            Ok(Ok(Err(error))) => return Some((Err(Status::internal(error.to_string())), None)),
            Ok(Err(panic)) => return Some((Err(Status::internal(panic.to_string())), None)),
        };
        self.job = None;
        let mut report = self.report();
        report.complete = true;
        for (key, batches, stats) in loaded {
            if let Some(table) = report.tables.iter_mut().find(|t| t.table == key.table) {
                add_columns(&mut table.columns, stats);
            }
            self.lease.catalog.insert(key, batches);
        }
        Some((Ok(report), Some(self)))
    }

    fn report(&self) -> LoadReport {
        let rows = &self.lease.progress.rows;
        let tables = Table::ALL.iter().zip(rows).map(|(table, rows)| TableRows {
            table: table.name().to_owned(),
            rows: rows.load(Ordering::Relaxed),
            columns: Vec::new(),
        });
        LoadReport {
            tables: tables.collect(),
            complete: false,
        }
    }
}

fn load(request: &LoadRequest, threads: usize, progress: &Progress) -> Result<Loaded> {
    let mut loaded = Vec::new();
    for (table, rows) in Table::ALL.into_iter().zip(&progress.rows) {
        let shards: &[u32] = match table.is_replicated() {
            true => &[0],
            false => &request.shards,
        };
        for &shard in shards {
            let shard = shard as usize;
            let chunks = table.shard_chunks(request.scale, shard, request.shard_count as usize);
            let generated = |count| {
                rows.fetch_add(count, Ordering::Relaxed);
                !progress.cancelled.load(Ordering::Relaxed)
            };
            let batches = generate(table, request.scale, &chunks, threads, &generated)?;
            let key = ShardKey {
                table_set: request.table_set.clone(),
                table: table.name().to_owned(),
                shard,
            };
            let columns = 0..table.schema().fields().len();
            let stats = columns.map(|column| measure(&batches, column)).collect();
            loaded.push((key, batches, stats));
        }
    }
    Ok(loaded)
}

/// Adds one shard's columns to those of the others of the same table.
fn add_columns(columns: &mut Vec<ColumnStats>, shard: Vec<ColumnStats>) {
    if columns.is_empty() {
        *columns = shard;
        return;
    }
    for (column, shard) in columns.iter_mut().zip(&shard) {
        column.add(shard);
    }
}

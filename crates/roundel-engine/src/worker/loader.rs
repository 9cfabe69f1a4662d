//! Loads shards of TPC-H tables into a worker's catalog, and holds them for as long as the
//! coordinator keeps the load's stream open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::repartition::BatchPartitioner;
use futures::Stream;
use tokio::task::JoinHandle;
use tonic::Status;

use crate::Result;
use crate::protocol::control::{ColumnStats, LoadReport, LoadRequest, TableRows};
use crate::tables::catalog::{ShardCatalog, ShardKey};
use crate::tables::column_stats::measure;
use crate::tpch::generate::{KEY_COLUMN, Table, check_scale, generate, merge};

/// How often a load reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Most shards that a table may be dealt into, and most partitions of a shard.
const SHARDS_MAX: u32 = 1 << 16;
/// Chunks of a table that are in memory whole, of which a part is kept.
const CHUNKS_AT_ONCE: usize = 16;

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
        if !shards_fit
            || !(1..=SHARDS_MAX).contains(&request.shard_count)
            || request.key_partitions > SHARDS_MAX
        {
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
                table.columns.resize(stats.len(), ColumnStats::default());
                for (sum, column) in table.columns.iter_mut().zip(&stats) {
                    sum.add(column);
                }
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
        let count = |rows_more| {
            rows.fetch_add(rows_more, Ordering::Relaxed);
            !progress.cancelled.load(Ordering::Relaxed)
        };
        let key = |shard: u32, partition: usize| ShardKey {
            table_set: request.table_set.clone(),
            table: table.name().to_owned(),
            shard: shard as usize,
            partition,
        };
        let parts = match request.key_partitions {
            0 => dealt_at_random(table, request, threads, &count)?,
            _ if table.is_replicated() => dealt_at_random(table, request, threads, &count)?,
            _ => dealt_by_key(table, request, threads, &count)?,
        };
        for ((shard, partition), batches) in parts {
            let columns = 0..table.schema().fields().len();
            let stats = columns.map(|column| measure(&batches, column)).collect();
            loaded.push((key(shard, partition), batches, stats));
        }
    }
    Ok(loaded)
}

/// Batches by shard and partition of it.
type Parts = Vec<((u32, usize), Vec<RecordBatch>)>;
/// Counts rows, and says whether to go on.
type Count<'a> = &'a (dyn Fn(u64) -> bool + Sync);

/// The worker's shards of a table, each in one part.
fn dealt_at_random(
    table: Table,
    request: &LoadRequest,
    threads: usize,
    count: Count<'_>,
) -> Result<Parts> {
    let shards: &[u32] = match table.is_replicated() {
        true => &[0],
        false => &request.shards,
    };
    let parts = shards.iter().map(|&shard| {
        let chunks =
            table.shard_chunks(request.scale, shard as usize, request.shard_count as usize);
        let batches = generate(table, request.scale, &chunks, threads, count)?;
        Ok(((shard, 0), batches))
    });
    parts.collect()
}

/// The worker's shards of a table, each in as many parts as it has partitions: a row is in the part where a
/// shuffle by the table's key over tasks of so many partitions would bring it.
fn dealt_by_key(
    table: Table,
    request: &LoadRequest,
    threads: usize,
    count: Count<'_>,
) -> Result<Parts> {
    let partitions = request.key_partitions as usize;
    let all = partitions * request.shard_count as usize;
    let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new(
        table.schema().field(KEY_COLUMN).name(),
        KEY_COLUMN,
    ));
    let mut partitioner = BatchPartitioner::new_hash_partitioner(vec![key], all, Time::new())?;
    let mut parts: Parts = Vec::new();
    for &shard in &request.shards {
        parts.extend((0..partitions).map(|partition| ((shard, partition), Vec::new())));
    }
    let chunks: Vec<usize> = (0..table.chunks(request.scale)).collect();
    for chunks in chunks.chunks(CHUNKS_AT_ONCE) {
        let uncounted = |_| count(0);
        for batch in generate(table, request.scale, chunks, threads, &uncounted)? {
            for dealt in partitioner.partition_iter(batch)? {
                let (partition, rows) = dealt?;
                let place = ((partition / partitions) as u32, partition % partitions);
                if let Some((_, batches)) = parts.iter_mut().find(|(part, _)| *part == place) {
                    count(rows.num_rows() as u64);
                    batches.push(rows);
                }
            }
        }
        for (_, batches) in &mut parts {
            *batches = merge(table, std::mem::take(batches))?;
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray as _, types::Int64Type};
    use std::collections::HashMap;

    /// The part of each key of a table, over two workers.
    fn parts_of_keys(table: Table) -> HashMap<i64, (u32, usize)> {
        let mut parts_of_keys = HashMap::new();
        for shard in 0..2 {
            let request = LoadRequest {
                table_set: "set".to_owned(),
                scale: 0.001,
                shard_count: 2,
                shards: vec![shard],
                key_partitions: 3,
            };
            for (part, batches) in dealt_by_key(table, &request, 2, &|_| true).expect("generates") {
                assert_eq!(part.0, shard);
                for batch in batches {
                    for key in batch
                        .column(KEY_COLUMN)
                        .as_primitive::<Int64Type>()
                        .values()
                    {
                        let before = parts_of_keys.insert(*key, part);
                        assert!(before.is_none_or(|before| before == part), "{key}");
                    }
                }
            }
        }
        parts_of_keys
    }

    #[test]
    fn equal_keys_are_in_the_same_part() {
        let orders = parts_of_keys(Table::Orders);
        assert_eq!(orders.len(), 1500);
        assert_eq!(parts_of_keys(Table::LineItem), orders);
    }
}

//! Generates TPC-H tables, in chunks that can be dealt to shards.
//!
//! A table is cut into chunks, each of which can be generated on its own. A shuffle with a fixed
//! seed deals the chunks to shards at random, so that the shards of any number of workers hold,
//! together, exactly the rows of the whole table. Rows can be dealt by the hash of a key too, for which each
//! worker generates the whole table and keeps what is its own.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use strum::{EnumString, IntoStaticStr};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

use crate::{EngineError, Result};

/// Most rows of a chunk, about, and of a record batch.
const CHUNK_ROWS_MAX: u64 = 8192;
/// Fewest chunks of a table that has that many rows: small tables are spread over all shards too.
const CHUNKS_MIN: u64 = 64;
/// Seed of the shuffle that deals chunks to shards.
const DEAL_SEED: u64 = 0x526f_756e_6465_6c00;
/// The column by whose hash rows can be dealt to shards: the first of the table's key.
pub(crate) const KEY_COLUMN: usize = 0;
/// Largest scale: row numbers and part numbers stay far within the generator's integers.
const SCALE_MAX: f64 = 100_000.0;

/// A TPC-H table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Table {
    Nation,
    Region,
    Part,
    Supplier,
    PartSupp,
    Customer,
    Orders,
    LineItem,
}

impl Table {
    /// All tables, the largest first, so that threads that generate them end together.
    pub(crate) const ALL: [Table; 8] = [
        Table::LineItem,
        Table::Orders,
        Table::PartSupp,
        Table::Part,
        Table::Customer,
        Table::Supplier,
        Table::Nation,
        Table::Region,
    ];

    pub(crate) fn name(self) -> &'static str {
        self.into()
    }

    pub(crate) fn by_name(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Whether every worker holds the whole table rather than a shard of it.
    pub(crate) fn is_replicated(self) -> bool {
        matches!(self, Table::Nation | Table::Region)
    }

    pub(crate) fn schema(self) -> SchemaRef {
        match self {
            Table::Nation => NationArrow::schema_ref(),
            Table::Region => RegionArrow::schema_ref(),
            Table::Part => PartArrow::schema_ref(),
            Table::Supplier => SupplierArrow::schema_ref(),
            Table::PartSupp => PartSuppArrow::schema_ref(),
            Table::Customer => CustomerArrow::schema_ref(),
            Table::Orders => OrderArrow::schema_ref(),
            Table::LineItem => LineItemArrow::schema_ref(),
        }
    }

    /// Rows of the table at a scale; for lineitem an estimate.
    pub(crate) fn rows(self, scale: f64) -> u64 {
        let scaled = |base: u64| ((base as f64) * scale) as u64;
        match self {
            Table::Nation => 25,
            Table::Region => 5,
            Table::Part => scaled(200_000),
            Table::Supplier => scaled(10_000),
            Table::PartSupp => scaled(800_000),
            Table::Customer => scaled(150_000),
            Table::Orders => scaled(1_500_000),
            Table::LineItem => scaled(6_000_000),
        }
    }

    /// Chunks that the table is cut into at a scale. Depends on nothing else.
    pub(crate) fn chunks(self, scale: f64) -> usize {
        let rows = self.rows(scale);
        // The units that the generator deals in: parts for partsupp, orders for lineitem.
        let units = match self {
            Table::Nation | Table::Region => 1,
            Table::PartSupp | Table::LineItem => rows / 4,
            _ => rows,
        };
        let chunks = rows.div_ceil(CHUNK_ROWS_MAX).max(CHUNKS_MIN);
        chunks.min(units).max(1) as usize
    }

    /// The chunks that shard `shard` of `shard_count` holds, in no particular order.
    pub(crate) fn shard_chunks(self, scale: f64, shard: usize, shard_count: usize) -> Vec<usize> {
        let mut chunks: Vec<usize> = (0..self.chunks(scale)).collect();
        if self.is_replicated() {
            return chunks;
        }
        let mut random = StdRng::seed_from_u64(DEAL_SEED ^ self as u64);
        chunks.shuffle(&mut random);
        chunks
            .into_iter()
            .skip(shard)
            .step_by(shard_count.max(1))
            .collect()
    }

    /// Generates one chunk of `chunks`.
    fn chunk(self, scale: f64, chunk: usize, chunks: usize) -> Result<Vec<RecordBatch>> {
        let (part, parts) = (chunk as i32 + 1, chunks as i32);
        macro_rules! generate {
            ($generator:ident, $arrow:ident) => {
                $arrow::new($generator::new(scale, part, parts))
                    .with_batch_size(2 * CHUNK_ROWS_MAX as usize)
                    .collect::<Result<Vec<_>, _>>()
            };
        }
        match self {
            Table::Nation => generate!(NationGenerator, NationArrow),
            Table::Region => generate!(RegionGenerator, RegionArrow),
            Table::Part => generate!(PartGenerator, PartArrow),
            Table::Supplier => generate!(SupplierGenerator, SupplierArrow),
            Table::PartSupp => generate!(PartSuppGenerator, PartSuppArrow),
            Table::Customer => generate!(CustomerGenerator, CustomerArrow),
            Table::Orders => generate!(OrderGenerator, OrderArrow),
            Table::LineItem => generate!(LineItemGenerator, LineItemArrow),
        }
        .map_err(|e| EngineError::Query(format!("cannot generate {}: {e}", self.name())))
    }
}

/// Checks a scale factor.
pub(crate) fn check_scale(scale: f64) -> Result<()> {
    if scale.is_finite() && scale > 0.0 && scale <= SCALE_MAX {
        return Ok(());
    }
    Err(EngineError::Usage(format!(
        "a scale of {scale} cannot be: it must be above 0 and at most {SCALE_MAX}"
    )))
}

/// Generates chunks of a table on `threads` threads, in the order of `chunks`, and calls
/// `generated` with the rows of each, which says whether to go on. Blocks.
pub(crate) fn generate(
    table: Table,
    scale: f64,
    chunks: &[usize],
    threads: usize,
    generated: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Vec<RecordBatch>> {
    let count = table.chunks(scale);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Vec<RecordBatch>)>> = Mutex::new(Vec::with_capacity(chunks.len()));
    let work = || -> Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&chunk) = chunks.get(at) else {
                return Ok(());
            };
            let batches = table.chunk(scale, chunk, count)?;
            if !generated(batches.iter().map(|b| b.num_rows() as u64).sum()) {
                return Err(EngineError::Query("the load was cancelled".to_owned()));
            }
            done.lock()
                .expect("no thread panics here")
                .push((at, batches));
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(chunks.len()))
            .map(|_| scope.spawn(work))
            .collect();
        let mut result = work();
        for other in others {
            let joined = other.join().unwrap_or_else(|_| {
                Err(EngineError::Query(format!(
                    "a thread that generated {} panicked",
                    table.name()
                )))
            });
            result = result.and(joined);
        }
        result
    })?;
    let mut done = done.into_inner().expect("no thread panics here");
    done.sort_by_key(|(at, _)| *at);
    let small = done.into_iter().flat_map(|(_, batches)| batches);
    merge(table, small.collect())
}

/// Joins neighbours until batches are of a good size to work on.
pub(crate) fn merge(table: Table, batches: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
    let schema = table.schema();
    let mut merged = Vec::new();
    let mut group: Vec<RecordBatch> = Vec::new();
    let mut rows = 0;
    let flush = |group: &mut Vec<RecordBatch>, merged: &mut Vec<RecordBatch>| -> Result<()> {
        match group.len() {
            0 => {}
            1 => merged.append(group),
            _ => {
                let batch = arrow::compute::concat_batches(&schema, group.iter())
                    .map_err(|e| EngineError::Query(e.to_string()))?;
                merged.push(batch);
                group.clear();
            }
        }
        Ok(())
    };
    for batch in batches {
        if rows + batch.num_rows() > CHUNK_ROWS_MAX as usize {
            flush(&mut group, &mut merged)?;
            rows = 0;
        }
        rows += batch.num_rows();
        group.push(batch);
    }
    flush(&mut group, &mut merged)?;
    Ok(merged)
}

/// Threads that generate: as many as the machine runs at once.
pub(super) fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |threads| threads.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_hold_each_chunk_once_whatever_their_number() {
        for shard_count in [1, 2, 3, 7] {
            let mut all: Vec<usize> = (0..shard_count)
                .flat_map(|shard| Table::Orders.shard_chunks(0.01, shard, shard_count))
                .collect();
            all.sort_unstable();
            let whole: Vec<usize> = (0..Table::Orders.chunks(0.01)).collect();
            assert_eq!(all, whole, "{shard_count} shards");
        }
    }

    #[test]
    fn chunks_make_up_the_table() {
        for table in Table::ALL {
            let scale = 0.001;
            let chunks: Vec<usize> = (0..table.chunks(scale)).collect();
            let in_chunks = generate(table, scale, &chunks, 2, &|_| true).expect("generates");
            let whole = table.chunk(scale, 0, 1).expect("generates");
            let schema = table.schema();
            let concat = |batches: &[RecordBatch]| {
                arrow::compute::concat_batches(&schema, batches).expect("same schema")
            };
            assert_eq!(concat(&in_chunks), concat(&whole), "{}", table.name());
        }
    }

    #[test]
    fn a_scale_must_be_positive_and_finite() {
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(check_scale(scale).is_err(), "{scale}");
        }
        assert!(check_scale(0.01).is_ok());
    }
}

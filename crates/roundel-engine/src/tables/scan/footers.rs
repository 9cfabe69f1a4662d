//! Footers of Parquet files: each is read once by a process, however many parts of the file it reads.
//!
//! DataFusion keeps footers that it read, but those who ask for one at the same time each read it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Weak};

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
// There is another of this name in `parquet` itself, which no cache has.
use datafusion::datasource::physical_plan::parquet::metadata::CachedParquetMetaData;
use datafusion::error::Result;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::object_store::path::Path;
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;

/// Who reads a footer right now; others wait for it.
static READING: LazyLock<Mutex<HashMap<Path, Weak<tokio::sync::Mutex<()>>>>> =
    LazyLock::new(Mutex::default);

/// Files whose readers are remembered before those that are gone are forgotten.
const READING_MAX: usize = 1024;

/// The metadata's length and the magic bytes at the end of a file, which also begins with the latter.
const FOOTER_BYTES: u64 = 8;
const MAGIC_BYTES: u64 = 4;

/// The footers that this process keeps.
#[derive(Debug, Clone)]
pub(super) struct Footers(Arc<FileMetadataCache>);

impl Footers {
    pub(super) fn new(cache: Arc<FileMetadataCache>) -> Self {
        Self(cache)
    }

    /// A file's footer, if it was read since the file last changed.
    pub(super) fn get(&self, meta: &ObjectMeta) -> Option<Arc<ParquetMetaData>> {
        let cached = self.0.get(&meta.location)?;
        if !cached.is_valid_for(meta) {
            return None;
        }
        let footer = (cached.file_metadata.as_any()).downcast_ref::<CachedParquetMetaData>()?;
        Some(Arc::clone(footer.parquet_metadata()))
    }

    /// What reads the files of a store by these footers.
    pub(super) fn readers(&self, store: Arc<dyn ObjectStore>) -> Arc<dyn ParquetFileReaderFactory> {
        Arc::new(Readers {
            inner: CachedParquetFileReaderFactory::new(Arc::clone(&store), Arc::clone(&self.0)),
            footers: self.clone(),
            store,
        })
    }
}

fn lock_of(path: &Path) -> Arc<tokio::sync::Mutex<()>> {
    let mut reading = READING.lock();
    if let Some(lock) = reading.get(path).and_then(Weak::upgrade) {
        return lock;
    }
    if reading.len() >= READING_MAX {
        reading.retain(|_, lock| lock.strong_count() > 0);
    }
    let lock = Arc::default();
    reading.insert(path.clone(), Arc::downgrade(&lock));
    lock
}

#[derive(Debug)]
struct Readers {
    inner: CachedParquetFileReaderFactory,
    footers: Footers,
    store: Arc<dyn ObjectStore>,
}

impl ParquetFileReaderFactory for Readers {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let meta = file.object_meta.clone();
        Ok(Box::new(Reader {
            inner: self
                .inner
                .create_reader(partition, file, size_hint, metrics)?,
            footers: self.footers.clone(),
            store: Arc::clone(&self.store),
            meta,
            read: MetricBuilder::new(metrics).counter("footers_read", partition),
        }))
    }
}

struct Reader {
    inner: Box<dyn AsyncFileReader + Send>,
    footers: Footers,
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
    /// How many footers were read, not found among those kept.
    read: Count,
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        self.inner.get_bytes(range)
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        self.inner.get_byte_ranges(ranges)
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        async move {
            let lock = lock_of(&self.meta.location);
            let _others_wait = lock.lock().await;
            if self.footers.get(&self.meta).is_none() {
                check(self.store.as_ref(), &self.meta).await?;
                self.read.add(1);
            }
            self.inner.get_metadata(options).await
        }
        .boxed()
    }
}

/// Refuses a file whose footer cannot be: the `parquet` crate panics on a length that is larger than the file.
async fn check(store: &dyn ObjectStore, meta: &ObjectMeta) -> Result<(), ParquetError> {
    let wrong = |reason: &str| ParquetError::General(reason.to_owned());
    let cut = "is no Parquet file, or was cut short";
    if meta.size < FOOTER_BYTES + MAGIC_BYTES {
        return Err(wrong(cut));
    }
    let range = meta.size - FOOTER_BYTES..meta.size;
    let read = store.get_range(&meta.location, range).await;
    let footer = read.map_err(|e| ParquetError::External(Box::new(e)))?;
    let Ok([a, b, c, d, magic @ ..]) = <[u8; FOOTER_BYTES as usize]>::try_from(footer.as_ref())
    else {
        return Err(wrong(cut));
    };
    if &magic != b"PAR1" && &magic != b"PARE" {
        return Err(wrong(cut));
    }
    match u64::from(u32::from_le_bytes([a, b, c, d])) > meta.size - FOOTER_BYTES - MAGIC_BYTES {
        true => Err(wrong(
            "is a corrupt Parquet file: its footer is longer than itself",
        )),
        false => Ok(()),
    }
}

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
use datafusion::datasource::physical_plan::parquet::metadata::{
    CachedParquetMetaData, DFParquetMetadata,
};
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
use tokio_util::task::AbortOnDropHandle;

/// Who reads a footer right now; others wait for it.
static READING: LazyLock<Mutex<HashMap<Path, Weak<tokio::sync::Mutex<()>>>>> =
    LazyLock::new(Mutex::default);

/// Files whose readers are remembered before those that are gone are forgotten.
const READING_MAX: usize = 1024;

/// The metadata's length and the magic bytes at the end of a file, which also begins with the latter.
pub(crate) const FOOTER_BYTES: u64 = 8;
const MAGIC_BYTES: u64 = 4;

const CUT: &str = "is no Parquet file, or was cut short";

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
            if self.footers.get(&self.meta).is_none() {
                let reading = read(self.footers.clone(), self.store.clone(), self.meta.clone());
                // A task of its own reads it: the reader that asked first may not be polled until those that wait have ended.
                let reading = AbortOnDropHandle::new(tokio::spawn(reading));
                let read = reading.await;
                let read = read.map_err(|ended| ParquetError::General(ended.to_string()))??;
                self.read.add(usize::from(read));
            }
            self.inner.get_metadata(options).await
        }
        .boxed()
    }
}

/// Has a footer among those kept; returns whether it was this that read it.
async fn read(
    footers: Footers,
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
) -> Result<bool, ParquetError> {
    let lock = lock_of(&meta.location);
    let _others_wait = lock.lock().await;
    if footers.get(&meta).is_some() {
        return Ok(false);
    }
    check(store.as_ref(), &meta).await?;
    let footer = DFParquetMetadata::new(store.as_ref(), &meta)
        .with_file_metadata_cache(Some(Arc::clone(&footers.0)));
    let read = footer.fetch_metadata().await;
    read.map_err(|error| ParquetError::External(Box::new(error)))?;
    Ok(true)
}

/// Refuses a file whose footer cannot be: the `parquet` crate panics on a length that is larger than the file.
async fn check(store: &dyn ObjectStore, meta: &ObjectMeta) -> Result<(), ParquetError> {
    let range = meta.size.saturating_sub(FOOTER_BYTES)..meta.size;
    let read = store.get_range(&meta.location, range).await;
    let end = read.map_err(|e| ParquetError::External(Box::new(e)))?;
    match fault(meta.size, &end) {
        Some(fault) => Err(ParquetError::General(fault.to_owned())),
        None => Ok(()),
    }
}

/// What is wrong with a file of so many bytes that ends with these [`FOOTER_BYTES`], or fewer if it has fewer.
pub(crate) fn fault(bytes: u64, end: &[u8]) -> Option<&'static str> {
    let Ok([a, b, c, d, magic @ ..]) = <[u8; FOOTER_BYTES as usize]>::try_from(end) else {
        return Some(CUT);
    };
    if bytes < FOOTER_BYTES + MAGIC_BYTES || &magic != b"PAR1" && &magic != b"PARE" {
        return Some(CUT);
    }
    let too_long = u64::from(u32::from_le_bytes([a, b, c, d])) > bytes - FOOTER_BYTES - MAGIC_BYTES;
    too_long.then_some("is a corrupt Parquet file: its footer is longer than itself")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use datafusion::execution::runtime_env::RuntimeEnv;
    use datafusion::object_store::local::LocalFileSystem;
    use parquet::arrow::ArrowWriter;

    use super::*;

    #[tokio::test]
    async fn a_reader_that_is_not_polled_holds_up_no_other() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("t.parquet");
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10));
        let batch = RecordBatch::try_from_iter([("n", column)]).expect("one column");
        let file = File::create(&path).expect("creates");
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
        writer.write(&batch).expect("writes");
        writer.close().expect("closes");

        let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new());
        let location = Path::from_filesystem_path(&path).expect("a path");
        let meta = store.head(&location).await.expect("is there");
        let cache = RuntimeEnv::default()
            .cache_manager
            .get_file_metadata_cache();
        let readers = Footers::new(cache).readers(store);
        let measures = ExecutionPlanMetricsSet::new();
        let reader = |partition| {
            let file = PartitionedFile::from(meta.clone());
            readers
                .create_reader(partition, file, None, &measures)
                .expect("a reader")
        };
        let (mut first, mut second) = (reader(0), reader(1));
        let mut left = first.get_metadata(None);
        assert!(futures::poll!(&mut left).is_pending());
        let read = tokio::time::timeout(Duration::from_secs(20), second.get_metadata(None)).await;
        let footer = read.expect("does not wait for the first").expect("reads");
        assert_eq!(footer.file_metadata().num_rows(), 10);
        left.await.expect("reads");
        let measured = measures.clone_inner();
        let read = measured
            .sum_by_name("footers_read")
            .map(|sum| sum.as_usize());
        assert_eq!(read, Some(1));
    }
}

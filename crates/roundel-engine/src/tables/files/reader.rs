//! How the files of a table are read, and the schema that each of them has by itself.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::config::CsvOptions;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::error::DataFusionError;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::object_store::ObjectMeta;
use datafusion::object_store::path::Path as ObjectPath;
use futures::{StreamExt as _, TryStreamExt as _};

use super::format::{Format, Shape};
use super::json::{array_schema, check_lines};
use super::location::FoundFile;
use super::options::JSON_SAMPLE;
use super::wrong;
use crate::{EngineError, Result};

/// Files whose metadata are read at a time.
const FILES_AT_ONCE: usize = 16;

/// How the files of a table are read.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) shape: Shape,
    pub(super) format: Arc<dyn FileFormat>,
    /// How CSV files are read.
    pub(super) csv: Option<CsvOptions>,
}

impl Reader {
    /// Whether a reader finds columns by position only, so that each file's own schema counts.
    pub(super) fn needs_schemas(&self) -> bool {
        matches!(
            self.shape.format,
            Format::ArrowFile | Format::ArrowStream | Format::Avro
        )
    }

    /// The schema of each file that says it itself.
    pub(super) async fn schemas(
        &self,
        state: &dyn Session,
        files: &[FoundFile],
    ) -> Result<Vec<SchemaRef>> {
        if self.shape.format == Format::JsonArray {
            let sample = self.format.downcast_ref::<JsonFormat>();
            let sample = sample.and_then(|format| format.options().schema_infer_max_rec);
            let sample = sample.unwrap_or(JSON_SAMPLE);
            let each = files.iter().map(|file| {
                let schema = array_schema(&file.path, self.shape.compression, sample);
                schema.map(Arc::new)
            });
            return each.collect();
        }
        if self.shape.format == Format::Ndjson {
            for file in files {
                check_lines(&file.path, self.shape.compression)?;
            }
        }
        let store = state
            .runtime_env()
            .object_store(ObjectStoreUrl::local_filesystem())
            .map_err(EngineError::from)?;
        let files = files.to_vec();
        let inferred = files.into_iter().map(|file| {
            let (store, format) = (Arc::clone(&store), Arc::clone(&self.format));
            async move {
                let object = object(&file)?;
                let schema = format.infer_schema(state, &store, &[object]).await;
                schema.map_err(|e| of_file(&file.path, e))
            }
        });
        let inferred = futures::stream::iter(inferred).buffered(FILES_AT_ONCE);
        inferred.try_collect().await
    }
}

/// A file's name in the store of local files.
pub(super) fn object(file: &FoundFile) -> Result<ObjectMeta> {
    let location = ObjectPath::from_absolute_path(&file.path)
        .map_err(|e| wrong(&file.path.display().to_string(), e))?;
    Ok(ObjectMeta {
        location,
        last_modified: file.modified.into(),
        size: file.bytes,
        e_tag: None,
        version: None,
    })
}

/// An error of DataFusion about one file, with the file's name.
pub(super) fn of_file(path: &Path, error: DataFusionError) -> EngineError {
    match EngineError::from(error) {
        EngineError::Query(reason) => {
            let shown = path.display().to_string();
            // The store leaves out the path's first letter.
            let reason = reason.replace(shown.trim_start_matches('/'), "the file");
            EngineError::Query(format!("{shown}: {reason}"))
        }
        other => other,
    }
}

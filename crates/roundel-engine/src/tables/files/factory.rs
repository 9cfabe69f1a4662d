//! CREATE EXTERNAL TABLE, with or without STORED AS.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::datasource::provider::DefaultTableFactory;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::CreateExternalTable;

use super::describe::{Request, describe, into_table};
use super::format::Named;
use super::statement::ANY_FORMAT;
use super::wrong;

/// Makes tables of local files; others, and streams, are DataFusion's.
#[derive(Debug)]
pub(super) struct FileTables;

/// Every word that STORED AS may say.
const FORMATS: [&str; 9] = [
    "PARQUET", "CSV", "TSV", "JSON", "NDJSON", "JSONL", "ARROW", "AVRO", ANY_FORMAT,
];

impl FileTables {
    /// Under every word that STORED AS may say.
    pub(super) fn by_format() -> HashMap<String, Arc<dyn TableProviderFactory>> {
        let factory: Arc<dyn TableProviderFactory> = Arc::new(Self);
        let formats = FORMATS.iter();
        formats
            .map(|format| ((*format).to_owned(), Arc::clone(&factory)))
            .collect()
    }
}

/// Whether a location is in a store other than the files of this host.
fn is_remote(location: &str) -> bool {
    location.contains("://") && !location.starts_with("file://")
}

#[async_trait]
impl TableProviderFactory for FileTables {
    async fn create(
        &self,
        state: &dyn Session,
        cmd: &CreateExternalTable,
    ) -> DataFusionResult<Arc<dyn TableProvider>> {
        let stated = Named::from_statement(&cmd.file_type);
        if cmd.unbounded || cmd.locations.iter().any(|location| is_remote(location)) {
            if stated.is_none() {
                let location = cmd.locations.join(", ");
                return Err(wrong(&location, "say its format with STORED AS").into());
            }
            return DefaultTableFactory::new().create(state, cmd).await;
        }
        let columns = cmd.schema.as_arrow().clone();
        let request = Request {
            name: cmd.name.to_string(),
            paths: cmd.locations.clone(),
            stated,
            options: cmd.options.clone(),
            columns: (!columns.fields().is_empty()).then_some(columns),
            partitions: cmd.table_partition_cols.clone(),
            order: cmd.order_exprs.clone(),
            constraints: cmd.constraints.clone(),
            definition: cmd.definition.clone(),
            defaults: cmd.column_defaults.clone(),
        };
        let table = into_table(describe(state, request).await)?;
        Ok(table)
    }
}

//! A table of files: lists them again for each query, and plans a scan of them.
//!
//! This module must not know how a table was asked for.

mod plan;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arrow::datatypes::{Field, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Constraints, Statistics, project_schema};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl, PartitionedFile, helpers,
};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, SortExpr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use parking_lot::Mutex;

use super::compression::open;
use super::hive;
use super::location::{FoundFile, Location};
use super::reader::Reader;
use super::survey::{Choice, list, same_shape};
use super::wrong;
use crate::tables::scan::{find, header};
use crate::{EngineError, Result};

/// What is known of a file, as long as it does not change.
#[derive(Debug, Clone)]
pub(super) struct Known {
    bytes: u64,
    modified: SystemTime,
    /// Its own schema, where its reader needs it.
    schema: Option<SchemaRef>,
    statistics: Option<Arc<Statistics>>,
}

impl Known {
    pub(super) fn new(file: &FoundFile) -> Self {
        Self {
            bytes: file.bytes,
            modified: file.modified,
            schema: None,
            statistics: None,
        }
    }

    pub(super) fn with_schema(mut self, schema: SchemaRef) -> Self {
        self.schema = Some(schema);
        self
    }

    fn is_of(&self, file: &FoundFile) -> bool {
        self.bytes == file.bytes && self.modified == file.modified
    }
}

/// A table of files.
#[derive(Debug)]
pub(super) struct FileTable {
    pub(super) locations: Vec<Location>,
    pub(super) choice: Choice,
    pub(super) compression: Option<FileCompressionType>,
    pub(super) reader: Reader,
    /// The columns that are in the files.
    pub(super) file_schema: SchemaRef,
    /// The columns that are in the names of directories.
    pub(super) partitions: Vec<Field>,
    /// Both of these.
    pub(super) schema: SchemaRef,
    /// Whether a statement declares the columns, so that names in a CSV file's header may be others.
    pub(super) declared: bool,
    pub(super) order: Vec<Vec<SortExpr>>,
    pub(super) constraints: Constraints,
    pub(super) definition: Option<String>,
    pub(super) defaults: HashMap<String, Expr>,
    pub(super) known: Mutex<HashMap<PathBuf, Known>>,
}

impl FileTable {
    /// The files that the table has now. A file that is new, or was changed, is looked at first.
    async fn files(&self, state: &dyn Session) -> Result<Vec<FoundFile>> {
        let execution = &state.config_options().execution;
        if self.locations.iter().all(Location::is_vacant) {
            return Ok(Vec::new());
        }
        let all = list(
            &self.locations,
            !execution.listing_table_ignore_subdirectory,
        )?;
        let mut files = self.choice.select(&self.locations, all);
        let unknown: Vec<FoundFile> = {
            let known = self.known.lock();
            let is_known = |file: &FoundFile| known.get(&file.path).is_some_and(|k| k.is_of(file));
            files
                .iter()
                .filter(|file| !is_known(file))
                .cloned()
                .collect()
        };
        let mut new = Vec::with_capacity(unknown.len());
        for file in unknown {
            let Some(shape) = self.choice.check(&file, self.compression)? else {
                continue;
            };
            if shape != self.reader.shape {
                let shown = file.path.display().to_string();
                same_shape(
                    &shown,
                    Some((self.locations[0].root(), self.reader.shape)),
                    &file.path,
                    shape,
                )?;
            }
            new.push(file);
        }
        self.learn(state, &new).await?;
        files.retain(|file| file.bytes > 0);
        Ok(files)
    }

    /// Keeps what a scan needs to know of files.
    async fn learn(&self, state: &dyn Session, files: &[FoundFile]) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let mut learned: Vec<Known> = files.iter().map(Known::new).collect();
        if self.reader.needs_schemas() {
            let found = self.reader.schemas(state, files).await?;
            for (schema, known) in found.into_iter().zip(&mut learned) {
                known.schema = Some(schema);
            }
        }
        for file in files {
            self.check_header(&file.path)?;
        }
        let paths = files.iter().map(|file| file.path.clone());
        self.known.lock().extend(paths.zip(learned));
        Ok(())
    }

    /// Refuses a CSV file none of whose names is one of the table's, where these come from the names in other files: its reader
    /// would go by their places.
    fn check_header(&self, path: &Path) -> Result<()> {
        let csv = self
            .reader
            .csv
            .as_ref()
            .filter(|csv| csv.has_header == Some(true));
        let Some(csv) = csv.filter(|_| !self.declared) else {
            return Ok(());
        };
        let shown = path.display().to_string();
        let names = header(csv, open(path, self.reader.shape.compression)?);
        let names = names.map_err(|e| wrong(&shown, e))?;
        let columns = self.file_schema.fields();
        if columns
            .iter()
            .any(|column| find(&names, column.name()).is_some())
        {
            return Ok(());
        }
        let columns: Vec<&str> = columns
            .iter()
            .map(|column| column.name().as_str())
            .collect();
        Err(wrong(
            &shown,
            format!(
                "its header ({}) has none of the table's columns ({}), which are those of the files that were there first: declare \
                 the columns to have them by their places",
                names.join(", "),
                columns.join(", ")
            ),
        ))
    }

    /// The schema by which a reader reads a file.
    fn schema_of(&self, file: &FoundFile) -> SchemaRef {
        let known = self.known.lock();
        let own = known.get(&file.path).and_then(|known| known.schema.clone());
        own.filter(|_| self.reader.needs_schemas())
            .unwrap_or_else(|| Arc::clone(&self.file_schema))
    }

    fn names_of_partitions(&self) -> Vec<&str> {
        self.partitions
            .iter()
            .map(|field| field.name().as_str())
            .collect()
    }

    /// Whether a filter is on columns of directories alone.
    fn is_of_partitions(&self, filter: &Expr) -> bool {
        let names = self.names_of_partitions();
        !names.is_empty() && helpers::expr_applicable_for_cols(&names, filter)
    }
}

#[async_trait]
impl TableProvider for FileTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_table_definition(&self) -> Option<&str> {
        self.definition.as_deref()
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.defaults.get(column)
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match self.is_of_partitions(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Inexact,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let (of_partitions, others): (Vec<Expr>, Vec<Expr>) = filters
            .iter()
            .cloned()
            .partition(|filter| self.is_of_partitions(filter));
        let limit = limit.filter(|_| others.is_empty());
        let files = self.files(state).await?;
        let files = self.prune(state, files, &of_partitions)?;
        if files.is_empty() {
            let schema = project_schema(&self.schema, projection)?;
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        let files = self.with_statistics(state, files).await?;
        let mut alike: Vec<(SchemaRef, Vec<PartitionedFile>)> = Vec::new();
        for (file, planned) in files {
            let schema = self.schema_of(&file);
            match alike.iter_mut().find(|(other, _)| *other == schema) {
                Some((_, files)) => files.push(planned),
                None => alike.push((schema, vec![planned])),
            }
        }
        let mut scans = Vec::with_capacity(alike.len());
        for (schema, files) in alike {
            scans.push(
                self.scan_alike(state, schema, files, projection, limit)
                    .await?,
            );
        }
        match scans.len() {
            1 => Ok(scans.remove(0)),
            _ => UnionExec::try_new(scans),
        }
    }

    async fn insert_into(
        &self,
        state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        op: InsertOp,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let [location] = &self.locations[..] else {
            return Err(EngineError::Usage(
                "rows are written to a table in one directory only".to_owned(),
            )
            .into());
        };
        if location.is_file() || location.is_pattern() {
            return Err(EngineError::Usage(format!(
                "{}: rows can be added to a directory of files, not to a file or a pattern",
                location.asked()
            ))
            .into());
        }
        let directory = format!("{}/", location.root().display());
        let input = hive::with_written(state, input, &self.partitions)?;
        let partitions = self.partitions.iter();
        let partitions =
            partitions.map(|key| (key.name().clone(), hive::written_type(key.data_type())));
        let options = ListingOptions::new(Arc::clone(&self.reader.format))
            .with_file_extension("")
            .with_table_partition_cols(partitions.collect())
            .with_file_sort_order(self.order.clone());
        let config = ListingTableConfig::new(ListingTableUrl::parse(directory)?)
            .with_listing_options(options)
            .with_schema(Arc::clone(&self.file_schema));
        let table = ListingTable::try_new(config)?;
        table.insert_into(state, input, op).await
    }
}

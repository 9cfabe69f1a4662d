//! The plan of a scan: which files, what is known of their values, and columns that some lack.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::{DFSchema, ScalarValue, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, FileSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_expr::expressions::{Column, cast, lit};
use datafusion::physical_expr::{PhysicalExpr, create_lex_ordering};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use futures::{StreamExt as _, TryStreamExt as _};

use super::super::format::Format;
use super::super::hive;
use super::super::location::FoundFile;
use super::super::reader::{object, of_file};
use super::FileTable;
use crate::tables::scan::csv::RoundelCsvSource;

/// Files whose metadata are read at a time.
const FILES_AT_ONCE: usize = 32;

impl FileTable {
    /// The files that filters on the columns of directories leave.
    pub(super) fn prune(
        &self,
        state: &dyn Session,
        files: Vec<FoundFile>,
        filters: &[Expr],
    ) -> DataFusionResult<Vec<(FoundFile, Vec<ScalarValue>)>> {
        let schema = Arc::new(Schema::new(self.partitions.clone()));
        let of_schema = DFSchema::try_from(Arc::clone(&schema))?;
        let filter = conjunction(filters.iter().cloned());
        let filter = filter
            .map(|filter| state.create_physical_expr(filter, &of_schema))
            .transpose()?;
        let mut kept = Vec::with_capacity(files.len());
        for file in files {
            let values = hive::values(&file, &self.partitions)?;
            if let Some(filter) = &filter {
                let columns = values.iter().map(|value| value.to_array());
                let columns = columns.collect::<DataFusionResult<_>>()?;
                let row = RecordBatch::try_new(Arc::clone(&schema), columns)?;
                let holds = filter.evaluate(&row)?.into_array(1)?;
                let holds = holds.as_boolean();
                if holds.is_null(0) || !holds.value(0) {
                    continue;
                }
            }
            kept.push((file, values));
        }
        Ok(kept)
    }

    /// What is known of the values in files, where their format says it.
    pub(super) async fn with_statistics(
        &self,
        state: &dyn Session,
        files: Vec<(FoundFile, Vec<ScalarValue>)>,
    ) -> DataFusionResult<Vec<(FoundFile, PartitionedFile)>> {
        let store = state
            .runtime_env()
            .object_store(ObjectStoreUrl::local_filesystem())?;
        let wanted = state.config().collect_statistics();
        let files = files.into_iter().map(|(file, values)| {
            let store = Arc::clone(&store);
            async move {
                let object = object(&file)?;
                let (had, own) = {
                    let known = self.known.lock();
                    let known = known.get(&file.path);
                    known.map_or((None, None), |known| {
                        (known.statistics.clone(), known.schema.clone())
                    })
                };
                let statistics = match had {
                    Some(had) if wanted => had,
                    _ if wanted && self.reader.shape.format == Format::Parquet => {
                        let schema = Arc::clone(&self.file_schema);
                        let found = self
                            .reader
                            .format
                            .infer_stats(state, &store, schema, &object);
                        let found = found.await.map_err(|e| of_file(&file.path, e))?;
                        let own = match own {
                            Some(own) => own,
                            None => {
                                let files = std::slice::from_ref(&object);
                                let own = self.reader.format.infer_schema(state, &store, files);
                                own.await.map_err(|e| of_file(&file.path, e))?
                            }
                        };
                        let found = Arc::new(self.of_own_types(found, &own));
                        if let Some(known) = self.known.lock().get_mut(&file.path) {
                            known.statistics = Some(Arc::clone(&found));
                        }
                        found
                    }
                    _ => Arc::new(Statistics::new_unknown(&self.file_schema)),
                };
                let planned = PartitionedFile::new_from_meta(object);
                let planned = planned.with_partition_values(values);
                DataFusionResult::Ok((file, self.with_nulls(planned.with_statistics(statistics))))
            }
        });
        let files = futures::stream::iter(files).buffered(FILES_AT_ONCE);
        files.try_collect().await
    }

    /// What is right of the statistics of a file with these columns. DataFusion reads bounds of another type as if they were of the
    /// table's, or takes them for NULL. Bounds of floating point numbers say nothing of NaN.
    fn of_own_types(&self, mut statistics: Statistics, own: &Schema) -> Statistics {
        let columns = statistics.column_statistics.iter_mut();
        for (column, field) in columns.zip(self.file_schema.fields()) {
            let own = own.field_with_name(field.name());
            let is_own = own.is_ok_and(|own| own.data_type() == field.data_type());
            for value in [
                &mut column.min_value,
                &mut column.max_value,
                &mut column.sum_value,
            ] {
                let is_null = value.get_value().is_some_and(ScalarValue::is_null);
                if is_null || !is_own || field.data_type().is_floating() {
                    *value = Precision::Absent;
                }
            }
        }
        statistics
    }

    /// DataFusion takes it that no directory says NULL.
    fn with_nulls(&self, mut file: PartitionedFile) -> PartitionedFile {
        let Some(statistics) = &file.statistics else {
            return file;
        };
        let own = self.file_schema.fields().len();
        let mut statistics = Statistics::clone(statistics);
        let columns = statistics.column_statistics.iter_mut().skip(own);
        for (column, value) in columns.zip(&file.partition_values) {
            if value.is_null() {
                column.null_count = statistics.num_rows;
                column.min_value = Precision::Absent;
                column.max_value = Precision::Absent;
                column.distinct_count = Precision::Absent;
            }
        }
        file.statistics = Some(Arc::new(statistics));
        file
    }

    /// A scan of files that all have one schema.
    pub(super) async fn scan_alike(
        &self,
        state: &dyn Session,
        schema: SchemaRef,
        files: Vec<PartitionedFile>,
        projection: Option<&Vec<usize>>,
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let is_own = schema == self.file_schema;
        let table_schema = TableSchema::builder(schema)
            .with_table_partition_cols(self.partitions.clone())
            .build();
        let all = Arc::clone(table_schema.table_schema());
        let source: Arc<dyn FileSource> = match &self.reader.csv {
            Some(options) => Arc::new(RoundelCsvSource::new(options.clone(), table_schema)),
            None => self.reader.format.file_source(table_schema),
        };
        let statistics = match is_own {
            true => {
                let each = files.iter().filter_map(|file| file.statistics.as_deref());
                Statistics::try_merge_iter(each, &all)?
            }
            false => Statistics::new_unknown(&all),
        };
        let groups = FileGroup::new(files).split_files(state.config().target_partitions());
        let order = match is_own {
            true => create_lex_ordering(&all, &self.order, state.execution_props())?,
            false => Vec::new(),
        };
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source)
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_limit(limit)
            .with_output_ordering(order)
            .with_file_compression_type(self.reader.shape.compression);
        let config = match is_own {
            true => config.with_projection_indices(projection.cloned())?,
            false => config,
        };
        let config = config.build();
        let scan = match &self.reader.csv {
            // DataFusion's format knows its own source only.
            Some(_) => DataSourceExec::from_data_source(config),
            None => {
                let format = &self.reader.format;
                format.create_physical_plan(state, config).await?
            }
        };
        match is_own {
            true => Ok(scan),
            false => self.to_own_columns(scan, projection),
        }
    }

    /// The table's columns of a scan that gives those of some of its files.
    fn to_own_columns(
        &self,
        scan: Arc<dyn ExecutionPlan>,
        projection: Option<&Vec<usize>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let given = scan.schema();
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let wanted = projection.unwrap_or(&all);
        let column = |index: &usize| {
            let field = self.schema.field(*index);
            let name = field.name().clone();
            // A directory's column comes after those of the file.
            let place = given
                .fields()
                .iter()
                .rposition(|given| *given.name() == name);
            let value: Arc<dyn PhysicalExpr> = match place {
                None => lit(ScalarValue::try_from(field.data_type())?),
                Some(place) => {
                    let value: Arc<dyn PhysicalExpr> = Arc::new(Column::new(&name, place));
                    match given.field(place).data_type() == field.data_type() {
                        true => value,
                        false => cast(value, &given, field.data_type().clone())?,
                    }
                }
            };
            DataFusionResult::Ok((value, name))
        };
        let columns = wanted
            .iter()
            .map(column)
            .collect::<DataFusionResult<Vec<_>>>()?;
        Ok(Arc::new(ProjectionExec::try_new(columns, scan)?))
    }
}

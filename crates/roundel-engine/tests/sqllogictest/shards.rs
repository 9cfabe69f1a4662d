//! Memory tables of a session, kept in several small Parquet files instead, so that several workers read them.
//!
//! What `CREATE TABLE` makes is a table of the coordinator alone. After each statement that makes or changes one, its rows
//! are written to files, and a table of these files takes its name; before the next change it is a memory table again.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use datafusion::common::TableReference;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::datasource::{MemTable, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::prelude::SessionContext;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;

/// Most files of a table: each of three workers gets some.
const FILES_MAX: usize = 6;
/// Most rows of a file of a small table.
const ROWS_OF_FILE: usize = 3;
/// Most rows of a row group.
const ROWS_OF_GROUP: usize = 1000;

/// A table that is in files at present.
struct Sharded {
    memory: Arc<dyn TableProvider>,
    files: Arc<dyn TableProvider>,
    _dir: TempDir,
}

/// The tables of one session that are in files.
pub struct Shards {
    tables: HashMap<TableReference, Sharded>,
    /// Names of tables that have to stay in memory.
    kept: HashSet<String>,
}

impl Shards {
    /// For a session that will run these statements.
    pub fn new<'a>(statements: impl Iterator<Item = &'a str>) -> Self {
        let (mut kept, mut remembers) = (HashSet::new(), false);
        for sql in statements {
            let words: Vec<String> = sql
                .split(|c: char| c.is_whitespace() || c == '(' || c == ';')
                .filter(|word| !word.is_empty())
                .map(|word| word.trim_matches('"').to_lowercase())
                .collect();
            // A view and a prepared statement remember a table, which is another one after a change.
            remembers |= words.iter().any(|word| word == "view" || word == "prepare");
            for pair in words.windows(2) {
                if matches!(pair[0].as_str(), "into" | "from" | "update" | "table") {
                    let changes = ["insert", "update", "delete", "truncate", "merge"];
                    if words.iter().any(|word| changes.contains(&word.as_str())) {
                        kept.insert(pair[1].clone());
                    }
                }
            }
        }
        if !remembers {
            kept.clear();
        }
        Self {
            tables: HashMap::new(),
            kept,
        }
    }

    /// Makes the table that a statement changes a memory table again.
    pub fn before(&mut self, context: &SessionContext, plan: Option<&LogicalPlan>) {
        let Some(LogicalPlan::Dml(change)) = plan else {
            return;
        };
        let name = resolved(context, &change.table_name);
        if let Some(table) = self.tables.get(&name) {
            replace(context, &name, &table.files, &table.memory);
        }
    }

    /// Puts the table that a statement has made or changed into files, where that can be.
    pub async fn after(&mut self, context: &SessionContext, plan: Option<&LogicalPlan>) {
        let name = match plan {
            Some(LogicalPlan::Dml(change)) => &change.table_name,
            Some(LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(made))) => &made.name,
            _ => return,
        };
        if self.kept.contains(name.table()) {
            return;
        }
        let name = resolved(context, name);
        let Ok(memory) = context.table_provider(name.clone()).await else {
            return;
        };
        let Some(table) = memory.downcast_ref::<MemTable>() else {
            return;
        };
        // Types that Parquet does not have stay in memory.
        if let Ok(Some((files, dir))) = to_files(table).await {
            replace(context, &name, &memory, &files);
            let sharded = Sharded {
                memory,
                files,
                _dir: dir,
            };
            self.tables.insert(name, sharded);
        }
    }
}

fn resolved(context: &SessionContext, name: &TableReference) -> TableReference {
    let state = context.state();
    let catalog = &state.config_options().catalog;
    let (catalog, schema) = (&catalog.default_catalog, &catalog.default_schema);
    name.clone().resolve(catalog, schema).into()
}

/// Gives a table's name to another, if it is still that table's.
fn replace(
    context: &SessionContext,
    name: &TableReference,
    old: &Arc<dyn TableProvider>,
    new: &Arc<dyn TableProvider>,
) {
    if let Ok(Some(found)) = context.deregister_table(name.clone()) {
        let by = match Arc::ptr_eq(&found, old) {
            true => Arc::clone(new),
            false => found,
        };
        context
            .register_table(name.clone(), by)
            .expect("its name is free");
    }
}

/// A table of the same rows in files, if it has rows.
async fn to_files(table: &MemTable) -> Result<Option<(Arc<dyn TableProvider>, TempDir)>> {
    let schema = table.schema();
    let mut batches: Vec<RecordBatch> = Vec::new();
    for part in &table.batches {
        batches.extend(part.read().await.iter().cloned());
    }
    let rows = concat_batches(&schema, &batches)?;
    if rows.num_rows() == 0 {
        return Ok(None);
    }
    let dir = tempfile::tempdir_in(".").expect("a directory");
    let files = rows.num_rows().div_ceil(ROWS_OF_FILE).min(FILES_MAX);
    let of_file = rows.num_rows().div_ceil(files);
    for (index, start) in (0..rows.num_rows()).step_by(of_file).enumerate() {
        let some = rows.slice(start, of_file.min(rows.num_rows() - start));
        write(&dir.path().join(format!("{index}.parquet")), &some)?;
    }
    let url = format!("{}/", std::path::absolute(dir.path())?.display());
    let options = ListingOptions::new(Arc::new(ParquetFormat::default()));
    let config = ListingTableConfig::new(ListingTableUrl::parse(url)?)
        .with_listing_options(options)
        .with_schema(schema);
    let mut files = ListingTable::try_new(config)?;
    if let Some(constraints) = table.constraints() {
        files = files.with_constraints(constraints.clone());
    }
    Ok(Some((Arc::new(files), dir)))
}

fn write(path: &Path, rows: &RecordBatch) -> Result<()> {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(ROWS_OF_GROUP));
    let file = std::fs::File::create(path)?;
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties.build()))?;
    writer.write(rows)?;
    writer.close()?;
    Ok(())
}

//! Makes the files of cases.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::prelude::{SessionConfig, SessionContext};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use crate::case::{Case, Input};
use crate::selection::{Format, SIZES};

/// Row groups of the Parquet file of `t`.
const ROW_GROUPS: usize = 15;

/// Files of a case, and the statements that make tables of them.
pub struct Prepared {
    pub dir: PathBuf,
    pub creates: Vec<String>,
    /// Rows of `t`.
    pub t_rows: usize,
}

/// Single-process DataFusion, whose answers are right but for the cases that say otherwise.
pub fn single_process() -> SessionContext {
    let config = SessionConfig::new()
        .with_target_partitions(2)
        .with_information_schema(true);
    SessionContext::new_with_config(config)
}

/// Makes the files of a case in a new directory.
pub async fn prepare(
    base: &Path,
    index: usize,
    case: &Case,
    format: Format,
    size: usize,
) -> Prepared {
    let dir = base.join(format!("{index}-{format:?}-{size}"));
    fs::create_dir(&dir).expect("a directory");
    let mut prepared = Prepared {
        creates: Vec::new(),
        t_rows: SIZES[size].1,
        dir,
    };
    if case.spread {
        let one = "SET distributed.file_scan_config_bytes_per_partition = 1";
        prepared.creates.push(one.to_owned());
    }
    for input in case.inputs {
        prepared.add(base, input, format, size).await;
    }
    prepared
}

impl Prepared {
    async fn add(&mut self, base: &Path, input: &Input, format: Format, size: usize) {
        match *input {
            Input::Table {
                name,
                columns,
                rows,
                per_file,
                parquet_only,
            } => {
                let format = match parquet_only {
                    true => Format::Parquet,
                    false => format,
                };
                let path = self.dir.join(name);
                fs::create_dir(&path).expect("a directory");
                let batch = batch(columns, rows).await;
                for (file, first) in (0..batch.num_rows().max(1)).step_by(per_file).enumerate() {
                    let part = batch.slice(first, per_file.min(batch.num_rows() - first));
                    write(&path.join(format!("{file}")), format, &part, None);
                }
                self.creates.push(external(
                    name,
                    columns,
                    &format!("{}/", path.display()),
                    format,
                ));
            }
            Input::T => {
                let path = t(base, format, size);
                let columns = "id BIGINT, g BIGINT, v BIGINT, s TEXT";
                let path = path.to_str().expect("UTF-8");
                self.creates.push(external("t", columns, path, format));
            }
            Input::Text { path, text } => {
                fs::write(self.new_file(path), text).expect("a file");
            }
            Input::Made { path, make } => make(&self.new_file(path)),
            Input::Written { sql } => {
                let sql = sql.replace("{dir}", self.dir.to_str().expect("UTF-8"));
                let written = single_process().sql(&sql).await.expect(&sql);
                written.collect().await.expect(&sql);
            }
        }
    }

    fn new_file(&self, path: &str) -> PathBuf {
        let path = self.dir.join(path);
        fs::create_dir_all(path.parent().expect("it is below the case's")).expect("a directory");
        path
    }
}

fn external(name: &str, columns: &str, path: &str, format: Format) -> String {
    match format {
        Format::Csv => format!(
            "CREATE EXTERNAL TABLE {name} ({columns}) STORED AS CSV LOCATION '{path}' \
             OPTIONS ('format.has_header' 'true')"
        ),
        Format::Parquet => {
            format!("CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{path}'")
        }
    }
}

async fn batch(columns: &str, rows: &str) -> RecordBatch {
    let context = single_process();
    let create = match rows {
        "" => format!("CREATE TABLE made ({columns})"),
        rows => format!("CREATE TABLE made ({columns}) AS VALUES {rows}"),
    };
    context.sql(&create).await.expect(&create);
    let made = context.table("made").await.expect("a table");
    let schema = Arc::clone(made.schema().inner());
    let batches = made.collect().await.expect("rows");
    arrow::compute::concat_batches(&schema, &batches).expect("of one schema")
}

/// Writes a file, with its format's extension.
pub fn write(path: &Path, format: Format, batch: &RecordBatch, group_rows: Option<usize>) {
    match format {
        Format::Csv => {
            let file = File::create(path.with_extension("csv")).expect("a file");
            let mut writer = arrow::csv::Writer::new(file);
            writer.write(batch).expect("rows");
        }
        Format::Parquet => {
            let file = File::create(path.with_extension("parquet")).expect("a file");
            let properties = WriterProperties::builder()
                .set_max_row_group_row_count(group_rows)
                .build();
            let writer = ArrowWriter::try_new(file, batch.schema(), Some(properties));
            let mut writer = writer.expect("a writer");
            writer.write(batch).expect("rows");
            writer.close().expect("a footer");
        }
    }
}

/// The file of the table `t`, which is made once.
fn t(base: &Path, format: Format, size: usize) -> PathBuf {
    let path = base.join(format!("t-{size}"));
    let rows = SIZES[size].1;
    let file = match format {
        Format::Csv => path.with_extension("csv"),
        Format::Parquet => path.with_extension("parquet"),
    };
    if file.exists() {
        return file;
    }
    match format {
        // Not by Arrow, which takes a batch of all rows.
        Format::Csv => write_t(&file, rows),
        Format::Parquet => write(
            &path,
            format,
            &t_batch(rows),
            Some(rows.div_ceil(ROW_GROUPS)),
        ),
    }
    file
}

fn write_t(file: &Path, rows: usize) {
    let mut out = BufWriter::new(File::create(file).expect("a file"));
    let mut line = String::from("id,g,v,s\n");
    for id in 0..rows {
        writeln!(line, "{id},{},{},text {id}", id % 7, id * 7919 % 1000).expect("memory");
        out.write_all(line.as_bytes()).expect("rows");
        line.clear();
    }
}

/// The rows of `t`.
pub fn t_batch(rows: usize) -> RecordBatch {
    let ids = 0..rows as i64;
    let number = |of: fn(i64) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(ids.clone().map(of)))
    };
    let texts = ids.clone().map(|id| format!("text {id}"));
    let columns: [(&str, ArrayRef); 4] = [
        ("id", number(|id| id)),
        ("g", number(|id| id % 7)),
        ("v", number(|id| id * 7919 % 1000)),
        ("s", Arc::new(StringArray::from_iter_values(texts))),
    ];
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

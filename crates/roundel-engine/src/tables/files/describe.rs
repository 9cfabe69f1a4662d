//! Describes a table of files: finds its files, what they hold, and one schema for all.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::{Constraints, plan_datafusion_err};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::{Expr, SortExpr};
use parking_lot::Mutex;

use super::csv::{self, Form, Sample, Seen};
use super::format::{Format, Named, Shape};
use super::location::{FoundFile, Location};
use super::notices::Notices;
use super::options::{Csv, Options};
use super::reader::Reader;
use super::schema::Union;
use super::survey::{Choice, list, same_shape};
use super::table::{FileTable, Known};
use super::{hive, wrong};
use crate::{EngineError, Result};

/// Bytes of a CSV file from which its types are inferred, if it is one of few.
const SAMPLE_BYTES: usize = 4 << 20;
/// The same, if it is one of many.
const SAMPLE_BYTES_MIN: usize = 64 << 10;
/// Bytes that are read of all files of a table.
const SAMPLE_BYTES_ALL: usize = 32 << 20;

/// What is asked of a table of files.
#[derive(Debug, Default)]
pub(super) struct Request {
    /// The table's name, for messages.
    pub(super) name: String,
    pub(super) paths: Vec<String>,
    pub(super) stated: Option<Named>,
    pub(super) options: HashMap<String, String>,
    /// The columns that a statement declares, those of PARTITIONED BY among them.
    pub(super) columns: Option<Schema>,
    /// What PARTITIONED BY names.
    pub(super) partitions: Vec<String>,
    pub(super) order: Vec<Vec<SortExpr>>,
    pub(super) constraints: Constraints,
    pub(super) definition: Option<String>,
    pub(super) defaults: HashMap<String, Expr>,
}

/// Finds the files and describes the table.
pub(super) async fn describe(state: &dyn Session, request: Request) -> Result<FileTable> {
    let asked = request.paths.join(", ");
    let locations: Vec<Location> = request
        .paths
        .iter()
        .map(|path| Location::parse(path))
        .collect::<Result<_>>()?;
    let execution = &state.config_options().execution;
    let subdirectories = !execution.listing_table_ignore_subdirectory;
    let is_vacant = |location: &Location| location.is_vacant();
    let may_be_vacant = request.columns.is_some() && request.stated.is_some();
    let all = match may_be_vacant && locations.iter().all(is_vacant) {
        true => Vec::new(),
        false => list(&locations, subdirectories)?,
    };
    if all.is_empty() && !may_be_vacant {
        return Err(wrong(&asked, "there are no files"));
    }
    let choice = Choice::of(&asked, &locations, &all, request.stated)?.ok_or_else(|| {
        wrong(
            &asked,
            "is of no known format (.parquet, .csv, .tsv, .json, .jsonl, .ndjson, .arrow, .avro); \
             say which with CREATE EXTERNAL TABLE … STORED AS",
        )
    })?;
    let mut files = choice.select(&locations, all);
    if files.is_empty() && !may_be_vacant {
        let format = choice.named.text();
        return Err(wrong(&asked, format!("there are no {format} files")));
    }
    let options = Options::new(&request.options)?;
    let declared_compression = options.compression()?;
    let mut first: Option<(PathBuf, Shape)> = None;
    let mut kept = Vec::with_capacity(files.len());
    for file in files.drain(..) {
        let Some(shape) = choice.check(&file, declared_compression)? else {
            continue;
        };
        let had = first.as_ref().map(|(path, shape)| (path.as_path(), *shape));
        same_shape(&asked, had, &file.path, shape)?;
        first.get_or_insert_with(|| (file.path.clone(), shape));
        kept.push(file);
    }
    let files = kept;
    let shape = match first {
        Some((_, shape)) => shape,
        None if request.columns.is_some() => Shape::of_none(choice.named, declared_compression),
        None => return Err(wrong(&asked, "is empty: 0 bytes")),
    };
    let partitions = partition_columns(state, &asked, &request, &files)?;
    let is_partition = |name: &str| partitions.iter().any(|field| field.name() == name);
    let columns = request.columns.as_ref().map(|schema| {
        let own = schema
            .fields()
            .iter()
            .filter(|field| !is_partition(field.name()));
        Schema::new(own.cloned().collect::<Vec<_>>())
    });
    let mut known = HashMap::new();
    let (reader, inferred) = match shape.format {
        Format::Csv => {
            let mut csv = options.csv(state)?;
            if choice.named == Named::Tsv {
                csv.settings.delimiter.get_or_insert(b'\t');
            }
            let found = csv_files(&asked, &files, shape, &csv, columns.as_ref())?;
            if let Some(notice) = found.notice {
                let name = &request.name;
                Notices::add(
                    state.config(),
                    format!(
                        "{name}: {asked} is read as CSV with {notice}: a guess, which OPTIONS of CREATE EXTERNAL TABLE can correct"
                    ),
                );
            }
            let read_as = csv.read_as(found.form, shape.compression);
            let format = options.format(state, shape, Some(&read_as))?;
            let reader = Reader {
                shape,
                format,
                csv: Some(read_as),
            };
            (reader, found.schema)
        }
        _ => {
            let format = options.format(state, shape, None)?;
            let reader = Reader {
                shape,
                format,
                csv: None,
            };
            let schemas = match columns.is_some() && !reader.needs_schemas() {
                true => Vec::new(),
                false => reader.schemas(state, &files).await?,
            };
            let is_json = matches!(shape.format, Format::Ndjson | Format::JsonArray);
            let mut union = Union::new(is_json);
            for (file, schema) in files.iter().zip(schemas) {
                union.add(&request.name, &file.path, &schema)?;
                known.insert(file.path.clone(), Known::new(file).with_schema(schema));
            }
            (reader, union.finish())
        }
    };
    for file in &files {
        let path = file.path.clone();
        known.entry(path).or_insert_with(|| Known::new(file));
    }
    let file_schema = match columns {
        Some(columns) => Arc::new(columns),
        None => {
            // Where a file has a column of the same name, the directory's wins.
            let own = inferred
                .fields()
                .iter()
                .filter(|field| !is_partition(field.name()));
            Arc::new(Schema::new(own.cloned().collect::<Vec<_>>()))
        }
    };
    if file_schema.fields().is_empty() && partitions.is_empty() {
        return Err(wrong(
            &asked,
            "has no columns: there is neither a header nor a row",
        ));
    }
    let own = file_schema.fields().iter().cloned();
    let all = own.chain(partitions.iter().cloned().map(Arc::new));
    let schema = Schema::new(all.collect::<Vec<_>>());
    check_order(&schema, &request.order)?;
    Ok(FileTable {
        locations,
        choice,
        compression: declared_compression,
        reader,
        file_schema,
        partitions,
        schema: Arc::new(schema),
        declared: request.columns.is_some(),
        order: request.order,
        constraints: request.constraints,
        definition: request.definition,
        defaults: request.defaults,
        known: Mutex::new(known),
    })
}

/// The columns of a statement's PARTITIONED BY, or of the directories' names.
fn partition_columns(
    state: &dyn Session,
    asked: &str,
    request: &Request,
    files: &[FoundFile],
) -> Result<Vec<Field>> {
    if request.partitions.is_empty() {
        if !state
            .config_options()
            .execution
            .listing_table_factory_infer_partitions
            || request.columns.is_some()
        {
            return Ok(Vec::new());
        }
        let keys = hive::keys(asked, files)?;
        return Ok(hive::infer(&keys, files));
    }
    let columns = request.partitions.iter().map(|name| {
        let declared = request.columns.as_ref();
        let Some(schema) = declared else {
            // As DataFusion has it where no type is said.
            let text = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8));
            return Ok(Field::new(name, text, true));
        };
        let field = schema.field_with_name(name).map_err(|_| {
            wrong(
                asked,
                format!("PARTITIONED BY names {name}, which is none of the declared columns"),
            )
        })?;
        Ok(field.clone().with_nullable(true))
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    hive::check(asked, &columns, files)?;
    for file in files {
        hive::values(file, &columns)?;
    }
    Ok(columns)
}

/// What CSV files have in common.
struct CsvFiles {
    form: Form,
    notice: Option<String>,
    schema: SchemaRef,
}

fn csv_files(
    asked: &str,
    files: &[FoundFile],
    shape: Shape,
    csv: &Csv,
    columns: Option<&Schema>,
) -> Result<CsvFiles> {
    let settings = &csv.settings;
    let declared: Option<Vec<(String, DataType)>> = columns.map(|schema| {
        let fields = schema.fields().iter();
        fields
            .map(|field| (field.name().clone(), field.data_type().clone()))
            .collect()
    });
    let declared = declared.as_deref();
    let each = (SAMPLE_BYTES_ALL / files.len().max(1)).clamp(SAMPLE_BYTES_MIN, SAMPLE_BYTES);
    let mut form: Option<(Form, Option<String>)> = None;
    let mut all: Vec<(String, Seen)> = Vec::new();
    let mut unnamed: Option<(&FoundFile, usize)> = None;
    for file in files {
        let sample = Sample::read(&file.path, shape.compression, each, settings)?;
        if form.is_none() && !sample.is_empty(settings.dialect()) {
            form = Some(csv::form_of(&sample, settings, declared));
        }
        let Some((form, _)) = &form else { continue };
        let found = csv::sampled(&file.path, &sample, *form, settings, declared)?;
        for (name, seen) in found.names.iter().zip(&found.seen) {
            match csv::place(&all, &found.names, name) {
                Some(place) => all[place].1.merge(*seen),
                None => all.push((name.clone(), *seen)),
            }
        }
        let fields = found.names.len();
        match unnamed {
            Some((other, had))
                if had != fields && fields > 0 && !form.header && !settings.ragged =>
            {
                return Err(wrong(
                    &file.path.display().to_string(),
                    format!(
                        "has {fields} columns, but {} has {had}, and without a header nothing says which \
                         are which",
                        other.path.display()
                    ),
                ));
            }
            None if fields > 0 => unnamed = Some((file, fields)),
            _ => {}
        }
    }
    let (form, notice) = match form {
        Some(form) => form,
        // A table without a record has a header at most when rows are written to it.
        None if columns.is_some() => (csv::form_of_none(settings), None),
        None => {
            return Err(wrong(
                asked,
                "is empty: there is neither a header nor a row",
            ));
        }
    };
    let fields = all.into_iter().map(|(name, seen)| {
        let data_type = seen.data_type().unwrap_or(DataType::Utf8);
        Field::new(name, data_type, true)
    });
    Ok(CsvFiles {
        form,
        notice,
        schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
    })
}

fn check_order(schema: &Schema, order: &[Vec<SortExpr>]) -> Result<()> {
    for sort in order.iter().flatten() {
        for column in sort.expr.column_refs() {
            if schema.field_with_name(&column.name).is_err() {
                return Err(EngineError::Usage(format!(
                    "WITH ORDER names {}, which is no column of the table",
                    column.name
                )));
            }
        }
    }
    Ok(())
}

/// The error where a table's session has ended.
pub(super) fn no_session() -> DataFusionError {
    plan_datafusion_err!("the session has ended")
}

/// As DataFusion's own error.
pub(super) fn into_table(described: Result<FileTable>) -> DataFusionResult<Arc<FileTable>> {
    described.map(Arc::new).map_err(DataFusionError::from)
}

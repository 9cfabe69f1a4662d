//! Results on standard output: as a table, CSV or JSON. It knows nothing of where rows come from.

mod csv;
mod json;

use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::json::ArrayWriter;
use arrow::util::display::FormatOptions;
use arrow::util::pretty::pretty_format_batches_with_options;

use crate::cli::Format;
use roundel_terminal::Failure;

/// The results of a command, one after another.
pub struct Results {
    format: Format,
    rows_max: usize,
    /// Results with columns so far.
    written: usize,
}

impl Results {
    /// None so far; `rows_max` limits tables only.
    pub fn new(format: Format, rows_max: usize) -> Self {
        Self {
            format,
            rows_max,
            written: 0,
        }
    }

    /// Begins the next result, which has these columns. DDL and the like have none, and write nothing.
    ///
    /// # Errors
    /// When `out` takes nothing.
    pub fn next<W: Write>(
        &mut self,
        mut out: W,
        schema: SchemaRef,
    ) -> Result<ResultWriter<W>, Failure> {
        let form = match self.format {
            _ if schema.fields().is_empty() => Form::Nothing,
            Format::Table => Form::Table {
                schema,
                kept: Vec::new(),
                room: self.rows_max,
            },
            Format::Csv => {
                let mut bytes = Vec::new();
                if self.written > 0 {
                    bytes.push(b'\n');
                }
                // It comes even if no row does.
                csv::header(&schema, &mut bytes);
                drain(&mut bytes, &mut out)?;
                Form::Csv
            }
            Format::Json => Form::Json(json::writer()),
        };
        self.written += usize::from(!matches!(form, Form::Nothing));
        Ok(ResultWriter { out, form, rows: 0 })
    }
}

/// One result on its way to `out`.
///
/// CSV and JSON are written batch by batch. A table needs the widths of all its rows first, so it
/// keeps up to its limit of rows and counts the others.
pub struct ResultWriter<W> {
    out: W,
    form: Form,
    rows: usize,
}

enum Form {
    Nothing,
    Table {
        schema: SchemaRef,
        kept: Vec<RecordBatch>,
        room: usize,
    },
    Csv,
    Json(ArrayWriter<Vec<u8>>),
}

impl<W: Write> ResultWriter<W> {
    /// Takes the next rows.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        self.rows += batch.num_rows();
        match &mut self.form {
            Form::Nothing => Ok(()),
            Form::Table { kept, room, .. } => {
                let taken = batch.num_rows().min(*room);
                *room -= taken;
                if taken > 0 {
                    kept.push(batch.slice(0, taken));
                }
                Ok(())
            }
            Form::Csv => {
                let mut bytes = Vec::new();
                csv::rows(batch, &mut bytes).map_err(encoding)?;
                drain(&mut bytes, &mut self.out)
            }
            Form::Json(writer) => {
                writer.write(batch).map_err(encoding)?;
                drain(writer.get_mut(), &mut self.out)
            }
        }
    }

    /// Writes what is left and returns the number of rows of the result.
    pub fn finish(mut self) -> Result<usize, Failure> {
        match self.form {
            Form::Table { schema, kept, .. } => {
                let table = table(&schema, &kept).map_err(encoding)?;
                writeln!(self.out, "{table}").map_err(Failure::output)?;
                let shown: usize = kept.iter().map(RecordBatch::num_rows).sum();
                if shown < self.rows {
                    let more = self.rows - shown;
                    writeln!(self.out, "... and {more} more rows (--max-rows)")
                        .map_err(Failure::output)?;
                }
            }
            Form::Nothing | Form::Csv => {}
            Form::Json(mut writer) => {
                writer.finish().map_err(encoding)?;
                let mut rest = writer.into_inner();
                rest.push(b'\n');
                drain(&mut rest, &mut self.out)?;
            }
        }
        self.out.flush().map_err(Failure::output)?;
        Ok(self.rows)
    }
}

fn table(schema: &SchemaRef, rows: &[RecordBatch]) -> Result<String, ArrowError> {
    let options = FormatOptions::default()
        .with_display_error(true)
        .with_null("NULL");
    let empty = [RecordBatch::new_empty(schema.clone())];
    let rows = if rows.is_empty() { &empty } else { rows };
    Ok(pretty_format_batches_with_options(rows, &options)?.to_string())
}

/// Encoders write to memory and the bytes go out here, so that a closed output is seen as such.
fn drain(bytes: &mut Vec<u8>, out: &mut impl Write) -> Result<(), Failure> {
    out.write_all(bytes).map_err(Failure::output)?;
    bytes.clear();
    Ok(())
}

fn encoding(error: ArrowError) -> Failure {
    Failure::Run(roundel_verbs::one_line(&format!(
        "cannot write the result: {error}"
    )))
}

/// Standard output, written in large pieces.
pub fn stdout() -> io::BufWriter<io::StdoutLock<'static>> {
    io::BufWriter::with_capacity(64 << 10, io::stdout().lock())
}

#[cfg(test)]
mod tests;

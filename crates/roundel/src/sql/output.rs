//! Results on standard output: as a table, CSV or JSON. It knows nothing of where rows come from.

use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::csv;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::json;
use arrow::util::display::FormatOptions;
use arrow::util::pretty::pretty_format_batches_with_options;

use crate::cli::Format;
use crate::failure::Failure;

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
    Table {
        schema: SchemaRef,
        kept: Vec<RecordBatch>,
        room: usize,
    },
    Csv,
    Json(json::ArrayWriter<Vec<u8>>),
}

impl<W: Write> ResultWriter<W> {
    /// A writer of a result with these columns; `rows_max` limits a table only.
    pub fn new(
        mut out: W,
        format: Format,
        schema: SchemaRef,
        rows_max: usize,
    ) -> Result<Self, Failure> {
        let form = match format {
            Format::Table => Form::Table {
                schema,
                kept: Vec::new(),
                room: rows_max,
            },
            Format::Csv => {
                // The header comes even if no row does; DDL and the like have no columns.
                if !schema.fields().is_empty() {
                    let none = RecordBatch::new_empty(schema);
                    drain(&mut csv_bytes(&none, true)?, &mut out)?;
                }
                Form::Csv
            }
            Format::Json => {
                let builder = json::WriterBuilder::new().with_explicit_nulls(true);
                Form::Json(builder.build(Vec::new()))
            }
        };
        Ok(Self { out, form, rows: 0 })
    }

    /// Takes the next rows.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        self.rows += batch.num_rows();
        match &mut self.form {
            Form::Table { kept, room, .. } => {
                let taken = batch.num_rows().min(*room);
                *room -= taken;
                if taken > 0 {
                    kept.push(batch.slice(0, taken));
                }
                Ok(())
            }
            Form::Csv => drain(&mut csv_bytes(batch, false)?, &mut self.out),
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
                // DDL and the like have no columns, and nothing to show.
                if !schema.fields().is_empty() {
                    let table = table(&schema, &kept).map_err(encoding)?;
                    writeln!(self.out, "{table}").map_err(Failure::output)?;
                    let shown: usize = kept.iter().map(RecordBatch::num_rows).sum();
                    if shown < self.rows {
                        let more = self.rows - shown;
                        writeln!(self.out, "... and {more} more rows (--max-rows)")
                            .map_err(Failure::output)?;
                    }
                }
            }
            Form::Csv => {}
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
    let options = FormatOptions::default().with_display_error(true);
    let empty = [RecordBatch::new_empty(schema.clone())];
    let rows = if rows.is_empty() { &empty } else { rows };
    Ok(pretty_format_batches_with_options(rows, &options)?.to_string())
}

fn csv_bytes(batch: &RecordBatch, header: bool) -> Result<Vec<u8>, Failure> {
    let mut writer = csv::WriterBuilder::new()
        .with_header(header)
        .build(Vec::new());
    writer.write(batch).map_err(encoding)?;
    Ok(writer.into_inner())
}

/// Encoders write to memory and the bytes go out here, so that a closed output is seen as such.
fn drain(bytes: &mut Vec<u8>, out: &mut impl Write) -> Result<(), Failure> {
    out.write_all(bytes).map_err(Failure::output)?;
    bytes.clear();
    Ok(())
}

fn encoding(error: ArrowError) -> Failure {
    Failure::Run(crate::failure::one_line(&format!(
        "cannot write the result: {error}"
    )))
}

/// Standard output, written in large pieces.
pub fn stdout() -> io::BufWriter<io::StdoutLock<'static>> {
    io::BufWriter::with_capacity(64 << 10, io::stdout().lock())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    fn written(format: Format, batches: &[RecordBatch], rows_max: usize) -> String {
        let mut bytes = Vec::new();
        let schema = two_rows().schema();
        let mut writer = ResultWriter::new(&mut bytes, format, schema, rows_max).unwrap();
        for batch in batches {
            writer.write(batch).unwrap();
        }
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(writer.finish().unwrap(), rows);
        String::from_utf8(bytes).unwrap()
    }

    fn two_rows() -> RecordBatch {
        let n: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let s: ArrayRef = Arc::new(StringArray::from(vec!["a,b", "c"]));
        RecordBatch::try_from_iter([("n", n), ("s", s)]).unwrap()
    }

    #[test]
    fn csv_has_one_header() {
        let batches = [two_rows(), two_rows()];
        assert_eq!(
            written(Format::Csv, &batches, 1),
            "n,s\n1,\"a,b\"\n,c\n1,\"a,b\"\n,c\n"
        );
        assert_eq!(written(Format::Csv, &[], 1), "n,s\n");
    }

    #[test]
    fn what_has_no_columns_is_no_csv() {
        let mut bytes = Vec::new();
        let schema = SchemaRef::new(arrow::datatypes::Schema::empty());
        let writer = ResultWriter::new(&mut bytes, Format::Csv, schema, 1).unwrap();
        assert_eq!(writer.finish().unwrap(), 0);
        assert!(bytes.is_empty());
    }

    #[test]
    fn json_is_one_array() {
        let text = written(Format::Json, &[two_rows(), two_rows()], 1);
        let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(rows.as_array().map(Vec::len), Some(4));
        assert_eq!(rows[1], serde_json::json!({"n": null, "s": "c"}));
        assert_eq!(written(Format::Json, &[], 1), "[]\n");
    }

    #[test]
    fn a_table_stops_at_its_limit_and_says_so() {
        let text = written(Format::Table, &[two_rows(), two_rows()], 3);
        assert_eq!(text.matches("a,b").count(), 2, "{text}");
        assert!(
            text.ends_with("... and 1 more rows (--max-rows)\n"),
            "{text}"
        );
        assert!(written(Format::Table, &[], 3).contains("| n | s |"));
    }

    #[test]
    fn a_closed_output_ends_the_result_quietly() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let schema = two_rows().schema();
        let opened = ResultWriter::new(Closed, Format::Csv, schema, 1);
        assert!(matches!(opened.err(), Some(Failure::OutputClosed)));
    }
}

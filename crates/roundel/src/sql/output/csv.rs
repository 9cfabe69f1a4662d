//! A result as CSV, as docs/user/output.md says: NULL is nothing, an empty text is `""`, and what has parts is JSON.
//!
//! Arrow's own writer cannot tell NULL from an empty text, and refuses what has parts.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Schema};
use arrow::error::ArrowError;
use arrow::json::writer::{EncoderOptions, NullableEncoder, make_encoder};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::json;

/// Writes the names of the columns.
pub fn header(schema: &Schema, out: &mut Vec<u8>) {
    for (number, field) in schema.fields().iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        text(field.name(), out);
    }
    out.push(b'\n');
}

/// Writes rows.
///
/// # Errors
/// When a value has no form, such as a time that no calendar has.
pub fn rows(batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
    let options = json::options();
    let arrays: Vec<ArrayRef> = batch
        .columns()
        .iter()
        .map(plain)
        .collect::<Result<_, _>>()?;
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(&arrays);
    let mut columns = columns
        .map(|(field, array)| Column::new(field, array, &options))
        .collect::<Result<Vec<_>, _>>()?;
    for row in 0..batch.num_rows() {
        for (number, column) in columns.iter_mut().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            column.write(row, out)?;
        }
        out.push(b'\n');
    }
    Ok(())
}

/// A column without a dictionary or runs, whose values are those it stands for.
fn plain(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.data_type() {
        DataType::Dictionary(_, values) => plain(&cast(array, values)?),
        DataType::RunEndEncoded(_, values) => plain(&cast(array, values.data_type())?),
        _ => Ok(array.clone()),
    }
}

struct Column<'a> {
    array: &'a ArrayRef,
    form: Form<'a>,
    /// What is written, before it is known whether it needs quotes.
    value: String,
}

enum Form<'a> {
    Parts(NullableEncoder<'a>),
    Whole(ArrayFormatter<'a>),
}

impl<'a> Column<'a> {
    fn new(
        field: &'a FieldRef,
        array: &'a ArrayRef,
        options: &'a EncoderOptions,
    ) -> Result<Self, ArrowError> {
        const WHOLE: FormatOptions<'static> = FormatOptions::new();
        let form = match array.data_type().is_nested() {
            true => Form::Parts(make_encoder(field, array, options)?),
            false => Form::Whole(ArrayFormatter::try_new(array, &WHOLE)?),
        };
        Ok(Self {
            array,
            form,
            value: String::new(),
        })
    }

    fn write(&mut self, row: usize, out: &mut Vec<u8>) -> Result<(), ArrowError> {
        if self.array.is_null(row) || *self.array.data_type() == DataType::Null {
            return Ok(());
        }
        match &mut self.form {
            Form::Parts(encoder) => {
                let mut bytes = Vec::new();
                encoder.encode(row, &mut bytes);
                match bytes.as_slice() {
                    // A union whose value is NULL.
                    b"null" => {}
                    json => text(&String::from_utf8_lossy(json), out),
                }
            }
            Form::Whole(formatter) => {
                self.value.clear();
                formatter.value(row).write(&mut self.value)?;
                match (self.value.as_str(), self.array.data_type().is_floating()) {
                    // As in JSON.
                    ("inf", true) => out.extend_from_slice(json::INFINITY.as_bytes()),
                    ("-inf", true) => out.extend_from_slice(json::MINUS_INFINITY.as_bytes()),
                    (value, _) => text(value, out),
                }
            }
        }
        Ok(())
    }
}

/// Writes a field, within quotes where it would be taken for something else without them.
fn text(value: &str, out: &mut Vec<u8>) {
    let special = |byte: u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
    if !value.is_empty() && !value.bytes().any(special) {
        out.extend_from_slice(value.as_bytes());
        return;
    }
    out.push(b'"');
    for byte in value.bytes() {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

//! One schema for files that have several: columns by name, types widened. A value that does not fit the wider type is an error
//! when it is read.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};

use crate::{EngineError, Result};

/// Collects the columns of a table's files, in the order in which they appear.
#[derive(Debug, Default)]
pub(super) struct Union {
    columns: Vec<Column>,
    files: usize,
    /// Whether the types are only what was seen in text: its integers are floats, too.
    seen_in_text: bool,
}

#[derive(Debug)]
struct Column {
    field: Field,
    /// A file that has it so.
    file: std::path::PathBuf,
    /// In how many files it is.
    files: usize,
}

impl Union {
    pub(super) fn new(seen_in_text: bool) -> Self {
        Self {
            seen_in_text,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, table: &str, path: &Path, schema: &Schema) -> Result<()> {
        self.files += 1;
        let mut names = HashSet::new();
        for field in schema.fields() {
            if !names.insert(field.name()) {
                return Err(EngineError::Query(format!(
                    "{}: has two columns named {}; write it anew with other names",
                    path.display(),
                    field.name()
                )));
            }
            let mut known = self.columns.iter_mut();
            let known = known.find(|column| column.field.name() == field.name());
            let Some(column) = known else {
                self.columns.push(Column {
                    field: field.as_ref().clone(),
                    file: path.to_owned(),
                    files: 1,
                });
                continue;
            };
            column.files += 1;
            let had = column.field.data_type().clone();
            let wide = match (&had, field.data_type()) {
                (DataType::Int64, DataType::Float64) | (DataType::Float64, DataType::Int64)
                    if self.seen_in_text =>
                {
                    Some(DataType::Float64)
                }
                (had, new) => widen(had, new),
            };
            let wide = wide.ok_or_else(|| {
                EngineError::Query(format!(
                    "{table}: column {} is {had} in {} and {} in {}, and no type holds both; give the \
                     files to two tables and cast, or declare the column's type",
                    field.name(),
                    column.file.display(),
                    field.data_type(),
                    path.display()
                ))
            })?;
            if wide != had {
                column.file = path.to_owned();
            }
            let nullable = column.field.is_nullable() || field.is_nullable();
            column.field = column
                .field
                .clone()
                .with_data_type(wide)
                .with_nullable(nullable);
        }
        Ok(())
    }

    /// The table's schema. A column that some file lacks may be NULL; one that is NULL everywhere is text.
    pub(super) fn finish(self) -> SchemaRef {
        let files = self.files;
        let field = |column: Column| {
            let nullable = column.field.is_nullable() || column.files < files;
            let data_type = typed(column.field.data_type());
            column
                .field
                .with_nullable(nullable)
                .with_data_type(data_type)
        };
        Arc::new(Schema::new(
            self.columns.into_iter().map(field).collect::<Vec<_>>(),
        ))
    }
}

/// The same type, with text for what was only ever NULL.
fn typed(data_type: &DataType) -> DataType {
    let item = |field: &FieldRef| {
        let inner = typed(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(inner))
    };
    match data_type {
        DataType::Null => DataType::Utf8,
        DataType::List(field) => DataType::List(item(field)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(item).collect()),
        other => other.clone(),
    }
}

/// Digits before and after the point of a type's numbers.
fn digits(data_type: &DataType) -> Option<(i16, i16)> {
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            (i16::from(*precision) - i16::from(*scale), i16::from(*scale))
        }
        _ => return None,
    })
}

/// Bits of an integer, and whether it has a sign.
fn integer(data_type: &DataType) -> Option<(u8, bool)> {
    Some(match data_type {
        DataType::Int8 => (8, true),
        DataType::Int16 => (16, true),
        DataType::Int32 => (32, true),
        DataType::Int64 => (64, true),
        DataType::UInt8 => (8, false),
        DataType::UInt16 => (16, false),
        DataType::UInt32 => (32, false),
        DataType::UInt64 => (64, false),
        _ => return None,
    })
}

fn integer_of(bits: u8, signed: bool) -> DataType {
    match (bits, signed) {
        (8, true) => DataType::Int8,
        (16, true) => DataType::Int16,
        (32, true) => DataType::Int32,
        (64, true) => DataType::Int64,
        (8, false) => DataType::UInt8,
        (16, false) => DataType::UInt16,
        (32, false) => DataType::UInt32,
        (64, false) => DataType::UInt64,
        // An unsigned one of 64 bits beside one with a sign.
        _ => DataType::Decimal128(20, 0),
    }
}

/// Bits of a float, and of the integers that it holds exactly.
fn float(data_type: &DataType) -> Option<(u8, u8)> {
    Some(match data_type {
        DataType::Float16 => (16, 11),
        DataType::Float32 => (32, 24),
        DataType::Float64 => (64, 53),
        _ => return None,
    })
}

/// The smallest type that holds all values of both, if there is one.
pub(super) fn widen(a: &DataType, b: &DataType) -> Option<DataType> {
    if a == b {
        return Some(a.clone());
    }
    if let (DataType::Null, other) | (other, DataType::Null) = (a, b) {
        return Some(other.clone());
    }
    if let DataType::Dictionary(_, values) = a {
        return widen(values, b);
    }
    if let DataType::Dictionary(_, values) = b {
        return widen(a, values);
    }
    numbers(a, b)
        .or_else(|| times(a, b))
        .or_else(|| bytes(a, b))
        .or_else(|| nested(a, b))
}

fn numbers(a: &DataType, b: &DataType) -> Option<DataType> {
    match ((integer(a), float(a)), (integer(b), float(b))) {
        ((Some((a, a_signed)), _), (Some((b, b_signed)), _)) => {
            let bits = match (a_signed, b_signed) {
                (true, false) if b >= a => b.saturating_mul(2),
                (false, true) if a >= b => a.saturating_mul(2),
                _ => a.max(b),
            };
            Some(integer_of(bits, a_signed || b_signed))
        }
        ((_, Some((a_bits, _))), (_, Some((b_bits, _)))) => Some(if a_bits > b_bits {
            a.clone()
        } else {
            b.clone()
        }),
        ((Some((bits, _)), _), (_, Some((_, exact)))) if bits <= exact => Some(b.clone()),
        ((_, Some((_, exact))), (Some((bits, _)), _)) if bits <= exact => Some(a.clone()),
        ((Some((bits, _)), _), (_, Some(_))) | ((_, Some(_)), (Some((bits, _)), _))
            if bits <= 32 =>
        {
            Some(DataType::Float64)
        }
        _ => {
            let ((a_whole, a_part), (b_whole, b_part)) = (digits(a)?, digits(b)?);
            let part = a_part.max(b_part);
            let precision = a_whole.max(b_whole) + part;
            let scale = i8::try_from(part).ok()?;
            match u8::try_from(precision).ok()? {
                precision @ 0..=38 => Some(DataType::Decimal128(precision, scale)),
                precision @ 39..=76 => Some(DataType::Decimal256(precision, scale)),
                _ => None,
            }
        }
    }
}

fn times(a: &DataType, b: &DataType) -> Option<DataType> {
    let fineness = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    };
    match (a, b) {
        (DataType::Date32, DataType::Date64) | (DataType::Date64, DataType::Date32) => {
            Some(DataType::Date64)
        }
        (DataType::Date32, DataType::Timestamp(unit, None))
        | (DataType::Timestamp(unit, None), DataType::Date32) => {
            Some(DataType::Timestamp(*unit, None))
        }
        (DataType::Timestamp(x, x_zone), DataType::Timestamp(y, y_zone)) => {
            let zone = match (x_zone, y_zone) {
                (None, None) => None,
                (Some(x), Some(y)) if x == y => Some(Arc::clone(x)),
                // The same instants, whatever the zone they are shown in.
                (Some(_), Some(_)) => Some(Arc::from("UTC")),
                _ => return None,
            };
            let unit = if fineness(x) > fineness(y) { x } else { y };
            Some(DataType::Timestamp(*unit, zone))
        }
        _ => None,
    }
}

fn bytes(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    let rank = |t: &DataType| match t {
        Utf8 => Some((0, 0)),
        LargeUtf8 => Some((0, 1)),
        Utf8View => Some((0, 2)),
        Binary => Some((1, 0)),
        LargeBinary => Some((1, 1)),
        BinaryView => Some((1, 2)),
        _ => None,
    };
    let (x, y) = (rank(a)?, rank(b)?);
    (x.0 == y.0).then(|| if x.1 > y.1 { a.clone() } else { b.clone() })
}

fn nested(a: &DataType, b: &DataType) -> Option<DataType> {
    let item = |x: &FieldRef, y: &FieldRef| {
        let nullable = x.is_nullable() || y.is_nullable();
        let inner = widen(x.data_type(), y.data_type())?;
        let field = x.as_ref().clone().with_data_type(inner);
        Some(Arc::new(field.with_nullable(nullable)))
    };
    match (a, b) {
        (DataType::List(x), DataType::List(y)) => Some(DataType::List(item(x, y)?)),
        (
            DataType::List(x) | DataType::LargeList(x),
            DataType::List(y) | DataType::LargeList(y),
        ) => Some(DataType::LargeList(item(x, y)?)),
        (DataType::Struct(x), DataType::Struct(y)) => Some(DataType::Struct(fields(x, y)?)),
        _ => None,
    }
}

/// Fields of a struct by name. A field that one of them lacks may be NULL.
fn fields(a: &Fields, b: &Fields) -> Option<Fields> {
    let optional = |field: &FieldRef| Arc::new(field.as_ref().clone().with_nullable(true));
    let mut all = Vec::with_capacity(a.len().max(b.len()));
    for x in a {
        let found = b.iter().find(|y| y.name() == x.name());
        all.push(match found {
            Some(y) => {
                let inner = widen(x.data_type(), y.data_type())?;
                let nullable = x.is_nullable() || y.is_nullable();
                Arc::new(
                    x.as_ref()
                        .clone()
                        .with_data_type(inner)
                        .with_nullable(nullable),
                )
            }
            None => optional(x),
        });
    }
    let new = b.iter().filter(|y| a.iter().all(|x| x.name() != y.name()));
    all.extend(new.map(optional));
    Some(all.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_widen_where_nothing_is_lost() {
        use DataType::*;
        let time = |unit| Timestamp(unit, None);
        for (a, b, wide) in [
            (Int32, Int64, Some(Int64)),
            (UInt8, Int8, Some(Int16)),
            (UInt32, Int64, Some(Int64)),
            (UInt64, Int64, Some(Decimal128(20, 0))),
            (UInt8, UInt32, Some(UInt32)),
            (Int16, Float32, Some(Float32)),
            (Int32, Float32, Some(Float64)),
            (Int64, Float64, None),
            (Float32, Float64, Some(Float64)),
            (Int32, Decimal128(5, 2), Some(Decimal128(12, 2))),
            (
                Decimal128(38, 0),
                Decimal128(10, 5),
                Some(Decimal256(43, 5)),
            ),
            (Null, Date32, Some(Date32)),
            (
                Date32,
                time(TimeUnit::Microsecond),
                Some(time(TimeUnit::Microsecond)),
            ),
            (
                time(TimeUnit::Second),
                time(TimeUnit::Nanosecond),
                Some(time(TimeUnit::Nanosecond)),
            ),
            (Utf8, Utf8View, Some(Utf8View)),
            (Utf8, Binary, None),
            (Utf8, Int64, None),
            (Boolean, Int64, None),
            (
                Dictionary(Box::new(Int32), Box::new(Utf8)),
                Utf8,
                Some(Utf8),
            ),
        ] {
            assert_eq!(widen(&a, &b), wide, "{a} and {b}");
            assert_eq!(widen(&b, &a), wide, "{b} and {a}");
        }
    }

    #[test]
    fn a_file_has_each_name_once() {
        let field = Field::new("a", DataType::Int64, true);
        let twice = Schema::new(vec![field.clone(), field]);
        let refused = Union::new(false).add("t", Path::new("/x"), &twice);
        let refused = refused.expect_err("two of one name").to_string();
        assert!(refused.contains("two columns named a"), "{refused}");
    }

    #[test]
    fn columns_are_united_by_name() {
        let schema = |fields: &[(&str, DataType)]| {
            let fields = fields.iter().map(|(n, t)| Field::new(*n, t.clone(), false));
            Schema::new(fields.collect::<Vec<_>>())
        };
        let inner =
            |name: &str, t: DataType| DataType::Struct(vec![Field::new(name, t, false)].into());
        let mut union = Union::default();
        let (one, two) = (Path::new("/d/1"), Path::new("/d/2"));
        let first = schema(&[("a", DataType::Int32), ("n", inner("x", DataType::Int64))]);
        union.add("t", one, &first).expect("adds");
        let second = schema(&[
            ("b", DataType::Utf8),
            ("n", inner("y", DataType::Utf8)),
            ("a", DataType::Int64),
        ]);
        union.add("t", two, &second).expect("adds");
        let error = union.add("t", Path::new("/d/3"), &schema(&[("a", DataType::Utf8)]));
        let error = error.expect_err("no common type").to_string();
        assert!(
            error.contains("column a is Int64 in /d/2 and Utf8 in /d/3"),
            "{error}"
        );
        let united = union.finish();
        let names: Vec<_> = united.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, ["a", "n", "b"]);
        assert_eq!(united.field(0).data_type(), &DataType::Int64);
        assert!(united.field(2).is_nullable());
        let DataType::Struct(fields) = united.field(1).data_type() else {
            panic!("a struct");
        };
        assert_eq!(fields.len(), 2);
        assert!(fields.iter().all(|field| field.is_nullable()));
    }
}

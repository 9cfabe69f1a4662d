//! Which column of a CSV file is which column of its table: the names in the file's first line say so.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;

/// How the records of one file become rows of its table.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// The columns of the file.
    pub(super) file: SchemaRef,
    /// Which of them are read, ascending.
    pub(super) read: Vec<usize>,
    /// For each column that is wanted, which one of those read it is; `None` where the file lacks it.
    columns: Vec<Option<usize>>,
    /// The columns that are wanted.
    wanted: SchemaRef,
}

impl Layout {
    /// Of a file whose columns are those of the table, in their order.
    pub(super) fn by_position(table: &SchemaRef, wanted: &[usize]) -> Result<Self, String> {
        let places = (0..table.fields().len()).map(Some).collect::<Vec<_>>();
        Self::new(Arc::clone(table), &places, table, wanted)
    }

    /// Of a file with a header.
    pub(super) fn by_name(
        header: &[String],
        table: &SchemaRef,
        wanted: &[usize],
    ) -> Result<Self, String> {
        let names = table.fields().iter().map(|field| field.name().as_str());
        let places: Vec<Option<usize>> = names.map(|name| find(header, name)).collect();
        let distinct = header.iter().collect::<HashSet<_>>();
        let is_unclear = distinct.len() < header.len();
        if is_unclear || places.iter().all(Option::is_none) {
            // The names are the table's own, or several are the same: only places can say which is which.
            if header.len() == table.fields().len() {
                return Self::by_position(table, wanted);
            }
            let problem = match is_unclear {
                true => "names a column twice",
                false => "has none of the table's columns",
            };
            let theirs = table.fields().iter().map(|field| field.name().as_str());
            return Err(format!(
                "line 1: its header ({}) {problem} ({})",
                header.join(", "),
                theirs.collect::<Vec<_>>().join(", ")
            ));
        }
        let mut fields: Vec<Field> = header
            .iter()
            .map(|name| Field::new(name, DataType::Utf8, true))
            .collect();
        for (field, place) in table.fields().iter().zip(&places) {
            if let Some(place) = place {
                fields[*place] = field.as_ref().clone();
            }
        }
        Self::new(Arc::new(Schema::new(fields)), &places, table, wanted)
    }

    /// `places` says where each column of the table is in the file.
    fn new(
        file: SchemaRef,
        places: &[Option<usize>],
        table: &SchemaRef,
        wanted: &[usize],
    ) -> Result<Self, String> {
        let found = wanted.iter().map(|column| places[*column]);
        let mut read: Vec<usize> = found.clone().flatten().collect();
        read.sort_unstable();
        read.dedup();
        for (column, place) in wanted.iter().zip(found.clone()) {
            let field = table.field(*column);
            if place.is_none() && !field.is_nullable() {
                return Err(format!(
                    "it lacks the column {}, which may not be NULL",
                    field.name()
                ));
            }
        }
        let columns = found
            .map(|place| place.and_then(|place| read.binary_search(&place).ok()))
            .collect();
        Ok(Self {
            file,
            read,
            columns,
            wanted: Arc::new(table.project(wanted).map_err(|e| e.to_string())?),
        })
    }

    /// The rows of the table that records are.
    pub(super) fn rows(&self, records: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let rows = records.num_rows();
        let columns = self.columns.iter().zip(self.wanted.fields());
        let columns = columns.map(|(place, field)| match place {
            Some(place) => Arc::clone(records.column(*place)),
            None => new_null_array(field.data_type(), rows),
        });
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.wanted), columns.collect(), &options)
    }
}

/// Where a name is among those of a file: an exact match, else the only one that differs just in case.
pub(crate) fn find<T: AsRef<str>>(names: &[T], name: &str) -> Option<usize> {
    if let Some(place) = names.iter().position(|other| other.as_ref() == name) {
        return Some(place);
    }
    let alike = |(_, other): &(usize, &T)| other.as_ref().eq_ignore_ascii_case(name);
    let mut places = names.iter().enumerate().filter(alike);
    match (places.next(), places.next()) {
        (Some((place, _)), None) => Some(place),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str]) -> SchemaRef {
        let fields = names
            .iter()
            .map(|name| Field::new(*name, DataType::Int64, true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn places(header: &[&str], columns: &[&str]) -> Result<Vec<Option<usize>>, String> {
        let header: Vec<String> = header.iter().map(|name| (*name).to_owned()).collect();
        let all: Vec<usize> = (0..columns.len()).collect();
        let layout = Layout::by_name(&header, &table(columns), &all)?;
        let place = |column: &Option<usize>| column.map(|column| layout.read[column]);
        Ok(layout.columns.iter().map(place).collect())
    }

    #[test]
    fn columns_are_found_by_their_names() {
        assert_eq!(places(&["b", "a"], &["a", "b"]), Ok(vec![Some(1), Some(0)]));
        assert_eq!(
            places(&["a", "b"], &["a", "b", "c"]),
            Ok(vec![Some(0), Some(1), None])
        );
        assert_eq!(places(&["x", "B", "A"], &["a"]), Ok(vec![Some(2)]));
        // A table that names its columns itself.
        assert_eq!(places(&["x", "y"], &["a", "b"]), Ok(vec![Some(0), Some(1)]));
        let error = places(&["x", "y", "z"], &["a", "b"]).expect_err("not clear");
        assert!(
            error.contains("(x, y, z) has none of the table's columns (a, b)"),
            "{error}"
        );
        let error = places(&["a", "a", "z"], &["a", "b"]).expect_err("not clear");
        assert!(error.contains("(a, a, z) names a column twice"), "{error}");
    }

    #[test]
    fn what_may_not_be_null_may_not_lack() {
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::Int64, false));
        let table = Arc::new(Schema::new(fields.to_vec()));
        let header = ["a".to_owned()];
        let error = Layout::by_name(&header, &table, &[0, 1]).expect_err("refused");
        assert!(error.contains("lacks the column b"), "{error}");
        assert!(Layout::by_name(&header, &table, &[0]).is_ok());
    }
}

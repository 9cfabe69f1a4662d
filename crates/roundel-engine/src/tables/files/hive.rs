//! Columns whose values are in the names of directories: `key=value`, as Hive and Spark write them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::CopyTo;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, lit, when};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;

use super::csv::Seen;
use super::location::FoundFile;
use super::wrong;
use crate::Result;

/// What Hive writes where the value is NULL.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// As what the values of a key are written to directories' names: as texts, those that DataFusion's writer takes. Of others it
/// takes no notice of NULL.
pub(super) fn written_type(data_type: &DataType) -> DataType {
    let is_plain = data_type.is_integer() || data_type.is_string();
    match is_plain || matches!(data_type, DataType::Boolean | DataType::Date32) {
        true => DataType::Utf8,
        false => data_type.clone(),
    }
}

/// What is written for a key of this type.
fn written(key: Column, data_type: &DataType) -> DataFusionResult<Expr> {
    let key = Expr::Column(key);
    match written_type(data_type) {
        DataType::Utf8 => {
            when(key.clone().is_null(), lit(NULL)).otherwise(cast(key, DataType::Utf8))
        }
        _ => Ok(key),
    }
}

/// Has COPY … PARTITIONED BY write rows whose key is NULL to where readers find NULL, also within EXPLAIN ANALYZE. One that keeps
/// the keys' columns in the files as well stays as it is: there they would be texts.
///
/// # Errors
/// When the rows cannot be planned so.
pub(crate) fn with_default_partition(
    plan: LogicalPlan,
    state: &SessionState,
) -> DataFusionResult<LogicalPlan> {
    plan.transform_down(|node| match node {
        LogicalPlan::Copy(copy) if !copy.partition_by.is_empty() && !keeps_keys(&copy, state) => {
            with_written_keys(copy).map(|copy| Transformed::yes(LogicalPlan::Copy(copy)))
        }
        other => Ok(Transformed::no(other)),
    })
    .data()
}

fn keeps_keys(copy: &CopyTo, state: &SessionState) -> bool {
    match copy.options.get("execution.keep_partition_by_columns") {
        Some(value) => value.trim().eq_ignore_ascii_case("true"),
        None => state.config_options().execution.keep_partition_by_columns,
    }
}

fn with_written_keys(mut copy: CopyTo) -> DataFusionResult<CopyTo> {
    let columns = copy.input.schema().iter().map(|(qualifier, field)| {
        let column = Column::from((qualifier, field));
        match copy.partition_by.contains(field.name()) {
            true => {
                let text = written(column, field.data_type())?;
                Ok(text.alias_qualified(qualifier.cloned(), field.name()))
            }
            false => Ok(Expr::Column(column)),
        }
    });
    let columns = columns.collect::<DataFusionResult<Vec<_>>>()?;
    let input = LogicalPlanBuilder::from(Arc::unwrap_or_clone(copy.input));
    copy.input = Arc::new(input.project(columns)?.build()?);
    Ok(copy)
}

/// Rows that are to be written to a table of these keys, which come as [`written_type`] says.
pub(super) fn with_written(
    state: &dyn Session,
    input: Arc<dyn ExecutionPlan>,
    keys: &[Field],
) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
    let schema = DFSchema::try_from(input.schema())?;
    let columns = schema.fields().iter().map(|field| {
        let column = Column::from_name(field.name());
        let expression = match keys.iter().any(|key| key.name() == field.name()) {
            true => written(column, field.data_type())?,
            false => Expr::Column(column),
        };
        let expression = state.create_physical_expr(expression, &schema)?;
        Ok((expression, field.name().clone()))
    });
    let columns = columns.collect::<DataFusionResult<Vec<_>>>()?;
    Ok(Arc::new(ProjectionExec::try_new(columns, input)?))
}

/// The keys that all files of a table have, in the order of the directories.
pub(super) fn keys(asked: &str, files: &[FoundFile]) -> Result<Vec<String>> {
    let Some(first) = files.first() else {
        return Ok(Vec::new());
    };
    let names = |file: &FoundFile| -> Vec<String> {
        file.keys.iter().map(|(key, _)| key.clone()).collect()
    };
    let keys = names(first);
    if let Some(other) = files.iter().find(|file| names(file) != keys) {
        let shown = |file: &FoundFile| match names(file)[..] {
            [] => format!("{} is in none", file.path.display()),
            ref keys => format!("{} is in those of {}", file.path.display(), keys.join(", ")),
        };
        return Err(wrong(
            asked,
            format!(
                "its files are in different directories of the kind key=value: {}, but {}",
                shown(first),
                shown(other)
            ),
        ));
    }
    Ok(keys)
}

/// A column for each key, of the type that its values have in common.
pub(super) fn infer(keys: &[String], files: &[FoundFile]) -> Vec<Field> {
    let column = |(index, key): (usize, &String)| {
        let mut seen = Seen::default();
        let values = files.iter().filter_map(|file| file.keys.get(index));
        for (_, value) in values.filter(|(_, value)| value != NULL) {
            seen.add(value);
        }
        let data_type = match seen.data_type() {
            Some(kept @ (DataType::Int64 | DataType::Date32 | DataType::Timestamp(_, _))) => kept,
            _ => DataType::Utf8,
        };
        Field::new(key, data_type, true)
    };
    keys.iter().enumerate().map(column).collect()
}

/// Checks that a statement's PARTITIONED BY names the keys that the directories have.
pub(super) fn check(asked: &str, declared: &[Field], files: &[FoundFile]) -> Result<()> {
    let keys = keys(asked, files)?;
    let declared: Vec<&str> = declared.iter().map(|field| field.name().as_str()).collect();
    let is_prefix =
        keys.len() >= declared.len() && keys.iter().zip(&declared).all(|(key, name)| key == name);
    if files.is_empty() || is_prefix {
        return Ok(());
    }
    let found = match &keys[..] {
        [] => "no directories named key=value".to_owned(),
        keys => format!("directories of {}", keys.join(", ")),
    };
    Err(wrong(
        asked,
        format!(
            "PARTITIONED BY says {}, but its files are in {found}",
            declared.join(", ")
        ),
    ))
}

/// The values of a file in the columns of its directories.
pub(super) fn values(file: &FoundFile, columns: &[Field]) -> Result<Vec<ScalarValue>> {
    let value = |field: &Field| {
        let shown = file.path.display().to_string();
        let mut keys = file.keys.iter().filter(|(key, _)| key == field.name());
        let Some((_, text)) = keys.next() else {
            return Err(wrong(
                &shown,
                format!(
                    "is in no directory named {}=value, as the table's other files are",
                    field.name()
                ),
            ));
        };
        let wanted = field.data_type();
        let failed = |_| {
            wrong(
                &shown,
                format!(
                    "its directory says {}={text}, which is no {wanted}",
                    field.name()
                ),
            )
        };
        match text == NULL {
            true => ScalarValue::try_from(wanted).map_err(failed),
            false => ScalarValue::try_from_string(text.clone(), wanted).map_err(failed),
        }
    };
    columns.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn file(keys: &[(&str, &str)]) -> FoundFile {
        let keys = keys.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        FoundFile {
            path: "/d/x.csv".into(),
            bytes: 1,
            modified: SystemTime::UNIX_EPOCH,
            keys: keys.collect(),
        }
    }

    #[test]
    fn types_and_nulls() {
        let files = [
            file(&[("y", "2024"), ("town", "Köln"), ("day", "2024-01-02")]),
            file(&[("y", NULL), ("town", NULL), ("day", NULL)]),
        ];
        let keys = keys("d", &files).expect("the same");
        let columns = infer(&keys, &files);
        let types: Vec<_> = columns
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        assert_eq!(types, [DataType::Int64, DataType::Utf8, DataType::Date32]);
        let first = values(&files[0], &columns).expect("values");
        assert_eq!(first[0], ScalarValue::Int64(Some(2024)));
        assert_eq!(first[1], ScalarValue::Utf8(Some("Köln".to_owned())));
        let second = values(&files[1], &columns).expect("values");
        assert!(second.iter().all(ScalarValue::is_null), "{second:?}");
        assert_eq!(second[0], ScalarValue::Int64(None));
    }

    #[test]
    fn keys_must_agree() {
        let error = keys("d", &[file(&[("y", "1")]), file(&[])]).expect_err("differ");
        assert!(error.to_string().contains("in those of y, but"), "{error}");
        let wrong = [Field::new("z", DataType::Int64, true)];
        let error = check("d", &wrong, &[file(&[("y", "1")])]).expect_err("another name");
        assert!(
            error
                .to_string()
                .contains("says z, but its files are in directories of y"),
            "{error}"
        );
        let number = [Field::new("y", DataType::Int64, true)];
        let error = values(&file(&[("y", "x")]), &number).expect_err("no number");
        assert!(
            error.to_string().contains("says y=x, which is no Int64"),
            "{error}"
        );
    }
}

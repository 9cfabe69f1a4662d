//! What is NULL, and parts of files in every dialect.

use super::*;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::physical_plan::FileScanConfigBuilder;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::prelude::SessionContext;

/// The rows of a text of columns a (a number) and b, read in `parts`.
async fn rows(options: CsvOptions, text: &str, parts: usize) -> Result<Vec<String>> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("writes");
    let fields = [("a", DataType::Int64), ("b", DataType::Utf8)];
    let fields = fields.map(|(name, of)| Field::new(name, of, true));
    let schema = TableSchema::builder(Arc::new(Schema::new(fields.to_vec()))).build();
    let source = RoundelCsvSource::new(options, schema);
    let context = SessionContext::new();
    let url = ObjectStoreUrl::local_filesystem();
    let store = context.runtime_env().object_store(&url)?;
    let location = datafusion::object_store::path::Path::from_absolute_path(file.path());
    let location = location.expect("one");
    let meta = datafusion::object_store::ObjectStoreExt::head(&store, &location);
    let file = PartitionedFile::new_from_meta(meta.await?);
    let scan = FileScanConfigBuilder::new(url, Arc::new(source))
        .with_file(file)
        .build();
    let scan = match scan.file_source().repartitioned(parts, 0, None, &scan)? {
        Some(cut) if parts > 1 => cut,
        _ => scan,
    };
    // As many parts as there are bytes for.
    assert!(scan.file_groups.len() > parts * 9 / 10, "{parts}");
    let plan = DataSourceExec::from_data_source(scan);
    let batches = datafusion::physical_plan::collect(plan, context.task_ctx()).await?;
    let table = arrow::util::pretty::pretty_format_batches(&batches)?.to_string();
    let lines = table.lines().filter(|line| line.starts_with('|')).skip(1);
    let mut rows: Vec<String> = lines.map(|line| line.replace(' ', "")).collect();
    rows.sort_unstable();
    Ok(rows)
}

#[tokio::test]
async fn what_stands_for_null_is_null() {
    let text = "a,b\n1,NA\nNA,x\n,\n";
    let by_value = CsvOptions {
        null_value: Some("NA".to_owned()),
        ..CsvOptions::default()
    };
    let by_pattern = CsvOptions {
        null_regex: Some("^(NA|)$".to_owned()),
        ..CsvOptions::default()
    };
    for options in [by_value, by_pattern] {
        let rows = rows(options, text, 1).await.expect("reads");
        assert_eq!(rows, ["|1||", "||x|", "|||"]);
    }
    let wrong = CsvOptions {
        null_regex: Some("(".to_owned()),
        ..CsvOptions::default()
    };
    let error = rows(wrong, text, 1).await.expect_err("no pattern");
    let error = error.strip_backtrace();
    assert!(error.contains("null_regex '('"), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[tokio::test]
async fn rows_are_the_same_in_however_many_parts() {
    let dialects = [
        (CsvOptions::default(), '\n', ""),
        (
            CsvOptions {
                terminator: Some(b';'),
                ..CsvOptions::default()
            },
            ';',
            "",
        ),
        (
            CsvOptions {
                escape: Some(b'\\'),
                ..CsvOptions::default()
            },
            '\n',
            "\\\"",
        ),
        (
            CsvOptions {
                comment: Some(b'#'),
                ..CsvOptions::default()
            },
            '\n',
            "",
        ),
    ];
    for (options, end, escaped) in dialects {
        let mut text = format!("b,a{end}");
        for i in 0..50 {
            text.push_str(&format!("\"x{end}{escaped}\"\"y,{i}\",{i}{end}"));
            if options.comment.is_some() {
                text.push_str("# it's \"no, record\n");
            }
        }
        let whole = rows(options.clone(), &text, 1).await.expect("reads");
        let sum = whole.iter().filter(|row| row.contains('y')).count();
        assert_eq!(sum, 50, "{options:?}");
        for parts in [2, 3, 7, 50] {
            let cut = rows(options.clone(), &text, parts).await.expect("reads");
            assert_eq!(cut, whole, "{options:?} in {parts} parts");
        }
    }
}

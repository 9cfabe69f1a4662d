//! Tests of what is written, value by value.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, Decimal128Array, DictionaryArray, Float16Array,
    Float32Array, Float64Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, ListArray,
    MapArray, MapBuilder, StringArray, StringBuilder, StructArray, TimestampNanosecondArray,
    UnionArray,
};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{
    DataType, Field, Fields, Float16Type, Int32Type, IntervalMonthDayNano, Schema, UnionFields,
};

use super::*;

fn written(format: Format, batches: &[RecordBatch], rows_max: usize) -> String {
    let schema = two_rows().schema();
    all_written(format, &[(schema, batches)], rows_max)
}

/// What is written for several results.
fn all_written(format: Format, results: &[(SchemaRef, &[RecordBatch])], rows_max: usize) -> String {
    let mut bytes = Vec::new();
    let mut written = Results::new(format, rows_max);
    for (schema, batches) in results {
        let mut writer = written.next(&mut bytes, schema.clone()).unwrap();
        for batch in *batches {
            writer.write(batch).unwrap();
        }
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(writer.finish().unwrap(), rows);
    }
    String::from_utf8(bytes).unwrap()
}

fn two_rows() -> RecordBatch {
    let n: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let s: ArrayRef = Arc::new(StringArray::from(vec!["a,b", "c"]));
    RecordBatch::try_from_iter([("n", n), ("s", s)]).unwrap()
}

/// A column of one name, as CSV without its header, and as JSON.
fn both(array: ArrayRef) -> (String, serde_json::Value) {
    let field = Field::new("x", array.data_type().clone(), true);
    let schema = SchemaRef::new(Schema::new(vec![field]));
    let batch = RecordBatch::try_new(schema.clone(), vec![array]).unwrap();
    let batches = [batch];
    let csv = all_written(Format::Csv, &[(schema.clone(), &batches)], 1);
    let json = all_written(Format::Json, &[(schema, &batches)], 1);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    let values = rows.into_iter().map(|row| row["x"].clone()).collect();
    let csv = csv.strip_prefix("x\n").unwrap().to_owned();
    (csv, serde_json::Value::Array(values))
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
fn what_has_no_columns_is_nothing() {
    for format in [Format::Csv, Format::Json, Format::Table] {
        let schema = SchemaRef::new(Schema::empty());
        assert_eq!(all_written(format, &[(schema, &[])], 1), "");
    }
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
fn several_results_can_be_told_apart() {
    let one = [two_rows()];
    let none = SchemaRef::new(Schema::empty());
    let results: [(SchemaRef, &[RecordBatch]); 4] = [
        (none.clone(), &[]),
        (two_rows().schema(), &one),
        (none, &[]),
        (two_rows().schema(), &[]),
    ];
    let csv = all_written(Format::Csv, &results, 1);
    assert_eq!(csv, "n,s\n1,\"a,b\"\n,c\n\nn,s\n");
    let json = all_written(Format::Json, &results, 1);
    let lines: Vec<Vec<serde_json::Value>> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0]);
}

#[test]
fn null_is_no_empty_text() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec![None, Some(""), Some("NULL")]));
    let (csv, json) = both(texts.clone());
    assert_eq!(csv, "\n\"\"\nNULL\n");
    assert_eq!(json, serde_json::json!([null, "", "NULL"]));
    let batch = RecordBatch::try_from_iter([("x", texts)]).unwrap();
    let schema = batch.schema();
    let table = all_written(Format::Table, &[(schema, &[batch.slice(0, 2)])], 9);
    assert_eq!(
        table,
        "+------+\n| x    |\n+------+\n| NULL |\n|      |\n+------+\n"
    );
}

#[test]
fn csv_quotes_what_would_end_a_field() {
    let texts = ["a\"b", "a\nb", "a\rb", " a ", "é"];
    let (csv, json) = both(Arc::new(StringArray::from(texts.to_vec())));
    assert_eq!(csv, "\"a\"\"b\"\n\"a\nb\"\n\"a\rb\"\n a \né\n");
    assert_eq!(json, serde_json::json!(texts));
    let field = Field::new("a,b", DataType::Int64, true);
    let schema = SchemaRef::new(Schema::new(vec![field]));
    assert_eq!(all_written(Format::Csv, &[(schema, &[])], 1), "\"a,b\"\n");
}

#[test]
fn numbers_without_digits_have_names() {
    let doubles = [0.1, -0.0, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let (csv, json) = both(Arc::new(Float64Array::from(doubles.to_vec())));
    assert_eq!(csv, "0.1\n-0.0\n1e300\nNaN\nInfinity\n-Infinity\n");
    let expected = serde_json::json!([0.1, -0.0, 1e300, "NaN", "Infinity", "-Infinity"]);
    assert_eq!(json, expected);
    let (csv, json) = both(Arc::new(Float32Array::from(vec![0.1, f32::INFINITY])));
    assert_eq!(
        (csv.as_str(), json.to_string().as_str()),
        ("0.1\nInfinity\n", r#"[0.1,"Infinity"]"#)
    );
    let halves: Vec<_> = [1.5, f32::NAN].map(<Half>::from_f32).to_vec();
    let (csv, json) = both(Arc::new(Float16Array::from(halves)));
    assert_eq!(csv, "1.5\nNaN\n");
    assert_eq!(json, serde_json::json!([1.5, "NaN"]));
}

type Half = <Float16Type as ArrowPrimitiveType>::Native;

#[test]
fn numbers_keep_all_their_digits() {
    let decimals = Decimal128Array::from(vec![12_345_678_901_234_567_890_123_456_789_i128])
        .with_precision_and_scale(38, 2)
        .unwrap();
    let (csv, _) = both(Arc::new(decimals.clone()));
    assert_eq!(csv, "123456789012345678901234567.89\n");
    let batch = RecordBatch::try_from_iter([("x", Arc::new(decimals) as ArrayRef)]).unwrap();
    let json = all_written(Format::Json, &[(batch.schema(), &[batch])], 1);
    assert_eq!(json, "[{\"x\":123456789012345678901234567.89}]\n");
}

#[test]
fn times_bytes_and_intervals_are_text() {
    let (csv, json) = both(Arc::new(
        TimestampNanosecondArray::from(vec![1]).with_timezone("+02:00"),
    ));
    assert_eq!(csv, "1970-01-01T02:00:00.000000001+02:00\n");
    assert_eq!(json, serde_json::json!([csv.trim_end()]));
    let (csv, json) = both(Arc::new(BinaryArray::from(vec![&[0_u8, 255][..], &[]])));
    assert_eq!(csv, "00ff\n\"\"\n");
    assert_eq!(json, serde_json::json!(["00ff", ""]));
    let interval = IntervalMonthDayNano::new(1, 2, 3_000_000_000);
    let (csv, json) = both(Arc::new(IntervalMonthDayNanoArray::from(vec![interval])));
    assert_eq!(csv, "1 mons 2 days 3.000000000 secs\n");
    assert_eq!(json, serde_json::json!([csv.trim_end()]));
}

#[test]
fn what_has_parts_is_json_in_csv_too() {
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
        Some(vec![Some(1), None]),
        None,
        Some(vec![]),
    ]);
    let (csv, json) = both(Arc::new(lists));
    assert_eq!(csv, "\"[1,null]\"\n\n[]\n");
    assert_eq!(json, serde_json::json!([[1, null], null, []]));

    let mut texts = MapBuilder::new(None, StringBuilder::new(), Int32Array::builder(1));
    texts.keys().append_value("k\"");
    texts.values().append_value(1);
    texts.append(true).unwrap();
    let (csv, json) = both(Arc::new(texts.finish()) as ArrayRef);
    assert_eq!(csv, "\"{\"\"k\\\"\"\"\":1}\"\n");
    assert_eq!(json, serde_json::json!([{"k\"": 1}]));

    let mut numbers = MapBuilder::new(None, Int32Array::builder(1), Int32Array::builder(1));
    numbers.keys().append_value(7);
    numbers.values().append_null();
    numbers.append(true).unwrap();
    let numbers: MapArray = numbers.finish();
    let (_, json) = both(Arc::new(numbers));
    assert_eq!(json, serde_json::json!([[{"key": 7, "value": null}]]));
}

#[test]
fn dictionaries_and_unions_are_their_values() {
    let keys = Int32Array::from(vec![Some(0), Some(1), None]);
    let values: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
    let dictionary = DictionaryArray::<Int32Type>::new(keys, values);
    let (csv, json) = both(Arc::new(dictionary));
    assert_eq!(csv, "a\n\n\n");
    assert_eq!(json, serde_json::json!(["a", null, null]));

    let fields = UnionFields::try_new(
        [3, 5],
        [
            Field::new("n", DataType::Int32, true),
            Field::new("s", DataType::Utf8, true),
        ],
    )
    .unwrap();
    let children: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![Some(1), Some(0), None])),
        Arc::new(StringArray::from(vec!["", "x", ""])),
    ];
    let ids = ScalarBuffer::from(vec![3_i8, 5, 3]);
    let union = UnionArray::try_new(fields, ids, None, children).unwrap();
    let (csv, json) = both(Arc::new(union));
    assert_eq!(csv, "1\n\"\"\"x\"\"\"\n\n");
    assert_eq!(json, serde_json::json!([1, "x", null]));
}

#[test]
fn names_that_come_twice_are_made_distinct() {
    let n: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let fields = ["a", "a_1", "a", "a"].map(|name| Field::new(name, DataType::Int64, true));
    let schema = SchemaRef::new(Schema::new(fields.to_vec()));
    let batch = RecordBatch::try_new(schema.clone(), vec![n.clone(); 4]).unwrap();
    let json = all_written(
        Format::Json,
        &[(schema.clone(), std::slice::from_ref(&batch))],
        1,
    );
    assert_eq!(json, "[{\"a\":1,\"a_1\":1,\"a_2\":1,\"a_3\":1}]\n");
    let csv = all_written(Format::Csv, &[(schema, &[batch])], 1);
    assert_eq!(csv, "a,a_1,a,a\n1,1,1,1\n");

    let inner = Fields::from(vec![Field::new("b", DataType::Int64, true); 2]);
    let inner = StructArray::try_new(inner, vec![n.clone(), n], None).unwrap();
    let (csv, json) = both(Arc::new(inner));
    assert_eq!(csv, "\"{\"\"b\"\":1,\"\"b_1\"\":1}\"\n");
    assert_eq!(json, serde_json::json!([{"b": 1, "b_1": 1}]));
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
    let opened = Results::new(Format::Csv, 1).next(Closed, schema);
    assert!(matches!(opened.err(), Some(Failure::OutputClosed)));
}

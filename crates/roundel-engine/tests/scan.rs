//! Files of every kind, cut over the tasks of real workers, give the rows that are in them, or one clear error.

mod common;
#[path = "common/measures.rs"]
mod measures;
#[path = "common/trial.rs"]
mod trial;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use common::options;
use roundel_engine::ClusterOptions;
use trial::Trial;

impl Trial {
    async fn new(workers: usize) -> Self {
        let options = ClusterOptions {
            threads: 2,
            ..options(workers)
        };
        Self::with(options).await
    }

    /// A table of the file or directory `name`; `with` is what comes behind its place in SQL.
    async fn table(&self, columns: &str, format: &str, name: &str, with: &str) {
        let path = self.path(name);
        self.rows("DROP TABLE IF EXISTS t").await;
        self.rows(&format!(
            "CREATE EXTERNAL TABLE t {columns} STORED AS {format} LOCATION '{path}' {with}"
        ))
        .await;
    }

    /// How many tasks and file ranges the plan of a query has.
    async fn plan(&self, sql: &str) -> String {
        measures::text_of(&self.session, &format!("EXPLAIN {sql}")).await
    }
}

/// Rows `0..count` of an id and a text of two lines.
fn two_lines(count: usize) -> String {
    let mut text = "id,t\n".to_owned();
    for id in 0..count {
        writeln!(text, "{id},\"line one of {id}\nline two, of {id}\"").expect("fits");
    }
    text
}

const TOTAL: &str = "SELECT count(*), count(DISTINCT id), sum(id) FROM t";

#[tokio::test(flavor = "multi_thread")]
async fn line_breaks_in_quotes_make_no_rows() {
    for workers in [1, 2, 3, 4] {
        let trial = Trial::new(workers).await;
        trial.write("x.csv", two_lines(20_000));
        for newlines in ["true", "false"] {
            let with = format!("OPTIONS('format.newlines_in_values' '{newlines}')");
            trial
                .table("(id BIGINT, t TEXT)", "CSV", "x.csv", &with)
                .await;
            assert_eq!(trial.rows(TOTAL).await, ["20000|20000|199990000"]);
            let long = "SELECT count(*) FROM t WHERE t LIKE 'line one of %line two, of %'";
            assert_eq!(trial.rows(long).await, ["20000"]);
            if workers > 1 {
                let plan = trial.plan(TOTAL).await;
                assert!(plan.contains("Network"), "{plan}");
            }
        }
        trial.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_files_are_read_whole() {
    let trial = Trial::new(3).await;
    let mut random = 1_u64;
    let mut text = "id,v\n".to_owned();
    for id in 0..30_000 {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        writeln!(text, "{id},{random}").expect("fits");
    }
    trial.write("plain.csv", &text);
    let columns = "(id BIGINT, v DECIMAL(20, 0))";
    for (extension, name) in [
        ("gz", "gzip"),
        ("zst", "zstd"),
        ("bz2", "bzip2"),
        ("xz", "xz"),
    ] {
        let with = format!("OPTIONS('format.compression' '{name}')");
        fs::create_dir(trial.at(extension)).expect("makes");
        trial.table(columns, "CSV", "plain.csv", "").await;
        for part in ["a", "b"] {
            let path = trial.path(&format!("{extension}/{part}.csv.{extension}"));
            let copy = format!("COPY (SELECT * FROM t) TO '{path}' STORED AS CSV {with}");
            trial.rows(&copy).await;
            assert!(fs::metadata(&path).expect("a file").len() > 128 << 10);
        }
        for (place, times) in [
            (format!("{extension}/a.csv.{extension}"), 1),
            (format!("{extension}/"), 2),
        ] {
            trial.table(columns, "CSV", &place, &with).await;
            let expected = format!("{}|30000|{}", 30_000 * times, 449_985_000 * times);
            assert_eq!(trial.rows(TOTAL).await, [expected], "{place}");
        }
    }
    trial.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_format_travels() {
    for workers in [1, 3] {
        let trial = Trial::new(workers).await;
        let array: Vec<String> = (0..20_000)
            .map(|id| format!("{{\"id\":{id},\"s\":\"text {id}\"}}"))
            .collect();
        trial.write("a.json", format!("[{}]", array.join(",\n")));
        trial.write("n.json", array.join("\n"));
        let columns = "(id BIGINT, s TEXT)";
        let whole = "OPTIONS('format.newline_delimited' 'false')";
        trial.table(columns, "JSON", "a.json", whole).await;
        assert_eq!(trial.rows(TOTAL).await, ["20000|20000|199990000"]);
        trial.table(columns, "JSON", "n.json", "").await;
        assert_eq!(trial.rows(TOTAL).await, ["20000|20000|199990000"]);
        for format in ["PARQUET", "ARROW"] {
            let path = trial.path(&format!("out.{}", format.to_lowercase()));
            trial.table(columns, "JSON", "n.json", "").await;
            let copy = format!("COPY (SELECT * FROM t) TO '{path}' STORED AS {format}");
            trial.rows(&copy).await;
            let name = format!("out.{}", format.to_lowercase());
            trial.table("", format, &name, "").await;
            assert_eq!(
                trial.rows(TOTAL).await,
                ["20000|20000|199990000"],
                "{format}"
            );
            let some = "SELECT s FROM t WHERE id = 12345";
            assert_eq!(trial.rows(some).await, ["text 12345"], "{format}");
        }
        write_avro(&trial.at("x.avro"), 20_000);
        trial.table("", "AVRO", "x.avro", "").await;
        assert_eq!(trial.rows(TOTAL).await, ["20000|20000|199990000"]);
        let some = "SELECT s FROM t WHERE id = 12345";
        assert_eq!(trial.rows(some).await, ["text 12345"]);
        write_arrow_stream(&trial.at("stream.arrow"), 20_000);
        trial.table("", "ARROW", "stream.arrow", "").await;
        assert_eq!(trial.rows(TOTAL).await, ["20000|20000|199990000"]);
        trial.stop().await;
    }
}

fn ids(range: std::ops::Range<i64>) -> arrow::array::RecordBatch {
    let texts = range.clone().map(|id| format!("text {id}"));
    let texts = arrow::array::StringArray::from_iter_values(texts);
    let ids = arrow::array::Int64Array::from_iter_values(range);
    arrow::array::RecordBatch::try_from_iter([
        ("id", std::sync::Arc::new(ids) as arrow::array::ArrayRef),
        ("s", std::sync::Arc::new(texts) as _),
    ])
    .expect("a batch")
}

fn write_arrow_stream(path: &Path, count: i64) {
    let file = fs::File::create(path).expect("creates");
    let schema = ids(0..1).schema();
    let mut writer = arrow::ipc::writer::StreamWriter::try_new(file, &schema).expect("a writer");
    for start in (0..count).step_by(1000) {
        writer.write(&ids(start..start + 1000)).expect("writes");
    }
    writer.finish().expect("finishes");
}

fn write_avro(path: &Path, count: i64) {
    let file = fs::File::create(path).expect("creates");
    let schema = ids(0..1).schema().as_ref().clone();
    let mut writer =
        datafusion::arrow_avro::writer::AvroWriter::new(file, schema).expect("a writer");
    for start in (0..count).step_by(1000) {
        writer.write(&ids(start..start + 1000)).expect("writes");
    }
    writer.finish().expect("finishes");
}

fn write_parquet(path: &Path, range: std::ops::Range<i64>, group: usize) {
    let file = fs::File::create(path).expect("creates");
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(group))
        .build();
    let batch = ids(range);
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("one");
    writer.write(&batch).expect("writes");
    writer.close().expect("closes");
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_csv_are_matched_by_name() {
    let trial = Trial::new(3).await;
    trial.cut_small().await;
    trial.write("d1/1.csv", "a,b\n1,2\n");
    trial.write("d1/2.csv", "b,a\n20,10\n");
    trial.table("(a BIGINT, b BIGINT)", "CSV", "d1/", "").await;
    assert_eq!(trial.rows("SELECT a, b FROM t").await, ["10|20", "1|2"]);
    assert_eq!(trial.rows("SELECT b FROM t").await, ["2", "20"]);
    trial.write("d2/1.csv", "a,b\n1,2\n");
    trial.write("d2/2.csv", "a,b,c\n3,4,5\n");
    trial
        .table("(a BIGINT, b BIGINT, c BIGINT)", "CSV", "d2/", "")
        .await;
    assert_eq!(trial.rows("SELECT * FROM t").await, ["1|2|NULL", "3|4|5"]);
    assert_eq!(trial.rows("SELECT c FROM t").await, ["5", "NULL"]);
    assert_eq!(trial.rows("SELECT count(*) FROM t").await, ["2"]);
    trial.write("d3/1.csv", "a,b\n");
    trial.write("d3/2.csv", "a,b\n1,2\n3,\n");
    trial.write("d3/3.csv", "");
    trial.table("(a BIGINT, b BIGINT)", "CSV", "d3/", "").await;
    assert_eq!(trial.rows("SELECT sum(b), count(*) FROM t").await, ["2|2"]);
    trial.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_a_csv_file_names_file_line_and_reason() {
    let trial = Trial::new(3).await;
    let mut text = "id,v\n".to_owned();
    for id in 0..60_000 {
        writeln!(text, "{id},{}", id * 7).expect("fits");
    }
    text.push_str("oops,1\n60001,2\n");
    trial.write("x.csv", text);
    trial
        .table("(id BIGINT, v BIGINT)", "CSV", "x.csv", "")
        .await;
    let error = trial.error("SELECT sum(id) FROM t").await;
    assert!(
        error.contains(&format!("{}: line 60002 (byte ", trial.path("x.csv"))),
        "{error}"
    );
    assert!(
        error.contains("cannot read 'oops' as type 'Int64' in column id"),
        "{error}"
    );

    // An error that the sample shows is told when the table is made.
    for (name, text, told) in [
        ("few.csv", &b"a,b\n1,2\n3\n5,6\n"[..], "line 3 has 1 fields"),
        (
            "many.csv",
            &b"a,b\n1,2\n3,4,5\n5,6\n7,8\n9,10\n"[..],
            "line 3 has 3 fields",
        ),
        ("open.csv", &b"a,b\n1,2\n3,\"4\n5,6\n"[..], "never closed"),
        (
            "latin.csv",
            &b"a,b\n1,2\n3,caf\xe9\n"[..],
            "line 3 is not UTF-8",
        ),
    ] {
        trial.write(name, text);
        let path = trial.path(name);
        let error = trial
            .error(&format!(
                "CREATE EXTERNAL TABLE bad (a BIGINT, b TEXT) STORED AS CSV LOCATION '{path}'"
            ))
            .await;
        assert!(error.contains(told) && error.contains(&path), "{error}");
    }
    // And nothing of this ends a worker.
    for worker in trial.cluster.workers() {
        assert!(worker.alive, "{worker:?}");
    }
    trial.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn byte_order_marks_and_other_line_ends_are_no_part_of_values() {
    let trial = Trial::new(2).await;
    trial.write("bom.csv", b"\xef\xbb\xbf\"id\",v\r\n1,x\r\n2,y\r\n");
    trial.write("old.csv", "id,v\r1,x\r2,y\r");
    trial.write("end.csv", "id,v\n1,x\n2,y");
    trial.write("blank.csv", "id,v\n\n1,x\n\n\n2,y\n\n");
    for name in ["bom.csv", "old.csv", "end.csv", "blank.csv"] {
        trial.table("(id BIGINT, v TEXT)", "CSV", name, "").await;
        assert_eq!(
            trial.rows("SELECT * FROM t").await,
            ["1|x", "2|y"],
            "{name}"
        );
    }
    let mut large = b"\xef\xbb\xbfid,v\r\n".to_vec();
    for id in 0..40_000 {
        large.extend_from_slice(format!("{id},\"a\r\n{id}\"\r\n").as_bytes());
    }
    trial.write("large.csv", large);
    trial
        .table("(id BIGINT, v TEXT)", "CSV", "large.csv", "")
        .await;
    assert_eq!(trial.rows(TOTAL).await, ["40000|40000|799980000"]);
    trial.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ragged_rows_are_filled_where_that_was_asked_for() {
    let trial = Trial::new(2).await;
    trial.write("x.csv", "a,b,c\n1,2,3\n4\n5,6\n");
    let columns = "(a BIGINT, b BIGINT, c BIGINT)";
    let with = "OPTIONS('format.truncated_rows' 'true')";
    trial.table(columns, "CSV", "x.csv", with).await;
    let expected = ["1|2|3", "4|NULL|NULL", "5|6|NULL"];
    assert_eq!(trial.rows("SELECT * FROM t").await, expected);
    trial.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_replaced_has_its_new_rows() {
    let trial = Trial::new(2).await;
    for (name, format) in [("x.csv", "CSV"), ("x.parquet", "PARQUET")] {
        let path = trial.at(name);
        let write = |ids: std::ops::Range<i64>| match format {
            "CSV" => {
                let lines: Vec<String> = ids.map(|id| format!("{id},x")).collect();
                trial.write(name, format!("id,s\n{}\n", lines.join("\n")));
            }
            _ => write_parquet(&path, ids, 1000),
        };
        write(0..10_000);
        trial.table("", format, name, "").await;
        assert_eq!(
            trial.rows("SELECT count(*), min(id) FROM t").await,
            ["10000|0"]
        );
        write(5..25_005);
        assert_eq!(
            trial.rows("SELECT count(*), min(id) FROM t").await,
            ["25000|5"]
        );
    }
    trial.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_between_planning_and_reading_is_an_error() {
    use futures::TryStreamExt as _;
    let trial = Trial::new(2).await;
    let path = trial.path("x.csv");
    for (is_removed, told) in [
        (
            false,
            "changed while the query ran: run it again (on worker http://",
        ),
        (true, "no such file (on worker http://"),
    ] {
        trial.write("x.csv", two_lines(20_000));
        trial.table("(id BIGINT, t TEXT)", "CSV", "x.csv", "").await;
        let context = trial.session.context();
        let frame = context.sql(TOTAL).await.expect("plans");
        let plan = frame.create_physical_plan().await.expect("plans");
        match is_removed {
            true => fs::remove_file(&path).expect("removes"),
            false => fs::write(&path, two_lines(10_000)).expect("writes"),
        }
        let task = context.task_ctx();
        let rows = datafusion::physical_plan::execute_stream(plan, task).expect("starts");
        let error = rows.try_collect::<Vec<_>>().await.expect_err("changed");
        let error = roundel_engine::EngineError::from(error).to_string();
        assert!(error.contains(&path) && error.contains(told), "{error}");
    }
    trial.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parquet_is_cut_at_row_groups_and_its_footers_are_read_once() {
    let trial = Trial::new(3).await;
    trial.cut_small().await;
    write_parquet(&trial.at("one.parquet"), 0..50_000, 5000);
    trial.table("", "PARQUET", "one.parquet", "").await;
    let sql = "SELECT count(*), count(DISTINCT s) FROM t WHERE id % 2 = 0";
    let mut read = 0;
    for _ in 0..4 {
        let text = measures::text_of(&trial.session, &format!("EXPLAIN ANALYZE {sql}")).await;
        read += measures::sum_of(&text, "footers_read");
        // Cut, but not into more parts than there are row groups.
        let parts = text.matches("one.parquet:").count();
        assert!((2..=10).contains(&parts), "{parts}: {text}");
    }
    // Each worker reads it once, for all queries.
    assert!((1..=3).contains(&read), "{read} footers");
    assert_eq!(trial.rows(TOTAL).await, ["50000|50000|1249975000"]);

    fs::create_dir(trial.at("many")).expect("makes");
    for file in 0..1000 {
        let path = trial.at(&format!("many/{file}.parquet"));
        write_parquet(&path, file * 10..file * 10 + 10, 5);
    }
    trial.table("", "PARQUET", "many/", "").await;
    let text = measures::text_of(&trial.session, &format!("EXPLAIN ANALYZE {sql}")).await;
    let read = measures::sum_of(&text, "footers_read");
    // As it is told in three digits; a file at the end of a task's share may be read by the next one, too.
    assert!((995..=1015).contains(&read), "{read}: {text}");
    assert_eq!(trial.rows(sql).await, ["5000|5000"]);
    assert_eq!(trial.rows(TOTAL).await, ["10000|10000|49995000"]);
    trial.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_parquet_are_matched_by_name() {
    let trial = Trial::new(2).await;
    trial.cut_small().await;
    fs::create_dir(trial.at("d9")).expect("makes");
    for (name, select) in [
        ("1", "1 AS a, 2 AS b"),
        ("2", "20 AS b, 10 AS a"),
        ("3", "5 AS a"),
    ] {
        let path = trial.path(&format!("d9/{name}.parquet"));
        trial
            .rows(&format!(
                "COPY (SELECT {select}) TO '{path}' STORED AS PARQUET"
            ))
            .await;
    }
    trial
        .table("(a BIGINT, b BIGINT)", "PARQUET", "d9/", "")
        .await;
    assert_eq!(
        trial.rows("SELECT a, b FROM t").await,
        ["10|20", "1|2", "5|NULL"]
    );
    trial.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn corrupt_parquet_names_its_file_and_no_worker_dies() {
    let trial = Trial::new(2).await;
    trial.cut_small().await;
    let write = |name: &str| {
        let path = trial.at(name);
        write_parquet(&path, 0..20_000, 2000);
        path
    };
    let path = write("x.parquet");
    trial.table("", "PARQUET", "x.parquet", "").await;
    let good = fs::read(&path).expect("reads");
    let modified = fs::metadata(&path)
        .and_then(|m| m.modified())
        .expect("a time");
    // The coordinator keeps the footer of the good file; the workers see the other one, as old and as long.
    let spoil = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("writes");
        let file = fs::File::options().write(true).open(&path).expect("opens");
        file.set_modified(modified).expect("sets");
    };
    let mut pages = good.clone();
    for byte in &mut pages[10..200] {
        *byte ^= 0xa5;
    }
    let mut footer = good.clone();
    let end = footer.len();
    footer[end - 8..end - 4].copy_from_slice(&u32::MAX.to_le_bytes());
    for bad in [&footer, &pages] {
        spoil(bad);
        let error = trial
            .error("SELECT count(DISTINCT s), sum(id) FROM t")
            .await;
        assert!(error.contains(&trial.path("x.parquet")), "{error}");
    }
    spoil(&good);
    assert_eq!(trial.rows(TOTAL).await, ["20000|20000|199990000"]);
    for worker in trial.cluster.workers() {
        assert!(worker.alive, "{worker:?}");
    }
    trial.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sorted_files_stay_sorted_on_any_number_of_workers() {
    for workers in [1, 2, 3, 4] {
        let trial = Trial::new(workers).await;
        for part in 0..3 {
            let lines: Vec<String> = (0..20_000)
                .map(|i| format!("{},{}", i * 3 + part, i))
                .collect();
            trial.write(
                &format!("o/{part}.csv"),
                format!("u,v\n{}\n", lines.join("\n")),
            );
        }
        let order = "WITH ORDER (u ASC)";
        trial
            .table("(u BIGINT, v BIGINT)", "CSV", "o/", order)
            .await;
        assert_eq!(
            trial.rows("SELECT count(*), sum(u) FROM t").await,
            ["60000|1799970000"]
        );
        let ordered = "SELECT u FROM t ORDER BY u LIMIT 3";
        assert_eq!(trial.rows(ordered).await, ["0", "1", "2"]);
        trial.stop().await;
    }
}

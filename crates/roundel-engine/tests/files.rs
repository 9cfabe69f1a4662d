//! Tables of files on real workers: what can be read, what is guessed, and what is refused.

mod common;
#[path = "common/trial.rs"]
mod trial;

use std::fs;
use std::io::Write as _;

use arrow::ipc::writer::StreamWriter;
use trial::Trial;

impl Trial {
    /// Of workers that cut even small files.
    async fn cutting(workers: usize) -> Self {
        let trial = Self::with(common::options(workers)).await;
        trial.cut_small().await;
        trial
    }

    /// The same rows in each way to ask for a table.
    async fn everywhere(&self, path: &str, select: &str, expected: &[&str]) {
        let from = |table: &str| select.replace("TABLE", table);
        let by_path = format!("'{path}'");
        assert_eq!(self.rows(&from(&by_path)).await, expected, "FROM {by_path}");
        self.session
            .register_file("t", path)
            .await
            .expect("registers");
        assert_eq!(self.rows(&from("t")).await, expected, "--table t={path}");
        let create = format!("CREATE EXTERNAL TABLE e LOCATION '{path}'");
        self.rows(&create).await;
        assert_eq!(self.rows(&from("e")).await, expected, "{create}");
        self.rows("DROP TABLE e").await;
    }
}

const SUM: &str = "SELECT count(*), sum(a), count(b) FROM TABLE";

#[tokio::test(flavor = "multi_thread")]
async fn formats() {
    let f = Trial::cutting(2).await;
    let csv: String = (0..2000).fold("a,b\n".to_owned(), |text, i| text + &format!("{i},x{i}\n"));
    let expected = ["2000|1999000|2000"];
    let plain = f.write("x.csv", &csv);
    f.everywhere(&plain, SUM, &expected).await;
    let tsv = f.write("x.tsv", csv.replace(',', "\t"));
    f.everywhere(&tsv, SUM, &expected).await;
    let object = |i: usize| format!("{{\"a\":{i},\"b\":\"x{i}\"}}");
    let lines: Vec<String> = (0..2000).map(object).collect();
    for name in ["x.ndjson", "x.jsonl", "x.json"] {
        let path = f.write(name, lines.join("\n"));
        f.everywhere(&path, SUM, &expected).await;
    }
    let array = f.write("array.json", format!("[{}]", lines.join(",\n")));
    f.everywhere(&array, SUM, &expected).await;
    let pretty = lines.join(",\n").replace(',', ",\n  ");
    let pretty = f.write("pretty.json", format!("[\n{pretty}\n]\n"));
    f.everywhere(&pretty, SUM, &expected).await;
    for (extension, compression) in [
        ("gz", "gzip"),
        ("zst", "zstd"),
        ("bz2", "bzip2"),
        ("xz", "xz"),
    ] {
        for format in ["csv", "json"] {
            let path = f.path(&format!("x.{format}.{extension}"));
            let copy = format!(
                "COPY (SELECT * FROM '{plain}') TO '{path}' STORED AS {format} \
                 OPTIONS ('format.compression' '{compression}')"
            );
            f.rows(&copy).await;
            f.everywhere(&path, SUM, &expected).await;
        }
    }
    let stream = f.path("stream.arrow");
    let rows = common::run(&f.session, &format!("SELECT * FROM '{plain}'")).await;
    let rows = rows.expect("rows");
    let file = fs::File::create(&stream).expect("a file");
    let mut writer = StreamWriter::try_new(file, &rows[0].schema()).expect("a writer");
    for batch in &rows {
        writer.write(batch).expect("writes");
    }
    writer.finish().expect("writes");
    f.everywhere(&stream, SUM, &expected).await;
    for format in ["parquet", "arrow"] {
        let path = f.path(&format!("x.{format}"));
        let copy = format!("COPY (SELECT * FROM '{plain}') TO '{path}' STORED AS {format}");
        f.rows(&copy).await;
        f.everywhere(&path, SUM, &expected).await;
    }
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_patterns_and_partitions() {
    let f = Trial::cutting(2).await;
    f.write("d/y=2024/a.csv", "a\n1\n");
    f.write("d/y=__HIVE_DEFAULT_PARTITION__/b.csv", "a\n2\n");
    f.write("d/_SUCCESS", "");
    f.write("d/y=2024/.a.csv.crc", "x");
    let dir = f.path("d");
    let all = ["1|2024", "2|NULL"];
    f.everywhere(&dir, "SELECT a, y FROM TABLE", &all).await;
    let pattern = format!("{dir}/y=*/*.csv");
    f.everywhere(&pattern, "SELECT a, y FROM TABLE", &all).await;
    let deep = format!("{dir}/**/*.csv");
    f.everywhere(&deep, "SELECT a, y FROM TABLE", &all).await;
    let filter = "SELECT count(*) FROM TABLE WHERE y IS NULL";
    f.everywhere(&dir, filter, &["1"]).await;
    f.everywhere(&dir, "SELECT a FROM TABLE WHERE y = 2024", &["1"])
        .await;
    for (number, columns) in ["(a INT, y INT)", "(a INT, y TEXT)", ""].iter().enumerate() {
        let create = format!(
            "CREATE EXTERNAL TABLE p{number} {columns} STORED AS CSV PARTITIONED BY (y) \
             LOCATION '{dir}' OPTIONS ('format.has_header' 'true')"
        );
        f.rows(&create).await;
        assert_eq!(
            f.rows(&format!("SELECT a, y FROM p{number}")).await,
            all,
            "{columns}"
        );
        let null = format!("SELECT a FROM p{number} WHERE y IS NULL");
        assert_eq!(f.rows(&null).await, ["2"], "{columns}");
        let count = format!("SELECT count(*), count(y) FROM p{number}");
        assert_eq!(f.rows(&count).await, ["2|1"], "{columns}");
    }
    let wrong =
        format!("CREATE EXTERNAL TABLE z STORED AS CSV PARTITIONED BY (z) LOCATION '{dir}'");
    let error = f.error(&wrong).await;
    assert!(
        error.contains("PARTITIONED BY says z") && error.contains("of y"),
        "{error}"
    );

    f.write("j/a=2/x.json", "{\"b\":\"1\"}\n");
    f.everywhere(&f.path("j"), "SELECT a, b FROM TABLE", &["2|1"])
        .await;
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_several_files_are_matched_by_name() {
    let f = Trial::cutting(2).await;
    f.write("d1/1.csv", "a,b\n1,2\n");
    f.write("d1/2.csv", "b,a\n20,10\n");
    let at = |name: &str| f.path(name);
    f.everywhere(&at("d1"), "SELECT a, b FROM TABLE", &["10|20", "1|2"])
        .await;
    f.write("d2/1.csv", "a,b\n1,2\n");
    f.write("d2/2.csv", "a,b,c\n3,4,5\n");
    let all = ["1|2|NULL", "3|4|5"];
    f.everywhere(&at("d2"), "SELECT a, b, c FROM TABLE", &all)
        .await;
    f.everywhere(&at("d2"), "SELECT sum(c) FROM TABLE WHERE a > 1", &["5"])
        .await;
    f.write("d3/1.csv", "a,b\n");
    f.write("d3/2.csv", "a,b\n1,\n");
    f.write("d3/3.csv", "a,b\n2,7\n");
    f.everywhere(
        &at("d3"),
        "SELECT sum(a), sum(b), count(*) FROM TABLE",
        &["3|7|2"],
    )
    .await;
    f.write("d4/1.csv", "a\n1\n");
    f.write("d4/2.csv", "a\nx\n");
    f.everywhere(
        &at("d4"),
        "SELECT a, arrow_typeof(a) FROM TABLE",
        &["1|Utf8", "x|Utf8"],
    )
    .await;
    f.write("d6/1.json", "{\"a\":1,\"n\":{\"x\":1}}\n{\"a\":2}\n");
    f.write(
        "d6/2.json",
        "{\"a\":null,\"n\":{\"y\":\"q\"}}\n{\"a\":3,\"l\":[]}\n",
    );
    f.everywhere(&at("d6"), "SELECT sum(a), count(*) FROM TABLE", &["6|4"])
        .await;
    f.everywhere(
        &at("d6"),
        "SELECT n['y'] FROM TABLE WHERE n['y'] IS NOT NULL",
        &["q"],
    )
    .await;

    fs::create_dir_all(f.at("d9")).expect("a directory");
    for (name, select) in [
        ("1", "SELECT arrow_cast(3, 'Int32') AS a, 'x' AS b"),
        ("2", "SELECT 'y' AS b, 3000000000 AS a"),
        ("3", "SELECT 'z' AS c"),
    ] {
        for format in ["parquet", "arrow"] {
            let path = at(&format!("d9{format}/{name}.{format}"));
            fs::create_dir_all(f.at(&format!("d9{format}"))).expect("a directory");
            f.rows(&format!("COPY ({select}) TO '{path}' STORED AS {format}"))
                .await;
        }
    }
    for format in ["parquet", "arrow"] {
        let dir = at(&format!("d9{format}"));
        f.everywhere(
            &dir,
            "SELECT sum(a), count(*) FROM TABLE",
            &["3000000003|3"],
        )
        .await;
        f.everywhere(
            &dir,
            "SELECT a, b, c FROM TABLE",
            &["3000000000|y|NULL", "3|x|NULL", "NULL|NULL|z"],
        )
        .await;
        f.everywhere(&dir, "SELECT max(a), min(a) FROM TABLE", &["3000000000|3"])
            .await;
    }
    let path = at("d9parquet/4.parquet");
    f.rows(&format!(
        "COPY (SELECT 'text' AS a) TO '{path}' STORED AS parquet"
    ))
    .await;
    let error = f
        .error(&format!("SELECT a FROM '{}'", at("d9parquet")))
        .await;
    for part in ["column a is Int64 in", "2.parquet", "4.parquet", "Utf8"] {
        assert!(error.contains(part), "{error}");
    }
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dialects_are_guessed_and_said() {
    let f = Trial::cutting(2).await;
    for (name, text, expected, notice) in [
        (
            "bar.csv",
            "a|b\n1|2\n3|4\n",
            vec!["1|2", "3|4"],
            Some("delimiter '|'"),
        ),
        (
            "semi.csv",
            "a;b\n1;2\n3;4\n",
            vec!["1|2", "3|4"],
            Some("delimiter ';'"),
        ),
        (
            "none.csv",
            "1,2\n3,4\n",
            vec!["1|2", "3|4"],
            Some("no header"),
        ),
        (
            "crlf.csv",
            "\u{feff}a,b\r\n1,2\r\n3,4\r\n",
            vec!["1|2", "3|4"],
            None,
        ),
        ("twice.csv", "a,a\n1,2\n3,4\n", vec!["1|2", "3|4"], None),
        ("one.csv", "a\n1\n3\n", vec!["1", "3"], Some("one column")),
    ] {
        let path = f.write(name, text);
        f.session.take_notices();
        f.everywhere(&path, "SELECT * FROM TABLE", &expected).await;
        let notices = f.session.take_notices().join("\n");
        assert_eq!(notices.is_empty(), notice.is_none(), "{name}: {notices}");
        assert!(
            notice.is_none_or(|notice| notices.contains(notice)),
            "{notices}"
        );
    }
    let names = f
        .rows(&format!("SELECT a, a_1 FROM '{}'", f.path("twice.csv")))
        .await;
    assert_eq!(names, ["1|2", "3|4"]);
    let path = f.write("options.txt", "x/NA\n'y/z'/\n");
    for options in [
        "'delimiter' '/', 'quote' '''', 'has_header' 'false'",
        "delim '/', quote '''', header 'false'",
        "sep '/', quote '''', header 'false'",
    ] {
        f.rows(&format!(
            "CREATE OR REPLACE EXTERNAL TABLE o (p TEXT, q TEXT) STORED AS CSV LOCATION '{path}' \
             OPTIONS ({options})"
        ))
        .await;
        assert_eq!(
            f.rows("SELECT p, q FROM o").await,
            ["x|NA", "y/z|NULL"],
            "{options}"
        );
    }
    for (options, expected) in [
        ("nullstr 'NA'", ["1|NULL", "NULL|x"]),
        ("null_regex '^(NA|x)$'", ["1|NULL", "NULL|NULL"]),
    ] {
        let path = f.write("nulls.csv", "a,b\n1,NA\nNA,x\n");
        f.rows(&format!(
            "CREATE OR REPLACE EXTERNAL TABLE o (a BIGINT, b TEXT) STORED AS CSV LOCATION '{path}' \
             OPTIONS ({options})"
        ))
        .await;
        assert_eq!(f.rows("SELECT a, b FROM o").await, expected, "{options}");
    }
    // Line breaks in quotes, where a sample of half the file would be cut.
    let mut text = "id,note,n\n".to_owned();
    for i in 0..1500 {
        text.push_str(&format!("{i},\"line one\nline two, of {i}\",{i}\n"));
    }
    let path = f.write("quoted.csv", text);
    f.session
        .register_file("quoted", &path)
        .await
        .expect("registers");
    let types = f
        .rows("SELECT DISTINCT arrow_typeof(id), arrow_typeof(n) FROM quoted LIMIT 1")
        .await;
    assert_eq!(types, ["Int64|Int64"]);
    // More integers than a sample of a thousand, then text.
    let ints: String = (0..1500).map(|i| format!("{i}\n")).collect();
    let path = f.write("late.csv", format!("a\n{ints}oops\n"));
    let late = format!("SELECT count(*), max(a) FROM '{path}'");
    assert_eq!(f.rows(&late).await, ["1501|oops"]);
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_a_table_is_refused_in_one_line() {
    let f = Trial::cutting(1).await;
    f.write("mixed/a.csv", "a\n1\n");
    f.write("mixed/b.json", "{\"a\":1}\n");
    f.write("empty.csv", "");
    f.write("empty.parquet", "");
    f.write("cut.parquet", "PAR1abcdefgh");
    f.write("long.parquet", b"PAR1abcdefgh\xff\xff\xff\x7fPAR1");
    f.write("deep/y=1/long.parquet", b"PAR1abcdefgh\xff\xff\xff\x7fPAR1");
    f.write("what.bin", "hello");
    f.write("open.csv", "a,b\n1,\"2\n");
    f.write("latin.csv", b"a,b\n1,caf\xe9\n");
    f.write("ragged.csv", "a,b\n1,2\n3,4\n5,6\n7\n");
    fs::create_dir_all(f.at("nothing")).expect("a directory");
    fs::create_dir_all(f.at("loop")).expect("a directory");
    std::os::unix::fs::symlink(f.at("loop"), f.at("loop/x=1")).expect("a link");
    for (name, reason) in [
        ("mixed", "mixes formats"),
        ("empty.csv", "is empty"),
        ("empty.parquet", "0 bytes"),
        ("cut.parquet", "is no Parquet file"),
        ("long.parquet", "footer is longer"),
        ("deep", "footer is longer"),
        ("what.bin", "no known format"),
        ("open.csv", "never closed"),
        ("latin.csv", "line 2 is not UTF-8"),
        ("ragged.csv", "line 5 has 1 fields"),
        ("nothing", "there are no files"),
        ("loop", "leads back to itself"),
        ("none.csv", "there is no such file"),
        ("none/*.csv", "there is no such file"),
        ("mixed/*.parquet", "there are no files"),
    ] {
        let path = f.path(name);
        let error = f.session.register_file("t", &path).await.expect_err(name);
        let error = error.to_string();
        assert!(error.contains(reason), "{name}: {error}");
        assert!(error.contains(&f.path("")), "{name}: {error}");
        assert!(!error.contains('\n'), "{error}");
        let error = f.error(&format!("SELECT * FROM '{path}'")).await;
        assert!(error.contains(reason), "FROM {name}: {error}");
        let error = f
            .error(&format!("CREATE EXTERNAL TABLE e LOCATION '{path}'"))
            .await;
        assert!(error.contains(reason), "CREATE {name}: {error}");
    }
    let error = f.error("SELECT * FROM no_such_table").await;
    assert!(error.contains("no_such_table"), "{error}");
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_statements_declare() {
    let f = Trial::cutting(2).await;
    // A table without files, to be written to.
    let dir = f.path("new");
    f.rows(&format!(
        "CREATE EXTERNAL TABLE w (a BIGINT, b TEXT) STORED AS CSV LOCATION '{dir}/'"
    ))
    .await;
    assert_eq!(f.rows("SELECT count(*) FROM w").await, ["0"]);
    f.rows("INSERT INTO w VALUES (1, 'x'), (2, 'y')").await;
    assert_eq!(f.rows("SELECT a, b FROM w").await, ["1|x", "2|y"]);
    f.rows("INSERT INTO w VALUES (3, 'z')").await;
    assert_eq!(f.rows("SELECT sum(a) FROM w").await, ["6"]);
    // Rows in a declared order.
    f.write("sorted/1.csv", "a\n1\n3\n");
    f.write("sorted/2.csv", "a\n2\n4\n");
    let dir = f.path("sorted");
    f.rows(&format!(
        "CREATE EXTERNAL TABLE s (a BIGINT) STORED AS CSV WITH ORDER (a) LOCATION '{dir}' \
         OPTIONS (header 'true')"
    ))
    .await;
    assert_eq!(f.rows("SELECT sum(a) FROM s").await, ["10"]);
    // A file that was replaced between two queries.
    let path = f.write("again.csv", "a\n1\n");
    f.session
        .register_file("again", &path)
        .await
        .expect("registers");
    assert_eq!(f.rows("SELECT a FROM again").await, ["1"]);
    f.write("again.csv", "a\n7\n8\n");
    assert_eq!(f.rows("SELECT a FROM again").await, ["7", "8"]);
    // Several places.
    let (one, two) = (f.write("l/1.csv", "a\n1\n"), f.write("m/2.csv", "a\n2\n"));
    f.rows(&format!(
        "CREATE EXTERNAL TABLE several LOCATION ('{one}', '{two}')"
    ))
    .await;
    assert_eq!(f.rows("SELECT a FROM several").await, ["1", "2"]);
    let mut gz = fs::File::create(f.at("no.csv.gz")).expect("a file");
    gz.write_all(b"a\n1\n").expect("writes");
    let path = f.path("no.csv.gz");
    assert_eq!(f.rows(&format!("SELECT a FROM '{path}'")).await, ["1"]);
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bounds_of_parquet_say_nothing_of_nan() {
    let f = Trial::cutting(3).await;
    let path = f.path("nan.parquet");
    let write = format!(
        "COPY (SELECT v, CASE WHEN v % 1000 = 7 THEN 'NaN'::double ELSE 1.5 END AS x, \
         CASE WHEN v = 7 THEN 'NaN'::float ELSE 1.5::float END AS f, \
         CASE WHEN v % 1000 = 9 THEN zero / zero ELSE 1.5 END AS y \
         FROM (SELECT v, (v % 1)::double AS zero FROM generate_series(1, 5000) t(v))) \
         TO '{path}' OPTIONS ('format.max_row_group_size' 1000)"
    );
    f.rows(&write).await;
    for pushdown in [false, true] {
        f.rows(&format!(
            "SET datafusion.execution.parquet.pushdown_filters = {pushdown}"
        ))
        .await;
        for (select, expected) in [
            ("count(*) FROM T WHERE x > 5", "5"),
            ("count(*) FROM T WHERE x <> 1.5", "5"),
            ("count(*) FROM T WHERE NOT x <= 2", "5"),
            (
                "count(*) FROM T WHERE x IN ('NaN'::double, 1, 2, 3, 4)",
                "5",
            ),
            ("count(*) FROM T WHERE x NOT IN (1.5, 1, 2, 3, 4)", "5"),
            ("sum(v) FROM T WHERE f > 9", "7"),
            ("count(*) FROM T WHERE x = 1.5", "4995"),
            ("count(*) FROM T WHERE y < 1", "5"),
            (
                "count(*) FROM (SELECT v FROM T WHERE x < 5 LIMIT 1000)",
                "1000",
            ),
            ("count(*) FROM T WHERE x > 1 AND v <= 7", "7"),
            ("max(x) FROM T", "NaN"),
            ("max(x), min(x) FROM T GROUP BY v < 0", "NaN|1.5"),
            ("min(x) FROM T", "1.5"),
            ("greatest(x, 9) FROM T WHERE v = 7", "NaN"),
            ("f FROM T ORDER BY f DESC LIMIT 1", "NaN"),
        ] {
            let sql = format!("SELECT {}", select.replace(" T", &format!(" '{path}'")));
            assert_eq!(f.rows(&sql).await, [expected], "{pushdown} {sql}");
        }
    }
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_estimated_is_planned_without_statistics() {
    let f = Trial::cutting(2).await;
    let path = f.path("times.parquet");
    // DataFusion takes the dates of a part of a day for whole days, and more than all rows for those that remain.
    f.rows(&format!(
        "COPY (SELECT CASE WHEN v % 3 > 0 THEN to_timestamp(1640982600 + (v % 5) * 3600) END AS t, \
         to_timestamp(1640982600 + (v % 300) * 3600) AS u, v FROM generate_series(1, 5000) g(v)) TO '{path}' \
         OPTIONS ('format.max_row_group_size' 1000)"
    ))
    .await;
    let sql = format!(
        "SELECT count(*) FROM '{path}' WHERE u <= TIMESTAMP '2022-01-03 06:30:00' AND CAST(t AS DATE) > DATE '2020-03-23'"
    );
    assert_eq!(f.rows(&sql).await, ["663"]);
    let explained = f.rows(&format!("EXPLAIN {sql}")).await.join("\n");
    assert!(explained.contains("Stage 1"), "{explained}");
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_come_and_go() {
    let f = Trial::cutting(1).await;
    f.rows("CREATE SCHEMA s").await;
    f.rows("CREATE TABLE s.t AS VALUES (1)").await;
    assert_eq!(f.rows("SELECT * FROM s.t").await, ["1"]);
    let error = f.error("DROP SCHEMA s").await;
    assert!(error.contains("other tables depend on it: t"), "{error}");
    f.rows("DROP SCHEMA s CASCADE").await;
    f.error("SELECT * FROM s.t").await;
    f.rows("CREATE SCHEMA s").await;
    f.rows("DROP SCHEMA s").await;
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bounds_of_narrower_types_are_not_taken_for_none() {
    let f = Trial::cutting(2).await;
    for (narrow, wide, greatest) in [
        ("INT", "BIGINT", "500"),
        ("INT UNSIGNED", "BIGINT", "500"),
        ("TIMESTAMP(3)", "TIMESTAMP(9)", "1970-01-01T00:00:00.500"),
    ] {
        let dir = f.path(narrow.trim_end_matches("(3)"));
        for (file, data_type, value) in [("1", narrow, 500), ("2", wide, 0)] {
            let copy = format!(
                "COPY (SELECT CAST({value} AS {data_type}) AS d) TO '{dir}/{file}.parquet'"
            );
            f.rows(&copy).await;
        }
        let sql = format!("SELECT max(d) FROM '{dir}/'");
        assert_eq!(f.rows(&sql).await, [greatest], "{narrow} and {wide}");
    }
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_is_found_behind_a_preamble_that_is_longer_than_a_part() {
    let f = Trial::cutting(3).await;
    let rows: String = (0..12_000).map(|row| format!("x{row},y\n")).collect();
    let comments = "# a line that says nothing\n".repeat(13_000);
    let path = f.write("comments.csv", format!("{comments}a,b\n{rows}"));
    f.rows(&format!(
        "CREATE EXTERNAL TABLE c (a TEXT, b TEXT) STORED AS CSV LOCATION '{path}' OPTIONS (comment '#', header 'true')"
    ))
    .await;
    let path = f.write("empty.csv", format!("{}a,b\n{rows}", "\n".repeat(300_000)));
    f.rows(&format!(
        "CREATE EXTERNAL TABLE e (a TEXT, b TEXT) STORED AS CSV LOCATION '{path}' OPTIONS (header 'true')"
    ))
    .await;
    for table in ["c", "e"] {
        let sql = format!("SELECT count(*), count(CASE WHEN a = 'a' THEN 1 END) FROM {table}");
        assert_eq!(f.rows(&sql).await, ["12000|0"], "{table}");
    }
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn arrays_are_not_cut_also_where_they_have_an_order() {
    let f = Trial::cutting(3).await;
    let objects: Vec<String> = (0..5000).map(|row| format!("{{\"a\": {row}}}")).collect();
    let path = f.write("a.json", format!("[{}]", objects.join(",\n")));
    f.rows("SET datafusion.optimizer.repartition_file_min_size = 1")
        .await;
    f.rows(&format!(
        "CREATE EXTERNAL TABLE j STORED AS JSON LOCATION '{path}' WITH ORDER (a ASC)"
    ))
    .await;
    assert_eq!(
        f.rows("SELECT count(*), sum(a) FROM j").await,
        ["5000|12497500"]
    );
    assert_eq!(f.rows("SELECT a FROM j ORDER BY a LIMIT 1").await, ["0"]);
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_without_a_key_is_written_where_it_is_read_as_null() {
    let f = Trial::cutting(2).await;
    f.rows(
        "CREATE TABLE m(v BIGINT, k BIGINT, s TEXT, d DATE) AS VALUES (1, 0, 'a', DATE '2020-01-02'), \
         (2, NULL, 'b', NULL), (3, 7, NULL, NULL)",
    )
    .await;
    for key in ["k", "s", "d"] {
        let dir = f.path(key);
        let copy = format!("COPY m TO '{dir}/' STORED AS PARQUET PARTITIONED BY ({key})");
        f.rows(&copy).await;
        let back = f.rows(&format!("SELECT v, k, s, d FROM '{dir}/'")).await;
        let expected = ["1|0|a|2020-01-02", "2|NULL|b|NULL", "3|7|NULL|NULL"];
        assert_eq!(back, expected, "by {key}");
    }
    let dir = f.path("explained");
    f.rows(&format!(
        "EXPLAIN ANALYZE COPY m TO '{dir}/' STORED AS PARQUET PARTITIONED BY (k)"
    ))
    .await;
    let nulls = format!("SELECT v FROM '{dir}/' WHERE k IS NULL");
    assert_eq!(f.rows(&nulls).await, ["2"]);
    let dir = f.path("inserted");
    fs::create_dir(&dir).expect("a directory");
    f.rows(&format!(
        "CREATE EXTERNAL TABLE i (v BIGINT, k BIGINT) STORED AS PARQUET PARTITIONED BY (k) LOCATION '{dir}/'"
    ))
    .await;
    f.rows("INSERT INTO i SELECT v, k FROM m").await;
    assert_eq!(f.rows("SELECT v, k FROM i").await, ["1|0", "2|NULL", "3|7"]);
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_has_one_time() {
    let f = Trial::cutting(1).await;
    for (sql, expected) in [
        (
            "SELECT now() = (SELECT now()) AND now() = (SELECT (SELECT now()))",
            "true",
        ),
        (
            "SELECT count(*) FROM (VALUES (1)) WHERE now() = (SELECT now())",
            "1",
        ),
    ] {
        assert_eq!(f.rows(sql).await, [expected], "{sql}");
    }
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_be_ignored_or_take_all_memory_is_refused() {
    let f = Trial::cutting(1).await;
    let error = f
        .error("SET datafusion.execution.target_partitions = 100000")
        .await;
    assert!(error.contains("use 0 to 1024"), "{error}");
    let error = f
        .error("SELECT 1 FROM (VALUES (1)) AS t TABLESAMPLE (10 PERCENT)")
        .await;
    assert!(error.contains("TABLESAMPLE"), "{error}");
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_comes_later_has_the_tables_names() {
    let f = Trial::cutting(1).await;
    let first = f.write("d/a.csv", "id,age\n1,2\n");
    let dir = first.trim_end_matches("a.csv");
    f.rows(&format!("CREATE EXTERNAL TABLE t LOCATION '{dir}'"))
        .await;
    f.rows(&format!(
        "CREATE EXTERNAL TABLE declared (x BIGINT, y BIGINT) STORED AS CSV LOCATION '{dir}' OPTIONS (header 'true')"
    ))
    .await;
    f.write("d/b.csv", "AGE,id\n4,3\n");
    assert_eq!(f.rows("SELECT id, age FROM t").await, ["1|2", "3|4"]);
    f.write("d/c.csv", "weight,height\n33,44\n");
    let error = f.error("SELECT * FROM t").await;
    assert!(
        error.contains("c.csv") && error.contains("(weight, height)"),
        "{error}"
    );
    assert_eq!(f.rows("SELECT x, y FROM declared").await.len(), 3);
    f.stop().await;
}

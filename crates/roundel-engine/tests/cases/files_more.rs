//! Directories of files that differ, and files with something wrong in them.
//! The names are those of `peer-reports.md`, group D, in issue 27.

use std::fs;
use std::path::Path;

use super::case::*;
use super::data::{t_batch, write};
use super::selection::Format;

/// Files of one text each.
const fn text(path: &'static str, text: &'static str) -> Input {
    Input::Text { path, text }
}

/// Files of one table that differ.
pub const CASES: &[Case] = &[
    Case {
        name: "D1",
        inputs: &[
            text("d/1.csv", "a,b\n1,2\n"),
            text("d/2.csv", "b,a\n20,10\n"),
        ],
        steps: &[
            Step::Register("d", "{dir}/d"),
            either("SELECT a, b FROM d", &["1|2", "10|20"], &["2.csv"]),
            rows("SELECT count(*) FROM d", &["2"]),
        ],
        ..CASE
    },
    Case {
        name: "D1 declared",
        inputs: &[
            text("d/1.csv", "a,b\n1,2\n"),
            text("d/2.csv", "b,a\n20,10\n"),
        ],
        steps: &[
            run(
                "CREATE EXTERNAL TABLE d STORED AS CSV LOCATION '{dir}/d/' OPTIONS ('format.has_header' 'true')",
            ),
            either("SELECT a, b FROM d", &["1|2", "10|20"], &["2.csv"]),
            run(
                "CREATE EXTERNAL TABLE e (b BIGINT, a BIGINT) STORED AS CSV LOCATION '{dir}/d/' \
                 OPTIONS ('format.has_header' 'true')",
            ),
            either("SELECT a, b FROM e", &["1|2", "10|20"], &["1.csv"]),
        ],
        ..CASE
    },
    Case {
        name: "D2",
        inputs: &[
            text("d/1.csv", "a,b\n1,2\n"),
            text("d/2.csv", "a,b,c\n3,4,5\n"),
        ],
        steps: &[
            Step::Register("d", "{dir}/d"),
            rows("SELECT a, b, c FROM d", &["1|2|NULL", "3|4|5"]),
        ],
        ..CASE
    },
    Case {
        name: "D3",
        inputs: &[
            text("d/1.csv", "a,b\n"),
            text("d/2.csv", "a,b\n1,2\n"),
            text("e/1.csv", "a,b\n1,\n"),
            text("e/2.csv", "a,b\n2,7\n"),
        ],
        steps: &[
            Step::Register("d", "{dir}/d"),
            rows("SELECT a, b, arrow_typeof(b) FROM d", &["1|2|Int64"]),
            Step::Register("e", "{dir}/e"),
            rows(
                "SELECT sum(a), sum(b), min(arrow_typeof(b)) FROM e",
                &["3|7|Int64"],
            ),
        ],
        ..WHOLE
    },
    Case {
        name: "D4",
        inputs: &[
            text("h/y=2024/a.csv", "x\n1\n"),
            text("h/y=__HIVE_DEFAULT_PARTITION__/b.csv", "x\n2\n"),
        ],
        steps: &[
            run(
                "CREATE EXTERNAL TABLE h (x BIGINT, y INT) STORED AS CSV PARTITIONED BY (y) LOCATION '{dir}/h/' \
                 OPTIONS ('format.has_header' 'true')",
            ),
            rows("SELECT x, y FROM h", &["1|2024", "2|NULL"]),
            alone("SELECT count(*) FROM h WHERE y IS NULL", &["1"]),
            rows(
                "SELECT y, count(*) FROM h GROUP BY y",
                &["2024|1", "NULL|1"],
            ),
            run(
                "CREATE EXTERNAL TABLE t (x BIGINT, y TEXT) STORED AS CSV PARTITIONED BY (y) LOCATION '{dir}/h/' \
                 OPTIONS ('format.has_header' 'true')",
            ),
            rows("SELECT x, y FROM t", &["1|2024", "2|NULL"]),
            alone("SELECT x FROM t WHERE y = '2024'", &["1"]),
        ],
        ..CASE
    },
    Case {
        name: "D5",
        inputs: &[
            text("h/a=2/x.json", "{\"b\":\"1\"}\n"),
            text("h/a=3/x.json", "{\"b\":\"4\"}\n"),
        ],
        steps: &[
            run(
                "CREATE EXTERNAL TABLE h (b TEXT, a BIGINT) STORED AS JSON PARTITIONED BY (a) LOCATION '{dir}/h/'",
            ),
            rows("SELECT a, b FROM h", &["2|1", "3|4"]),
            rows("SELECT sum(a) FROM h", &["5"]),
            refused(
                "CREATE EXTERNAL TABLE w (b TEXT, z BIGINT) STORED AS JSON PARTITIONED BY (z) LOCATION '{dir}/h/'",
                &["partition"],
            ),
        ],
        ..CASE
    },
    Case {
        name: "D6",
        inputs: &[
            text("d/1.json", "{\"a\":1,\"n\":{\"x\":1}}\n{\"a\":2}\n"),
            text(
                "d/2.json",
                "{\"a\":null,\"n\":{\"y\":\"q\"}}\n{\"a\":3,\"l\":[]}\n",
            ),
        ],
        steps: &[
            run("CREATE EXTERNAL TABLE d STORED AS JSON LOCATION '{dir}/d/'"),
            rows("SELECT sum(a), count(*) FROM d", &["6|4"]),
            Step::Register("e", "{dir}/d"),
            rows("SELECT sum(a), count(*) FROM e", &["6|4"]),
        ],
        ..CASE
    },
    Case {
        name: "D7",
        inputs: &[Input::Made {
            path: "x.csv",
            make: |path| {
                let lines: String = (0..1500).map(|i| format!("{i}\n")).collect();
                fs::write(path, format!("a\n{lines}oops\n")).expect("a file");
            },
        }],
        steps: &[
            Step::Register("x", "{dir}/x.csv"),
            Step::Ask(
                "SELECT sum(CAST(a AS BIGINT)) FROM x WHERE CAST(a AS TEXT) <> 'oops'",
                Expected::Either(&["1124250"], &["x.csv"]),
            ),
            either("SELECT count(*) FROM x", &["1501"], &["x.csv"]),
            either("SELECT max(a) FROM x", &["oops"], &["x.csv"]),
        ],
        ..CASE
    },
];

/// Files that are not what they should be, and files by their paths.
pub const MORE: &[Case] = &[
    Case {
        name: "D8",
        inputs: &[
            text("ragged.csv", "a,b\n1,2\n3\n4,5,6\n"),
            text("open.csv", "a,b\n1,\"two\n3,4\n"),
            Input::Made {
                path: "nul.csv",
                make: |path| fs::write(path, b"a,b\n1,x\0y\n").expect("a file"),
            },
            text("twice.csv", "a,a\n1,2\n"),
            text("bom.csv", "\u{feff}a,b\n1,2\n3,4\n"),
            text("crlf.csv", "a,b\r\n1,2\r\n3,4\r\n"),
        ],
        steps: &[
            run(
                "CREATE EXTERNAL TABLE ragged (a BIGINT, b BIGINT) STORED AS CSV LOCATION '{dir}/ragged.csv' \
                 OPTIONS ('format.has_header' 'true')",
            ),
            refused("SELECT count(*), sum(b) FROM ragged", &["ragged.csv"]),
            refused(
                "CREATE EXTERNAL TABLE open (a BIGINT, b TEXT) STORED AS CSV LOCATION '{dir}/open.csv' \
                 OPTIONS ('format.has_header' 'true')",
                &["open.csv"],
            ),
            run(
                "CREATE EXTERNAL TABLE nul (a BIGINT, b TEXT) STORED AS CSV LOCATION '{dir}/nul.csv' \
                 OPTIONS ('format.has_header' 'true')",
            ),
            either("SELECT a, length(b) FROM nul", &["1|3"], &["nul.csv"]),
            Step::Register("bom", "{dir}/bom.csv"),
            rows("SELECT a, b FROM bom", &["1|2", "3|4"]),
            Step::Register("crlf", "{dir}/crlf.csv"),
            rows("SELECT a, b FROM crlf", &["1|2", "3|4"]),
        ],
        ..WHOLE
    },
    Case {
        name: "D8 Latin-1",
        inputs: &[Input::Made {
            path: "latin.csv",
            make: |path| fs::write(path, b"a,b\n1,caf\xe9\n").expect("a file"),
        }],
        steps: &[
            Step::Try(
                "CREATE EXTERNAL TABLE latin (a BIGINT, b TEXT) STORED AS CSV LOCATION '{dir}/latin.csv' \
                 OPTIONS ('format.has_header' 'true')",
                &["latin.csv"],
            ),
            refused("SELECT b FROM latin", &["latin.csv"]),
        ],
        ..WHOLE
    },
    Case {
        name: "D8 header",
        inputs: &[text("twice.csv", "a,a\n1,2\n")],
        steps: &[
            Step::Try(
                "CREATE EXTERNAL TABLE twice STORED AS CSV LOCATION '{dir}/twice.csv' \
                 OPTIONS ('format.has_header' 'true')",
                &["twice.csv"],
            ),
            either("SELECT * FROM twice", &["1|2"], &["twice.csv"]),
        ],
        ..WHOLE
    },
    Case {
        name: "D9",
        inputs: &[
            Input::Written {
                sql: "COPY (SELECT 1 a, 'x' b) TO '{dir}/o/1.parquet'",
            },
            Input::Written {
                sql: "COPY (SELECT 'y' b, 2 a) TO '{dir}/o/2.parquet'",
            },
            Input::Written {
                sql: "COPY (SELECT 3 a) TO '{dir}/o/3.parquet'",
            },
            Input::Written {
                sql: "COPY (SELECT arrow_cast(3, 'Int32') n) TO '{dir}/w/1.parquet'",
            },
            Input::Written {
                sql: "COPY (SELECT 3000000000 n) TO '{dir}/w/2.parquet'",
            },
        ],
        steps: &[
            run("CREATE EXTERNAL TABLE o STORED AS PARQUET LOCATION '{dir}/o/'"),
            rows("SELECT a, b FROM o", &["1|x", "2|y", "3|NULL"]),
            rows("SELECT sum(a), count(b) FROM o", &["6|2"]),
            Step::Register("r", "{dir}/o"),
            rows("SELECT a, b FROM r", &["1|x", "2|y", "3|NULL"]),
            Step::Register("w", "{dir}/w"),
            rows("SELECT sum(n), count(*) FROM w", &["3000000003|2"]),
        ],
        ..CASE
    },
    Case {
        name: "D10",
        inputs: &[
            Input::Made {
                path: "flipped.parquet",
                make: |path| {
                    let mut bytes = parquet_bytes(path);
                    bytes[10..20].iter_mut().for_each(|byte| *byte ^= 0xff);
                    fs::write(path, bytes).expect("a file");
                },
            },
            Input::Made {
                path: "half.parquet",
                make: |path| {
                    let bytes = parquet_bytes(path);
                    fs::write(path, &bytes[..bytes.len() / 2]).expect("a file");
                },
            },
            text("nothing.parquet", ""),
        ],
        steps: &[
            run("CREATE EXTERNAL TABLE flipped STORED AS PARQUET LOCATION '{dir}/flipped.parquet'"),
            refused(
                "SELECT sum(id), sum(v), max(s) FROM flipped",
                &["flipped.parquet"],
            ),
            refused(
                "CREATE EXTERNAL TABLE half STORED AS PARQUET LOCATION '{dir}/half.parquet'",
                &["half.parquet"],
            ),
            refused(
                "CREATE EXTERNAL TABLE nothing STORED AS PARQUET LOCATION '{dir}/nothing.parquet'",
                &["nothing.parquet"],
            ),
            rows("SELECT 1 + 1", &["2"]),
        ],
        ..WHOLE
    },
    Case {
        name: "D10 beside",
        inputs: &[
            Input::Written {
                sql: "COPY (SELECT 1 a) TO '{dir}/d/1.parquet'",
            },
            Input::Written {
                sql: "COPY (SELECT 2 a) TO '{dir}/d/2.parquet'",
            },
            text("d/.1.parquet.crc", "crc\0\0"),
            text("d/_SUCCESS", ""),
        ],
        steps: &[
            Step::Register("d", "{dir}/d"),
            rows("SELECT a FROM d", &["1", "2"]),
        ],
        ..CASE
    },
    Case {
        name: "D11",
        inputs: &[
            text("u/1.csv", "Größe,名前,a b\n1,x,10\n2,y,20\n"),
            text("u/2.csv", "Größe,名前,a b\n3,x,30\n"),
        ],
        steps: &[
            Step::Register("u", "{dir}/u"),
            rows(
                "SELECT \"名前\", sum(\"Größe\"), sum(\"a b\") FROM u GROUP BY \"名前\"",
                &["x|4|40", "y|2|20"],
            ),
            rows(
                "SELECT a.\"Größe\", b.\"a b\" FROM u a JOIN u b ON a.\"名前\" = b.\"名前\"",
                &["1|10", "1|30", "3|10", "3|30", "2|20"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "D13",
        inputs: &[],
        steps: &[
            Step::Do(|out| fs::write(out.join("x.csv"), "a\n1\n2\n").expect("a file")),
            run(
                "CREATE EXTERNAL TABLE x (a BIGINT) STORED AS CSV LOCATION '{out}/x.csv' \
                 OPTIONS ('format.has_header' 'true')",
            ),
            rows("SELECT sum(a), count(*) FROM x", &["3|2"]),
            Step::Do(|out| fs::write(out.join("x.csv"), "a\n10\n20\n30\n40\n").expect("a file")),
            rows("SELECT sum(a), count(*) FROM x", &["100|4"]),
            Step::Do(|out| fs::write(out.join("x.csv"), "a\n5\n").expect("a file")),
            rows("SELECT sum(a), count(*) FROM x", &["5|1"]),
            Step::Do(|out| fs::remove_file(out.join("x.csv")).expect("it is there")),
            refused("SELECT sum(a), count(*) FROM x", &["x.csv"]),
        ],
        ..WHOLE
    },
    Case {
        name: "null strings",
        inputs: &[
            text("d/1.csv", "a,b\nNA,x\n1,NA\n"),
            text("d/2.csv", "a,b\n2,NULL\nNULL,y\n"),
        ],
        steps: &[
            run(
                "CREATE EXTERNAL TABLE d (a BIGINT, b TEXT) STORED AS CSV LOCATION '{dir}/d/' \
                 OPTIONS ('format.has_header' 'true', 'format.null_regex' '^(NA|NULL)$')",
            ),
            rows(
                "SELECT a, b FROM d",
                &["NULL|x", "1|NULL", "2|NULL", "NULL|y"],
            ),
            rows("SELECT count(*), count(a), count(b) FROM d", &["4|2|2"]),
        ],
        ..CASE
    },
    Case {
        name: "files by their path",
        inputs: &[
            Input::Written {
                sql: "COPY (SELECT value a FROM range(0, 10)) TO '{dir}/p/1.parquet'",
            },
            Input::Written {
                sql: "COPY (SELECT value a FROM range(10, 20)) TO '{dir}/p/2.parquet'",
            },
            text("j.json", "{\"a\":1}\n{\"a\":2}\n"),
            text("s.tsv", "a\tb\n1\tx\n2\ty\n"),
        ],
        steps: &[
            rows(
                "SELECT count(*), sum(a) FROM '{dir}/p/1.parquet'",
                &["10|45"],
            ),
            rows(
                "SELECT count(*), sum(a) FROM '{dir}/p/*.parquet'",
                &["20|190"],
            ),
            rows("SELECT count(*), sum(a) FROM '{dir}/p'", &["20|190"]),
            rows("SELECT count(*), sum(a) FROM '{dir}/j.json'", &["2|3"]),
            rows("SELECT a, b FROM '{dir}/s.tsv'", &["1|x", "2|y"]),
            Step::Register("g", "{dir}/p/*.parquet"),
            rows("SELECT count(*), sum(a) FROM g", &["20|190"]),
            Step::Register("j", "{dir}/j.json"),
            rows("SELECT count(*), sum(a) FROM j", &["2|3"]),
        ],
        ..WHOLE
    },
    Case {
        name: "files without rows",
        inputs: &[
            files_of(1, "e", "a BIGINT, b TEXT", ""),
            table("f", "a BIGINT, b TEXT", "(1, 'x'), (2, 'y')"),
        ],
        steps: &[
            alone("SELECT * FROM e", &[]),
            alone("SELECT count(*), sum(a) FROM e", &["0|NULL"]),
            alone("SELECT * FROM e JOIN f ON e.a = f.a", &[]),
            rows(
                "SELECT f.a, e.b FROM f LEFT JOIN e ON e.a = f.a",
                &["1|NULL", "2|NULL"],
            ),
            rows("SELECT a FROM e UNION ALL SELECT a FROM f", &["1", "2"]),
            rows(
                "SELECT a FROM f WHERE a NOT IN (SELECT a FROM e)",
                &["1", "2"],
            ),
            alone("SELECT count(*) FROM f CROSS JOIN e", &["0"]),
        ],
        ..JOIN
    },
];

fn parquet_bytes(path: &Path) -> Vec<u8> {
    write(path, Format::Parquet, &t_batch(20_000), None);
    fs::read(path).expect("a file")
}

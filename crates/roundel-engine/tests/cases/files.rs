//! Files of formats, and with contents, that a scan may not cut where it likes. The names are those of `peer-reports.md`, group A, in issue 27.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::case::*;
use super::data::t_batch;

/// 20,000 rows with a line break in each, whose ids sum up to 199,990,000.
const QUOTED: Input = Input::Made {
    path: "q.csv",
    make: quoted,
};

pub const CASES: &[Case] = &[
    Case {
        name: "A1",
        inputs: &[
            Input::Written {
                sql: "COPY (SELECT value a, value % 7 b, md5(CAST(value AS TEXT)) c FROM range(0, 20000)) \
                      TO '{dir}/x.csv.gz' STORED AS CSV OPTIONS ('format.compression' 'gzip', 'format.has_header' 'true')",
            },
            Input::Written {
                sql: "COPY (SELECT value a, value % 7 b, md5(CAST(value AS TEXT)) c FROM range(0, 20000)) \
                      TO '{dir}/x.csv.zst' STORED AS CSV OPTIONS ('format.compression' 'zstd', 'format.has_header' 'true')",
            },
            Input::Written {
                sql: "COPY (SELECT value a, value % 7 b, md5(CAST(value AS TEXT)) c FROM range(0, 20000)) \
                      TO '{dir}/x.json.gz' STORED AS JSON OPTIONS ('format.compression' 'gzip')",
            },
        ],
        steps: &[
            run(
                "CREATE EXTERNAL TABLE g STORED AS CSV LOCATION '{dir}/x.csv.gz' \
                 OPTIONS ('format.has_header' 'true', 'format.compression' 'gzip')",
            ),
            rows("SELECT count(*), sum(a) FROM g", &["20000|199990000"]),
            run(
                "CREATE EXTERNAL TABLE z STORED AS CSV LOCATION '{dir}/x.csv.zst' \
                 OPTIONS ('format.has_header' 'true', 'format.compression' 'zstd')",
            ),
            rows("SELECT count(*), sum(a) FROM z", &["20000|199990000"]),
            run(
                "CREATE EXTERNAL TABLE j STORED AS JSON LOCATION '{dir}/x.json.gz' \
                 OPTIONS ('format.compression' 'gzip')",
            ),
            rows("SELECT count(*), sum(a) FROM j", &["20000|199990000"]),
            rows(
                "SELECT count(*), sum(g.a) FROM g JOIN z ON g.a = z.a JOIN j ON j.a = z.a",
                &["20000|199990000"],
            ),
            Step::Register("r", "{dir}/x.csv.gz"),
            rows("SELECT count(*), sum(a) FROM r", &["20000|199990000"]),
            Step::Register("s", "{dir}/x.csv.zst"),
            rows("SELECT count(*), sum(a) FROM s", &["20000|199990000"]),
        ],
        joins: true,
        ..WHOLE
    },
    Case {
        name: "A2",
        inputs: &[QUOTED],
        steps: &[
            run(
                "CREATE EXTERNAL TABLE q (id BIGINT, t TEXT) STORED AS CSV LOCATION '{dir}/q.csv' \
                 OPTIONS ('format.has_header' 'true', 'format.newlines_in_values' 'true')",
            ),
            rows(
                "SELECT count(*), count(DISTINCT id), sum(id) FROM q",
                &["20000|20000|199990000"],
            ),
            rows("SELECT length(t) FROM q WHERE id = 19999", &["36"]),
        ],
        ..WHOLE
    },
    Case {
        name: "A3",
        inputs: &[QUOTED],
        steps: &[
            Step::Register("q", "{dir}/q.csv"),
            rows(
                "SELECT count(*), count(DISTINCT id), sum(id) FROM q",
                &["20000|20000|199990000"],
            ),
            rows("SELECT arrow_typeof(id) FROM q WHERE id = 3", &["Int64"]),
            rows(
                "SELECT id, count(*) FROM q GROUP BY id HAVING count(*) > 1",
                &[],
            ),
            run(
                "CREATE EXTERNAL TABLE e (id BIGINT, t TEXT) STORED AS CSV LOCATION '{dir}/q.csv' \
                 OPTIONS ('format.has_header' 'true')",
            ),
            rows("SELECT count(*), sum(id) FROM e", &["20000|199990000"]),
        ],
        ..WHOLE
    },
    Case {
        name: "A3 three columns",
        inputs: &[Input::Made {
            path: "q.csv",
            make: quoted_three,
        }],
        steps: &[
            Step::Register("q", "{dir}/q.csv"),
            rows(
                "SELECT count(*), sum(id), sum(n) FROM q",
                &["1000|499500|1000"],
            ),
        ],
        ..WHOLE
    },
    Case {
        name: "A3 large",
        inputs: &[Input::Made {
            path: "q.csv",
            make: quoted_large,
        }],
        steps: &[
            Step::Register("q", "{dir}/q.csv"),
            rows(
                "SELECT count(*), count(DISTINCT id), sum(id) FROM q",
                &["60000|60000|1799970000"],
            ),
            rows(
                "SELECT count(*) FROM (SELECT u, count(*) FROM q GROUP BY u)",
                &["60000"],
            ),
        ],
        ..WHOLE
    },
    Case {
        name: "A4",
        inputs: &[Input::Made {
            path: "x.json",
            make: array_of_objects,
        }],
        steps: &[
            run(
                "CREATE EXTERNAL TABLE j STORED AS JSON LOCATION '{dir}/x.json' \
                 OPTIONS ('format.newline_delimited' 'false')",
            ),
            rows(
                "SELECT count(*), sum(a), count(DISTINCT s) FROM j",
                &["20000|199990000|20000"],
            ),
            Step::Register("k", "{dir}/x.json"),
            rows("SELECT count(*), sum(a) FROM k", &["20000|199990000"]),
        ],
        ..WHOLE
    },
    Case {
        name: "P20 arrow",
        inputs: &[Input::Made {
            path: "f",
            make: arrow_files,
        }],
        steps: &[
            run("CREATE EXTERNAL TABLE f STORED AS ARROW LOCATION '{dir}/f/file.arrow'"),
            rows("SELECT count(*), sum(id) FROM f", &["30000|449985000"]),
            run("CREATE EXTERNAL TABLE s STORED AS ARROW LOCATION '{dir}/f/stream.arrow'"),
            rows("SELECT count(*), sum(id) FROM s", &["30000|449985000"]),
            rows(
                "SELECT max(r) FROM (SELECT row_number() OVER () r FROM s)",
                &["30000"],
            ),
        ],
        ..WHOLE
    },
];

/// Rows as they are in A2.
fn quoted(path: &Path) {
    let mut out = String::from("id,t\n");
    for i in 0..20_000 {
        writeln!(out, "{i},\"line one of {i}\nline two, of {i}\"").expect("memory");
    }
    fs::write(path, out).expect("a file");
}

/// 48 KB of three columns.
fn quoted_three(path: &Path) {
    let mut out = String::from("id,t,n\n");
    for i in 0..1000 {
        writeln!(out, "{i},\"line one of {i}\nline two, of {i}, the last\",1").expect("memory");
    }
    fs::write(path, out).expect("a file");
}

/// Two columns of text, both with line breaks and quotes.
fn quoted_large(path: &Path) {
    let mut out = String::from("id,t,u\n");
    for i in 0..60_000 {
        writeln!(out, "{i},\"a \"\"{i}\"\"\n7,\",\"b\n{i},c\n8\"").expect("memory");
    }
    fs::write(path, out).expect("a file");
}

fn array_of_objects(path: &Path) {
    let objects: Vec<_> = (0..20_000)
        .map(|i| format!("{{\"a\":{i},\"s\":\"text {i}\"}}"))
        .collect();
    fs::write(path, format!("[{}]", objects.join(",\n"))).expect("a file");
}

/// A file in Arrow's file format, and one of its stream format.
fn arrow_files(dir: &Path) {
    fs::create_dir(dir).expect("a directory");
    let batch = t_batch(30_000);
    let batches = (0..30).map(|part| batch.slice(part * 1000, 1000));
    let file = fs::File::create(dir.join("file.arrow")).expect("a file");
    let mut file =
        arrow::ipc::writer::FileWriter::try_new(file, &batch.schema()).expect("a writer");
    let stream = fs::File::create(dir.join("stream.arrow")).expect("a file");
    let mut stream =
        arrow::ipc::writer::StreamWriter::try_new(stream, &batch.schema()).expect("a writer");
    for part in batches {
        file.write(&part).expect("rows");
        stream.write(&part).expect("rows");
    }
    file.finish().expect("an end");
    stream.finish().expect("an end");
}

//! Plans that answered once per task, over one file of any size. The numbers are those of the list in issue 27.

use std::path::Path;

use super::case::*;
use super::data::{t_batch, write};
use super::selection::Format;

pub const CASES: &[Case] = &[
    over_t(
        "P1",
        &[
            count("SELECT sqrt(v) FROM t LIMIT 1", 1),
            count("SELECT * FROM t LIMIT 7", 7),
            count("SELECT v + 1 FROM t WHERE v > 3 LIMIT 7", 7),
        ],
    ),
    over_t(
        "P2",
        &[
            rows(
                "SELECT count(*) FROM (SELECT id + 1 FROM t LIMIT 10)",
                &["10"],
            ),
            rows(
                "SELECT count(*), count(id) FROM (SELECT * FROM t LIMIT 10)",
                &["10|10"],
            ),
        ],
    ),
    over_t(
        "P3",
        &[
            same("SELECT count(*) FROM (SELECT id + 1 FROM t LIMIT 9 OFFSET 20000)"),
            same("SELECT count(*) FROM (SELECT id + 1 FROM t LIMIT 9 OFFSET 400)"),
            same("SELECT count(*) FROM (SELECT id + 1 FROM t OFFSET 400)"),
            rows("SELECT count(*) FROM (SELECT id FROM t OFFSET {n})", &["0"]),
        ],
    ),
    over_t(
        "P4",
        &[
            rows(
                "SELECT max(rn) FROM (SELECT row_number() OVER (ORDER BY id) rn FROM t)",
                &["{n}"],
            ),
            rows(
                "SELECT max(rn), count(DISTINCT rn) FROM (SELECT row_number() OVER () rn FROM t)",
                &["{n}|{n}"],
            ),
            same("SELECT max(n), min(n) FROM (SELECT ntile(4) OVER (ORDER BY id) n FROM t)"),
            same("SELECT sum(l), count(l) FROM (SELECT lag(v) OVER (ORDER BY id) l FROM t)"),
            same("SELECT max(c), sum(c) FROM (SELECT sum(v) OVER (ORDER BY id) c FROM t)"),
            same("SELECT round(sum(p), 4) FROM (SELECT percent_rank() OVER (ORDER BY v) p FROM t)"),
        ],
    ),
    over_t(
        "P5",
        &[
            same("SELECT DISTINCT sum(v) OVER () FROM t"),
            same("SELECT DISTINCT first_value(id) OVER (ORDER BY id), count(*) OVER () FROM t"),
            same("SELECT DISTINCT max(v) OVER (), avg(id) OVER () FROM t WHERE g < 3"),
        ],
    ),
    over_t(
        "P6",
        &[
            rows(
                "SELECT sum(c) FROM (SELECT g, count(*) c FROM (SELECT * FROM t LIMIT 10) GROUP BY g)",
                &["10"],
            ),
            rows(
                "SELECT count(*) FROM (SELECT DISTINCT id FROM (SELECT * FROM t LIMIT 10))",
                &["10"],
            ),
        ],
    ),
    over_t(
        "P7",
        &[
            rows(
                "SELECT array_agg(id) FROM (SELECT * FROM t ORDER BY id LIMIT 2)",
                &["[0, 1]"],
            ),
            rows(
                "SELECT array_agg(id ORDER BY id DESC) FROM (SELECT * FROM t ORDER BY id LIMIT 3)",
                &["[2, 1, 0]"],
            ),
            same("SELECT sum(id) FROM (SELECT * FROM t ORDER BY v, id LIMIT 20 OFFSET 5)"),
            in_order("SELECT id, v FROM t ORDER BY v DESC, id LIMIT 5 OFFSET 2"),
        ],
    ),
    over_t(
        "P8",
        &[
            rows(
                "SELECT count(*) FROM t GROUP BY GROUPING SETS (())",
                &["{n}"],
            ),
            same("SELECT g, count(*), sum(v) FROM t GROUP BY GROUPING SETS ((g), ())"),
            same("SELECT g, v % 3, count(*) FROM t GROUP BY ROLLUP (g, v % 3)"),
            same("SELECT g, v % 3, count(*), grouping(g) FROM t GROUP BY CUBE (g, v % 3)"),
            same("SELECT count(*) FROM t WHERE v < 0 GROUP BY GROUPING SETS (())"),
            same("SELECT g, count(*) FROM t WHERE v < 0 GROUP BY GROUPING SETS ((g), ())"),
            same("SELECT count(DISTINCT g) FROM t GROUP BY GROUPING SETS ((), ())"),
        ],
    ),
    over_t(
        "P9",
        &[
            refused(
                "SELECT count(*) FROM t WHERE v > (SELECT v FROM t WHERE id < 2)",
                &["more than one row", "more than 1 row"],
            ),
            refused(
                "SELECT (SELECT id FROM t WHERE id < 3) FROM t LIMIT 1",
                &["more than one row", "more than 1 row"],
            ),
            same("SELECT count(*) FROM t WHERE v > (SELECT v FROM t WHERE id = 1)"),
            same("SELECT count(*) FROM t WHERE v > (SELECT v FROM t WHERE id < 0)"),
            same("SELECT count(*) FROM t WHERE v >= (SELECT max(v) FROM t WHERE id < 20)"),
            same("SELECT count(*) FROM t WHERE id < (SELECT id FROM t ORDER BY id DESC LIMIT 1)"),
        ],
    ),
    over_t(
        "P10",
        &[
            same("SELECT g, row_number() OVER (PARTITION BY g ORDER BY id) FROM t WHERE g = 1"),
            same(
                "SELECT max(r), round(sum(a), 2) FROM (SELECT g, v, rank() OVER (PARTITION BY g, v % 2 ORDER BY id) r, \
                 avg(v) OVER (PARTITION BY g, v % 2) a FROM t WHERE g = 1 AND v > 7)",
            ),
            same(
                "SELECT sum(c) FROM (SELECT count(*) OVER (PARTITION BY g) c FROM t \
                 WHERE g IN (SELECT g FROM t WHERE id = 3))",
            ),
            same(
                "SELECT max(r) FROM (SELECT row_number() OVER (PARTITION BY k ORDER BY id) r \
                 FROM (SELECT 5 AS k, id FROM t))",
            ),
        ],
    ),
    over_t(
        "P11",
        &[
            rows(
                "WITH RECURSIVE r AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 20) \
                 SELECT count(*), sum(t.id) FROM r JOIN t ON t.id = r.n",
                &["21|210"],
            ),
            same(
                "WITH RECURSIVE r AS (SELECT id, 0 AS depth FROM t WHERE id = 1 UNION ALL \
                 SELECT t.id, depth + 1 FROM r JOIN t ON t.id = r.id * 2) SELECT count(*), max(depth) FROM r",
            ),
        ],
    ),
    over_t(
        "P12",
        &[
            same("SELECT g, count(*) FROM t GROUP BY g ORDER BY g + (SELECT max(v) FROM t)"),
            same("SELECT sum(v + (SELECT max(id) FROM t)) FROM t"),
            same(
                "SELECT count(*) FROM t a JOIN t b ON a.id = b.id AND a.v > (SELECT avg(v) FROM t)",
            ),
            same(
                "SELECT max(x) FROM (SELECT sum(v) OVER (PARTITION BY g ORDER BY id) \
                 + (SELECT min(id) FROM t) x FROM t)",
            ),
            same(
                "SELECT g + (SELECT min(g) FROM t), count(*) FROM t GROUP BY g + (SELECT min(g) FROM t)",
            ),
            same("SELECT g FROM t GROUP BY g HAVING count(*) >= (SELECT count(*) / 7 FROM t)"),
            same("SELECT CASE WHEN (SELECT count(*) FROM t) > 1 THEN 'many' ELSE 'few' END"),
            same("SELECT sum(CASE WHEN v > (SELECT avg(v) FROM t) THEN 1 ELSE 0 END) FROM t"),
        ],
    ),
    over_t(
        "P15",
        &[
            Step::Try("SET distributed.partial_reduce = true", &["partial_reduce"]),
            same("SELECT g, count(*), sum(v) FROM t GROUP BY g"),
            same("SELECT count(DISTINCT v) FROM t"),
        ],
    ),
    over_t(
        "P16",
        &[
            run("SET datafusion.execution.time_zone = '+08:00'"),
            either(
                "SELECT min(to_timestamp('2024-01-01T00:00:' || lpad(CAST(id % 60 AS TEXT), 2, '0'))) FROM t",
                &["2024-01-01T00:00:00+08:00"],
                &["time_zone", "time zone"],
            ),
        ],
    ),
    over_t(
        "P18",
        &[
            run("SET datafusion.optimizer.enable_window_topn = true"),
            same(
                "SELECT g, id FROM (SELECT g, id, row_number() OVER (PARTITION BY g ORDER BY id DESC) r \
                 FROM t) WHERE r <= 2",
            ),
        ],
    ),
    over_t(
        "P21",
        &[
            same(
                "SELECT count(*) FROM t WHERE arrow_cast(g, 'Float16') = arrow_cast(3, 'Float16')",
            ),
            same("SELECT max(arrow_cast(g, 'Float16')) FROM t"),
        ],
    ),
    over_t(
        "P22",
        &[
            Step::Ask(
                "EXPLAIN CREATE VIEW w AS SELECT * FROM t",
                Expected::Check(|_| Ok(())),
            ),
            Step::Ask(
                "EXPLAIN CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION '/nowhere/x.parquet'",
                Expected::Check(|_| Ok(())),
            ),
        ],
    ),
    over_t(
        "P23",
        &[
            Step::Ask(
                "SELECT first_value(id) = first_value(id + 0), last_value(id) IS NOT NULL FROM t",
                Expected::Count(1),
            ),
            rows(
                "SELECT count(*), count(f) FROM (SELECT g, first_value(id) f FROM t GROUP BY g)",
                &["7|7"],
            ),
        ],
    ),
    over_t(
        "P26",
        &[rows(
            "WITH RECURSIVE r AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM r \
             WHERE n < (SELECT max(g) FROM t)) SELECT sum(n) FROM r",
            &["21"],
        )],
    ),
    over_t(
        "P27",
        &[same(
            "WITH v1 AS (SELECT g, v, id % 12 m, 2000 y, sum(id) s, \
             avg(sum(id)) OVER (PARTITION BY g, 2000) a, \
             rank() OVER (PARTITION BY g ORDER BY v, id % 12) rn FROM t WHERE g = 3 GROUP BY g, v, id % 12) \
             SELECT count(*), sum(a.s), sum(b.s), sum(c.s), round(sum(a.a)) FROM v1 a, v1 b, v1 c \
             WHERE a.g = b.g AND a.g = c.g AND a.rn = b.rn + 1 AND a.rn = c.rn - 1",
        )],
    ),
    Case {
        name: "P25",
        inputs: &[Input::Made {
            path: "t",
            make: six_thousand,
        }],
        steps: &[
            run("CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{dir}/t.parquet'"),
            rows(
                "SELECT max(r) FROM (SELECT rank() OVER (PARTITION BY g ORDER BY id) r FROM t)",
                &["858"],
            ),
            rows(
                "SELECT count(*) FROM t a JOIN t b ON a.id = b.id",
                &["6000"],
            ),
            run("SET datafusion.optimizer.prefer_hash_join = false"),
            rows(
                "SELECT count(*) FROM t a JOIN t b ON a.id = b.id",
                &["6000"],
            ),
        ],
        joins: true,
        ..WHOLE
    },
    Case {
        name: "P13",
        inputs: &[
            Input::Written {
                sql: "COPY (SELECT value u FROM range(0, 30000)) TO '{dir}/s/1.parquet'",
            },
            Input::Written {
                sql: "COPY (SELECT value u FROM range(10, 30000)) TO '{dir}/s/2.parquet'",
            },
            Input::Written {
                sql: "COPY (SELECT value u FROM range(20, 30000)) TO '{dir}/s/3.parquet'",
            },
            Input::Written {
                sql: "COPY (SELECT value u FROM range(30, 30000)) TO '{dir}/s/4.parquet'",
            },
        ],
        steps: &[
            run(
                "CREATE EXTERNAL TABLE s (u BIGINT) STORED AS PARQUET WITH ORDER (u) LOCATION '{dir}/s/'",
            ),
            rows("SELECT count(*), sum(u) FROM s", &["119940|1799939330"]),
            in_order("SELECT u, count(*) FROM s GROUP BY u ORDER BY u LIMIT 3"),
            in_order("SELECT u FROM s ORDER BY u LIMIT 12"),
            same("SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY u) r FROM s)"),
            same("SELECT count(*) FROM s a JOIN s b ON a.u = b.u WHERE a.u % 7 = 1"),
            run("SET distributed.file_scan_config_bytes_per_partition = 1"),
            rows("SELECT count(*), sum(u) FROM s", &["119940|1799939330"]),
            in_order("SELECT u, count(*) FROM s GROUP BY u ORDER BY u LIMIT 3"),
        ],
        ..WHOLE
    },
    Case {
        name: "P14",
        inputs: &[Input::Written {
            sql: "COPY (SELECT value % 5 k, value v FROM range(0, 20000)) TO '{dir}/h/' \
                      STORED AS PARQUET PARTITIONED BY (k)",
        }],
        steps: &[
            run(
                "CREATE EXTERNAL TABLE h (v BIGINT, k BIGINT) STORED AS PARQUET PARTITIONED BY (k) \
                 LOCATION '{dir}/h/'",
            ),
            same("SELECT k, count(*), sum(v) FROM h GROUP BY k"),
            run("SET datafusion.optimizer.preserve_file_partitions = 1"),
            run("SET datafusion.execution.target_partitions = 3"),
            same("SELECT k, count(*), sum(v) FROM h GROUP BY k"),
            same(
                "SELECT a.k, count(*), sum(a.v) FROM h a JOIN h b ON a.k = b.k AND b.v < 20 GROUP BY a.k",
            ),
        ],
        joins: true,
        ..WHOLE
    },
    Case {
        name: "P24",
        inputs: &[
            Input::Written {
                sql: "COPY (SELECT value u, value * 7919 % 1000003 w FROM range(0, 200000) ORDER BY u) \
                      TO '{dir}/o/1.parquet'",
            },
            Input::Written {
                sql: "COPY (SELECT value u, value * 7919 % 1000003 w FROM range(0, 200000) ORDER BY u) \
                      TO '{dir}/o/2.parquet'",
            },
        ],
        steps: &[
            run(
                "CREATE EXTERNAL TABLE o (u BIGINT, w BIGINT) STORED AS PARQUET WITH ORDER (u) \
                 LOCATION '{dir}/o/'",
            ),
            ordered(
                "SELECT u, count(*) FROM o GROUP BY u ORDER BY u LIMIT 3",
                &["0|2", "1|2", "2|2"],
            ),
            run("CREATE EXTERNAL TABLE f STORED AS PARQUET LOCATION '{dir}/o/'"),
            ordered(
                "SELECT u, count(*) FROM f GROUP BY u ORDER BY u LIMIT 3",
                &["0|2", "1|2", "2|2"],
            ),
            in_order("SELECT u, w FROM o ORDER BY u, w LIMIT 4 OFFSET 100000"),
            same("SELECT count(*) FROM (SELECT u FROM o EXCEPT ALL SELECT u FROM f)"),
            run("SET datafusion.optimizer.prefer_hash_join = false"),
            same("SELECT count(*), sum(a.w) FROM o a JOIN f b ON a.u = b.u"),
        ],
        joins: true,
        ..WHOLE
    },
    Case {
        name: "P19",
        inputs: &[Input::Made {
            path: "n.csv",
            make: broken_lines,
        }],
        steps: &[
            run(
                "CREATE EXTERNAL TABLE n (id BIGINT, s TEXT) STORED AS CSV LOCATION '{dir}/n.csv' \
                 OPTIONS ('format.has_header' 'true', 'format.newlines_in_values' 'true')",
            ),
            rows(
                "SELECT count(*), sum(id), count(DISTINCT s) FROM n",
                &["3000|4498500|3000"],
            ),
            count("SELECT * FROM n LIMIT 10", 10),
            rows(
                "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY id) r FROM n)",
                &["3000"],
            ),
        ],
        ..WHOLE
    },
];

/// 6,000 rows in 258 KB: fewer than a batch, and too few bytes to be split.
fn six_thousand(path: &Path) {
    write(path, Format::Parquet, &t_batch(6000), None);
}

/// 3,000 rows of 200 bytes, with a line break in each.
fn broken_lines(path: &Path) {
    let line = |id: usize| {
        format!(
            "{id},\"line one of {id}\nline two, {}\"\n",
            "of more ".repeat(20)
        )
    };
    let lines: String = (0..3000).map(line).collect();
    std::fs::write(path, format!("id,s\n{lines}")).expect("a file");
}

//! The second half of `peer-reports.md`, group B: windows, ordered aggregates, grouping sets, optimizers, large plans.

use std::fmt::Write as _;
use std::path::Path;

use super::case::*;

pub const CASES: &[Case] = &[
    Case {
        name: "B27",
        inputs: &[
            table("w", "i BIGINT, v BIGINT", "(1, NULL), (2, NULL), (3, 4)"),
            table("r", "k BIGINT, v BIGINT", "(1, 10), (100, 20)"),
            table(
                "o",
                "k BIGINT, v BIGINT",
                "(1, 10), (2, 20), (NULL, 30), (4, 40), (NULL, 50)",
            ),
        ],
        steps: &[
            rows(
                "SELECT i, min(v) OVER (ORDER BY i ROWS 1 PRECEDING) FROM w",
                &["1|NULL", "2|NULL", "3|4"],
            ),
            rows(
                "SELECT k, sum(v) OVER (ORDER BY k RANGE BETWEEN 5 FOLLOWING AND 6 FOLLOWING) FROM r",
                &["1|NULL", "100|NULL"],
            ),
            rows(
                "SELECT i, lag(v) IGNORE NULLS OVER (ORDER BY i DESC) FROM w",
                &["3|NULL", "2|4", "1|4"],
            ),
            rows(
                "SELECT i, count(DISTINCT v) OVER (ORDER BY i) FROM w",
                &["1|0", "2|0", "3|1"],
            ),
            rows(
                "SELECT v, sum(v) OVER (ORDER BY k NULLS LAST RANGE 1 PRECEDING) FROM o",
                &["10|10", "20|30", "40|40", "30|80", "50|80"],
            ),
        ],
        ..CASE
    },
    Case {
        name: "B29",
        inputs: &[table("a", "x BIGINT, y BIGINT", "(1, 2), (1, 1), (2, 9)")],
        steps: &[
            alone(
                "SELECT x, first_value(y ORDER BY y), last_value(y ORDER BY y), \
                 array_agg(y ORDER BY y DESC), string_agg(CAST(y AS TEXT), '-' ORDER BY y) \
                 FROM a GROUP BY x",
                &["1|1|2|[2, 1]|1-2", "2|9|9|[9]|9"],
            ),
            rows(
                "SELECT first_value(y ORDER BY y DESC), last_value(y ORDER BY x, y), \
                 array_agg(y ORDER BY y), string_agg(CAST(y AS TEXT), '' ORDER BY x DESC, y) FROM a",
                &["9|9|[1, 2, 9]|912"],
            ),
            rows("SELECT nth_value(y, 2 ORDER BY y) FROM a", &["2"]),
            rows(
                "SELECT DISTINCT ON (x) x, y FROM a ORDER BY x, y",
                &["1|1", "2|9"],
            ),
        ],
        ..CASE
    },
    Case {
        name: "B31",
        inputs: &[
            table("s", "v BIGINT", "(1), (NULL)"),
            table("d", "d BIGINT, j BIGINT", "(1, 10), (2, 20)"),
        ],
        steps: &[
            rows(
                "SELECT v, min(v), grouping(v) FROM s GROUP BY CUBE (v)",
                &["1|1|0", "NULL|NULL|0", "NULL|1|1"],
            ),
            count(
                "SELECT d, j FROM d GROUP BY GROUPING SETS ((d), (j), (d))",
                6,
            ),
            alone("SELECT count(*) FROM s GROUP BY GROUPING SETS (())", &["2"]),
            alone(
                "SELECT count(*), sum(d) FROM d GROUP BY GROUPING SETS ((), ())",
                &["2|3", "2|3"],
            ),
            rows(
                "SELECT d, count(*), sum(j) FROM d GROUP BY ROLLUP (d)",
                &["1|1|10", "2|1|20", "NULL|2|30"],
            ),
        ],
        ..CASE
    },
    Case {
        name: "B33 literals",
        inputs: &[table(
            "t",
            "x BIGINT",
            "(1), (2), (3), (4), (5), (6), (7), (8), (9), (10)",
        )],
        steps: &[rows("SELECT count(*) FROM t WHERE x IN ({list})", &["6"])],
        ..CASE
    },
    Case {
        name: "B33 columns",
        inputs: &[
            Input::Made {
                path: "w.csv",
                make: wide,
            },
            table("k", "i BIGINT", "(3), (4), (99)"),
        ],
        steps: &[
            run(
                "CREATE EXTERNAL TABLE w STORED AS CSV LOCATION '{dir}/w.csv' OPTIONS ('format.has_header' 'true')",
            ),
            Step::AskAlone("SELECT * FROM w", Expected::Count(50)),
            count("SELECT w.* FROM w JOIN k ON w.c0 = k.i", 2),
            rows("SELECT count(*), sum(c1999) FROM w", &["50|101175"]),
        ],
        ..JOIN
    },
    Case {
        name: "B33 memory",
        inputs: &[table("k", "i BIGINT", "(3), (4), (99)")],
        steps: &[
            run(
                "CREATE TABLE m AS SELECT value i, repeat('0123456789', 10) s FROM range(0, 100000)",
            ),
            rows(
                "SELECT count(*), sum(length(s)) FROM m JOIN k ON m.i = k.i",
                &["3|300"],
            ),
            rows(
                "SELECT count(*) FROM k LEFT JOIN m ON m.i > k.i",
                &["299891"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "B35",
        inputs: &[
            table("a", "x BIGINT, y BIGINT", "(1, 2), (2, 3)"),
            table("b", "x BIGINT, z BIGINT", "(1, 5)"),
            table(
                "q",
                "s TEXT, f BOOLEAN",
                "('foo', true), ('foobar', false), (NULL, NULL)",
            ),
        ],
        steps: &[
            rows(
                "SELECT a.x FROM a LEFT ANTI JOIN b ON a.x = b.x AND a.y > 2",
                &["1", "2"],
            ),
            rows(
                "SELECT a.x FROM a LEFT SEMI JOIN b ON a.x = b.x AND a.y > 1",
                &["1"],
            ),
            rows("SELECT s FROM q WHERE f IS TRUE", &["foo"]),
            rows(
                "SELECT count(*) FROM q WHERE (f IS TRUE) IS NOT NULL",
                &["3"],
            ),
            rows("SELECT s FROM q WHERE s ~ '^foo$'", &["foo"]),
            rows("SELECT s FROM q WHERE f IS NOT TRUE", &["foobar", "NULL"]),
            rows(
                "SELECT count(*) FROM (SELECT DISTINCT x FROM (SELECT x FROM a UNION ALL SELECT x FROM b))",
                &["2"],
            ),
        ],
        ..JOIN
    },
];

/// 50 rows of 2,000 columns: in row i, column c has i + c.
fn wide(path: &Path) {
    let names: Vec<_> = (0..2000).map(|c| format!("c{c}")).collect();
    let mut text = names.join(",") + "\n";
    for row in 0..50 {
        let values: Vec<_> = (0..2000).map(|c| (row + c).to_string()).collect();
        writeln!(text, "{}", values.join(",")).expect("memory");
    }
    std::fs::write(path, text).expect("a file");
}

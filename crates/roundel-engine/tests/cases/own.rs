//! What DataFusion itself gets wrong: the right answer, or a clear refusal; never its own.
//! The names are those of `peer-reports.md`, group C, in issue 27.

use super::case::*;

const OI: &[Input] = &[
    table("o", "k BIGINT", "(1), (2), (3)"),
    table("i", "k BIGINT", "(2)"),
];
const LR: &[Input] = &[
    table("l", "k BIGINT, u BIGINT", "(1, 10)"),
    table("r", "k BIGINT, v BIGINT", "(4, 40)"),
];
const AB: &[Input] = &[
    table(
        "a",
        "g BIGINT, x BIGINT",
        "(1, 5), (2, 5), (3, 5), (4, NULL)",
    ),
    table("b", "g BIGINT, y BIGINT", "(1, 5), (2, NULL), (4, 9)"),
];
/// Words of which a refusal has one, where a query is not supported.
const NOT_DONE: &[&str] = &[
    "not implemented",
    "not supported",
    "unsupported",
    "cannot",
    "datafusion#",
];

pub const CASES: &[Case] = &[
    Case {
        name: "C1",
        inputs: OI,
        steps: &[
            documented(
                "#24960",
                "SELECT k FROM o WHERE EXISTS (SELECT count(*) FROM i WHERE i.k = o.k)",
                &["1", "2", "3"],
            ),
            documented(
                "#24960",
                "SELECT k FROM o WHERE NOT EXISTS (SELECT count(*) FROM i WHERE i.k = o.k)",
                &[],
            ),
            documented(
                "#24960",
                "SELECT k FROM o WHERE EXISTS (SELECT max(k) FROM i WHERE i.k = o.k)",
                &["1", "2", "3"],
            ),
            // Not of this kind.
            rows(
                "SELECT k FROM o WHERE EXISTS (SELECT 1 FROM i WHERE i.k = o.k)",
                &["2"],
            ),
            rows(
                "SELECT k FROM o WHERE EXISTS (SELECT i.k, count(*) FROM i WHERE i.k = o.k GROUP BY i.k)",
                &["2"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "C2",
        inputs: OI,
        steps: &[
            documented(
                "#24960",
                "SELECT k FROM o WHERE 0 IN (SELECT count(*) FROM i WHERE i.k = o.k)",
                &["1", "3"],
            ),
            documented(
                "#24960",
                "SELECT k FROM o WHERE 1 IN (SELECT count(*) FROM i WHERE i.k = o.k)",
                &["2"],
            ),
            rows(
                "SELECT k, (SELECT count(*) FROM i WHERE i.k = o.k) FROM o",
                &["1|0", "2|1", "3|0"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "C3",
        inputs: &[
            table("c", "id BIGINT", "(7), (8), (9)"),
            table("p", "cid BIGINT", "(7), (7), (9)"),
        ],
        steps: &[
            documented(
                "#25283",
                "SELECT id FROM c WHERE EXISTS (SELECT 1 FROM p WHERE p.cid = c.id OFFSET 1)",
                &["7"],
            ),
            documented(
                "#25283",
                "SELECT id FROM c WHERE NOT EXISTS (SELECT 1 FROM p WHERE p.cid = c.id LIMIT 1 OFFSET 1)",
                &["8", "9"],
            ),
            Step::AskAlone(
                "SELECT id FROM c WHERE EXISTS (SELECT 1 FROM p WHERE p.cid = c.id LIMIT 0)",
                Expected::Either(&[], NOT_DONE),
            ),
            rows(
                "SELECT id FROM c WHERE EXISTS (SELECT 1 FROM p WHERE p.cid = c.id LIMIT 1)",
                &["7", "9"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "C4",
        inputs: LR,
        steps: &[
            documented(
                "#22881",
                "SELECT k FROM l FULL JOIN r USING (k)",
                &["1", "4"],
            ),
            documented("#22881", "SELECT k FROM l RIGHT JOIN r USING (k)", &["4"]),
            documented("#22881", "SELECT k FROM l NATURAL FULL JOIN r", &["1", "4"]),
            documented(
                "#22881",
                "SELECT k, count(*) FROM l FULL JOIN r USING (k) GROUP BY k",
                &["1|1", "4|1"],
            ),
            either(
                "SELECT k FROM l FULL JOIN r USING (k) WHERE k = 4",
                &["4"],
                &["Ambiguous reference"],
            ),
            documented(
                "#22881",
                "SELECT * FROM l FULL JOIN r USING (k)",
                &["1|10|NULL", "4|NULL|40"],
            ),
            rows("SELECT k FROM l LEFT JOIN r USING (k)", &["1"]),
            rows(
                "SELECT coalesce(l.k, r.k) FROM l FULL JOIN r ON l.k = r.k",
                &["1", "4"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "C5",
        inputs: &[table(
            "z",
            "ts BIGINT",
            "(562129260), (562129259), (600000000), (700000000)",
        )],
        // Its rows are right; that their order is not is documented.
        steps: &[documented(
            "#25353",
            "SELECT CAST(CAST(date_trunc('hour', ts) AS TIMESTAMP) AS BIGINT) FROM (\
             SELECT arrow_cast(ts, 'Timestamp(Second, Some(\"America/Goose_Bay\"))') AS ts FROM z \
             ORDER BY ts LIMIT 2) ORDER BY date_trunc('hour', ts)",
            &["562125600000000000", "562129200000000000"],
        )],
        ..CASE
    },
    Case {
        name: "C6",
        inputs: &[table(
            "d",
            "g BIGINT, d DECIMAL(38, 0)",
            "(1, 90000000000000000000000000000000000000), (1, 90000000000000000000000000000000000000)",
        )],
        steps: &[
            refused("SELECT sum(d) FROM d", OUT_OF_RANGE),
            refused("SELECT g, sum(d) FROM d GROUP BY g", OUT_OF_RANGE),
            refused(
                "SELECT max(s) FROM (SELECT sum(d) OVER () s FROM d)",
                OUT_OF_RANGE,
            ),
        ],
        ..CASE
    },
    Case {
        name: "C7",
        inputs: &[
            table(
                "n",
                "g BIGINT, x BIGINT",
                "(1, 9223372036854775807), (1, 1)",
            ),
            table(
                "m",
                "g BIGINT, x BIGINT",
                "(1, 9223372036854775807), (1, 1), (1, -1), (2, 5)",
            ),
        ],
        steps: &[
            refused("SELECT sum(x) FROM n", OUT_OF_RANGE),
            refused("SELECT g, sum(x) FROM n GROUP BY g", OUT_OF_RANGE),
            refused(
                "SELECT max(s) FROM (SELECT sum(x) OVER () s FROM n)",
                OUT_OF_RANGE,
            ),
            refused("SELECT sum(DISTINCT x) FROM n", OUT_OF_RANGE),
            refused("SELECT sum(x) FILTER (WHERE x > 0) FROM n", OUT_OF_RANGE),
            rows(
                "SELECT g, sum(x) FROM m GROUP BY g",
                &["1|9223372036854775807", "2|5"],
            ),
            rows("SELECT sum(x) FROM m WHERE g = 2", &["5"]),
        ],
        ..CASE
    },
    Case {
        name: "C8",
        inputs: &[table(
            "d",
            "d DECIMAL(38, 0)",
            "(90000000000000000000000000000000000000), (90000000000000000000000000000000000000)",
        )],
        steps: &[Step::Ask(
            "SELECT avg(d) FROM d",
            Expected::Either(&["90000000000000000000000000000000000000"], OVERFLOW),
        )],
        ..CASE
    },
    Case {
        name: "C9",
        inputs: AB,
        steps: &[either(
            "SELECT a.g FROM a WHERE a.x NOT IN (SELECT b.y FROM b WHERE b.g = a.g)",
            &["3"],
            &[
                "null_aware",
                "null-aware",
                "not supported",
                "not implemented",
                "NOT IN",
            ],
        )],
        ..JOIN
    },
    Case {
        name: "C10",
        inputs: &[
            table("a", "x BIGINT", "(1), (5)"),
            table("b", "y BIGINT", "(1), (NULL)"),
        ],
        steps: &[
            either(
                "SELECT x, x IN (SELECT y FROM b) FROM a",
                &["1|true", "5|NULL"],
                NOT_DONE,
            ),
            rows("SELECT x FROM a WHERE x = ANY (SELECT y FROM b)", &["1"]),
        ],
        ..JOIN
    },
    Case {
        name: "C11",
        inputs: &[
            table("a", "x BIGINT", "(1), (2), (5)"),
            table("b", "k BIGINT, v BIGINT", "(1, 10), (1, 20), (2, 5)"),
        ],
        steps: &[
            either(
                "SELECT x, v FROM a, LATERAL (SELECT v FROM b WHERE b.k = a.x ORDER BY v DESC LIMIT 1)",
                &["1|20", "2|5"],
                NOT_DONE,
            ),
            either(
                "SELECT x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.x AND b.v > 9 \
                 UNION ALL SELECT 1 FROM b WHERE b.v = a.x)",
                &["1", "5"],
                NOT_DONE,
            ),
            either(
                "SELECT x, (SELECT v FROM b WHERE b.k = a.x ORDER BY v LIMIT 1) FROM a",
                &["1|10", "2|5", "5|NULL"],
                NOT_DONE,
            ),
        ],
        ..JOIN
    },
    Case {
        name: "C14",
        inputs: &[table(
            "z",
            "ts TEXT",
            "('2024-07-01T18:00:00Z'), ('2024-07-02T03:00:00Z')",
        )],
        steps: &[
            documented(
                "#13212",
                "SELECT CAST(CAST(ts AS TIMESTAMPTZ) AT TIME ZONE 'America/Denver' AS TIMESTAMP) FROM z",
                &["2024-07-01T12:00:00", "2024-07-01T21:00:00"],
            ),
            same(
                "SELECT date_trunc('day', arrow_cast(arrow_cast(ts, 'Timestamp(Second, Some(\"UTC\"))'), \
                 'Timestamp(Second, Some(\"America/Denver\"))')), count(*) FROM z GROUP BY 1",
            ),
        ],
        ..CASE
    },
    Case {
        name: "keys of which some are equal where both are NULL",
        inputs: &[table(
            "t",
            "x BIGINT, y BIGINT",
            "(1, NULL), (NULL, 2), (NULL, NULL), (3, 3)",
        )],
        steps: &[
            rows(
                "SELECT a.x, b.x FROM t a JOIN (t b JOIN t c ON b.x = c.x) ON a.y IS NOT DISTINCT FROM b.y",
                &["1|1", "3|3", "NULL|1"],
            ),
            rows(
                "SELECT a.x, a.y FROM t a JOIN t b ON a.x IS NOT DISTINCT FROM b.x WHERE a.y = b.y",
                &["3|3", "NULL|2"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "rows that are skipped",
        inputs: &[table(
            "t",
            "a BIGINT, b BIGINT",
            "(0, 4), (1, 3), (2, 2), (3, 1), (4, 0)",
        )],
        steps: &[
            ordered(
                "SELECT a FROM (SELECT a, b FROM t ORDER BY a OFFSET 3) ORDER BY b",
                &["4", "3"],
            ),
            rows(
                "SELECT sum(a), count(*) FROM (SELECT a, b FROM t ORDER BY b OFFSET 3)",
                &["1|2"],
            ),
            rows(
                "SELECT a FROM (SELECT a, lag(a) OVER (ORDER BY a) p FROM t ORDER BY b, p OFFSET 3)",
                &["0", "1"],
            ),
            ordered(
                "SELECT 9 AS a UNION ALL (SELECT a FROM t ORDER BY a OFFSET 3) ORDER BY a DESC",
                &["9", "4", "3"],
            ),
        ],
        ..CASE
    },
    Case {
        name: "an order of more columns above one of fewer",
        inputs: &[table(
            "t",
            "k BIGINT, v BIGINT",
            "(0, 0), (1, 1), (2, 2), (3, 3), (0, 4), (1, 5), (2, 6), (3, 7)",
        )],
        steps: &[
            ordered(
                "SELECT c, n FROM (SELECT c, count(k) OVER (ORDER BY c, k) AS n \
                 FROM (SELECT k, count(*) AS c FROM t GROUP BY k)) ORDER BY c, n DESC",
                &["2|4", "2|3", "2|2", "2|1"],
            ),
            ordered(
                "SELECT * FROM (SELECT count(*) AS c, k FROM t GROUP BY k ORDER BY c LIMIT 9) ORDER BY c, k DESC",
                &["2|3", "2|2", "2|1", "2|0"],
            ),
            ordered(
                "SELECT * FROM (SELECT v % 2 AS p, v FROM t ORDER BY p LIMIT 9) ORDER BY p, v",
                &["0|0", "0|2", "0|4", "0|6", "1|1", "1|3", "1|5", "1|7"],
            ),
        ],
        ..CASE
    },
    Case {
        name: "an order that a join keeps above a shuffle of one input",
        inputs: &[table(
            "t",
            "k BIGINT, v BIGINT",
            "(1, 10), (4, 40), (9, 90)",
        )],
        steps: &[
            ordered(
                "SELECT x, v FROM t RIGHT JOIN generate_series(0, 5) a(x) ON t.k = a.x ORDER BY x",
                &["0|NULL", "1|10", "2|NULL", "3|NULL", "4|40", "5|NULL"],
            ),
            ordered(
                "SELECT x, max(v) FROM t RIGHT JOIN generate_series(0, 5) a(x) ON t.k = a.x GROUP BY x ORDER BY x",
                &["0|NULL", "1|10", "2|NULL", "3|NULL", "4|40", "5|NULL"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "an order by the results of a window",
        inputs: &[table(
            "t",
            "y BIGINT, x BIGINT, p BIGINT",
            "(0, NULL, 0), (1, NULL, 1), (2, 5, 0), (3, 4, 1), (4, 7, 0)",
        )],
        steps: &[
            ordered(
                "SELECT max(x) OVER (ORDER BY y) m FROM t ORDER BY m NULLS LAST",
                &["5", "5", "7", "NULL", "NULL"],
            ),
            ordered(
                "SELECT p, count(*) OVER (PARTITION BY p ORDER BY y ROWS 1 PRECEDING) m FROM t ORDER BY m, p",
                &["0|1", "1|1", "0|2", "0|2", "1|2"],
            ),
        ],
        ..CASE
    },
    Case {
        name: "keys of DISTINCT ON that subqueries make",
        inputs: &[table(
            "t",
            "a BIGINT, b BOOLEAN",
            "(1, true), (2, false), (3, NULL), (4, true), (5, false)",
        )],
        steps: &[ordered(
            "SELECT DISTINCT ON ((SELECT bool_or(b) FROM t), CASE WHEN NOT b THEN (SELECT bool_or(b) FROM t) END) a \
             FROM t ORDER BY (SELECT bool_or(b) FROM t), \
             CASE WHEN NOT b THEN (SELECT bool_or(b) FROM t) END NULLS LAST, a DESC",
            &["5", "4"],
        )],
        ..CASE
    },
    Case {
        name: "columns that are declared UNIQUE or a key",
        inputs: &[Input::Text {
            path: "u.csv",
            text: "x,y\n,2\n,1\n1,3\n",
        }],
        steps: &[
            run("CREATE TABLE u(x INT UNIQUE, y INT) AS VALUES (NULL, 2), (NULL, 1), (1, 3)"),
            rows("SELECT DISTINCT x FROM u", &["NULL", "1"]),
            ordered(
                "SELECT x, y FROM u ORDER BY x NULLS LAST, y",
                &["1|3", "NULL|1", "NULL|2"],
            ),
            rows(
                "SELECT x, sum(y) FROM u GROUP BY x, y",
                &["1|3", "NULL|1", "NULL|2"],
            ),
            run(
                "CREATE EXTERNAL TABLE w(x INT, y INT, UNIQUE (x)) STORED AS CSV LOCATION '{dir}/u.csv' \
                 OPTIONS (has_header true)",
            ),
            rows("SELECT DISTINCT x FROM w", &["NULL", "1"]),
            ordered(
                "SELECT x, y FROM w ORDER BY x NULLS LAST, y",
                &["1|3", "NULL|1", "NULL|2"],
            ),
            run(
                "CREATE EXTERNAL TABLE p(x INT, y INT, PRIMARY KEY (y)) STORED AS CSV LOCATION '{dir}/u.csv' \
                 OPTIONS (has_header true)",
            ),
            // What a key determines may be selected.
            rows(
                "SELECT y, x FROM p GROUP BY y",
                &["1|NULL", "2|NULL", "3|1"],
            ),
        ],
        ..WHOLE
    },
];

const OVERFLOW: &[&str] = &["overflow"];
const OUT_OF_RANGE: &[&str] = &["a sum is out of the range of "];

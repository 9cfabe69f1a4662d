//! Kin of the cases of other engines, over tables of a row or two a file: set operations with duplicates, recursion,
//! statements that write, and tables of several kinds in one query.

use super::case::*;

const A: Input = table(
    "a",
    "x BIGINT, s TEXT",
    "(1, 'one'), (1, 'one'), (2, 'two'), (NULL, 'none'), (NULL, NULL), (3, NULL)",
);
const B: Input = files_of(
    2,
    "b",
    "x BIGINT, w BIGINT",
    "(1, 10), (1, 11), (1, 12), (3, 30), (NULL, 99), (7, 70)",
);
/// Edges of a tree, and of a circle.
const E: Input = table(
    "e",
    "p BIGINT, c BIGINT",
    "(1, 2), (1, 3), (2, 4), (3, 5), (5, 6), (7, 8), (8, 7)",
);

pub const CASES: &[Case] = &[
    Case {
        name: "sets of duplicates",
        inputs: &[A, B],
        steps: &[
            rows(
                "SELECT x FROM a UNION SELECT x FROM b",
                &["1", "2", "3", "7", "NULL"],
            ),
            rows(
                "SELECT x FROM a INTERSECT SELECT x FROM b",
                &["1", "3", "NULL"],
            ),
            rows("SELECT x FROM a EXCEPT SELECT x FROM b", &["2"]),
            rows("SELECT x FROM b EXCEPT SELECT x FROM a", &["7"]),
            documented(
                "INTERSECT ALL",
                "SELECT x FROM a INTERSECT ALL SELECT x FROM b",
                &["1", "1", "3", "NULL"],
            ),
            documented(
                "INTERSECT ALL",
                "SELECT x FROM a EXCEPT ALL SELECT x FROM b",
                &["2", "NULL"],
            ),
            documented(
                "INTERSECT ALL",
                "SELECT x FROM b EXCEPT ALL SELECT x FROM a",
                &["1", "7"],
            ),
            rows(
                "SELECT count(*) FROM ((SELECT x FROM a ORDER BY x LIMIT 2) UNION ALL (SELECT x FROM b LIMIT 3))",
                &["5"],
            ),
            rows(
                "SELECT DISTINCT x, s FROM a",
                &["1|one", "2|two", "NULL|none", "NULL|NULL", "3|NULL"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "joins of nulls and duplicates",
        inputs: &[A, B],
        steps: &[
            rows(
                "SELECT a.x, b.w FROM a JOIN b ON a.x = b.x",
                &["1|10", "1|11", "1|12", "1|10", "1|11", "1|12", "3|30"],
            ),
            rows(
                "SELECT a.x, b.x FROM a FULL JOIN b ON a.x = b.x",
                &[
                    "1|1",
                    "1|1",
                    "1|1",
                    "1|1",
                    "1|1",
                    "1|1",
                    "2|NULL",
                    "3|3",
                    "NULL|NULL",
                    "NULL|NULL",
                    "NULL|NULL",
                    "NULL|7",
                ],
            ),
            rows(
                "SELECT a.x FROM a LEFT SEMI JOIN b ON a.x = b.x",
                &["1", "1", "3"],
            ),
            rows(
                "SELECT a.x FROM a LEFT ANTI JOIN b ON a.x = b.x",
                &["2", "NULL", "NULL"],
            ),
            rows(
                "SELECT b.x FROM a RIGHT ANTI JOIN b ON a.x = b.x",
                &["7", "NULL"],
            ),
            rows(
                "SELECT b.x FROM a RIGHT SEMI JOIN b ON a.x = b.x",
                &["1", "1", "1", "3"],
            ),
            rows(
                "SELECT count(*) FROM a JOIN b ON a.x IS NOT DISTINCT FROM b.x",
                &["9"],
            ),
            rows(
                "SELECT count(*), count(a.x), count(b.x) FROM a FULL JOIN b ON a.x > b.w",
                &["12|4|5"],
            ),
            rows(
                "SELECT a.x, b.w FROM a LEFT JOIN b ON a.x = b.x AND b.w > 11",
                &["1|12", "1|12", "2|NULL", "3|30", "NULL|NULL", "NULL|NULL"],
            ),
            rows(
                "SELECT count(*) FROM a, b WHERE a.x = 1 OR b.w = 30",
                &["16"],
            ),
            rows(
                "SELECT count(*) FROM a JOIN b ON a.x + 0 = b.x AND a.x < b.w",
                &["7"],
            ),
            rows("SELECT count(*) FROM a NATURAL JOIN b", &["7"]),
            rows(
                "SELECT a.x, count(*) FROM a JOIN b USING (x) GROUP BY a.x",
                &["1|6", "3|1"],
            ),
            // `w` is the same in all rows of `b`, and not in those of the join.
            rows(
                "SELECT a.x, b.w FROM a LEFT JOIN b ON a.x = b.x AND b.w = 30 ORDER BY b.w, a.x LIMIT 2",
                &["3|30", "1|NULL"],
            ),
            run("SET datafusion.optimizer.prefer_hash_join = false"),
            rows(
                "SELECT a.x, b.w FROM a LEFT JOIN b ON a.x = b.x AND b.w = 30 ORDER BY b.w, a.x LIMIT 2",
                &["3|30", "1|NULL"],
            ),
            rows(
                "SELECT count(*), count(a.x), count(b.x) FROM a FULL JOIN b ON a.x = b.x",
                &["12|8|8"],
            ),
            // The subquery is NULL, and so the condition.
            rows(
                "SELECT count(*), count(a.x), count(b.x) FROM a FULL JOIN b ON a.x = b.x \
                 AND b.w < (SELECT w FROM b WHERE w > 1000)",
                &["12|4|5"],
            ),
            rows(
                "SELECT a.x FROM a LEFT ANTI JOIN b ON a.x = b.x",
                &["2", "NULL", "NULL"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "B28",
        inputs: &[E],
        steps: &[
            alone(
                "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 4) SELECT n FROM r",
                &["1", "2", "3", "4"],
            ),
            alone(
                "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT e.c FROM r JOIN e ON e.p = r.n) \
                 SELECT n FROM r",
                &["1", "2", "3", "4", "5", "6"],
            ),
            alone(
                "WITH RECURSIVE r AS (SELECT p, c, 1 AS d FROM e WHERE p = 1 UNION ALL \
                 SELECT r.p, e.c, d + 1 FROM r JOIN e ON e.p = r.c) SELECT c, d FROM r",
                &["2|1", "3|1", "4|2", "5|2", "6|3"],
            ),
            alone(
                "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT e.c FROM r JOIN e ON e.p = r.n) \
                 SELECT r.n, e.c FROM r JOIN e ON e.p = r.n",
                &["1|2", "1|3", "2|4", "3|5", "5|6"],
            ),
            Step::AskAlone(
                "WITH RECURSIVE r AS (SELECT 7 AS n UNION SELECT e.c FROM r JOIN e ON e.p = r.n) SELECT n FROM r",
                Expected::Either(
                    &["7", "8"],
                    &["UNION", "not implemented", "not supported", "distinct"],
                ),
            ),
            alone(
                "WITH RECURSIVE r AS (SELECT 1 AS n, 0 AS d UNION ALL SELECT e.c, d + 1 FROM r, e \
                 WHERE e.p = r.n AND d < (SELECT count(*) FROM e WHERE p = 1)) SELECT n FROM r",
                &["1", "2", "3", "4", "5"],
            ),
            alone(
                "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT e.c FROM r JOIN e ON e.p = r.n), \
                 q AS (SELECT count(*) c FROM r) SELECT q.c, count(*) FROM q, e GROUP BY q.c",
                &["6|7"],
            ),
            alone(
                "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 4) \
                 SELECT a.n, b.n FROM r a JOIN r b ON a.n = b.n + 2",
                &["3|1", "4|2"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "statements that write",
        inputs: &[A, B],
        steps: &[
            run("CREATE TABLE m (x BIGINT, w BIGINT)"),
            run("INSERT INTO m SELECT x, w FROM b"),
            alone("SELECT count(*), sum(w) FROM m", &["6|232"]),
            run("INSERT INTO m SELECT x, w FROM b LIMIT 2"),
            alone("SELECT count(*) FROM m", &["8"]),
            alone(
                "INSERT INTO m SELECT b.x, b.w FROM a JOIN b ON a.x = b.x",
                &["7"],
            ),
            alone("SELECT count(*) FROM m", &["15"]),
            run("CREATE TABLE c AS SELECT a.x, count(*) n FROM a GROUP BY a.x"),
            alone("SELECT x, n FROM c", &["1|2", "2|1", "3|1", "NULL|2"]),
            run("CREATE TABLE d AS SELECT x FROM b ORDER BY w LIMIT 2"),
            alone("SELECT x FROM d", &["1", "1"]),
            run("CREATE VIEW v AS SELECT x, sum(w) w FROM b GROUP BY x"),
            rows("SELECT x, w FROM v", &["1|33", "3|30", "NULL|99", "7|70"]),
            rows("SELECT count(*) FROM v JOIN a ON a.x = v.x", &["3"]),
        ],
        ..JOIN
    },
    Case {
        name: "files that are written",
        inputs: &[B],
        steps: &[
            run("COPY (SELECT x, w FROM b) TO '{out}/one/' STORED AS PARQUET"),
            run("CREATE EXTERNAL TABLE one STORED AS PARQUET LOCATION '{out}/one/'"),
            rows("SELECT count(*), sum(w) FROM one", &["6|232"]),
            alone(
                "COPY (SELECT x, w FROM b LIMIT 4) TO '{out}/two/' STORED AS CSV",
                &["4"],
            ),
            run(
                "CREATE EXTERNAL TABLE two (x BIGINT, w BIGINT) STORED AS CSV LOCATION '{out}/two/'",
            ),
            rows("SELECT count(*) FROM two", &["4"]),
            alone(
                "COPY (SELECT x, count(*) n FROM b GROUP BY x) TO '{out}/three.parquet'",
                &["4"],
            ),
            run("CREATE EXTERNAL TABLE three STORED AS PARQUET LOCATION '{out}/three.parquet'"),
            rows("SELECT x, n FROM three", &["1|3", "3|1", "7|1", "NULL|1"]),
            run(
                "CREATE EXTERNAL TABLE four (x BIGINT, w BIGINT) STORED AS PARQUET LOCATION '{out}/four/'",
            ),
            alone(
                "INSERT INTO four SELECT x, w FROM b ORDER BY w LIMIT 3",
                &["3"],
            ),
            rows("SELECT count(*), sum(w) FROM four", &["3|33"]),
            alone("INSERT INTO four SELECT x, w FROM b", &["6"]),
            rows("SELECT count(*), sum(w) FROM four", &["9|265"]),
            alone(
                "COPY (SELECT w FROM b ORDER BY w DESC) TO '{out}/five.csv' STORED AS CSV",
                &["6"],
            ),
            run("CREATE EXTERNAL TABLE five (w BIGINT) STORED AS CSV LOCATION '{out}/five.csv'"),
            ordered("SELECT w FROM five LIMIT 2", &["99", "70"]),
        ],
        ..WHOLE
    },
    Case {
        name: "tables of all kinds",
        inputs: &[A, B],
        steps: &[
            run("CREATE TABLE m AS VALUES (1, 'a'), (3, 'c'), (NULL, 'n')"),
            alone(
                "SELECT x FROM a UNION ALL SELECT column1 FROM m",
                &["1", "1", "2", "NULL", "NULL", "3", "1", "3", "NULL"],
            ),
            rows("SELECT count(*) FROM b JOIN m ON b.x = m.column1", &["4"]),
            rows(
                "SELECT b.x, column2 FROM b LEFT JOIN m ON b.x = column1 WHERE w > 29",
                &["3|c", "7|NULL", "NULL|NULL"],
            ),
            rows(
                "SELECT column2 FROM m LEFT JOIN b ON b.x = column1 AND w > 10",
                &["a", "a", "c", "n"],
            ),
            rows(
                "SELECT column1 FROM m FULL JOIN b ON b.x = column1",
                &["1", "1", "1", "3", "NULL", "NULL", "NULL"],
            ),
            rows(
                "SELECT v.x, count(b.w) FROM (VALUES (1), (9)) AS v(x) LEFT JOIN b ON v.x = b.x GROUP BY v.x",
                &["1|3", "9|0"],
            ),
            rows(
                "SELECT count(*), sum(b.w) FROM range(0, 8) r JOIN b ON r.value = b.x",
                &["5|133"],
            ),
            alone(
                "SELECT value FROM range(0, 4) WHERE value NOT IN (SELECT x FROM b WHERE x IS NOT NULL)",
                &["0", "2"],
            ),
            rows(
                "SELECT sum(x) FROM (SELECT x FROM a UNION ALL SELECT 100 UNION ALL SELECT count(*) FROM b \
                 UNION ALL SELECT column1 FROM m)",
                &["117"],
            ),
            rows(
                "SELECT count(*) FROM m WHERE column1 IN (SELECT x FROM b)",
                &["2"],
            ),
            rows(
                "SELECT a.s, m.column2 FROM a CROSS JOIN m WHERE a.x = 2 AND m.column1 = 3",
                &["two|c"],
            ),
        ],
        ..JOIN
    },
];

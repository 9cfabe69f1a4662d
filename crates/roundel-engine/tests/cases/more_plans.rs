//! Kin of the plans that answered once per task: the same kind of fault in other shapes.

use super::case::*;

pub const CASES: &[Case] = &[
    over_t(
        "parts of windows that lack an encoding",
        &[
            same("SELECT id, count(*) FILTER (WHERE v > 500) OVER (PARTITION BY g) FROM t"),
            same(
                "SELECT id, sum(v) FILTER (WHERE v < 500) OVER (PARTITION BY g ORDER BY id) FROM t",
            ),
            same(
                "SELECT id, last_value(nullif(v % 3, 0)) IGNORE NULLS OVER (PARTITION BY g ORDER BY id) FROM t WHERE id < 250000",
            ),
            same(
                "SELECT id, lag(nullif(v % 3, 0)) IGNORE NULLS OVER (PARTITION BY g ORDER BY id) FROM t WHERE id < 250000",
            ),
            same(
                "SELECT g, count(*) FILTER (WHERE v > 500), sum(DISTINCT v % 7) FROM t GROUP BY g",
            ),
        ],
    ),
    over_t(
        "limits below",
        &[
            rows(
                "SELECT count(*) FROM ((SELECT id FROM t LIMIT 5) UNION ALL (SELECT v FROM t LIMIT 6))",
                &["11"],
            ),
            rows(
                "SELECT count(*) FROM (SELECT id FROM t LIMIT 10) a CROSS JOIN (SELECT id FROM t LIMIT 10) b",
                &["100"],
            ),
            rows(
                "SELECT count(*) FROM t WHERE id IN (SELECT id FROM t ORDER BY id LIMIT 10)",
                &["10"],
            ),
            rows(
                "SELECT count(*) FROM t WHERE id NOT IN (SELECT id FROM t ORDER BY id LIMIT 400)",
                &["{n-400}"],
            ),
            rows(
                "SELECT count(*) FROM t WHERE EXISTS (SELECT 1 FROM t LIMIT 1)",
                &["{n}"],
            ),
            rows(
                "SELECT count(*) FROM (SELECT * FROM (SELECT * FROM t LIMIT 100) LIMIT 10 OFFSET 95)",
                &["5"],
            ),
            rows(
                "SELECT count(*), count(DISTINCT g) FROM (SELECT DISTINCT g FROM t LIMIT 3)",
                &["3|3"],
            ),
            rows(
                "SELECT count(*) FROM (SELECT g, count(*) FROM t GROUP BY g LIMIT 4)",
                &["4"],
            ),
            rows(
                "SELECT count(*) FROM (SELECT unnest([1, 2, 3]) FROM (SELECT id FROM t LIMIT 4))",
                &["12"],
            ),
            rows(
                "SELECT count(*) FROM (SELECT id FROM t WHERE v < 500 LIMIT 20) WHERE id >= 0",
                &["20"],
            ),
        ],
    ),
    Case {
        joins: true,
        ..over_t(
            "joins of limited inputs",
            &[
                rows(
                    "SELECT count(*), count(a.id), count(b.id) FROM (SELECT id FROM t ORDER BY id LIMIT 10) a \
                     FULL JOIN (SELECT id FROM t ORDER BY id LIMIT 10 OFFSET 5) b ON a.id = b.id",
                    &["15|10|10"],
                ),
                rows(
                    "SELECT count(*) FROM (SELECT id FROM t ORDER BY id LIMIT 10) a LEFT JOIN t b ON a.id = b.id",
                    &["10"],
                ),
                rows(
                    "SELECT count(*) FROM t a LEFT JOIN (SELECT id FROM t ORDER BY id LIMIT 10) b ON a.id = b.id",
                    &["{n}"],
                ),
                rows(
                    "SELECT count(*) FROM (SELECT id FROM t ORDER BY id LIMIT 10) a JOIN \
                     (SELECT id FROM t ORDER BY id LIMIT 10) b ON a.id < b.id",
                    &["45"],
                ),
                rows(
                    "SELECT count(*) FROM t a JOIN (SELECT max(id) m FROM t) b ON a.id = b.m",
                    &["1"],
                ),
                rows(
                    "SELECT count(*) FROM (SELECT id, row_number() OVER (ORDER BY id) r FROM t) a \
                     JOIN (SELECT id, row_number() OVER (ORDER BY id) r FROM t) b ON a.r = b.r",
                    &["{n}"],
                ),
                rows("SELECT count(*) FROM t a JOIN t b ON a.id = b.id", &["{n}"]),
                rows(
                    "SELECT count(*) FROM t a JOIN (SELECT id FROM t LIMIT 50) b ON a.id = b.id",
                    &["50"],
                ),
                same(
                    "SELECT count(*), sum(b.v) FROM (SELECT DISTINCT g FROM t) a JOIN t b ON a.g = b.g",
                ),
                rows(
                    "SELECT count(*) FROM t a JOIN (SELECT g, min(id) m FROM t GROUP BY g LIMIT 3) b ON a.id = b.m",
                    &["3"],
                ),
                rows(
                    "SELECT count(*) FROM t WHERE id IN (SELECT id FROM t LIMIT 50)",
                    &["50"],
                ),
                rows(
                    "SELECT count(*) FROM t WHERE id NOT IN (SELECT id FROM t LIMIT 400)",
                    &["{n-400}"],
                ),
                rows(
                    "SELECT count(*) FROM (SELECT id FROM t LIMIT 400) a RIGHT JOIN t b ON a.id = b.id \
                     WHERE a.id IS NULL",
                    &["{n-400}"],
                ),
                rows(
                    "SELECT count(*) FROM (SELECT id FROM t WHERE v > 900 LIMIT 20) a JOIN t b ON a.id = b.id",
                    &["20"],
                ),
                rows(
                    "SELECT count(*) FROM (SELECT id, row_number() OVER (ORDER BY id) r FROM t LIMIT 50) a \
                     JOIN t b ON a.id = b.id AND a.r > 0",
                    &["50"],
                ),
                rows(
                    "SELECT count(*) FROM (SELECT DISTINCT v FROM t LIMIT 50) a JOIN t b ON a.v % 500 = b.id",
                    &["50"],
                ),
                same(
                    "SELECT count(*) FROM t a JOIN (SELECT id FROM t OFFSET 450) b ON a.id = b.id",
                ),
                run("SET datafusion.optimizer.prefer_hash_join = false"),
                rows("SELECT count(*) FROM t a JOIN t b ON a.id = b.id", &["{n}"]),
                rows(
                    "SELECT count(*) FROM t a LEFT JOIN (SELECT id FROM t ORDER BY id LIMIT 10) b ON a.id = b.id",
                    &["{n}"],
                ),
            ],
        )
    },
    over_t(
        "windows",
        &[
            // The sort below the second window is not in the order of the first.
            rows(
                "SELECT min(a), count(m), sum(c) FROM (SELECT a, b, max(a) OVER (ORDER BY a DESC) m, \
                 count(*) OVER (PARTITION BY b, a ORDER BY a DESC) c FROM (SELECT id a, id b FROM t) \
                 ORDER BY b DESC, a LIMIT 400)",
                &["{n-400}|400|400"],
            ),
            same(
                "SELECT max(a), max(b), sum(c) FROM (SELECT row_number() OVER (ORDER BY id) a, \
                 row_number() OVER (PARTITION BY g ORDER BY id) b, sum(v) OVER (PARTITION BY g) c FROM t)",
            ),
            same(
                "SELECT max(q) FROM (SELECT sum(r) OVER (ORDER BY id ROWS 2 PRECEDING) q FROM \
                 (SELECT id, row_number() OVER (ORDER BY id) r FROM t))",
            ),
            same("SELECT g, max(r) FROM (SELECT g, rank() OVER (ORDER BY v) r FROM t) GROUP BY g"),
            same(
                "SELECT count(*) FROM (SELECT id, first_value(id) OVER (PARTITION BY g ORDER BY id) f, \
                 last_value(id) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) l \
                 FROM t) WHERE f < 7 AND l = {n} - 1",
            ),
            in_order("SELECT id, sum(id) OVER (ORDER BY id) FROM t ORDER BY id DESC LIMIT 3"),
            rows(
                "SELECT count(*) FROM (SELECT row_number() OVER () r FROM t LIMIT 10) WHERE r <= 10",
                &["10"],
            ),
            rows(
                "SELECT max(r) FROM (SELECT row_number() OVER () r FROM (SELECT * FROM t LIMIT 10))",
                &["10"],
            ),
            same("SELECT g, sum(v), rank() OVER (ORDER BY sum(v)) FROM t GROUP BY g"),
            same("SELECT g, id FROM t QUALIFY row_number() OVER (PARTITION BY g ORDER BY id) = 2"),
        ],
    ),
    over_t(
        "aggregates",
        &[
            same("SELECT count(DISTINCT v), sum(DISTINCT v), count(DISTINCT g) FROM t"),
            same("SELECT g, count(DISTINCT v), min(s), max(s) FROM t GROUP BY g"),
            same("SELECT array_agg(id ORDER BY id)[3], array_agg(DISTINCT g ORDER BY g) FROM t"),
            same("SELECT string_agg(CAST(g AS TEXT), ',' ORDER BY id) FROM t WHERE id < 30"),
            same("SELECT first_value(v ORDER BY id), last_value(v ORDER BY id) FROM t"),
            same(
                "SELECT g, first_value(v ORDER BY id DESC), nth_value(id, 3 ORDER BY id) FROM t GROUP BY g",
            ),
            same(
                "SELECT median(v), round(stddev(v), 6), round(var_pop(v), 4), round(corr(id, v), 6) FROM t",
            ),
            same("SELECT bool_and(id >= 0), bool_or(v > 998), bit_xor(id), bit_and(v) FROM t"),
            same(
                "SELECT g, sum(v) FILTER (WHERE id % 2 = 0), count(*) FILTER (WHERE v > 500) FROM t GROUP BY g",
            ),
            same("SELECT count(*) FROM t HAVING count(*) > 100"),
            same("SELECT DISTINCT g, v % 2 FROM t"),
            in_order("SELECT DISTINCT ON (g) g, id FROM t ORDER BY g, id DESC"),
            in_order("SELECT g, max(id) m FROM t GROUP BY g ORDER BY m DESC LIMIT 3"),
            in_order("SELECT v, count(*) c FROM t GROUP BY v ORDER BY c DESC, v LIMIT 5 OFFSET 5"),
            in_order("SELECT s, min(id) m FROM t GROUP BY s ORDER BY m LIMIT 4"),
            same("SELECT min(id), max(id), count(*), avg(v) FROM t"),
            same("SELECT approx_distinct(g) FROM t"),
        ],
    ),
    over_t(
        "set operations",
        &[
            rows(
                "SELECT count(*) FROM (SELECT id FROM t EXCEPT SELECT id FROM t WHERE v >= 0)",
                &["0"],
            ),
            same("SELECT count(*) FROM (SELECT g FROM t INTERSECT SELECT v FROM t)"),
            rows(
                "SELECT count(*) FROM (SELECT g FROM t UNION SELECT g + 3 FROM t)",
                &["10"],
            ),
            rows(
                "SELECT count(*) FROM (SELECT id FROM (SELECT id FROM t ORDER BY id LIMIT 10) \
                 EXCEPT SELECT id FROM (SELECT id FROM t ORDER BY id LIMIT 4))",
                &["6"],
            ),
            same(
                "SELECT count(*), sum(x) FROM (SELECT count(*) x FROM t UNION ALL SELECT max(id) FROM t)",
            ),
            same(
                "SELECT count(*), sum(x) FROM (SELECT id x FROM t WHERE g = 1 UNION ALL SELECT sum(v) FROM t \
                 UNION ALL SELECT 5 UNION ALL SELECT v FROM (VALUES (1), (2)) AS w(v))",
            ),
            rows(
                "SELECT sum(r) FROM (SELECT row_number() OVER (ORDER BY x) r FROM \
                 (SELECT id x FROM t WHERE id < 10 UNION ALL SELECT id FROM t WHERE id < 5))",
                &["120"],
            ),
            in_order("SELECT id FROM t UNION ALL SELECT id + 1 FROM t ORDER BY id LIMIT 5"),
        ],
    ),
    over_t(
        "subqueries",
        &[
            same("SELECT g, (SELECT max(b.id) FROM t b WHERE b.v = a.g) FROM t a WHERE a.id < 14"),
            same("SELECT count(*) FROM t a WHERE a.v > (SELECT avg(b.v) FROM t b WHERE b.g = a.g)"),
            same(
                "SELECT count(*) FROM t a WHERE EXISTS (SELECT 1 FROM t b WHERE b.id = a.id + 1 AND b.g = 0)",
            ),
            same(
                "SELECT count(*) FROM t a WHERE NOT EXISTS (SELECT 1 FROM t b WHERE b.id = a.id + 1)",
            ),
            same(
                "SELECT (SELECT count(*) FROM t), (SELECT max(v) FROM t), (SELECT id FROM t ORDER BY id LIMIT 1)",
            ),
            same(
                "SELECT count(*) FROM t WHERE id IN (SELECT id FROM t WHERE v = (SELECT max(v) FROM t))",
            ),
            same("SELECT g FROM t GROUP BY g ORDER BY (SELECT count(*) FROM t) % (g + 2), g"),
            same(
                "WITH m AS (SELECT g, max(v) x FROM t GROUP BY g) SELECT count(*) FROM m a, m b WHERE a.x = b.x",
            ),
            same(
                "SELECT count(*) FROM t WHERE id BETWEEN (SELECT min(id) FROM t) AND (SELECT avg(id) FROM t)",
            ),
            same("SELECT count(*) FROM (VALUES (1), (2), (3)) AS w(x) JOIN t ON t.id = w.x"),
            same(
                "SELECT w.x, count(t.id) FROM (VALUES (1), (2), (NULL)) AS w(x) LEFT JOIN t ON t.g = w.x GROUP BY w.x",
            ),
        ],
    ),
];

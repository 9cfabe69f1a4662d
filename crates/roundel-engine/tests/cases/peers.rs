//! Wrong plans that other engines shipped, over tables of a few rows that are spread over all workers.
//! The names are those of `peer-reports.md`, group B, in issue 27.

use std::fmt::Write as _;
use std::path::Path;

use super::case::*;

const A_TO_100: Input = Input::Made {
    path: "a",
    make: |path| numbers(path, "x", 1..101),
};
const B_TO_10: Input = Input::Made {
    path: "b",
    make: |path| numbers(path, "y", 1..11),
};

pub const CASES: &[Case] = &[
    Case {
        name: "B1",
        inputs: &[
            Input::Made {
                path: "b",
                make: |path| numbers_in(path, 4, "id", (0..100).collect()),
            },
            Input::Made {
                path: "p",
                make: |path| {
                    let ids = (25..125).flat_map(|id| std::iter::repeat_n(id % 100, 50));
                    numbers_in(path, 4, "id", ids.collect());
                },
            },
        ],
        steps: &[
            run("CREATE EXTERNAL TABLE b (id BIGINT) STORED AS CSV LOCATION '{dir}/b/'"),
            run("CREATE EXTERNAL TABLE p (id BIGINT) STORED AS CSV LOCATION '{dir}/p/'"),
            rows(
                "SELECT count(*) FROM b WHERE id IN (SELECT id FROM p)",
                &["100"],
            ),
            rows(
                "SELECT count(*) FROM p WHERE id IN (SELECT id FROM b)",
                &["5000"],
            ),
            rows(
                "SELECT count(*) FROM b WHERE id NOT IN (SELECT id FROM p)",
                &["0"],
            ),
            rows(
                "SELECT count(*) FROM b WHERE EXISTS (SELECT 1 FROM p WHERE p.id = b.id AND p.id > 49)",
                &["50"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "B3",
        inputs: &[
            table("a", "x BIGINT", "(1), (2), (NULL)"),
            table("b", "y BIGINT", "(2), (NULL)"),
            table("c", "y BIGINT", "(2), (3)"),
        ],
        steps: &[
            rows("SELECT x FROM a WHERE x NOT IN (SELECT y FROM b)", &[]),
            rows(
                "SELECT x FROM a WHERE x NOT IN (SELECT y FROM b WHERE y > 100)",
                &["1", "2", "NULL"],
            ),
            rows("SELECT x FROM a WHERE x NOT IN (SELECT y FROM c)", &["1"]),
            rows("SELECT x FROM a WHERE x IN (SELECT y FROM b)", &["2"]),
        ],
        ..JOIN
    },
    Case {
        name: "B5",
        inputs: &[
            table("l", "x BIGINT", "(5)"),
            table("r", "y BIGINT", "(10), (1)"),
        ],
        steps: &[
            rows("SELECT * FROM l LEFT JOIN r ON x < y", &["5|10"]),
            rows("SELECT * FROM r RIGHT JOIN l ON x < y", &["10|5"]),
            alone("SELECT * FROM l FULL JOIN r ON x < y", &["5|10", "NULL|1"]),
            rows(
                "SELECT * FROM l LEFT JOIN r ON x < y AND y > 20",
                &["5|NULL"],
            ),
            rows("SELECT * FROM l LEFT JOIN r ON x = y", &["5|NULL"]),
            rows(
                "SELECT * FROM l FULL JOIN r ON x = y",
                &["5|NULL", "NULL|1", "NULL|10"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "B7",
        inputs: &[A_TO_100, B_TO_10],
        steps: &[
            run("CREATE EXTERNAL TABLE a (x BIGINT) STORED AS CSV LOCATION '{dir}/a/'"),
            run("CREATE EXTERNAL TABLE b (y BIGINT) STORED AS CSV LOCATION '{dir}/b/'"),
            rows(
                "SELECT count(*), sum(a.x * b.y) FROM a CROSS JOIN b",
                &["1000|277750"],
            ),
            rows("SELECT count(*) FROM a, b, a AS c WHERE c.x = 3", &["1000"]),
            rows(
                "SELECT count(*) FROM a CROSS JOIN (SELECT * FROM b LIMIT 3)",
                &["300"],
            ),
            rows(
                "SELECT count(*) FROM (SELECT * FROM a LIMIT 7) CROSS JOIN b",
                &["70"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "B9",
        inputs: &[
            table("b", "k BIGINT", "(7)"),
            Input::Made {
                path: "p",
                make: |path| numbers_in(path, 4, "k", (0..40_000).map(|id| id % 1000).collect()),
            },
            table("c", "k BIGINT, v BIGINT", "(7, 1), (7, 2), (8, 3)"),
        ],
        steps: &[
            run("CREATE EXTERNAL TABLE p (k BIGINT) STORED AS CSV LOCATION '{dir}/p/'"),
            rows("SELECT count(*) FROM p JOIN b ON p.k = b.k", &["40"]),
            rows(
                "SELECT count(*), count(b.k) FROM p LEFT JOIN b ON p.k = b.k",
                &["40000|40"],
            ),
            rows(
                "SELECT count(*), count(p.k) FROM b LEFT JOIN p ON p.k = b.k",
                &["40|40"],
            ),
            rows(
                "SELECT count(*), sum(c.v) FROM p JOIN b ON p.k = b.k JOIN c ON c.k = p.k",
                &["80|120"],
            ),
            rows(
                "SELECT count(*), sum(c.v), count(b.k) FROM p LEFT JOIN b ON p.k = b.k \
                 LEFT JOIN c ON c.k = p.k",
                &["40040|240|80"],
            ),
            rows(
                "SELECT count(*) FROM p FULL JOIN (SELECT * FROM b WHERE k > 100) b ON p.k = b.k",
                &["40000"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "B11",
        inputs: &[
            files_of(2, "a", "v BIGINT", "(1), (2), (3), (4), (5), (6), (7), (8)"),
            files_of(
                1,
                "b",
                "v BIGINT",
                "(10), (20), (30), (40), (50), (60), (70), (80), (90)",
            ),
        ],
        steps: &[
            rows(
                "SELECT sum(v) FROM (SELECT v FROM a UNION ALL SELECT v FROM b)",
                &["486"],
            ),
            rows(
                "SELECT sum(v), count(*) FROM (SELECT v FROM a UNION ALL SELECT v FROM b UNION ALL SELECT v FROM a)",
                &["522|25"],
            ),
            rows(
                "SELECT v % 2, sum(v) FROM (SELECT v FROM a UNION ALL SELECT v FROM b) GROUP BY v % 2",
                &["0|470", "1|16"],
            ),
            rows(
                "SELECT count(*) FROM (SELECT v FROM a UNION SELECT v FROM a UNION SELECT v FROM b)",
                &["17"],
            ),
        ],
        ..CASE
    },
    Case {
        name: "B13",
        inputs: &[table("t", "x BIGINT", "(1), (2), (3)")],
        steps: &[
            rows(
                "SELECT count(*), sum(x), min(x) FROM t WHERE x > 1000000000",
                &["0|NULL|NULL"],
            ),
            rows(
                "SELECT 1 FROM t WHERE x > 1000000000 HAVING count(*) = 0",
                &["1"],
            ),
            rows(
                "SELECT x, count(*) FROM t WHERE x > 1000000000 GROUP BY x",
                &[],
            ),
            alone(
                "SELECT count(*) FROM (SELECT count(*) c FROM t WHERE x > 9 UNION ALL SELECT x FROM t)",
                &["4"],
            ),
        ],
        ..CASE
    },
    Case {
        name: "B15",
        inputs: &[
            table("a", "x BIGINT", "(1), (2), (NULL)"),
            table("b", "x BIGINT", "(2), (3)"),
        ],
        steps: &[
            rows(
                "SELECT a.x FROM a LEFT JOIN (SELECT * FROM b WHERE false) b ON a.x = b.x \
                 UNION ALL SELECT x FROM a WHERE false",
                &["1", "2", "NULL"],
            ),
            rows(
                "SELECT a.x, b.x FROM a FULL JOIN (SELECT * FROM b WHERE 1 = 0) b ON a.x = b.x",
                &["1|NULL", "2|NULL", "NULL|NULL"],
            ),
            alone(
                "SELECT a.x FROM a JOIN (SELECT * FROM b LIMIT 0) b ON a.x = b.x",
                &[],
            ),
            rows(
                "SELECT x FROM a WHERE x NOT IN (SELECT x FROM b WHERE false)",
                &["1", "2", "NULL"],
            ),
        ],
        ..JOIN
    },
    Case {
        name: "B17",
        inputs: &[table(
            "s",
            "b BIGINT, a BIGINT",
            "(3, 25), (2, 25), (1, 0), (0, 0)",
        )],
        steps: &[
            ordered(
                "SELECT b, sum(a) FROM s GROUP BY b ORDER BY b DESC OFFSET 1 LIMIT 2",
                &["2|25", "1|0"],
            ),
            ordered(
                "SELECT b FROM s WHERE b > 0 ORDER BY b LIMIT 5 OFFSET 2",
                &["3"],
            ),
            count("SELECT b FROM s WHERE b > 0 LIMIT 5 OFFSET 2", 1),
            count("SELECT b FROM s OFFSET 3", 1),
            rows("SELECT count(*) FROM (SELECT b FROM s OFFSET 3)", &["1"]),
            ordered(
                "SELECT b FROM (SELECT b FROM s ORDER BY b LIMIT 3 OFFSET 1) ORDER BY b DESC OFFSET 1",
                &["2", "1"],
            ),
        ],
        ..CASE
    },
    Case {
        name: "B19",
        inputs: &[table("s", "g TEXT, x BIGINT", "('a', NULL), ('b', 3)")],
        steps: &[
            ordered(
                "SELECT g, max(x) m FROM s GROUP BY g ORDER BY m DESC NULLS FIRST LIMIT 1",
                &["a|NULL"],
            ),
            ordered(
                "SELECT g, min(x) m FROM s GROUP BY g ORDER BY m ASC NULLS LAST LIMIT 5",
                &["b|3", "a|NULL"],
            ),
        ],
        ..CASE
    },
    Case {
        name: "B23",
        inputs: &[Input::T],
        steps: &[
            Step::Ask(
                "SELECT id % 500 w, v, count(*) c, sum(g), avg(id) FROM t GROUP BY id % 500, v \
                 ORDER BY c DESC, w, v LIMIT 10",
                Expected::ReferenceOrdered,
            ),
            same(
                "WITH x AS (SELECT id FROM t WHERE g = 1 INTERSECT SELECT id FROM t WHERE v % 2 = 0 \
                 INTERSECT SELECT id FROM t WHERE v > 10), \
                 m AS (SELECT avg(q) a FROM (SELECT v * 2 q FROM t WHERE g = 2 UNION ALL \
                 SELECT v * 3 FROM t WHERE g = 3)) \
                 SELECT chan, v % 5, sum(s), sum(n) FROM (\
                 SELECT 'one' chan, v, sum(id) s, count(*) n FROM t WHERE id IN (SELECT id FROM x) GROUP BY v \
                 HAVING sum(id) > (SELECT a FROM m) UNION ALL \
                 SELECT 'two' chan, v, sum(id) s, count(*) n FROM t WHERE id + 7 IN (SELECT id FROM x) GROUP BY v \
                 HAVING sum(id) > (SELECT a FROM m)) GROUP BY ROLLUP (chan, v % 5)",
            ),
        ],
        joins: true,
        ..WHOLE
    },
    Case {
        name: "B25",
        inputs: &[nested(
            "n",
            "i BIGINT, s STRUCT<a BIGINT, b TEXT>, l BIGINT[]",
            "(1, {'a': 1, 'b': 'a'}, [1, 2]), (2, NULL, []), (3, {'a': NULL, 'b': 'b'}, NULL), \
             (4, {'a': 1, 'b': 'a'}, [1, 2])",
        )],
        steps: &[
            rows(
                "SELECT s['a'], s['b'], count(*) FROM n GROUP BY s",
                &["1|a|2", "NULL|NULL|1", "NULL|b|1"],
            ),
            rows(
                "SELECT l, count(*) FROM n GROUP BY l",
                &["[1, 2]|2", "[]|1", "NULL|1"],
            ),
            same("SELECT DISTINCT s FROM n"),
            rows(
                "SELECT a.i, b.i FROM n a JOIN n b ON a.l = b.l",
                &["1|1", "1|4", "4|1", "4|4", "2|2"],
            ),
            rows(
                "SELECT a.i, b.i FROM n a JOIN n b ON a.s = b.s WHERE a.i < b.i",
                &["1|4"],
            ),
            same("SELECT i, unnest(l) FROM n"),
        ],
        ..JOIN
    },
    Case {
        name: "B25 maps",
        inputs: &[Input::Written {
            sql: "COPY (SELECT 1 i, MAP {'k': 1} m UNION ALL SELECT 2, MAP {'j': 2} UNION ALL SELECT 3, NULL \
                  UNION ALL SELECT 4, MAP {'k': 1}) TO '{dir}/m/1.parquet'",
        }],
        steps: &[
            run("CREATE EXTERNAL TABLE m STORED AS PARQUET LOCATION '{dir}/m/'"),
            Step::AskAlone(
                "SELECT count(*) FROM (SELECT DISTINCT m FROM m)",
                Expected::ReferenceOr(&["map", "not implemented", "not supported"]),
            ),
            Step::AskAlone(
                "SELECT map_keys(m), count(*) FROM m GROUP BY m",
                Expected::ReferenceOr(&["map", "not implemented", "not supported"]),
            ),
        ],
        ..CASE
    },
];

/// A file of the numbers.
fn numbers(path: &Path, column: &str, numbers: std::ops::Range<i64>) {
    numbers_in(path, 4, column, numbers.collect());
}

/// A directory of so many CSV files of one column, the numbers in order.
pub fn numbers_in(path: &Path, files: usize, column: &str, numbers: Vec<i64>) {
    std::fs::create_dir(path).expect("a directory");
    for (file, part) in numbers.chunks(numbers.len().div_ceil(files)).enumerate() {
        let mut text = format!("{column}\n");
        for number in part {
            writeln!(text, "{number}").expect("memory");
        }
        std::fs::write(path.join(format!("{file}.csv")), text).expect("a file");
    }
}

//! Settings hold on every worker, or are refused when they are said.

use super::case::*;

const T: Input = table(
    "t",
    "x BIGINT, s TEXT",
    "(1, '2024-01-01T00:00:10'), (2, '2024-01-01T00:00:05'), (3, '2024-03-05T10:20:30')",
);

const fn of(name: &'static str, steps: &'static [Step]) -> Case {
    Case {
        name,
        inputs: &[T],
        steps,
        ..CASE
    }
}

pub const CASES: &[Case] = &[
    of(
        "A5",
        &[
            run("SET datafusion.execution.time_zone = '+02:00'"),
            either(
                "SELECT min(to_timestamp(s)) FROM t",
                &["2024-01-01T00:00:05+02:00"],
                &["time_zone", "time zone"],
            ),
            Step::Ask(
                "SELECT CAST(to_timestamp(s) AS TEXT) FROM t WHERE x = 1",
                Expected::ReferenceOr(&["time_zone", "time zone"]),
            ),
        ],
    ),
    of(
        "A5 batches",
        &[
            run("SET datafusion.execution.batch_size = 1"),
            rows(
                "SELECT x, count(*) FROM t GROUP BY x",
                &["1|1", "2|1", "3|1"],
            ),
            rows("SELECT count(*) FROM t a JOIN t b ON a.x <= b.x", &["6"]),
            run("SET datafusion.execution.parquet.pushdown_filters = true"),
            run("SET datafusion.execution.parquet.reorder_filters = true"),
            rows("SELECT x FROM t WHERE x > 1 AND s LIKE '2024-01%'", &["2"]),
            run("SET datafusion.execution.coalesce_batches = false"),
            rows("SELECT x FROM t WHERE x > 1", &["2", "3"]),
            rows(
                "SHOW datafusion.execution.batch_size",
                &["datafusion.execution.batch_size|1"],
            ),
        ],
    ),
    of(
        "refused settings",
        &[
            refused("SET roundel.join = 'bogus'", &["auto, cyclo, repartition"]),
            refused(
                "SET roundel.skew = 'bogus'",
                &["auto or off", "off or auto"],
            ),
            refused("SET roundel.spin = 'both'", &["smaller or larger"]),
            refused("SET roundel.ring_elements = 1", &["2 to"]),
            refused("SET roundel.nothing = 1", &["nothing"]),
            refused(
                "SET datafusion.execution.batch_size = 'many'",
                &["many", "batch_size"],
            ),
            rows("SELECT count(*) FROM t", &["3"]),
        ],
    ),
    of(
        "shown settings",
        &[
            alone("SHOW roundel.join", &["roundel.join|auto"]),
            run("SET roundel.join = 'cyclo'"),
            alone("SHOW roundel.join", &["roundel.join|cyclo"]),
            Step::AskAlone(
                "SHOW ALL",
                Expected::Check(|rows| {
                    match rows.iter().any(|row| row.starts_with("roundel.join|cyclo")) {
                        true => Ok(()),
                        false => Err("roundel.join".to_owned()),
                    }
                }),
            ),
            run("RESET roundel.join"),
            alone("SHOW roundel.join", &["roundel.join|auto"]),
        ],
    ),
    of(
        "switch children_isolator_unions",
        &[
            Step::Try(
                "SET distributed.children_isolator_unions = true",
                &["children_isolator_unions"],
            ),
            rows(
                "SELECT sum(x) FROM (SELECT x FROM t UNION ALL SELECT x FROM t)",
                &["12"],
            ),
        ],
    ),
    of(
        "switch broadcast_joins",
        &[
            Step::Try(
                "SET distributed.broadcast_joins = false",
                &["broadcast_joins"],
            ),
            rows("SELECT count(*) FROM t a JOIN t b ON a.x <= b.x", &["6"]),
            rows("SELECT count(*) FROM t a JOIN t b ON a.x = b.x", &["3"]),
        ],
    ),
    of(
        "switch shuffle_batch_size",
        &[
            Step::Try(
                "SET distributed.shuffle_batch_size = 1",
                &["shuffle_batch_size"],
            ),
            rows(
                "SELECT x, count(*) FROM t GROUP BY x",
                &["1|1", "2|1", "3|1"],
            ),
        ],
    ),
    of(
        "switch max_tasks_per_stage",
        &[
            Step::Try(
                "SET distributed.max_tasks_per_stage = 1",
                &["max_tasks_per_stage"],
            ),
            alone(
                "SELECT x, count(*) FROM t GROUP BY x",
                &["1|1", "2|1", "3|1"],
            ),
            run("SET distributed.max_tasks_per_stage = 2"),
            rows(
                "SELECT x, count(*) FROM t GROUP BY x",
                &["1|1", "2|1", "3|1"],
            ),
        ],
    ),
    of(
        "switch partial_reduce",
        &[
            Step::Try("SET distributed.partial_reduce = true", &["partial_reduce"]),
            rows(
                "SELECT x % 2, count(*) FROM t GROUP BY x % 2",
                &["0|1", "1|2"],
            ),
        ],
    ),
    of(
        "switch compression",
        &[
            Step::Try("SET distributed.compression = 'zstd'", &["compression"]),
            rows("SELECT count(DISTINCT x) FROM t", &["3"]),
        ],
    ),
    of(
        "switch dynamic_task_count",
        &[
            Step::Try(
                "SET distributed.dynamic_task_count = true",
                &["dynamic_task_count"],
            ),
            rows("SELECT count(*) FROM t a JOIN t b ON a.x = b.x", &["3"]),
            rows(
                "SELECT x, count(*) FROM t GROUP BY x",
                &["1|1", "2|1", "3|1"],
            ),
        ],
    ),
    of(
        "switch cardinality_task_count_factor",
        &[
            Step::Try(
                "SET distributed.cardinality_task_count_factor = 2.5",
                &["cardinality_task_count_factor"],
            ),
            ordered(
                "SELECT x, count(*) FROM t GROUP BY x ORDER BY x LIMIT 2",
                &["1|1", "2|1"],
            ),
        ],
    ),
    of(
        "switches of DataFusion",
        &[
            run("SET datafusion.optimizer.repartition_file_scans = false"),
            rows(
                "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY x) r FROM t)",
                &["3"],
            ),
            rows("SELECT count(*) FROM (SELECT x FROM t LIMIT 2)", &["2"]),
            run("SET datafusion.optimizer.repartition_aggregations = false"),
            rows(
                "SELECT x % 2, count(*) FROM t GROUP BY x % 2",
                &["0|1", "1|2"],
            ),
            run("SET datafusion.optimizer.repartition_joins = false"),
            rows("SELECT count(*) FROM t a JOIN t b ON a.x = b.x", &["3"]),
            run("SET datafusion.optimizer.repartition_windows = false"),
            rows(
                "SELECT x, rank() OVER (PARTITION BY x % 2 ORDER BY x) FROM t",
                &["1|1", "3|2", "2|1"],
            ),
            run("SET datafusion.optimizer.enable_round_robin_repartition = false"),
            rows("SELECT count(DISTINCT x % 2) FROM t", &["2"]),
            run("SET datafusion.optimizer.prefer_existing_sort = true"),
            ordered("SELECT x FROM t ORDER BY x DESC", &["3", "2", "1"]),
            run("SET datafusion.optimizer.enable_topk_aggregation = false"),
            ordered(
                "SELECT x % 2 p, max(x) m FROM t GROUP BY p ORDER BY m LIMIT 1",
                &["0|2"],
            ),
        ],
    ),
];

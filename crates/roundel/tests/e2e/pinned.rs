//! Relations that stay pinned to rings of workers, which all clients of a cluster share.

use std::fs;
use std::time::Duration;

use crate::common::{
    HandCluster, Program, csv_files, eventually, finish, program, stderr, stdout, worker_log,
};

/// Two tables of integers, in several files each, so that all workers have rows.
fn tables(roundel: &Program) -> Vec<String> {
    let table = |name: &str, rows: u64, stride: u64| {
        let row = |id: u64| {
            let key = id.wrapping_mul(stride) % 5003;
            match key % 13 {
                0 => format!("{id},,t{}\n", key % 9),
                _ => format!("{id},{key},t{}\n", key % 9),
            }
        };
        let part = |part: u64| (0..rows).filter(|id| id % 3 == part).map(row).collect();
        // A directory is a table of all of its files.
        csv_files(roundel, name, "id,x,t", (0..3).map(part)) + "/"
    };
    vec![table("r", 3000, 7919), table("s", 4000, 104_729)]
}

/// Joins that spin r, of all kinds; some of them need to know which of its rows have a partner anywhere.
const QUERIES: [&str; 8] = [
    "SELECT count(*), sum(r.id), sum(s.id) FROM r JOIN s ON abs(r.x - s.x) <= 2",
    "SELECT count(*), sum(r.id), sum(s.id) FROM r LEFT JOIN s ON r.x BETWEEN s.x AND s.x + 1",
    "SELECT count(*), sum(r.id), sum(s.id) FROM r FULL JOIN s ON r.x + 1 = s.x AND r.t = s.t",
    "SELECT count(*), sum(r.id), sum(s.id) FROM r RIGHT JOIN s ON r.x * s.x % 5003 = 1",
    "SELECT count(*), sum(id) FROM r WHERE EXISTS (SELECT 1 FROM s WHERE r.x < s.x - 4990)",
    "SELECT count(*), sum(id) FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE abs(r.x - s.x) < 2)",
    "SELECT count(*), sum(id) FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.x * s.x % 4999 = 7)",
    "SELECT count(*), sum(id) FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.x = s.x)",
];

fn answers(
    roundel: &Program,
    cluster: &HandCluster,
    tables: &[String],
    queries: &[String],
) -> String {
    let output = finish(cluster.sql(roundel, tables, queries));
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

/// After these settings.
fn set(settings: &[&str], queries: &[&str]) -> Vec<String> {
    let settings = settings.iter().map(|set| format!("SET roundel.{set}"));
    settings
        .chain(queries.iter().map(|query| (*query).to_owned()))
        .collect()
}

const PINNED: [&str; 2] = ["join = 'cyclo'", "pin_seconds = 60"];

/// Six clients at once, each with all kinds of joins in an order of its own, see what joins without a ring see.
#[test]
fn clients_share_what_is_pinned() {
    let roundel = program();
    let tables = tables(&roundel);
    for fabric in ["shm", "tcp"] {
        let cluster = HandCluster::start(&roundel, 3, fabric);
        let expected: Vec<String> = QUERIES
            .iter()
            .map(|query| {
                answers(
                    &roundel,
                    &cluster,
                    &tables,
                    &set(&["join = 'broadcast'"], &[query]),
                )
            })
            .collect();
        // Small elements, so that there are several.
        let settings = [
            &PINNED[..],
            &["ring_element_bytes = 16384", "ring_elements = 3"],
        ]
        .concat();
        let plan = set(&settings, &[&format!("EXPLAIN {}", QUERIES[0])]);
        let plan = answers(&roundel, &cluster, &tables, &plan);
        assert!(plan.contains(", pinned"), "{plan}");
        let clients: Vec<_> = (0..6)
            .map(|first| {
                let order = (0..QUERIES.len()).map(|at| (at * 3 + first) % QUERIES.len());
                let order: Vec<usize> = order.collect();
                let queries: Vec<&str> = order.iter().map(|at| QUERIES[*at]).collect();
                let expected: Vec<&str> = order.iter().map(|at| expected[*at].as_str()).collect();
                // An empty line lies between two results.
                let expected = expected.join("\n");
                let client = cluster.sql(&roundel, &tables, &set(&settings, &queries));
                (client, expected)
            })
            .collect();
        for (client, expected) in clients {
            let output = finish(client);
            assert!(output.status.success(), "{fabric}: {}", stderr(&output));
            assert_eq!(stdout(&output), expected, "{fabric}");
        }
    }
}

/// What is pinned is what the files had when a query was planned: rows that come later are seen by later queries.
#[test]
fn files_that_change_are_read_again() {
    let roundel = program();
    let tables = tables(&roundel);
    let cluster = HandCluster::start(&roundel, 2, "shm");
    let count = set(
        &PINNED,
        &["SELECT count(*) AS n FROM r JOIN s ON r.x = s.x"],
    );
    let first = answers(&roundel, &cluster, &tables, &count);
    assert_eq!(answers(&roundel, &cluster, &tables, &count), first);
    fs::write(
        roundel.temp().join("r/3.csv"),
        "id,x,t\n9000,5,t5\n9001,5,t5\n",
    )
    .unwrap();
    let with_more = answers(&roundel, &cluster, &tables, &count);
    let unpinned = answers(
        &roundel,
        &cluster,
        &tables,
        &set(&[], &["SELECT count(*) AS n FROM r JOIN s ON r.x = s.x"]),
    );
    assert_eq!(with_more, unpinned);
    assert_ne!(with_more, first);
}

/// Rows that depend on the rest of a query, or are others each time, are not pinned.
#[test]
fn what_is_not_the_same_each_time_is_not_pinned() {
    let roundel = program();
    let tables = tables(&roundel);
    let cluster = HandCluster::start(&roundel, 2, "shm");
    for query in [
        "EXPLAIN SELECT count(*) FROM (SELECT x, count(*) AS n FROM r GROUP BY x) g JOIN s ON g.n + g.x < s.x",
        "EXPLAIN SELECT count(*) FROM (SELECT x FROM r WHERE random() < 0.5) g JOIN s ON g.x < s.x",
    ] {
        let plan = answers(&roundel, &cluster, &tables, &set(&PINNED, &[query]));
        assert!(plan.contains("CycloJoinExec"), "{plan}");
        assert!(!plan.contains(", pinned"), "{plan}");
    }
}

/// Once nobody has asked for it in a while, a pinned relation is let go: with its memory, on all workers.
#[test]
fn what_nobody_uses_is_let_go() {
    let roundel = program();
    let tables = tables(&roundel);
    let cluster = HandCluster::start(&roundel, 3, "shm");
    let told = |what: &str| {
        let log = fs::read_to_string(worker_log(&roundel)).unwrap();
        log.matches(what).count()
    };
    let pinned = ["join = 'cyclo'", "pin_seconds = 3"];
    let query = set(&pinned, &[QUERIES[0]]);
    let first = answers(&roundel, &cluster, &tables, &query);
    for round in 1..=2 {
        assert_eq!(
            told("a relation is pinned"),
            3 * round,
            "{}",
            fs::read_to_string(worker_log(&roundel)).unwrap()
        );
        let let_go = || told("a pinned relation is let go") == 3 * round;
        assert!(eventually(Duration::from_secs(30), let_go));
        if round == 1 {
            assert_eq!(answers(&roundel, &cluster, &tables, &query), first);
        }
    }
}

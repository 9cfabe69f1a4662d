//! Joins of any predicate, on a ring of real worker processes.

use crate::common::{Program, csv, program, sql_arguments, stderr, stdout};

/// Tables with nulls, duplicates and reals; one of them empty.
fn tables(roundel: &Program) -> Vec<String> {
    let row = |id: u64, keys: u64| {
        // Anything that looks random and is the same each time.
        let mixed = (id + 17).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let key = mixed % keys;
        match mixed % 11 {
            0 => format!("{id},,,\n"),
            _ => format!(
                "{id},{key},{}.5,{}\n",
                key / 2,
                "abcdefgh".chars().nth(key as usize % 8).unwrap()
            ),
        }
    };
    let table = |name: &str, rows: u64, keys: u64| {
        let rows = (0..rows).map(|id| row(id * 3 + keys, keys));
        csv(roundel, name, "id,x,y,t", rows)
    };
    vec![table("r", 300, 97), table("s", 200, 61), table("one", 1, 5)]
}

fn run(roundel: &Program, tables: &[String], fabric: &str, queries: &[String]) -> String {
    let flags = format!("--workers 3 --threads 2 --fabric {fabric} --format csv --max-rows all");
    let output = roundel.run(&sql_arguments(&flags, tables, queries));
    assert!(output.status.success(), "{fabric}: {}", stderr(&output));
    stdout(&output)
}

const CONDITIONS: [&str; 9] = [
    "abs(r.x - s.x) <= 2",
    "r.x BETWEEN s.x - 3 AND s.x + 1",
    "r.x < s.x",
    "r.x >= s.x + 40 AND r.t <> s.t",
    "abs(r.y - s.y) < 1.0",
    "r.y <= s.y",
    "r.x * s.x % 7 = 3",
    "r.t || s.t = 'ab' OR r.id = s.id + 1",
    "levenshtein(r.t, s.t) = 0 AND r.id > s.id",
];

/// What a ring makes of every type of join is what DataFusion's own joins make of it.
#[test]
fn rows_are_those_of_joins_without_a_ring() {
    let roundel = program();
    let tables = tables(&roundel);
    let mut queries = Vec::new();
    for condition in CONDITIONS {
        for join in ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"] {
            queries.push(format!(
                "SELECT r.id, r.x, r.t, s.id, s.y FROM r {join} s ON {condition} ORDER BY 1, 2, 3, 4, 5"
            ));
        }
        for exists in ["EXISTS", "NOT EXISTS"] {
            queries.push(format!(
                "SELECT * FROM r WHERE {exists} (SELECT 1 FROM s WHERE {condition}) ORDER BY 1"
            ));
            queries.push(format!(
                "SELECT * FROM s WHERE {exists} (SELECT 1 FROM r WHERE {condition}) ORDER BY 1"
            ));
        }
    }
    // The result of a ring goes around another one; tables without rows; rows of one worker.
    queries.extend(
        [
            "SELECT r.id, s.id, o.id FROM r JOIN s ON abs(r.x - s.x) <= 1 JOIN one o ON o.x <> r.x ORDER BY 1, 2, 3",
            "SELECT r.id, e.id FROM r LEFT JOIN (SELECT * FROM s WHERE id < 0) e ON r.x < e.x ORDER BY 1",
            "SELECT e.id, s.id FROM (SELECT * FROM r WHERE id < 0) e FULL JOIN s ON e.x < s.x ORDER BY 2",
            "SELECT count(*) FROM r JOIN s ON r.x < s.x",
            "SELECT a.x, count(*), sum(b.id) FROM r a JOIN r b ON abs(a.x - b.x) <= 3 GROUP BY a.x ORDER BY 1",
        ]
        .map(str::to_owned),
    );
    let expected = run(&roundel, &tables, "grpc", &queries);
    for fabric in ["shm", "tcp"] {
        let got = run(&roundel, &tables, fabric, &queries);
        assert!(got == expected, "{fabric}: other rows than without a ring");
        let explained: Vec<String> = queries
            .iter()
            .map(|query| format!("EXPLAIN {query}"))
            .collect();
        let explained = run(&roundel, &tables, fabric, &explained);
        let rings = explained.matches("CycloJoinExec").count();
        assert!(
            rings >= queries.len() - 4,
            "{rings} rings of {} queries",
            queries.len()
        );
    }
    roundel.assert_nothing_left();
}

/// The plan says how a ring finds its pairs, and what came of it.
#[test]
fn plans_say_what_spins_and_how_pairs_are_found() {
    let roundel = program();
    let tables = tables(&roundel);
    let explain = |query: &str| run(&roundel, &tables, "shm", &[format!("EXPLAIN {query}")]);
    let band = explain("SELECT count(*) FROM r JOIN s ON abs(r.x - s.x) <= 2");
    assert!(
        band.contains("sort-merge Included(-2) to Included(2)"),
        "{band}"
    );
    let any = explain("SELECT count(*) FROM r JOIN s ON r.x * s.x = 6");
    assert!(any.contains("nested loops"), "{any}");
    let analyzed = explain("ANALYZE SELECT count(*) FROM r JOIN s ON r.x < s.x");
    for phase in ["set_up_time", "join_time", "synchronisation_time"] {
        assert!(analyzed.contains(phase), "{analyzed}");
    }
}

/// What is known of files is enough for estimates, and those decide.
#[test]
fn the_cheapest_way_is_taken() {
    let roundel = program();
    let made = "COPY (SELECT value AS x, value * 7 % 1000 AS y FROM range(200000)) TO";
    let tables: Vec<_> = ["r", "s"]
        .into_iter()
        .map(|name| {
            let path = roundel.temp().join(format!("{name}.parquet"));
            let copy = format!("{made} '{}' STORED AS PARQUET", path.display());
            let output = roundel.run(&["sql", "-c", &copy]);
            assert!(output.status.success(), "{}", stderr(&output));
            format!("{name}={}", path.display())
        })
        .collect();
    let explain = |condition: &str| {
        let query = format!("EXPLAIN SELECT count(*) FROM r JOIN s ON {condition}");
        run(&roundel, &tables, "shm", &[query])
    };
    // Pair by pair, by whoever has all of r, it would take a minute.
    let band = explain("abs(r.x - s.x) <= 2");
    let ring = band.lines().find(|line| line.contains("CycloJoinExec"));
    let ring = ring.unwrap_or_else(|| panic!("no ring: {band}"));
    assert!(ring.contains("estimated: cyclo"), "{ring}");
    assert!(ring.contains("synchronisation"), "{ring}");
    assert!(ring.contains("broadcast"), "{ring}");
    // One row is nothing to make a ring for.
    let one = "EXPLAIN SELECT count(*) FROM r JOIN (SELECT max(y) AS y FROM s) m ON r.y < m.y";
    let one = run(&roundel, &tables, "shm", &[one.to_owned()]);
    assert!(!one.contains("CycloJoinExec"), "{one}");
}

/// Whichever side spins, the rows are the same.
#[test]
fn the_smaller_side_spins_or_the_larger() {
    let roundel = program();
    let tables = tables(&roundel);
    let query = "SELECT count(*), sum(r.id), sum(s.id) FROM r LEFT JOIN s ON abs(r.x - s.x) <= 2";
    let with = |spin: &str, query: &str| {
        let set = format!("SET roundel.join = 'cyclo'; SET roundel.spin = '{spin}'; {query}");
        run(&roundel, &tables, "shm", &[set])
    };
    let sides = ["smaller", "larger"].map(|spin| {
        let plan = with(spin, &format!("EXPLAIN {query}"));
        let side = plan
            .split("spins=")
            .nth(1)
            .unwrap_or_else(|| panic!("{plan}"));
        side.split(',').next().unwrap_or_default().to_owned()
    });
    assert_ne!(sides[0], sides[1]);
    assert_eq!(with("smaller", query), with("larger", query));
}

/// Whoever has enough rows does not hold up the others, and a predicate that fails is told as what it is.
#[test]
fn joins_end_early_or_fail_as_others_do() {
    let roundel = program();
    let tables = tables(&roundel);
    let limited = run(
        &roundel,
        &tables,
        "shm",
        &["SELECT r.id FROM r JOIN s ON r.x <> s.x LIMIT 7".to_owned()],
    );
    assert_eq!(limited.lines().count(), 8);
    let failing = ["SELECT count(*) FROM r JOIN s ON r.id / (s.id - s.id) > 1"];
    let command = sql_arguments("--workers 3 --fabric shm", &tables, &failing);
    let output = roundel.run(&command);
    assert!(!output.status.success());
    let error = stderr(&output);
    assert!(error.to_lowercase().contains("divide by zero"), "{error}");
    roundel.assert_nothing_left();
}

/// A row that is longer than an element is told with what makes room for it, and then there is room.
#[test]
fn elements_have_room_for_what_is_set() {
    let roundel = program();
    let rows = (0..4).map(|id| format!("{id},{}\n", "x".repeat(1_500_000)));
    let tables = [csv(&roundel, "long", "id,t", rows)];
    let query = "SELECT count(*) AS n, sum(length(a.t)) AS s FROM long a JOIN long b ON a.id < b.id AND a.t = b.t";
    let run = |settings: &str| {
        let sql = [format!("SET roundel.join = 'cyclo'; {settings}{query}")];
        let flags = "--workers 2 --fabric shm --format csv";
        roundel.run(&sql_arguments(flags, &tables, &sql))
    };
    let output = run("");
    let error = stderr(&output);
    assert!(!output.status.success());
    let told = error
        .split("SET ")
        .nth(1)
        .unwrap_or_else(|| panic!("{error}"))
        .trim();
    assert!(told.starts_with("roundel.ring_element_bytes = "), "{error}");
    let output = run(&format!("SET {told}; SET roundel.ring_elements = 2; "));
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), "n,s\n6,9000000\n");
    let refused = run("SET roundel.ring_elements = 1; ");
    assert!(
        stderr(&refused).contains("roundel.ring_elements is 1"),
        "{}",
        stderr(&refused)
    );
    roundel.assert_nothing_left();
}

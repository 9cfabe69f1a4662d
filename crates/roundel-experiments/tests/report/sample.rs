//! A report with figures of all kinds. The numbers are made up.

use roundel_experiments::figure::{Axis, Figure, Finding, Point, Scale, Series, Unit, Verdict, X};
use roundel_experiments::outcome::{Machine, Outcome, Report, Run};

pub fn axis(label: &str, unit: Unit, scale: Scale) -> Axis {
    Axis {
        label: label.to_owned(),
        unit,
        scale,
    }
}

/// Three runs around `median`.
pub fn point(x: X, median: f64) -> Point {
    Point::of_runs(x, vec![median, median * 0.93, median * 1.05])
}

pub fn name(name: &str) -> X {
    X::Name(name.to_owned())
}

pub fn series(name: &str, points: Vec<Point>) -> Series {
    Series {
        name: name.to_owned(),
        points,
    }
}

fn finding(claim: &str, statement: &str, measured: &str, verdict: Verdict) -> Finding {
    Finding {
        claim: claim.to_owned(),
        statement: statement.to_owned(),
        measured: measured.to_owned(),
        verdict,
        threshold: format!("at least number {}", &claim[2..]),
    }
}

fn figure(id: &str, title: &str, x: Axis, y: Axis, series: Vec<Series>) -> Figure {
    Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        paper: "Liu et al. 2019, Figure 19a, section 7.1.4".to_owned(),
        paper_saw: "Throughput grows with the size of messages until the network is full; \
                    beyond 64 KiB nothing is gained."
            .to_owned(),
        x,
        y,
        series,
        findings: Vec::new(),
    }
}

/// Three lines over message sizes.
pub fn lines() -> Figure {
    let line = |name: &str, most: f64, half: f64| {
        let sizes = (8..=20).map(|power| f64::from(1u32 << power));
        series(
            name,
            sizes
                .map(|x| point(X::Number(x), most * x / (x + half)))
                .collect(),
        )
    };
    let mut figure = figure(
        "lines",
        "Throughput by message size",
        axis("message size", Unit::Bytes, Scale::Log2),
        axis("throughput per node", Unit::BytesPerSecond, Scale::Linear),
        vec![
            line("MESQ/SR", 2.6e9, 9_000.0),
            line("SEMQ/WR", 2.1e9, 5_000.0),
            line("MPI", 1.3e9, 30_000.0),
        ],
    );
    figure.findings = vec![
        finding(
            "SH14",
            "MESQ/SR is up to 2 times as fast as MPI",
            "2.03 times at 64 KiB (2.28 GB/s and 1.12 GB/s)",
            Verdict::Agrees,
        ),
        finding(
            "SH15",
            "Messages of 4 KiB reach half of the throughput of the largest",
            "31 % with MESQ/SR",
            Verdict::Differs,
        ),
    ];
    figure
}

/// Three bars at each of four names.
pub fn bars() -> Figure {
    let queries = ["Q1", "Q3", "Q5", "Q18"];
    let bars = |name: &str, times: [f64; 4]| {
        let points = queries
            .iter()
            .zip(times)
            .map(|(query, time)| point(self::name(query), time));
        series(name, points.collect())
    };
    let mut figure = figure(
        "bars",
        "Response time of queries",
        axis("query", Unit::None, Scale::Names),
        axis("response time", Unit::Seconds, Scale::Linear),
        vec![
            bars("MESQ/SR", [0.121, 0.260, 0.333, 0.580]),
            bars("gRPC", [0.133, 0.301, 0.402, 0.772]),
            bars("one process", [0.201, 0.455, 0.610, 0.990]),
        ],
    );
    figure.findings = vec![finding(
        "SH31",
        "The gain grows with the number of nodes",
        "one machine of 2 cores has no more than 2 nodes",
        Verdict::CannotTell,
    )];
    figure
}

fn sixteen_lines() -> Figure {
    let all = (0..16).map(|index| {
        let nodes = 2..=16;
        let points = nodes.map(|n| {
            let n = f64::from(n);
            point(X::Number(n), (1.0 + f64::from(index)) * 1e5 * n.sqrt())
        });
        series(&format!("design {index}, MEMQ/RD"), points.collect())
    });
    figure(
        "sixteen-lines",
        "Sixteen series over the number of nodes",
        axis("nodes", Unit::None, Scale::Linear),
        axis("messages per second", Unit::PerSecond, Scale::Linear),
        all.collect(),
    )
}

fn sixteen_bars() -> Figure {
    let all = (0..16).map(|index| {
        let share = 0.2 + 0.05 * f64::from(index);
        let places = ["send", "write", "read"].map(|verb| point(name(verb), share));
        series(&format!("design {index}"), places.to_vec())
    });
    figure(
        "sixteen-bars",
        "Sixteen series of bars",
        axis("verb", Unit::None, Scale::Names),
        axis("share of the link's bandwidth", Unit::Share, Scale::Linear),
        all.collect(),
    )
}

fn long_names() -> Figure {
    let long = "a design with a name that nobody will remember, with 16 queue pairs per thread";
    let many = (0..14).map(|index| {
        let place = format!("workload number {index} with a long name that goes on and on");
        point(name(&place), 1e-6 * f64::from(index + 1))
    });
    let many: Vec<_> = many.collect();
    figure(
        "long-names",
        "A title that is so long that it cannot be shown in one line of any reasonable width, \
         which it says again in other words here",
        axis(
            "a label of the x axis that is also far longer than it has reason to be, by some \
              distance and then some",
            Unit::None,
            Scale::Names,
        ),
        axis(
            "a label of the y axis that is also far longer than it has reason to be, by some \
              distance and then some",
            Unit::Seconds,
            Scale::Linear,
        ),
        vec![
            series(long, many.clone()),
            series(&format!("{long}, too"), many),
        ],
    )
}

fn logarithms() -> Figure {
    let points = (0..12).map(|power| {
        let connections = f64::from(1u32 << power);
        point(X::Number(connections), 1.3e-6 * connections.powf(1.3))
    });
    figure(
        "logarithms",
        "Latency by connections, both with logarithms",
        axis("connections", Unit::None, Scale::Log2),
        axis("latency", Unit::Seconds, Scale::Log2),
        vec![series("READ", points.collect())],
    )
}

fn wrapped_names() -> Figure {
    let names = [
        "Partitioned table",
        "Broadcast of the small table",
        "Cyclo-join over the ring",
    ];
    let points = names.map(|place| point(name(place), 3.0));
    figure(
        "wrapped-names",
        "Names of several words",
        axis("", Unit::None, Scale::Names),
        axis("speed-up", Unit::None, Scale::Linear),
        vec![series("join", points.to_vec())],
    )
}

fn eight_names() -> Figure {
    let names = [
        "MESQ/SR", "SESQ/SR", "MEMQ/SR", "SEMQ/SR", "MEMQ/RD", "SEMQ/RD", "MEMQ/WR", "SEMQ/WR",
    ];
    let bars = |series_name: &str, most: f64| {
        let points = names
            .iter()
            .zip(1..)
            .map(|(place, index)| point(name(place), most / f64::from(index)));
        series(series_name, points.collect())
    };
    figure(
        "eight-names",
        "Rows per second by design",
        axis("design", Unit::None, Scale::Names),
        axis("rows", Unit::PerSecond, Scale::Linear),
        vec![bars("repartition", 41.7e6), bars("broadcast", 12.3e6)],
    )
}

fn nothing() -> Figure {
    let bad = |value| Point {
        x: X::Number(4.0),
        median: value,
        low: value,
        high: value,
        runs: 1,
    };
    figure(
        "nothing",
        "Values that cannot be drawn",
        axis("nodes", Unit::None, Scale::Linear),
        axis("throughput", Unit::BytesPerSecond, Scale::Linear),
        vec![
            series("not a number", vec![bad(f64::NAN), bad(f64::INFINITY)]),
            series("none", vec![]),
        ],
    )
}

fn single() -> Figure {
    figure(
        "single",
        "One point",
        axis("nodes", Unit::None, Scale::Linear),
        axis("throughput", Unit::BytesPerSecond, Scale::Linear),
        vec![series("MESQ/SR", vec![point(X::Number(2.0), 1.7e9)])],
    )
}

fn zeros() -> Figure {
    let points = (1..5).map(|x| point(X::Number(f64::from(x)), 0.0));
    figure(
        "zeros",
        "Nothing but zeros",
        axis("seconds since the start", Unit::Seconds, Scale::Linear),
        axis("lost messages", Unit::None, Scale::Linear),
        vec![series("MESQ/SR", points.collect())],
    )
}

pub fn machine() -> Machine {
    Machine {
        host: "rack7-node3".to_owned(),
        cpu: "AMD EPYC 7763 64-Core Processor".to_owned(),
        cores: 2,
        memory_bytes: 24_675_000_000,
        kernel: "Linux 6.8.0-45-generic".to_owned(),
        fabric: "shm".to_owned(),
        roundel: "0.1.0".to_owned(),
        date: "2026-11-22 08:59 UTC".to_owned(),
    }
}

pub fn report() -> Report {
    let outcome = |experiment: &str, title: &str, figures| Outcome {
        experiment: experiment.to_owned(),
        title: title.to_owned(),
        seconds: 73.4,
        nodes: vec![2, 4, 8],
        threads: vec![14],
        figures,
    };
    Report {
        machine: machine(),
        runs: vec![Run {
            command: "roundel-lab experiment run designs --threads 14".to_owned(),
            commit: "8f3c2a91d0b7".to_owned(),
            compiler: "rustc 1.94.0".to_owned(),
        }],
        outcomes: vec![
            outcome(
                "designs",
                "Eight designs of the shuffle",
                vec![lines(), sixteen_lines(), logarithms()],
            ),
            outcome(
                "queries",
                "TPC-H queries",
                vec![
                    bars(),
                    sixteen_bars(),
                    wrapped_names(),
                    eight_names(),
                    long_names(),
                ],
            ),
            outcome(
                "corners",
                "What is seldom seen",
                vec![single(), zeros(), nothing()],
            ),
        ],
    }
}

//! All queries of TPC-H on 1 to 6 workers of this host, by the three exchanges: how much faster than one worker.

use super::super::tell::{About, axis};
use super::super::tpch::{By, TpchRun};
use super::super::{Case, Experiment, Got, Options, Results, Work};
use super::hourly;
use crate::figure::{Figure, Point, Scale, Unit, X};
use crate::hybrid::QUERY_COUNT;
use crate::paper::Paper;
use roundel_exchange::Architecture;

pub const EXPERIMENT: Experiment = Experiment {
    name: "hybrid-tpch",
    title: "The queries of TPC-H on more and more workers, by exchange",
    figures: &["11", "12a"],
    simulated: false,
    on_devices: true,
    paper: Paper::Hybrid,
    plan,
    tell,
};

/// Those of the quick form: scans, joins of large and of small tables, subqueries.
const QUICK_QUERIES: [u32; 4] = [1, 4, 9, 18];

fn plan(options: &Options) -> Vec<Case> {
    let own: &[usize] = match options.quick {
        true => &[1, 2],
        false => &[1, 2, 3, 4, 5, 6],
    };
    let mut cases = Vec::new();
    for workers in options.nodes_or(own) {
        for architecture in Architecture::ALL {
            let run = TpchRun {
                fabric: options.fabric.clone(),
                workers,
                scale: if options.quick { 0.02 } else { 0.2 },
                iterations: 3,
                queries: match options.quick {
                    true => QUICK_QUERIES.to_vec(),
                    false => (1..=QUERY_COUNT).collect(),
                },
                by: By::Exchange(architecture),
            };
            cases.push(Case {
                series: architecture.name().into(),
                x: X::Number(workers as f64),
                work: Work::Tpch(run),
            });
        }
    }
    cases
}

fn tell(results: &Results) -> Vec<Figure> {
    let mut rates = About {
        id: "hybrid-tpch-hourly",
        title: "Queries per hour, one after the other",
        place: "Figure 12a",
        paper_saw: "On 6 servers the engine with multiplexers answers more queries in an hour than the others.",
        x: axis("workers", Unit::None, Scale::Linear),
        y: axis("queries per hour", Unit::None, Scale::Linear),
    }
    .figure_of(Paper::Hybrid);
    for (case, runs) in &results.cases {
        rates.add(&case.series, Point::of_runs(case.x.clone(), hourly(runs)));
    }
    let mut figures = vec![rates];
    figures.extend(Architecture::ALL.map(|architecture| speed_up(results, architecture)));
    figures
}

/// How many times as fast each query is as on the fewest workers.
fn speed_up(results: &Results, architecture: Architecture) -> Figure {
    let id = format!("hybrid-tpch-{architecture}");
    let title = format!("Each query beside itself on the fewest workers: {architecture}");
    let mut figure = About {
        id: &id,
        title: &title,
        place: "Figure 11",
        paper_saw: "Over RDMA through multiplexers all queries but some become faster with each server.",
        x: axis("query", Unit::None, Scale::Names),
        y: axis("times as fast", Unit::None, Scale::Linear),
    }
    .figure_of(Paper::Hybrid);
    let own = results.cases.iter();
    let mut own = own.filter(|(case, _)| case.series == architecture.name());
    let Some((fewest, first)) = own.next() else {
        return figure;
    };
    let base = |query: u32| Some(Point::of_runs(fewest.x.clone(), seconds(first, query)).median);
    for (case, runs) in own {
        let X::Number(workers) = case.x else { continue };
        for query in numbers(runs) {
            let Some(base) = base(query) else { continue };
            let times = seconds(runs, query).into_iter().map(|took| base / took);
            let point = Point::of_runs(X::Name(query.to_string()), times.collect());
            figure.add(&format!("{workers} workers"), point);
        }
    }
    figure
}

/// What a query took in each run.
fn seconds(runs: &[Got], query: u32) -> Vec<f64> {
    let of_query = runs.iter().filter_map(|run| {
        let mut queries = run.try_as_queries_ref()?.iter();
        queries.find(|one| one.query == query)
    });
    of_query.map(|one| one.seconds).collect()
}

/// The queries that were run.
fn numbers(runs: &[Got]) -> Vec<u32> {
    let first = runs.first().and_then(Got::try_as_queries_ref);
    first.into_iter().flatten().map(|one| one.query).collect()
}

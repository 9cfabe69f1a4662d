//! Queries 3, 4 and 10 of TPC-H (section 7.2): the program `roundel` runs them, and simulated hardware replays what it
//! recorded.

mod replay;

use super::judgement::{at_least, at_most, reaches};
use super::tell::{About, axis};
use super::{Case, Experiment, Options, Results, Work};
use crate::error::{Error, Result};
use crate::fabric::FabricChoice;
use crate::figure::{Figure, Point, Scale, Unit, X};
use crate::paper::Paper;
use crate::setting::{Setting, Transport};
use roundel_exchange::{Architecture, Buffers, Design};
use serde::Deserialize;
use std::path::Path;
use std::process::Command;

pub(super) use replay::Replay;

pub const EXPERIMENT: Experiment = Experiment {
    name: "tpch",
    title: "Queries 3, 4 and 10 of TPC-H",
    figures: &["26", "27"],
    simulated: true,
    on_devices: true,
    paper: Paper::Shuffle,
    plan,
    tell,
};

const QUERIES: [u32; 3] = [3, 4, 10];
const DESIGN: Design = Design::MesqSr;
/// What it is compared with: on this host what there is today, in simulation what the paper has.
const GRPC: &str = "gRPC";
const MPI: &str = "MPI";
/// Query 4 over tables that are dealt by their keys, so that its join needs no exchange. The other queries
/// join by several keys.
const LOCAL: &str = "local data";
const LOCAL_QUERY: u32 = 4;

/// Queries that the program `roundel` runs on workers of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct TpchRun {
    pub(super) fabric: FabricChoice,
    pub(super) workers: usize,
    pub(super) scale: f64,
    pub(super) iterations: usize,
    pub(super) queries: Vec<u32>,
    pub(super) by: By,
}

/// By what rows are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A design of endpoints, beside the same over gRPC.
    BesideGrpc(Design),
    /// The same design, where tables are dealt by their keys.
    LocalData(Design),
    /// What these connections have by default.
    Exchange(Architecture),
}

/// What a query took.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TpchQuery {
    pub(super) query: u32,
    pub(super) seconds: f64,
    baseline_seconds: Option<f64>,
    verified: bool,
}

impl TpchQuery {
    /// One that simulated hardware replayed.
    pub(super) fn replayed(query: u32, seconds: f64) -> Self {
        Self {
            query,
            seconds,
            baseline_seconds: None,
            verified: true,
        }
    }
}

/// What `roundel tpch --json` says.
#[derive(Deserialize)]
struct Report {
    queries: Vec<TpchQuery>,
    error: Option<String>,
}

fn plan(options: &Options) -> Vec<Case> {
    if options.fabric.is_simulated() {
        return plan_replays(options);
    }
    let own: &[usize] = if options.quick { &[2] } else { &[2, 4] };
    let case = |workers: usize, local: bool| Case {
        series: if local { LOCAL } else { DESIGN.name() }.into(),
        x: X::Number(workers as f64),
        work: Work::Tpch(TpchRun {
            fabric: options.fabric.clone(),
            workers,
            // It grows with the cluster, as in the paper.
            scale: if options.quick { 0.05 } else { 0.5 } * workers as f64,
            iterations: if options.quick { 3 } else { 5 },
            queries: match local {
                true => vec![LOCAL_QUERY],
                false => QUERIES.to_vec(),
            },
            by: match local {
                true => By::LocalData(DESIGN),
                false => By::BesideGrpc(DESIGN),
            },
        }),
    };
    options
        .nodes_or(own)
        .into_iter()
        .flat_map(|workers| [case(workers, false), case(workers, true)])
        .collect()
}

fn plan_replays(options: &Options) -> Vec<Case> {
    let own: &[usize] = if options.quick {
        &[2, 4]
    } else {
        &[2, 4, 8, 16]
    };
    let mut cases = Vec::new();
    for nodes in options.nodes_or(own) {
        for (series, transport) in [
            (DESIGN.name(), Transport::Design(DESIGN)),
            (MPI, Transport::Mpi),
            (LOCAL, Transport::Consume),
        ] {
            let setting = Setting {
                nodes,
                buffers: Buffers::Fixed(2),
                ..options.base(transport)
            };
            let of_series = QUERIES
                .iter()
                .filter(|query| series != LOCAL || **query == LOCAL_QUERY);
            cases.extend(of_series.map(|query| Case {
                series: series.into(),
                x: X::Number(nodes as f64),
                work: Work::Replay(Box::new(Replay::new(*query, setting.clone()))),
            }));
        }
    }
    cases
}

/// What the design is compared with.
fn other(options: &Options) -> &'static str {
    match options.fabric.is_simulated() {
        true => MPI,
        false => GRPC,
    }
}

impl TpchRun {
    /// Runs the queries.
    pub(super) fn run(&self, roundel: &Path) -> Result<Vec<TpchQuery>> {
        let mut command = Command::new(roundel);
        command.args(["tpch", "--json"]);
        let queries: Vec<_> = self.queries.iter().map(u32::to_string).collect();
        command.args(["--queries", &queries.join(",")]);
        match self.by {
            By::BesideGrpc(design) => {
                command.args(["--design", design.name(), "--compare", "grpc"]);
            }
            By::LocalData(design) => {
                command.args(["--design", design.name()]);
                command.args(["--tables", "memory:co-partitioned"]);
            }
            By::Exchange(architecture) => {
                command.args(["--exchange", architecture.name()]);
            }
        }
        command.args(["--fabric", &self.fabric.to_string()]);
        command.args([
            "--workers",
            &self.workers.to_string(),
            "--scale",
            &self.scale.to_string(),
        ]);
        command.args(["--iterations", &self.iterations.to_string()]);
        let shown = format!("{command:?}");
        let failed = |reason: String| Error::Command {
            command: shown.clone(),
            reason,
        };
        let output = command
            .output()
            .map_err(|error| failed(error.to_string()))?;
        let report: Report = match serde_json::from_slice(&output.stdout) {
            Ok(report) => report,
            Err(_) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let last = said.lines().last().unwrap_or("it said nothing");
                return Err(failed(last.to_owned()));
            }
        };
        match report.error {
            Some(error) => Err(failed(error)),
            None if report.queries.iter().any(|query| !query.verified) => {
                Err(failed("a query gave wrong rows".into()))
            }
            None => Ok(report.queries),
        }
    }
}

fn tell(results: &Results) -> Vec<Figure> {
    let figures = QUERIES.map(|query| of_query(results, query));
    let mut all = vec![of_local_data(&figures, other(results.options))];
    all.extend(figures);
    all
}

/// Query 4 with and without an exchange, at the most nodes.
fn of_local_data(figures: &[Figure], other: &str) -> Figure {
    let mut figure = About {
        id: "fig26",
        title: "Response time of query 4, beside data that need not be moved",
        place: "Figure 26, section 7.2.1",
        paper_saw: "Over 8 nodes MESQ/SR takes about as long as the same query over co-partitioned tables, where \
                    no row moves, and so on both networks; MPI takes longer.",
        x: axis("nodes", Unit::None, Scale::Names),
        y: axis("response time", Unit::Seconds, Scale::Linear),
    }
    .figure();
    let known = figures
        .iter()
        .find(|known| known.id == query_id(LOCAL_QUERY));
    for name in [LOCAL, DESIGN.name(), other] {
        let last = known.and_then(|known| known.points(name).last());
        if let Some(last) = last
            && let X::Number(nodes) = last.x
        {
            // Of one number of nodes: bars.
            let x = X::Name(nodes.to_string());
            figure.add(name, Point { x, ..last.clone() });
        }
    }
    let found = figure.ratio(DESIGN.name(), LOCAL).map(|ratio| {
        let measured = format!("{ratio:.2} times as long as over local data");
        (measured, at_most(ratio, 1.25))
    });
    figure.find("SH38a", found);
    figure
}

fn query_id(query: u32) -> String {
    format!("fig27-q{query}")
}

fn of_query(results: &Results, query: u32) -> Figure {
    let title = format!("Response time of query {query}");
    let mut figure = About {
        id: &query_id(query),
        title: &title,
        place: "Figure 27, section 7.2.2",
        paper_saw: "Over 16 nodes MESQ/SR is 70 % faster than MPI in query 4, 55 % in query 3 and twice as fast in \
                    query 10; over 2 nodes both are alike. The data grow with the cluster.",
        x: axis("nodes", Unit::None, Scale::Linear),
        y: axis("response time", Unit::Seconds, Scale::Linear),
    }
    .figure();
    for (case, runs) in &results.cases {
        let found = runs.iter().filter_map(|run| {
            let mut queries = run.try_as_queries_ref()?.iter();
            queries.find(|one| one.query == query)
        });
        let found: Vec<_> = found.collect();
        let ours: Vec<_> = found.iter().map(|one| one.seconds).collect();
        let grpc: Vec<_> = found
            .iter()
            .filter_map(|one| one.baseline_seconds)
            .collect();
        for (name, seconds) in [(case.series.as_str(), ours), (GRPC, grpc)] {
            if !seconds.is_empty() {
                figure.add(name, Point::of_runs(case.x.clone(), seconds));
            }
        }
    }
    let other = other(results.options);
    let found = figure.ratio(other, DESIGN.name()).map(|ratio| {
        let measured = format!("up to {ratio:.2} times as fast as over {other}");
        let small = figure.points(DESIGN.name()).len() < 2;
        // At two nodes the paper saw no difference.
        let agrees = if small {
            at_least(ratio, 0.95)
        } else {
            reaches(ratio, 1.5)
        };
        (measured, agrees)
    });
    figure.find("SH39", found);
    figure
}

//! Queries 3, 4 and 10 of TPC-H (section 7.2), which the program `roundel` runs.

use super::tell::{About, axis, reaches, verdict};
use super::{Case, Experiment, Got, Options, Results, Work};
use crate::error::{Error, Result};
use crate::figure::{Figure, Point, Scale, Unit, X};
use roundel_exchange::Design;
use roundel_verbs::DeviceChoice;
use serde::Deserialize;
use std::path::Path;
use std::process::Command;

pub const EXPERIMENT: Experiment = Experiment {
    name: "tpch",
    title: "Queries 3, 4 and 10 of TPC-H",
    figures: &["26", "27"],
    plan,
    tell,
};

const QUERIES: [u32; 3] = [3, 4, 10];
const DESIGN: Design = Design::MesqSr;
const GRPC: &str = "gRPC";

/// A run of the queries, beside the same over gRPC.
#[derive(Clone, Debug, PartialEq)]
pub struct TpchRun {
    fabric: DeviceChoice,
    workers: usize,
    scale: f64,
    iterations: usize,
}

/// What a query took.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TpchQuery {
    query: u32,
    seconds: f64,
    baseline_seconds: Option<f64>,
    verified: bool,
}

/// What `roundel tpch --json` says.
#[derive(Deserialize)]
struct Report {
    queries: Vec<TpchQuery>,
    error: Option<String>,
}

fn plan(options: &Options) -> Vec<Case> {
    let workers: &[usize] = if options.quick { &[2] } else { &[2, 4] };
    let case = |&workers: &usize| Case {
        series: DESIGN.name().into(),
        x: X::Number(workers as f64),
        work: Work::Tpch(TpchRun {
            fabric: options.fabric.clone(),
            workers,
            // It grows with the cluster, as in the paper.
            scale: if options.quick { 0.05 } else { 0.5 } * workers as f64,
            iterations: if options.quick { 3 } else { 5 },
        }),
    };
    workers.iter().map(case).collect()
}

impl TpchRun {
    /// Runs the queries.
    pub(super) fn run(&self, roundel: &Path) -> Result<Vec<TpchQuery>> {
        let queries = QUERIES.map(|query| query.to_string()).join(",");
        let mut command = Command::new(roundel);
        command
            .arg("tpch")
            .args(["--queries", &queries, "--json", "--compare", "grpc"]);
        let fabric = self.fabric.to_string();
        command.args(["--fabric", &fabric, "--design", DESIGN.name()]);
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
    let mut figures: Vec<Figure> = QUERIES.map(|query| of_query(results, query)).into();
    if let Some(figure) = figures.first_mut() {
        figure.find(
            "SH38",
            "Query 4 over MESQ/SR takes about as long as over data that need not be moved",
            None,
        );
    }
    figures
}

fn of_query(results: &Results, query: u32) -> Figure {
    let title = format!("Response time of query {query}");
    let mut figure = About {
        id: &format!("fig27-q{query}"),
        title: &title,
        place: "Figure 27, section 7.2.2",
        paper_saw: "Over 16 nodes MESQ/SR is 70 % faster than MPI in query 4, 55 % in query 3 and twice as fast in \
                    query 10; over 2 nodes both are alike. The data grow with the cluster.",
        x: axis("nodes", Unit::None, Scale::Linear),
        y: axis("response time", Unit::Seconds, Scale::Linear),
    }
    .figure();
    for (case, runs) in &results.cases {
        let found = runs.iter().filter_map(|run| match run {
            Got::Queries(queries) => queries.iter().find(|one| one.query == query),
            Got::Measured(_) => None,
        });
        let found: Vec<_> = found.collect();
        let ours: Vec<_> = found.iter().map(|one| one.seconds).collect();
        let grpc: Vec<_> = found
            .iter()
            .filter_map(|one| one.baseline_seconds)
            .collect();
        for (name, seconds) in [(DESIGN.name(), ours), (GRPC, grpc)] {
            if !seconds.is_empty() {
                figure.add(name, Point::of_runs(case.x.clone(), seconds));
            }
        }
    }
    let found = figure.ratio(GRPC, DESIGN.name()).map(|ratio| {
        let measured =
            format!("up to {ratio:.2} times as fast as over gRPC, which is today's practice");
        let small = figure.points(DESIGN.name()).len() < 2;
        // At two nodes the paper saw no difference.
        let agrees = if small {
            verdict(ratio >= 0.95)
        } else {
            reaches(ratio, 1.5)
        };
        (measured, agrees)
    });
    let statement = "Over MESQ/SR the query is as fast at 2 nodes, and faster at more";
    figure.find("SH39", statement, found);
    figure
}

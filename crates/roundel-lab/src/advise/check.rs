//! Whether advice is good: settings drawn from a seed, each measured with every protocol.

use std::sync::Arc;

use futures::StreamExt as _;
use roundel_protocols::advise::{GOOD, Model, Range, Verdict, check};
use roundel_protocols::paradigm::{Group, Setting};
use serde::Serialize;

use super::{measure_host, parameters, protocols_of, simulated_protocols};
use crate::cli::AdviseCheckArgs;
use crate::perf::protocols::{here, in_simulation, measured};
use roundel_terminal::Failure;
use roundel_terminal::progress::run_bar;
use roundel_terminal::{Text, write_json};

/// Seconds of a run on this host, which is one of so many, in turn with those of other protocols.
const SECONDS: f64 = 0.1;
const ROUNDS: usize = 3;
/// Bytes of requests where the host is measured.
const REQUEST_BYTES: usize = 36;

/// The result.
#[derive(Debug, Serialize)]
struct Report {
    good: usize,
    of: usize,
    verdicts: Vec<Verdict>,
}

/// Measures, shows, and fails when too little of the advice is good.
pub async fn run(args: &AdviseCheckArgs) -> Result<(), Failure> {
    let verdicts = match args.model.measure {
        true => of_host(args).await?,
        false => simulated(args).await?,
    };
    let good = verdicts.iter().filter(|verdict| verdict.is_good()).count();
    let report = Report {
        good,
        of: verdicts.len(),
        verdicts,
    };
    show(args, &report)?;
    if let Some(path) = &args.model.json {
        write_json(&report, path)?;
    }
    match good as f64 >= args.at_least * report.of as f64 {
        true => Ok(()),
        false => Err(Failure::Run(format!(
            "the advice is good for {good} of {} settings",
            report.of
        ))),
    }
}

async fn simulated(args: &AdviseCheckArgs) -> Result<Vec<Verdict>, Failure> {
    let parameters = parameters(&args.model)?;
    let protocols = simulated_protocols(&args.model, &parameters);
    let model = Arc::new(Model::new(parameters.clone()));
    let wishes = Range::cluster().draw(args.settings as usize, args.seed, &protocols);
    let bar = run_bar(wishes.len() as u64);
    bar.set_message("simulating settings");
    let judge = |wish| {
        let (model, parameters, bar) = (model.clone(), parameters.clone(), bar.clone());
        async move {
            let run = async |setting: &Setting| {
                in_simulation(setting.for_simulation(), &parameters, 1).await
            };
            let verdict = check::<Failure>(&wish, &*model, 1, run).await;
            bar.inc(1);
            verdict
        }
    };
    let all = futures::stream::iter(wishes.into_iter().map(judge));
    let all: Vec<_> = all.buffered(args.jobs as usize).collect().await;
    bar.finish_and_clear();
    all.into_iter().collect()
}

async fn of_host(args: &AdviseCheckArgs) -> Result<Vec<Verdict>, Failure> {
    let choice = &args.model.fabric;
    let device = choice.open()?;
    let protocols = protocols_of(&args.model, &device);
    let work = async |group: &mut Group| {
        let model = measure_host(group, &protocols, REQUEST_BYTES).await?;
        let wishes = Range::host().draw(args.settings as usize, args.seed, &protocols);
        let bar = run_bar(wishes.len() as u64);
        bar.set_message("measuring settings");
        let mut verdicts = Vec::new();
        for wish in &wishes {
            let run = async |setting: &Setting| {
                let setting = Setting {
                    warm_up: SECONDS / 4.0,
                    seconds: SECONDS,
                    ..setting.clone()
                };
                measured(group, &setting).await
            };
            verdicts.push(check::<Failure>(wish, &model, ROUNDS, run).await?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(verdicts)
    };
    here(choice, device, 2, work).await
}

fn show(args: &AdviseCheckArgs, report: &Report) -> Result<(), Failure> {
    let mut text = Text::new(args.model.json.is_some());
    text.line(&format!(
        "{:>8} {:>5} {:>3} {:>4} {:>4} {:>6} {:>6}  {:<20} {:>9} {:>9}  {:<20} {:>9} {:>8}",
        "paradigm",
        "nodes",
        "S",
        "R",
        "L",
        "V",
        "writes",
        "advised",
        "predicted",
        "measured",
        "best",
        "measured",
        "reached"
    ))?;
    for verdict in &report.verdicts {
        let Setting {
            paradigm,
            protocol,
            nodes,
            threads,
            pending,
            request_bytes,
            response_bytes,
            ..
        } = &verdict.advised;
        text.line(&format!(
            "{paradigm:>8} {nodes:>5} {threads:>3} {pending:>4} {request_bytes:>4} {response_bytes:>6} {:>6}  {protocol:<20} {:>9.3} {:>9.3}  {:<20} {:>9.3} {:>7.0}%",
            if verdict.writes { "yes" } else { "no" },
            verdict.predicted / 1e6,
            verdict.measured / 1e6,
            verdict.best,
            verdict.best_measured / 1e6,
            100.0 * verdict.reached(),
        ))?;
    }
    text.line(&format!(
        "\nthe advice reaches {:.0} % of the best, or more, for {} of {} settings; rates in millions of calls a second",
        100.0 * GOOD,
        report.good,
        report.of
    ))
}

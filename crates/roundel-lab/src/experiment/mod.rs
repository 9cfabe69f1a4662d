//! `roundel-lab experiment`: the papers' experiments on this host, and their report. Nodes are this program
//! once more, see [`roundel_experiments::node_main`].

mod merge;
mod origin;
mod setting;

use std::io::{self, Write as _};
use std::num::NonZero;
use std::path::Path;

use indicatif::ProgressBar;
use roundel_experiments::kept::Kept;
use roundel_experiments::outcome::Report;
use roundel_experiments::{
    self as experiments, Chosen, Experiment, FabricChoice, Failed, Flag, Hosts, NodeCommand,
    Options, Progress, report,
};
use roundel_verbs::DeviceChoice;
use serde_json::json;

use crate::cli::{ExperimentAction, HostsArgs, RunArgs};
use crate::progress::experiment_bar;
use roundel_terminal::Failure;
use roundel_terminal::Signals;
use roundel_terminal::{Text, write_json};

/// Runs of each case, quick or not.
const RUNS_QUICK: usize = 3;
const RUNS: usize = 5;
/// Columns of the tables.
const WIDTH: usize = 100;

/// Runs the command.
pub async fn run(action: ExperimentAction) -> Result<(), Failure> {
    match action {
        ExperimentAction::List { json } => list(json),
        ExperimentAction::Run(args) => measure(&args).await,
        ExperimentAction::Setting {
            setting,
            runs,
            hosts,
        } => setting::run(*setting, runs, &hosts).await,
        ExperimentAction::Report { files, out } => write(&merge::read(&files)?, &out),
    }
}

/// Names, titles and figures, under the paper that has the figures.
fn list(as_json: bool) -> Result<(), Failure> {
    let all = experiments::catalogue();
    if as_json {
        let all = all.iter().map(|one| json!({ "name": one.name, "title": one.title, "paper": one.paper.to_string(), "figures": one.figures, "simulated": one.simulated, "on_devices": one.on_devices }));
        let all: Vec<_> = all.collect();
        return write_json(&all, Path::new("-"));
    }
    let longest = |of: fn(&Experiment) -> &str| all.iter().map(|one| of(one).len()).max();
    let names = longest(|one| one.name).unwrap_or_default();
    let titles = longest(|one| one.title).unwrap_or_default();
    let mut text = Text::new(false);
    for of_paper in all.chunk_by(|one, next| one.paper == next.paper) {
        text.line(&of_paper[0].paper.to_string())?;
        for one in of_paper {
            let figures = one.figures.join(", ");
            text.line(&format!(
                "  {:names$}  {:titles$}  {figures}",
                one.name, one.title
            ))?;
        }
        text.line("")?;
    }
    Ok(())
}

/// How this program is started as a node of this host.
pub fn node_command() -> Result<NodeCommand, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::Run(format!("cannot find this program to start nodes: {error}"))
    })?;
    Ok(NodeCommand {
        program,
        arguments: vec!["node".to_owned()],
        hosts: None,
    })
}

/// The hosts that nodes run on, where these are named.
fn hosts(args: &HostsArgs, fabric: &FabricChoice) -> Result<Option<Hosts>, Failure> {
    let Some(address) = args.meet else {
        return Ok(None);
    };
    if matches!(fabric, FabricChoice::Device(DeviceChoice::Shm)) {
        let told = "shm is the memory of one host: with --hosts, say --fabric rdma or --fabric tcp";
        return Err(Failure::Usage(told.into()));
    }
    let shell: Vec<_> = args.shell.split_whitespace().map(str::to_owned).collect();
    if shell.is_empty() || args.hosts.iter().any(String::is_empty) {
        return Err(Failure::Usage(
            "--shell and each of --hosts have a name at least".into(),
        ));
    }
    Ok(Some(Hosts {
        names: args.hosts.clone(),
        shell,
        address,
    }))
}

async fn measure(args: &RunArgs) -> Result<(), Failure> {
    let mut signals = Signals::watch()?;
    let names: Vec<String> = match args.names.iter().any(|name| name == "all") {
        true => Vec::new(),
        false => args.names.clone(),
    };
    let fabric = args.fabric.clone();
    let fabric = fabric.unwrap_or_else(|| experiments::default_fabric(&names));
    let node = NodeCommand {
        hosts: hosts(&args.hosts, &fabric)?,
        ..node_command()?
    };
    // Without a place of their own, points are kept for as long as the command runs: experiments share some.
    let (_own, points) = match &args.plot {
        Some(directory) => (None, directory.join("points")),
        None => {
            let own = tempfile::tempdir()
                .map_err(|error| Failure::Run(format!("cannot keep points: {error}")))?;
            let points = own.path().to_owned();
            (Some(own), points)
        }
    };
    let kept = Kept::in_directory(&points, args.fresh);
    let options = Options {
        fabric: fabric.clone(),
        nodes: args.nodes.iter().copied().map(usize::from).collect(),
        threads: args.threads.map(usize::from),
        quick: args.quick,
        runs: match args.runs {
            Some(runs) => runs.into(),
            None if args.quick => RUNS_QUICK,
            None => RUNS,
        },
        roundel: node.program.with_file_name("roundel"),
        node,
        mpi: cfg!(feature = "mpi"),
        kept: kept.map_err(|error| Failure::Run(error.to_string()))?,
        jobs: match args.jobs {
            Some(jobs) => jobs.into(),
            None => std::thread::available_parallelism().map_or(1, NonZero::get),
        },
    };
    let chosen = experiments::choose_experiments(&names, &options);
    let chosen = chosen.map_err(|error| Failure::Usage(error.to_string()))?;
    let mut text = Text::new(args.json.is_some());
    tell_without(&chosen, &mut text)?;
    let machine = origin::machine(&fabric.to_string());
    let bar = experiment_bar();
    let shown = bar.clone();
    // Nodes end when this process does, however it ends.
    let running = tokio::task::spawn_blocking(move || {
        experiments::run_experiments(chosen, &mut |progress| show(&shown, &progress))
    });
    let work = async {
        let ran = running.await;
        ran.map_err(|error| Failure::Run(format!("internal error: {error}")))
    };
    let ran = signals.or_signal(work).await;
    bar.finish_and_clear();
    let mut failed = Vec::new();
    let mut outcomes = Vec::new();
    for one in ran? {
        match one {
            Ok(outcome) => outcomes.push(outcome),
            Err(Failed { experiment, error }) => failed.push(format!("{experiment}: {error}")),
        }
    }
    let report = Report {
        machine,
        runs: vec![origin::run()],
        outcomes,
    };
    tell(&report, &mut text)?;
    if let Some(path) = &args.json {
        write_json(&report, path)?;
    }
    if let Some(directory) = &args.plot {
        write(&report, directory)?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Run(failed.join("; "))),
    }
}

fn show(bar: &ProgressBar, progress: &Progress<'_>) {
    bar.set_length(progress.total as u64);
    bar.set_position(progress.done as u64);
    let left = progress.estimate_left.map_or_else(String::new, |left| {
        format!(", about {} s left", left.as_secs())
    });
    bar.set_message(format!("{}: {}{left}", progress.experiment, progress.case));
}

/// The experiments that run without a flag, which they cannot obey.
fn tell_without(chosen: &[Chosen], text: &mut Text) -> Result<(), Failure> {
    for flag in Flag::ALL {
        let own = chosen
            .iter()
            .filter(|one| one.without.iter().any(|(without, _)| *without == flag));
        let own: Vec<_> = own.map(|one| one.experiment.name).collect();
        if !own.is_empty() {
            let own = own.join(", ");
            text.line(&format!(
                "these run without {flag}, which they cannot obey: {own}"
            ))?;
        }
    }
    Ok(())
}

/// The figures as tables, and what they say of the paper's claims.
fn tell(report: &Report, text: &mut Text) -> Result<(), Failure> {
    for figure in report.figures() {
        text.line(&report::to_text(figure, WIDTH))?;
        for finding in &figure.findings {
            let mut line = format!(
                "{}: {} ({}): {}",
                finding.verdict, finding.statement, finding.claim, finding.measured
            );
            if !finding.threshold.is_empty() {
                line += &format!("; agrees if {}", finding.threshold);
            }
            text.line(&line)?;
        }
        text.line("")?;
    }
    Ok(())
}

fn write(report: &Report, directory: &Path) -> Result<(), Failure> {
    report::write(report, directory).map_err(|error| Failure::Run(error.to_string()))?;
    let page = directory.join("report.html");
    writeln!(io::stderr(), "{}", page.display()).map_err(Failure::output)
}

//! `roundel-lab simulate`: exchanges on virtual time, drawn from seeds, with faults.

use std::ops::Range;
use std::time::Duration;

use roundel_simtest::{Broken, Plan, Search, run as run_plan, search, shrink};
use serde::Serialize;

use crate::cli::SimulateArgs;
use roundel_terminal::Failure;
use roundel_terminal::progress::run_bar;
use roundel_terminal::{Text, write_json};

/// Seeds that are run when nothing is asked for.
const FRESH_SEEDS: u64 = 1000;

/// What the command writes as JSON.
#[derive(Debug, Serialize)]
struct Report {
    /// The first seed.
    seeds_from: Option<u64>,
    /// How many were run.
    ran: u64,
    /// Of those, how many ended with an error that a fault brings about.
    ended_with_errors: u64,
    /// Seconds of one core for each seed.
    seconds_per_seed: f64,
    /// What is broken.
    broken: Vec<BrokenReport>,
}

/// Something that is broken.
#[derive(Debug, Serialize)]
struct BrokenReport {
    seed: u64,
    how: String,
    /// The smallest plan that is broken like it.
    plan: Plan,
    /// The command that runs that plan.
    command: String,
}

impl BrokenReport {
    fn new(plan: &Plan, broken: &Broken) -> Result<Self, Failure> {
        let (plan, broken) = shrink(plan, broken);
        let json = serde_json::to_string(&plan)
            .map_err(|e| Failure::Run(format!("cannot write a plan as JSON: {e}")))?;
        Ok(Self {
            seed: plan.seed,
            how: broken.to_string(),
            command: format!("roundel-lab simulate --plan '{json}'"),
            plan,
        })
    }
}

/// Runs the command.
pub fn run(args: &SimulateArgs) -> Result<(), Failure> {
    let mut text = Text::new(args.json.is_some());
    let (report, first) = match &args.plan {
        Some(plan) => of_plan(plan, &mut text)?,
        None => of_seeds(args, &mut text)?,
    };
    for broken in &report.broken {
        text.line(&format!("seed {}: {}", broken.seed, broken.how))?;
        text.line(&format!(
            "  again: roundel-lab simulate --seeds {0}..{1}",
            broken.seed,
            broken.seed + 1
        ))?;
        text.line(&format!("  smaller: {}", broken.command))?;
    }
    if let Some(path) = &args.json {
        write_json(&report, path)?;
    }
    match first {
        None => Ok(()),
        Some(broken) => {
            let code = match broken {
                Broken::Wrong(_) => 3,
                Broken::NoProgress(_) => 4,
                Broken::Crashed(_) => 5,
            };
            Err(Failure::Told(code, broken.to_string()))
        }
    }
}

/// Seeds that nobody has run: few, or more than there is time for.
fn fresh_seeds(without_end: bool) -> Result<Range<u64>, Failure> {
    let random =
        getrandom::u64().map_err(|error| Failure::Run(format!("no random numbers: {error}")))?;
    let base = random >> 16;
    let count = if without_end { 1 << 40 } else { FRESH_SEEDS };
    Ok(base..base + count)
}

fn of_plan(plan: &Plan, text: &mut Text) -> Result<(Report, Option<Broken>), Failure> {
    let ended = run_plan(plan);
    let (errors, broken) = match ended {
        Ok(ended) => {
            let how = ended
                .error
                .as_ref()
                .map_or("every row came once".to_owned(), |error| {
                    format!("an error, as may be: {error}")
                });
            text.line(&format!(
                "{how}; {:?} of virtual time, trace {:016x}",
                ended.took, ended.trace
            ))?;
            (u64::from(ended.error.is_some()), None)
        }
        Err(broken) => (0, Some(broken)),
    };
    let reports = broken.iter().map(|broken| BrokenReport::new(plan, broken));
    let report = Report {
        seeds_from: None,
        ran: 1,
        ended_with_errors: errors,
        seconds_per_seed: 0.0,
        broken: reports.collect::<Result<_, _>>()?,
    };
    Ok((report, broken))
}

fn of_seeds(args: &SimulateArgs, text: &mut Text) -> Result<(Report, Option<Broken>), Failure> {
    let seeds = match &args.seeds {
        Some(seeds) => seeds.clone(),
        None => fresh_seeds(args.minutes.is_some())?,
    };
    text.line(&format!("seeds from {}", seeds.start))?;
    let wanted = Search {
        time: args
            .minutes
            .map(|minutes| Duration::from_secs_f64(60.0 * minutes)),
        seeds,
    };
    let bar = match wanted.time {
        None => run_bar(wanted.seeds.end - wanted.seeds.start),
        Some(_) => run_bar(0),
    };
    let found = search(&wanted, &|| bar.inc(1));
    bar.finish_and_clear();
    text.line(&format!(
        "{} seeds, {} of which ended with an error as they may, {} broken; {:.1} ms each",
        found.ran,
        found.errors,
        found.broken.len(),
        1e3 * found.seconds_per_seed()
    ))?;
    let reports = found
        .broken
        .iter()
        .map(|(seed, broken)| BrokenReport::new(&Plan::draw(*seed), broken));
    let report = Report {
        seeds_from: Some(wanted.seeds.start),
        ran: found.ran,
        ended_with_errors: found.errors,
        seconds_per_seed: found.seconds_per_seed(),
        broken: reports.collect::<Result<_, _>>()?,
    };
    let first = found.broken.into_iter().next();
    Ok((report, first.map(|(_, broken)| broken)))
}

//! `roundel-lab scorecard`: which claims of a paper hold on simulated hardware.

use std::num::NonZero;

use roundel_experiments::scorecard::{self, Paper, Scorecard, Tally, Test};

use crate::cli::ScorecardArgs;
use crate::progress::experiment_bar;
use roundel_terminal::Failure;
use roundel_terminal::Signals;
use roundel_terminal::{Text, write_json};

/// Runs the command. It fails only where it could not run: claims that do not hold are a result.
pub async fn run(args: &ScorecardArgs) -> Result<(), Failure> {
    let mut signals = Signals::watch()?;
    let bar = experiment_bar();
    let shown = bar.clone();
    let paper = Paper::from(args.paper);
    let rows = args.claims.clone();
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let judging = tokio::task::spawn_blocking(move || {
        scorecard::judge(paper, &rows, threads, &|done, total, next| {
            shown.set_length(total as u64);
            shown.set_position(done as u64);
            shown.set_message(next.to_owned());
        })
    });
    let work = async {
        let judged = judging.await;
        judged.map_err(|error| Failure::Run(format!("internal error: {error}")))
    };
    let judged = signals.or_signal(work).await;
    bar.finish_and_clear();
    let scorecard = judged?;
    tell(&scorecard, &mut Text::new(args.json.is_some()))?;
    match &args.json {
        Some(path) => write_json(&scorecard, path),
        None => Ok(()),
    }
}

fn tell(scorecard: &Scorecard, text: &mut Text) -> Result<(), Failure> {
    for claim in &scorecard.claims {
        let holds = match claim.holds {
            Some(true) => "holds",
            Some(false) => "does not hold",
            None => "not judged",
        };
        let near = match claim.within_25_percent {
            None => "",
            Some(true) => ", numbers within 25 %",
            Some(false) => ", numbers more than 25 % off",
        };
        text.line(&format!(
            "{:6} {} {holds}{near}: {}",
            claim.id, claim.test, claim.paper
        ))?;
        text.line(&format!("         seen: {}", claim.seen))?;
        text.line(&format!("         why: {}", claim.why))?;
    }
    text.line("")?;
    let kinds = [
        (Test::Fully, "that a simulation measures"),
        (Test::Partly, "that depend on costs of hosts besides"),
        (Test::Counted, "that are counted"),
        (Test::Given, "that follow from what was put in"),
    ];
    for (test, kind) in kinds {
        line(text, scorecard.parts(test), &format!("parts {test} {kind}"))?;
    }
    line(text, scorecard.whole(), "whole claims")?;
    let (near, told) = scorecard.within_25_percent();
    if told > 0 {
        text.line(&format!(
            "{near} of {told} parts with numbers have those of the paper within 25 % ({:.0} %)",
            100.0 * near as f64 / told as f64
        ))?;
    }
    Ok(())
}

/// How many of something hold, and how many were not judged.
fn line(text: &mut Text, tally: Tally, what: &str) -> Result<(), Failure> {
    let Tally {
        holding,
        judged,
        all,
    } = tally;
    if all == 0 {
        return Ok(());
    }
    let open = all - judged;
    if judged == 0 {
        return text.line(&format!("{open} {what}: not judged"));
    }
    let share = 100.0 * holding as f64 / judged as f64;
    let open = match open {
        0 => String::new(),
        open => format!("; {open} not judged"),
    };
    text.line(&format!(
        "{holding} of {judged} {what} hold ({share:.0} %){open}"
    ))
}

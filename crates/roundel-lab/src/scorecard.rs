//! `roundel-lab scorecard`: which claims of a paper hold on simulated hardware.

use std::num::NonZero;

use roundel_experiments::scorecard::{self, Ablation, Scorecard, Share, Tally, Test};
use serde::Serialize;

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
    let judging = args.judging();
    if judging.parts() == 0 {
        let told =
            "there is no such claim: see the first column of roundel-lab scorecard, and --only";
        return Err(Failure::Usage(told.into()));
    }
    let ablates = args.ablate;
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let judging = tokio::task::spawn_blocking(move || {
        let said = |done, total, next: &str| {
            shown.set_length(total as u64);
            shown.set_position(done as u64);
            shown.set_message(next.to_owned());
        };
        match ablates {
            true => Judged::Ablated(scorecard::ablate(&judging, threads, &said)),
            false => Judged::Plain(scorecard::judge(&judging, threads, &said)),
        }
    });
    let work = async {
        let judged = judging.await;
        judged.map_err(|error| Failure::Run(format!("internal error: {error}")))
    };
    let judged = signals.or_signal(work).await;
    bar.finish_and_clear();
    let judged = judged?;
    let mut text = Text::new(args.json.is_some());
    match &judged {
        Judged::Plain(scorecard) => tell(scorecard, &mut text)?,
        Judged::Ablated(ablation) => tell_ablation(ablation, &mut text)?,
    }
    match &args.json {
        Some(path) => write_json(&judged, path),
        None => Ok(()),
    }
}

/// What there is to tell.
#[derive(Serialize)]
#[serde(untagged)]
enum Judged {
    Plain(Scorecard),
    Ablated(Ablation),
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
        let seeds = claim.seeds.map_or_else(String::new, |seeds| {
            format!(
                " with {} of {} seeds, deviation {:.1} %",
                seeds.holding, seeds.judged, seeds.deviation_percent
            )
        });
        let held_out = if claim.held_out { ", held out" } else { "" };
        text.line(&format!(
            "{:6} {}{held_out} {holds}{seeds}{near}: {}",
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
    let shares = [Share::HeldOut, Share::Open].map(|share| scorecard.of(share).whole());
    if let [
        held_out @ Tally { all: 1.., .. },
        open @ Tally { all: 1.., .. },
    ] = shares
    {
        line(text, held_out, "whole claims that were held out")?;
        line(text, open, "whole claims that were not")?;
    }
    let (near, told) = scorecard.within_25_percent();
    if told > 0 {
        text.line(&format!(
            "{near} of {told} parts with numbers have those of the paper within 25 % ({:.0} %)",
            100.0 * near as f64 / told as f64
        ))?;
    }
    Ok(())
}

fn tell_ablation(ablation: &Ablation, text: &mut Text) -> Result<(), Failure> {
    line(text, ablation.scorecard.whole(), "whole claims")?;
    for without in &ablation.without {
        let of = |names: &[String]| match names {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        text.line("")?;
        text.line(&format!("without {}", without.mechanism))?;
        line(text, without.scorecard.whole(), "whole claims")?;
        text.line(&format!("  other verdicts: {}", of(&without.decides)))?;
        for name in &without.decides {
            let seen = |scorecard: &Scorecard| {
                let mut all = scorecard.claims.iter();
                let one = all.find(|part| part.id == *name);
                one.map_or_else(String::new, |part| part.seen.clone())
            };
            let (with, left) = (seen(&ablation.scorecard), seen(&without.scorecard));
            text.line(&format!("    {name}: {left}; with it {with}"))?;
        }
        text.line(&format!("  other numbers: {}", of(&without.touches)))?;
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

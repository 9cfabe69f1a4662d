//! The checks of this repository, in three tiers. `cargo xtask check` is what every change must pass and what CI runs;
//! `cargo xtask night` takes hours; `cargo xtask by-hand` measures times, on a machine that does nothing else.
//!
//! A check that is named in a tier runs, or the run fails: nothing is left out for want of time.

mod bounded;
mod checks;
mod places;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use checks::{CHECKS, Check, Tier};

/// What can go wrong: a command that failed, in one line.
type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Minutes that the first tier may take. CI ends it after 90, without a word of what hangs.
const CHECK_MINUTES: u64 = 88;

const HELP: &str = "\
The checks of this repository.

Usage: cargo xtask check | night | by-hand     all checks of a tier, one after the other
       cargo xtask NAME...                     checks by name
       cargo xtask list                        what there is

Builds go to CARGO_TARGET_DIR, results to CI_OUT (target/ci). `.ci/run` chooses a target directory that the
next run on the machine finds, and runs the same checks.";

fn main() -> ExitCode {
    bounded::end_with_parent();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ran = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--help" | "-h" | "help"] | [] => {
            println!("{HELP}");
            return ExitCode::from(if arguments.is_empty() { 2 } else { 0 });
        }
        ["list"] => {
            list();
            Ok(())
        }
        ["check"] => tier(Tier::Check, Some(CHECK_MINUTES)),
        ["night"] => tier(Tier::Night, None),
        ["by-hand"] => tier(Tier::ByHand, None),
        ref names => match named(names) {
            Ok(checks) => run_each(&checks),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::from(2);
            }
        },
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn list() {
    for check in CHECKS {
        let Check { name, minutes, .. } = check;
        println!(
            "{:<9} {name:<16} {minutes:>3} min  {}",
            check.tier.name(),
            check.about
        );
    }
}

/// The checks with these names.
fn named(names: &[&str]) -> Result<Vec<&'static Check>> {
    let found = names.iter().map(|name| {
        let check = CHECKS.iter().find(|check| check.name == *name);
        check.ok_or_else(|| {
            format!("unknown check {name}: cargo xtask list tells what there is").into()
        })
    });
    found.collect()
}

/// Runs checks one after the other, in this process.
fn run_each(checks: &[&Check]) -> Result {
    for check in checks {
        say(&format!("{}: {}", check.name, check.about));
        (check.run)().map_err(|error| format!("{}: {error}", check.name))?;
    }
    Ok(())
}

/// Runs all checks of a tier, each in processes of its own that end with it. In the first tier the first failure ends the
/// run; in the others all are run, and those that failed are told.
fn tier(tier: Tier, minutes_max: Option<u64>) -> Result {
    let began = Instant::now();
    let ends = minutes_max.map(|minutes| began + Duration::from_secs(60 * minutes));
    let mut took = Vec::new();
    let mut failed = Vec::new();
    for check in CHECKS.iter().filter(|check| check.tier == tier) {
        let begun = Instant::now();
        // A machine can be half as fast, and do other things too.
        let mut longest = Duration::from_secs(60 * (3 * check.minutes + 2));
        if let Some(ends) = ends {
            longest = longest.min(ends.saturating_duration_since(begun));
        }
        let ran = bounded::run(check.name, longest);
        took.push(format!(
            "{} {}",
            check.name,
            begun.elapsed().as_secs().div_ceil(60)
        ));
        match ran {
            Ok(()) => {}
            Err(error) if tier == Tier::Check => return Err(error),
            Err(error) => {
                eprintln!("error: {error}");
                failed.push(check.name);
            }
        }
    }
    let minutes = began.elapsed().as_secs() / 60;
    say(&format!(
        "{} checks in {minutes} minutes: {}",
        took.len(),
        took.join(", ")
    ));
    if !failed.is_empty() {
        return Err(format!("failed: {}", failed.join(", ")).into());
    }
    Ok(())
}

fn say(text: &str) {
    println!("\n== {text}");
}

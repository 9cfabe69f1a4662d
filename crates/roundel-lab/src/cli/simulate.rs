//! Flags of `roundel-lab simulate`.

use std::ops::Range;
use std::path::PathBuf;

use clap::Args;
use roundel_simtest::Plan;

const EXAMPLES: &str = "\
Examples:
  roundel-lab simulate                          1000 fresh seeds
  roundel-lab simulate --seeds 0..100000
  roundel-lab simulate --minutes 5              fresh seeds, for so long
  roundel-lab simulate --seeds 4711..4712       a seed again

Exit codes: 0 when no seed is broken, 2 for wrong usage, 3 for a wrong answer, 4 when nothing went on any more,
5 when something panicked.";

/// Flags of `roundel-lab simulate`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SimulateArgs {
    /// Seeds from A up to, and without, B; fresh ones when it is not given.
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub seeds: Option<Range<u64>>,
    /// Runs seeds for so long at most.
    #[arg(long, value_name = "M", value_parser = minutes, allow_negative_numbers = true)]
    pub minutes: Option<f64>,
    /// Run this, as an earlier run has printed it, instead of seeds.
    #[arg(long, value_name = "JSON", value_parser = plan, conflicts_with_all = ["seeds", "minutes"])]
    pub plan: Option<Plan>,
    /// Write the results as JSON to FILE, or to standard output; the text for people then goes to
    /// standard error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let ends = text.split_once("..").and_then(|(from, to)| {
        let ends: (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
        Some(ends)
    });
    match ends {
        Some((from, to)) if from < to => Ok(from..to),
        _ => {
            Err("seeds are A..B, two whole numbers, the first one less than the second".to_owned())
        }
    }
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(minutes) if (0.0..=1e6).contains(&minutes) => Ok(minutes),
        _ => Err("minutes are a number from 0 to a million".to_owned()),
    }
}

fn plan(text: &str) -> Result<Plan, String> {
    let plan: Plan = serde_json::from_str(text).map_err(|error| error.to_string())?;
    plan.check().map(|()| plan)
}

//! The results of several runs as one report.

use std::path::PathBuf;

use roundel_experiments::outcome::Report;
use roundel_experiments::report::{MAX_JSON_BYTES, from_json};

use roundel_terminal::Failure;

/// Reads results and puts them together. Of an experiment that is in several, the last counts; the
/// machine is that of the first, and all commands are named.
pub fn read(files: &[PathBuf]) -> Result<Report, Failure> {
    let mut whole: Option<Report> = None;
    for file in files {
        let wrong = |reason: String| Failure::Run(format!("{}: {reason}", file.display()));
        let length = std::fs::metadata(file)
            .map_err(|error| wrong(error.to_string()))?
            .len();
        if length > MAX_JSON_BYTES as u64 {
            return Err(wrong("it is too long to be results".to_owned()));
        }
        let bytes = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
        let report = from_json(&bytes).map_err(|error| wrong(error.to_string()))?;
        match &mut whole {
            None => whole = Some(report),
            Some(whole) if whole.machine.host != report.machine.host => {
                let (host, other) = (&whole.machine.host, &report.machine.host);
                return Err(wrong(format!(
                    "it is of host {other}, the results before it are of {host}"
                )));
            }
            Some(whole) => add(whole, report),
        }
    }
    whole.ok_or_else(|| Failure::Usage("no file is named".to_owned()))
}

fn add(whole: &mut Report, report: Report) {
    for run in report.runs {
        if !whole.runs.contains(&run) {
            whole.runs.push(run);
        }
    }
    for outcome in report.outcomes {
        let mut outcomes = whole.outcomes.iter_mut();
        match outcomes.find(|known| known.experiment == outcome.experiment) {
            Some(known) => *known = outcome,
            None => whole.outcomes.push(outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::origin;
    use roundel_experiments::outcome::Outcome;

    fn report(outcomes: &[(&str, f64)]) -> Report {
        let outcome = |(name, seconds): &(&str, f64)| Outcome {
            experiment: (*name).to_owned(),
            title: String::new(),
            seconds: *seconds,
            nodes: vec![2],
            threads: vec![1],
            figures: Vec::new(),
        };
        Report {
            machine: origin::machine("shm"),
            runs: vec![origin::run()],
            outcomes: outcomes.iter().map(outcome).collect(),
        }
    }

    #[test]
    fn the_last_run_of_an_experiment_counts() {
        let mut whole = report(&[("a", 1.0), ("b", 2.0)]);
        add(&mut whole, report(&[("b", 3.0), ("c", 4.0)]));
        let got: Vec<_> = whole
            .outcomes
            .iter()
            .map(|one| (one.experiment.as_str(), one.seconds))
            .collect();
        assert_eq!(got, [("a", 1.0), ("b", 3.0), ("c", 4.0)]);
        assert_eq!(whole.runs.len(), 1, "one command");
    }
}

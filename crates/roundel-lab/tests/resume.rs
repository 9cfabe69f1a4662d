//! A sweep that is killed goes on from the points that it has measured, and ends with the same figures.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// Points of the sweep: three paradigms, five protocols, one place.
const POINTS: usize = 15;
/// It is killed when it has so many.
const KILLED_AT: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);

fn sweep(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roundel-lab"));
    command
        .args(["experiment", "run", "protocols-nodes", "--quick"])
        .args(["--runs", "1", "--nodes", "2", "--json", "--plot"])
        .arg(directory);
    command
}

/// Runs it to its end; its figures.
fn figures(directory: &Path) -> Value {
    let output = sweep(directory).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["outcomes"][0]["figures"].clone()
}

/// Points that are there, and when they were written.
fn points(directory: &Path) -> BTreeMap<String, SystemTime> {
    let files = fs::read_dir(directory.join("points"))
        .into_iter()
        .flatten()
        .flatten();
    files
        .map(|file| (file.file_name().into_string().unwrap(), file))
        .filter(|(name, _)| name.ends_with(".json"))
        .map(|(name, file)| (name, file.metadata().unwrap().modified().unwrap()))
        .collect()
}

#[test]
fn a_killed_sweep_goes_on_and_tells_the_same() {
    let (stopped, whole) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut child = sweep(stopped.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while points(stopped.path()).len() < KILLED_AT {
        assert!(began.elapsed() < PATIENCE, "no points come");
        sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let before = points(stopped.path());
    assert!(before.len() < POINTS, "it ended before it was killed");
    let resumed = figures(stopped.path());
    let after = points(stopped.path());
    assert_eq!(after.len(), POINTS);
    for (name, written) in &before {
        assert_eq!(after[name], *written, "{name} was measured again");
    }
    assert_eq!(resumed, figures(whole.path()));
    assert_eq!(resumed, figures(stopped.path()));
    assert_eq!(points(stopped.path()), after, "nothing was left to measure");
}

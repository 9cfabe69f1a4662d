//! Runs single settings of experiments, without the rest of Roundel.
//!
//! ```text
//! roundel-experiment run '{"transport": "MESQ/SR", …}' [RUNS]   one setting, as JSON, any part of it
//! roundel-experiment node                                       a node, as this program starts it
//! roundel-experiment sweep NAME DIR NODES                       a simulated experiment, its points kept in DIR
//! roundel-experiment scorecard protocols [ROW…]                 claims about conversations, as JSON
//! ```

use roundel_experiments::kept::Kept;
use roundel_experiments::scorecard::{self, Paper};
use roundel_experiments::{
    NodeCommand, Options, Setting, default_fabric, node_main, run, run_experiments,
    setting::Transport,
};
use roundel_verbs::DeviceChoice;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["node"] => return node_main(),
        ["run", setting] => run_setting(setting, 1),
        ["run", setting, runs] => runs
            .parse()
            .map_err(Failure::from)
            .and_then(|runs| run_setting(setting, runs)),
        ["sweep", name, directory, nodes] => sweep(name, Path::new(directory), nodes),
        ["scorecard", "protocols", ref rows @ ..] => judge(rows),
        _ => Err("use: roundel-experiment run JSON [RUNS] | sweep NAME DIR NODES | scorecard protocols [ROW…]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the short form of an experiment, and prints its figures as JSON.
fn sweep(name: &str, directory: &Path, nodes: &str) -> Result<(), Failure> {
    let names = [name.to_owned()];
    let options = Options {
        fabric: default_fabric(&names),
        nodes: vec![nodes.parse()?],
        threads: None,
        quick: true,
        runs: 1,
        kept: Kept::in_directory(directory, false)?,
        jobs: std::thread::available_parallelism().map_or(1, NonZero::get),
        node: command()?,
        roundel: PathBuf::new(),
        mpi: false,
    };
    for outcome in run_experiments(&names, &options, &mut |_| ())? {
        let outcome = outcome.map_err(|failed| failed.error)?;
        println!("{}", serde_json::to_string(&outcome.figures)?);
    }
    Ok(())
}

/// Judges claims, all when none are named.
fn judge(rows: &[&str]) -> Result<(), Failure> {
    let rows: Vec<String> = rows.iter().map(ToString::to_string).collect();
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let began = Instant::now();
    let card = scorecard::judge(Paper::Protocols, &rows, threads, &|done, all, next| {
        let seconds = began.elapsed().as_secs();
        eprintln!("{seconds:4} s: {done} of {all}, next {next}");
    });
    println!("{}", serde_json::to_string_pretty(&card)?);
    Ok(())
}

fn command() -> Result<NodeCommand, Failure> {
    Ok(NodeCommand {
        program: std::env::current_exe()?,
        arguments: vec!["node".into()],
    })
}

/// Runs a setting of which only what differs from the base case is given.
fn run_setting(given: &str, runs: usize) -> Result<(), Failure> {
    let base = Setting::new(Transport::Sockets, DeviceChoice::default());
    let mut json = serde_json::to_value(base)?;
    let given: serde_json::Map<String, serde_json::Value> = serde_json::from_str(given)?;
    for (name, value) in given {
        json[name] = value;
    }
    let setting: Setting = serde_json::from_value(json)?;
    for _ in 0..runs {
        let measured = run::run(&setting, &command()?)?;
        println!("{}", serde_json::to_string(&measured)?);
        eprintln!(
            "{}: {:.2} GB/s per node, {:.2} s, {:.2} CPU s",
            setting.transport.name(),
            measured.bytes_per_second / 1e9,
            measured.seconds,
            measured.cpu_seconds
        );
    }
    Ok(())
}

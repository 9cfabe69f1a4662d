//! `roundel doctor`: what this host has for every fabric, whether it works, and what to do about
//! what does not. It changes nothing, but for the rates that it is asked to measure.

mod calibrate;
mod fabrics;
mod facts;
mod findings;
mod host;
mod kernel;
mod print;
mod report;

use crate::cli::DoctorArgs;
use report::Report;
use roundel_terminal::Failure;
use roundel_terminal::{Text, write_json};

/// Runs the command.
pub async fn run(args: &DoctorArgs) -> Result<(), Failure> {
    if args.calibrate {
        return calibrate::run(args).await;
    }
    let report = Report::collect(&args.fabric)?;
    let to_stderr = args.json.is_some();
    let colours = match to_stderr {
        true => roundel_terminal::log::has_colours(&std::io::stderr()),
        false => roundel_terminal::log::has_colours(&std::io::stdout()),
    };
    let text = print::text(&report, colours);
    Text::new(to_stderr).line(text.trim_end())?;
    if let Some(path) = &args.json {
        write_json(&report, path)?;
    }
    report.failure()
}

/// A directory with these files, in place of the root of a host's files.
#[cfg(test)]
fn root_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

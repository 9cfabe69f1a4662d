//! Which help shows what: `--help` has the flags of people with data, `--help-all` those of people who study exchanges, too.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, CommandFactory as _, FromArgMatches as _};
use roundel_terminal::{Failure, failure};

use super::Cli;

/// The heading of flags that only `--help-all` shows. They are hidden where they are defined.
pub const RESEARCH: &str = "Options for those who study exchanges";

const ALL: &str = "--help-all";

/// Commands that have become those of another program.
const MOVED: [&str; 4] = ["advise", "experiment", "perf", "simulate"];

/// Reads the command line.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let words: Vec<_> = words.into_iter().collect();
    let mut command = command(words.iter().any(|word| word == ALL));
    let mut matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// The failure that wrong usage is; help and version print as they are.
pub fn refused(error: &clap::Error) -> Result<Failure, ExitCode> {
    if let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(name))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
        && MOVED.contains(&name.as_str())
    {
        let scorecard = match name.as_str() {
            "experiment" => ", and `roundel experiment scorecard` is `roundel-lab scorecard`",
            _ => "",
        };
        let told = format!("`roundel {name}` is `roundel-lab {name}` now{scorecard}");
        return Ok(Failure::Usage(told));
    }
    failure::usage(error)
}

/// The command line, of which help shows what it shows.
fn command(with_research: bool) -> clap::Command {
    Cli::command().mut_subcommands(|command| {
        let command = command.arg(
            Arg::new("help-all")
                .long("help-all")
                .action(ArgAction::HelpLong)
                .help("Print help with the options for those who study exchanges"),
        );
        command.mut_args(|arg| match arg.get_help_heading() {
            Some(RESEARCH) => arg.hide(!with_research),
            _ => arg,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags that processes of ours give each other.
    const INTERNAL: [&str; 1] = ["lifeline"];

    fn help(words: &[&str]) -> String {
        let words = ["roundel"].iter().chain(words).map(OsString::from);
        let error = parse(words).expect_err("help");
        assert_eq!(error.kind(), ErrorKind::DisplayHelp);
        error.to_string()
    }

    fn told(words: &[&str]) -> String {
        let words = ["roundel"].iter().chain(words).map(OsString::from);
        let error = parse(words).expect_err("wrong usage");
        refused(&error).expect("no help").to_string()
    }

    #[test]
    fn the_first_help_fits_on_a_screen() {
        let help = help(&["--help"]);
        assert!(help.lines().count() <= 24, "{help}");
        let long = help.lines().find(|line| line.chars().count() > 80);
        assert_eq!(long, None);
    }

    #[test]
    fn every_flag_is_in_one_of_the_helps() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let (short, all) = (help(&[name, "--help"]), help(&[name, ALL]));
            for flag in command.get_arguments() {
                let Some(long) = flag.get_long() else {
                    continue;
                };
                let shown = |help: &str| {
                    let mut words = help.split_whitespace();
                    words.any(|word| word.trim_end_matches(['.', ',', ')']) == format!("--{long}"))
                };
                let is_research = flag.get_help_heading() == Some(RESEARCH);
                let is_internal = INTERNAL.contains(&long);
                assert_eq!(shown(&all), !is_internal, "--{long} of {name}\n{all}");
                let is_short = !is_internal && !is_research;
                assert_eq!(shown(&short), is_short, "--{long} of {name}\n{short}");
            }
            assert!(short.contains(ALL), "{short}");
        }
    }

    #[test]
    fn commands_that_have_moved_say_where_they_are() {
        for name in MOVED {
            let told = told(&[name, "--help"]);
            assert!(
                told.starts_with(&format!("`roundel {name}` is `roundel-lab {name}` now")),
                "{told}"
            );
        }
    }

    #[test]
    fn wrong_usage_is_one_line() {
        assert_eq!(
            told(&["tpch", "--scale", "-1"]),
            "invalid value '-1' for '--scale <SCALE>': the scale factor is a number above 0"
        );
        assert_eq!(
            told(&["tpch", "--workers", "0"]),
            "invalid value '0' for '--workers <WORKERS>': 0 is not in 1..=256"
        );
        assert_eq!(
            told(&["tpch", "--compare", "mpi"]),
            "invalid value 'mpi' for '--compare <TRANSPORT>' [possible values: grpc]"
        );
        for wrong in [
            vec!["tpch", "--bogus"],
            vec!["sql", "--cluster", "h:1"],
            vec!["sql", "-c", "x", "-f", "y"],
            vec!["tpch", "--design", "x"],
            vec!["bogus"],
        ] {
            assert_eq!(
                told(&wrong).lines().count(),
                1,
                "{wrong:?}: {}",
                told(&wrong)
            );
        }
    }
}

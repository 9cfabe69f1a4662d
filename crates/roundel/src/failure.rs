//! How the command ends: one line on standard error and an exit code.

use std::any::Any;
use std::io;
use std::process::ExitCode;

use roundel_engine::EngineError;
pub use roundel_engine::one_line;
use roundel_experiments::simulate::Broken;
use roundel_protocols::ProtocolError;
use roundel_protocols::perf::PerfError;
use roundel_verbs::VerbsError;

/// Why the command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The caller asked for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// Something failed on the way, or an answer was wrong.
    #[error("{0}")]
    Run(String),
    /// A simulation is broken.
    #[error("{0}")]
    Broken(Broken),
    /// A signal asked the command to end; holds its number.
    #[error("ended by signal {0}")]
    Signal(i32),
    /// Nobody reads standard output any more, which is how `head` ends its input.
    #[error("standard output is closed")]
    OutputClosed,
}

impl Failure {
    /// Prints the failure, if there is something to say, and gives the exit code.
    pub fn report(&self) -> ExitCode {
        let code = match self {
            Self::Usage(_) => 2,
            Self::Run(_) => 1,
            Self::Broken(Broken::Wrong(_)) => 3,
            Self::Broken(Broken::NoProgress(_)) => 4,
            Self::Broken(Broken::Crashed(_)) => 5,
            // As shells report a process that a signal ended.
            Self::Signal(signal) => 128_u8.saturating_add(u8::try_from(*signal).unwrap_or(0)),
            Self::OutputClosed => return ExitCode::SUCCESS,
        };
        if let Self::Usage(message) | Self::Run(message) = self {
            say(message);
        }
        if let Self::Broken(broken) = self {
            say(&broken.to_string());
        }
        ExitCode::from(code)
    }

    /// What a panic said; `-vv` shows where it was.
    pub fn panicked(payload: &(dyn Any + Send)) -> Self {
        let said = payload.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| payload.downcast_ref::<&str>().copied());
        let said = one_line(said.unwrap_or("no reason given"));
        Self::Run(format!("internal error: {said}; run with -vv to see where"))
    }

    /// A failed write to standard output.
    pub fn output(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::OutputClosed;
        }
        Self::Run(format!("cannot write to standard output: {error}"))
    }
}

/// Says on standard error what failed, in one line.
pub fn say(message: &str) {
    eprintln!("{}", one_line(&format!("error: {message}")));
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let message = one_line(&error.to_string());
        if error.is_usage() {
            Self::Usage(message)
        } else {
            Self::Run(message)
        }
    }
}

impl From<PerfError> for Failure {
    fn from(error: PerfError) -> Self {
        let message = one_line(&error.to_string());
        if error.is_usage() {
            Self::Usage(message)
        } else {
            Self::Run(message)
        }
    }
}

impl From<ProtocolError> for Failure {
    fn from(error: ProtocolError) -> Self {
        let message = one_line(&error.to_string());
        match error {
            ProtocolError::Unsupported(_) => Self::Usage(message),
            _ => Self::Run(message),
        }
    }
}

impl From<VerbsError> for Failure {
    fn from(error: VerbsError) -> Self {
        Self::Run(one_line(&error.to_string()))
    }
}

impl From<datafusion::error::DataFusionError> for Failure {
    fn from(error: datafusion::error::DataFusionError) -> Self {
        EngineError::from(error).into()
    }
}

/// Turns what clap says about wrong usage into one line; help and version print as they are.
pub fn usage(error: &clap::Error) -> Result<Failure, ExitCode> {
    use clap::error::ErrorKind::*;
    if matches!(
        error.kind(),
        DisplayHelp | DisplayVersion | DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        let _ = error.print();
        return Err(ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)));
    }
    let text = error.render().to_string();
    let told = text.split("\nUsage:").next().unwrap_or_default();
    let told = told
        .split("\nFor more information")
        .next()
        .unwrap_or_default();
    let told = one_line(told);
    Ok(Failure::Usage(
        told.strip_prefix("error: ").unwrap_or(&told).to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser as _;

    fn told(arguments: &[&str]) -> String {
        let arguments = ["roundel"].iter().chain(arguments);
        usage(&Cli::try_parse_from(arguments).unwrap_err())
            .unwrap()
            .to_string()
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

    #[test]
    fn a_closed_output_is_no_error() {
        let closed = Failure::output(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(matches!(closed, Failure::OutputClosed));
        assert!(matches!(
            Failure::output(io::Error::other("full")),
            Failure::Run(_)
        ));
    }
}

//! How a program ends: one line on standard error and an exit code.

use std::any::Any;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use roundel_verbs::{Blame, one_line};

/// Why the command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The caller asked for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// Something failed on the way, or an answer was wrong.
    #[error("{0}")]
    Run(String),
    /// What has an exit code of its own.
    #[error("{1}")]
    Told(u8, String),
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
            Self::Told(code, _) => *code,
            // As shells report a process that a signal ended.
            Self::Signal(signal) => 128_u8.saturating_add(u8::try_from(*signal).unwrap_or(0)),
            Self::OutputClosed => return ExitCode::SUCCESS,
        };
        if let Self::Usage(message) | Self::Run(message) | Self::Told(_, message) = self {
            say(message);
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

/// Does the work of a command. A panic in it is an error, and unwinding drops what would end its processes.
pub fn caught(work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    done.unwrap_or_else(|payload| Err(Failure::panicked(payload.as_ref())))
}

/// Says on standard error what failed, in one line.
pub fn say(message: &str) {
    eprintln!("{}", one_line(&format!("error: {message}")));
}

impl<E: Blame> From<E> for Failure {
    fn from(error: E) -> Self {
        let message = one_line(&error.to_string());
        match error.is_usage() {
            true => Self::Usage(message),
            false => Self::Run(message),
        }
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

//! What a program says on standard error beside its results.

use std::backtrace::Backtrace;
use std::io::IsTerminal;
use std::panic;

use tracing_subscriber::EnvFilter;

/// Begins the log of these crates, which says more with each `-v`. RUST_LOG overrides it.
pub fn start(verbose: u8, crates: &[&str]) {
    let (others, level) = match verbose {
        0 => ("warn", "warn"),
        1 => ("warn", "info"),
        _ => ("info", "debug"),
    };
    let of_crates: Vec<_> = crates.iter().map(|one| format!("{one}={level}")).collect();
    let default = format!("{others},{}", of_crates.join(","));
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(has_colours(&std::io::stderr()))
        .init();
    // A panic becomes one line, or its task's error; where it came from is for debugging.
    panic::set_hook(Box::new(|info| {
        tracing::debug!("{info}\n{}", Backtrace::force_capture());
    }));
}

/// Whether what is written there may have colours: it is a terminal, and nobody said no.
pub fn has_colours(stream: &impl IsTerminal) -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stream.is_terminal() && !no_color
}

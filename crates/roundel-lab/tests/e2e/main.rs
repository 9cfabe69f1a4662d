//! End-to-end tests: the real command with real processes.

mod common;
mod experiment;
mod perf;
mod protocols;
mod scorecard;
mod simulate;

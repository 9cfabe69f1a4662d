//! End-to-end tests: the real command with real worker processes.

mod bad_input;
mod common;
mod doctor;
mod experiment;
mod fabrics;
mod faults;
mod numa;
mod perf;
mod pinned;
mod protocols;
mod ring;
mod settings;
mod simulate;
mod sql;
mod tpch;

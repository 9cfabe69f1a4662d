//! End-to-end tests: the real command with real worker processes.

mod bad_input;
mod common;
mod doctor;
mod fabrics;
mod faults;
mod numa;
mod pinned;
mod ring;
mod settings;
mod sql;
mod tpch;

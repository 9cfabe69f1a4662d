//! The program.

pub use roundel_testbed::program::{
    PATIENCE, Program, eventually, fails, finish, is_alive, signal, stderr, stdout, until_busy,
    workers_of,
};

/// `roundel-lab`, with a temporary directory of its own.
pub fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_roundel-lab"))
}

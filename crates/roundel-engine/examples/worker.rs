//! A worker process and nothing else: what this crate's end-to-end tests start.
//!
//! The arguments are those with which [`roundel_engine::Cluster::start`] starts any worker.

use roundel_engine::{Result, Token, WorkerOptions, run_worker};

fn main() -> Result<()> {
    let value = |flag: &str| {
        let prefix = format!("--{flag}=");
        std::env::args().find_map(|argument| argument.strip_prefix(&prefix).map(str::to_owned))
    };
    let number = |flag: &str| value(flag).and_then(|text| text.parse().ok());
    let threads = number("threads").unwrap_or(1) as usize;
    let options = WorkerOptions {
        listen: value("listen")
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| ([127, 0, 0, 1], 0).into()),
        threads,
        token: match value("token-file") {
            Some(path) => Token::from_file(path.as_ref())?,
            None => Token::from_lifeline()?,
        },
        fabric: value("fabric")
            .unwrap_or_else(|| "grpc".to_owned())
            .parse()?,
        schedule: value("schedule")
            .and_then(|text| text.parse().ok())
            .unwrap_or_default(),
        on_loss: value("on-loss")
            .and_then(|text| text.parse().ok())
            .unwrap_or_default(),
        registered_memory_bytes: number("registered-memory").unwrap_or(256 << 20),
        memory_limit_bytes: number("memory-limit"),
        lifeline: std::env::args().any(|argument| argument == "--lifeline"),
    };
    roundel_engine::runtime(Some(threads))
        .expect("a runtime")
        .block_on(run_worker(options))
}

//! The command line with which a cluster starts its workers, as it is written and as it is read.
//!
//! The `roundel` program reads it too, with flags for people beside these.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use roundel_exchange::{OnLoss, Scheduling};

use crate::{ClusterOptions, EngineError, Extensions, FabricChoice, Result, Token, WorkerOptions};

/// The first argument.
const WORKER: &str = "worker";
/// Quota of registered memory of a worker that is not told one, in bytes.
const REGISTERED_BYTES: u64 = 256 << 20;

/// The arguments of a worker of this cluster, after the program's name. The token comes on standard input.
pub(super) fn written(options: &ClusterOptions) -> Vec<String> {
    let mut arguments = vec![
        WORKER.to_owned(),
        "--lifeline".to_owned(),
        "--listen=127.0.0.1:0".to_owned(),
        format!("--threads={}", options.threads),
        format!("--fabric={}", options.fabric),
        format!("--on-loss={}", options.on_loss),
        format!("--schedule={}", options.schedule),
        format!("--registered-memory={}", options.registered_memory_bytes),
    ];
    if let Some(limit) = options.memory_limit_bytes {
        arguments.push(format!("--memory-limit={limit}"));
    }
    arguments
}

impl WorkerOptions {
    /// The options of a worker whose program was started with these arguments, after the program's name, by
    /// [`crate::Cluster::start`] or by a person; `None` if they are not those of a worker. The token is read from the file
    /// `--token-file=…`, or is the first line of standard input.
    ///
    /// So a program is its own [`ClusterOptions::worker_program`]:
    ///
    /// ```no_run
    /// # use roundel_engine::{Extensions, Result, WorkerOptions, run_worker, runtime};
    /// # fn main() -> Result<()> {
    /// let extensions = Extensions::default();
    /// if let Some(worker) = WorkerOptions::from_arguments(std::env::args().skip(1), extensions)? {
    ///     let runtime = runtime(Some(worker.threads)).expect("threads");
    ///     return runtime.block_on(run_worker(worker));
    /// }
    /// // What the program does otherwise: start a cluster.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When an argument is not known, has no such value, or there is no token.
    pub fn from_arguments(
        arguments: impl IntoIterator<Item = String>,
        extensions: Extensions,
    ) -> Result<Option<Self>> {
        let mut arguments = arguments.into_iter();
        if arguments.next().as_deref() != Some(WORKER) {
            return Ok(None);
        }
        let mut listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut threads = 1;
        let mut fabric = FabricChoice::default();
        let mut on_loss = OnLoss::default();
        let mut schedule = Scheduling::default();
        let mut registered_memory_bytes = REGISTERED_BYTES;
        let (mut memory_limit_bytes, mut token_file, mut lifeline) = (None, None, false);
        for argument in arguments {
            let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
            match name {
                "--lifeline" if value.is_empty() => lifeline = true,
                "--listen" => listen = read(name, value)?,
                "--threads" => threads = read(name, value)?,
                "--fabric" => fabric = read(name, value)?,
                "--on-loss" => on_loss = read(name, value)?,
                "--schedule" => schedule = read(name, value)?,
                "--registered-memory" => registered_memory_bytes = read(name, value)?,
                "--memory-limit" => memory_limit_bytes = Some(read(name, value)?),
                "--token-file" => token_file = Some(PathBuf::from(value)),
                _ => {
                    let why = format!("{argument}: a worker has no such argument");
                    return Err(EngineError::Usage(why));
                }
            }
        }
        Ok(Some(Self {
            listen,
            threads,
            token: match token_file {
                Some(file) => Token::from_file(&file)?,
                None => Token::from_lifeline()?,
            },
            fabric,
            on_loss,
            schedule,
            registered_memory_bytes,
            memory_limit_bytes,
            extensions,
            lifeline,
        }))
    }
}

fn read<T: FromStr<Err: Display>>(name: &str, value: &str) -> Result<T> {
    let read = value.parse();
    read.map_err(|why| EngineError::Usage(format!("{name}={value}: {why}")))
}

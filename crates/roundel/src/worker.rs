//! `roundel worker`: serves as one worker of a cluster, until it is told to end.

use std::io::BufRead;

use roundel_engine::{Token, WorkerOptions};

use crate::cli::WorkerArgs;
use crate::failure::Failure;

/// Serves.
pub async fn run(args: &WorkerArgs) -> Result<(), Failure> {
    let token = match &args.token_file {
        Some(file) => Token::from_file(file)?,
        None if args.lifeline => token_from_stdin()?,
        None => {
            let message = "a worker that is started by hand needs --token-file".to_owned();
            return Err(Failure::Usage(message));
        }
    };
    let options = WorkerOptions {
        listen: args.listen,
        threads: usize::from(args.node.threads),
        token,
        fabric: args.node.fabric,
        design: args.node.design.clone(),
        registered_memory_bytes: args.node.registered_memory,
        memory_limit_bytes: args.node.memory_limit,
        lifeline: args.lifeline,
    };
    Ok(roundel_engine::run_worker(options).await?)
}

/// A token on the command line could be read by every user of the host.
fn token_from_stdin() -> Result<Token, Failure> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|e| Failure::Run(format!("cannot read the token from standard input: {e}")))?;
    Ok(line.trim().parse()?)
}

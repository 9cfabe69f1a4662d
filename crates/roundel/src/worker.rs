//! `roundel worker`: serves as one worker of a cluster, until it is told to end.

use roundel_engine::{Extensions, Token, WorkerOptions};

use crate::cli::WorkerArgs;
use roundel_terminal::Failure;

/// Runs a worker as `args` say, until it is told to end.
pub async fn run(args: &WorkerArgs) -> Result<(), Failure> {
    let token = match &args.token_file {
        Some(file) => Token::from_file(file)?,
        // On the command line every user of the host could read it.
        None if args.lifeline => Token::from_lifeline()?,
        None => {
            let message = "a worker that is started by hand needs --token-file".to_owned();
            return Err(Failure::Usage(message));
        }
    };
    let options = WorkerOptions {
        listen: args.listen,
        threads: usize::from(args.node.threads),
        token,
        fabric: args.node.fabric.clone(),
        on_loss: args.node.on_loss,
        schedule: args.node.schedule,
        registered_memory_bytes: args.node.registered_memory,
        memory_limit_bytes: args.node.memory_limit,
        extensions: Extensions::default(),
        lifeline: args.lifeline,
    };
    Ok(roundel_engine::run_worker(options).await?)
}

//! A cluster for the length of one command: started or joined, and stopped whatever happens.

use roundel_engine::{Cluster, ClusterOptions, Extensions, Token};

use crate::cli::ClusterArgs;
use roundel_terminal::Failure;
use roundel_terminal::Signals;

/// What the flags ask for.
pub fn options(args: &ClusterArgs) -> Result<ClusterOptions, Failure> {
    let worker_program = std::env::current_exe()
        .map_err(|e| Failure::Run(format!("cannot find this program to start workers: {e}")))?;
    Ok(ClusterOptions {
        workers: usize::from(args.workers),
        threads: usize::from(args.node.threads),
        fabric: args.node.fabric.clone(),
        exchange: args.exchange.exchange,
        design: args.exchange.design,
        endpoints: args.exchange.endpoints.map(usize::from),
        buffers: args.exchange.buffers,
        skew: args.exchange.skew,
        on_loss: args.node.on_loss,
        schedule: args.node.schedule,
        registered_memory_bytes: args.node.registered_memory,
        memory_limit_bytes: args.node.memory_limit,
        extensions: Extensions::default(),
        worker_program,
    })
}

/// Joins the workers that `--cluster` names, or starts some on this machine.
pub async fn join_or_start(args: &ClusterArgs, signals: &mut Signals) -> Result<Cluster, Failure> {
    let options = options(args)?;
    let work = async {
        Ok(match &args.token_file {
            Some(file) => {
                Cluster::connect(args.cluster.clone(), Token::from_file(file)?, options).await?
            }
            None => Cluster::start(options).await?,
        })
    };
    signals.or_signal(work).await
}

/// Stops the cluster after its work, and says how the work went. A second signal ends the waiting:
/// workers also end by themselves when this process does.
pub async fn stop(
    cluster: Cluster,
    signals: &mut Signals,
    work: Result<(), Failure>,
) -> Result<(), Failure> {
    let stopped = signals.or_signal(async { Ok(cluster.stop().await?) }).await;
    work.and(stopped)
}

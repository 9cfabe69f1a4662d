//! An application with functions and an operator of its own, and with a cluster whose workers have them too.
//!
//! ```sh
//! cargo run --release --example extended -- 'SELECT id, triple(id) FROM numbers ORDER BY id LIMIT 3'
//! ```
//!
//! It starts two workers, which are this program again, and prints the rows as they come.

mod additions;

use futures::TryStreamExt as _;
use roundel_engine::{
    Architecture, BuffersChoice, Cluster, ClusterOptions, DesignChoice, EngineError, FabricChoice,
    OnLoss, Result, Scheduling, Skew, WorkerOptions, run_worker, runtime,
};

fn main() -> Result<()> {
    let arguments = std::env::args().skip(1);
    if let Some(worker) = WorkerOptions::from_arguments(arguments, additions::extensions())? {
        let runtime = runtime(Some(worker.threads)).expect("a runtime");
        return runtime.block_on(run_worker(worker));
    }
    let statement = std::env::args().nth(1);
    let statement =
        statement.ok_or_else(|| EngineError::Usage("usage: extended STATEMENT".to_owned()))?;
    runtime(None).expect("a runtime").block_on(async {
        let cluster = Cluster::start(options()).await?;
        let ran = query(&cluster, &statement).await;
        cluster.stop().await?;
        ran
    })
}

async fn query(cluster: &Cluster, statement: &str) -> Result<()> {
    let session = cluster.session()?;
    additions::register_numbers(session.context())?;
    let mut batches = session.sql(statement).await?;
    while let Some(batch) = batches.try_next().await? {
        println!(
            "{}",
            arrow::util::pretty::pretty_format_batches(&[batch]).expect("rows")
        );
    }
    Ok(())
}

fn options() -> ClusterOptions {
    ClusterOptions {
        workers: 2,
        threads: 1,
        fabric: FabricChoice::Auto,
        exchange: Architecture::default(),
        design: DesignChoice::default(),
        endpoints: None,
        buffers: BuffersChoice::default(),
        skew: Skew::default(),
        on_loss: OnLoss::default(),
        schedule: Scheduling::default(),
        registered_memory_bytes: 256 << 20,
        memory_limit_bytes: None,
        extensions: additions::extensions(),
        worker_program: std::env::current_exe().expect("this program has a path"),
    }
}

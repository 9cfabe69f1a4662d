//! A worker process and nothing else: what this crate's end-to-end tests start.

use roundel_engine::{EngineError, Extensions, Result, WorkerOptions, run_worker, runtime};

fn main() -> Result<()> {
    let arguments = std::env::args().skip(1);
    let options = WorkerOptions::from_arguments(arguments, Extensions::default())?;
    let options = options.ok_or_else(|| EngineError::Usage("usage: worker worker …".to_owned()))?;
    let runtime = runtime(Some(options.threads)).expect("a runtime");
    runtime.block_on(run_worker(options))
}

//! What the end-to-end tests share: a cluster of real worker processes, and rows to compare.

use std::path::PathBuf;

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::TryStreamExt as _;
use roundel_engine::{
    Architecture, BuffersChoice, ClusterOptions, DesignChoice, DeviceChoice, Extensions, OnLoss,
    Result, Scheduling, Session, Skew,
};

/// The worker program that cargo builds next to the tests.
pub fn worker_program() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let profile = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    profile.join("examples/worker")
}

pub fn options(workers: usize) -> ClusterOptions {
    ClusterOptions {
        exchange: Architecture::default(),
        workers,
        threads: 1,
        fabric: DeviceChoice::Shm.into(),
        on_loss: OnLoss::default(),
        schedule: Scheduling::default(),
        design: DesignChoice::default(),
        endpoints: None,
        buffers: BuffersChoice::default(),
        skew: Skew::default(),
        registered_memory_bytes: 256 << 20,
        memory_limit_bytes: None,
        extensions: Extensions::default(),
        worker_program: worker_program(),
    }
}

/// Runs a statement to its end.
pub async fn run(session: &Session, sql: &str) -> Result<Vec<RecordBatch>> {
    Ok(session.sql(sql).await?.try_collect().await?)
}

/// All rows as text, sorted: equal exactly for equal multisets of rows.
pub fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = rows_in_order(batches);
    rows.sort_unstable();
    rows
}

/// All rows as text, in their order.
pub fn rows_in_order(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).expect("a printable type"))
            .collect();
        for row in 0..batch.num_rows() {
            let values: Vec<_> = columns.iter().map(|c| c.value(row).to_string()).collect();
            rows.push(values.join("|"));
        }
    }
    rows
}

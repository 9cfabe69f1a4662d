//! What the tests share: workers, which are processes of the example `localhost`, and rows to compare.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::error::DataFusionError;
use datafusion_distributed::WorkerResolver;
use url::Url;

/// Workers that are known from the start.
pub struct Known(pub Vec<Url>);

impl WorkerResolver for Known {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.clone())
    }
}

/// A process that serves as a worker.
pub struct Worker {
    process: Child,
    pub url: Url,
}

impl Worker {
    pub fn start() -> Self {
        // `cargo test` builds examples too, beside the directory of this binary.
        let mut program = std::env::current_exe().expect("a path");
        program.pop();
        program.pop();
        program.extend(["examples", "localhost"]);
        let mut process = Command::new(&program)
            .args(["worker", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                let program = program.display();
                panic!("{program}: {error}; build it with: cargo build --release --examples")
            });
        let mut line = String::new();
        let stdout = process.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on ");
        let url = format!("http://{}", address.expect("an address"));
        Self {
            process,
            url: url.parse().expect("a URL"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Rows as text, sorted.
pub fn sorted(batches: &[RecordBatch]) -> Vec<String> {
    let text = pretty_format_batches(batches).expect("text").to_string();
    let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
    rows.sort_unstable();
    rows
}

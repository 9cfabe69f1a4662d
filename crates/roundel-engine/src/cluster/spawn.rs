//! Starts worker processes on this host and ends them.
//!
//! A worker gets the token as the first line of its standard input, which then stays open as its
//! lifeline: it ends when this process does, however that comes about.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use url::Url;

use super::arguments;
use crate::protocol::LISTENING;
use crate::{ClusterOptions, EngineError, Result, Token};

/// Longest wait for a worker to serve.
const START_MAX: Duration = Duration::from_secs(30);
/// Longest wait for a worker to end by itself.
const END_MAX: Duration = Duration::from_secs(3);

/// A worker process that this process started.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    child: Child,
    lifeline: ChildStdin,
    pub(super) url: Url,
    pub(super) pid: u32,
}

impl WorkerProcess {
    /// Starts worker `index` and waits until it serves.
    pub(super) async fn start(
        index: usize,
        options: &ClusterOptions,
        token: &Token,
    ) -> Result<Self> {
        let failed = |reason: String| EngineError::WorkerStart { index, reason };
        let mut child = Command::new(&options.worker_program)
            .args(arguments::written(options))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Its own group: Ctrl-C in the terminal is for the coordinator to act on.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| {
                failed(format!(
                    "cannot run {}: {e}",
                    options.worker_program.display()
                ))
            })?;
        let mut lifeline = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let pid = child.id().expect("not yet waited for");

        let greet = async {
            let line = format!("{}\n", token.to_hex());
            // If the worker is gone already, its exit status below says more.
            let _ = lifeline.write_all(line.as_bytes()).await;
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(address) = line.strip_prefix(LISTENING) {
                    return Some((address.trim().to_owned(), lines));
                }
            }
            None
        };
        let greeted = tokio::time::timeout(START_MAX, greet)
            .await
            .map_err(|_| failed(format!("it did not serve within {START_MAX:?}")))?;
        let Some((address, lines)) = greeted else {
            return Err(failed(
                match tokio::time::timeout(END_MAX, child.wait()).await {
                    Ok(Ok(status)) => format!("it ended with {status} before it served"),
                    Ok(Err(error)) => format!("it ended before it served: {error}"),
                    Err(_) => "it closed its output before it served, and does not end".to_owned(),
                },
            ));
        };
        let url = Url::parse(&format!("http://{address}"))
            .map_err(|e| failed(format!("it said that it listens on {address:?}: {e}")))?;
        tokio::spawn(drain(lines));
        Ok(Self {
            child,
            lifeline,
            url,
            pid,
        })
    }

    /// Cuts the lifeline and waits until the worker is gone.
    pub(super) async fn end(mut self) -> Result<()> {
        drop(self.lifeline);
        let ended = match tokio::time::timeout(END_MAX, self.child.wait()).await {
            Ok(ended) => ended.map(drop),
            Err(_) => self.child.kill().await,
        };
        ended.map_err(|e| EngineError::io(format!("end worker {}", self.url), e))
    }
}

/// Reads what a worker prints, so that it never blocks on a full pipe.
async fn drain(mut lines: Lines<BufReader<ChildStdout>>) {
    while let Ok(Some(_)) = lines.next_line().await {}
}

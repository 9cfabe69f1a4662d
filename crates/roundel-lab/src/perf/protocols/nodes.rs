//! The other nodes, where they are processes that this one started: they end with it, however that ends.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use roundel_verbs::DeviceChoice;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

use crate::perf::other_end::listen_to;
use roundel_terminal::Failure;

/// Longest wait for a node to end by itself, and for what it says last.
const END_MAX: Duration = Duration::from_secs(3);

/// Processes that were started.
pub struct Nodes(Vec<Node>);

struct Node {
    child: Child,
    lifeline: ChildStdin,
    said: JoinHandle<()>,
    /// The error that it ended with, if it said so.
    error: Arc<Mutex<Option<String>>>,
}

impl Nodes {
    /// Starts all nodes but the first, which listens at this address.
    pub async fn start(
        choice: &DeviceChoice,
        address: SocketAddr,
        count: usize,
        token: &str,
    ) -> Result<Self, Failure> {
        let mut nodes = Self(Vec::new());
        for number in 1..count {
            let node = Node::start(choice, address, number, count, token).await;
            let failed =
                |e: std::io::Error| Failure::Run(format!("cannot start node {number}: {e}"));
            nodes.0.push(node.map_err(failed)?);
        }
        Ok(nodes)
    }

    /// Ready when a node has ended before it was told to.
    pub async fn failed_early(&mut self) -> Failure {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let number = {
            let waits = self.0.iter_mut().enumerate();
            let waits =
                waits.map(|(number, node)| async move { (number, node.child.wait().await) });
            let mut waits: FuturesUnordered<_> = waits.collect();
            loop {
                match waits.next().await {
                    // It has done its part, and this process is about to be done with its own.
                    Some((_, Ok(status))) if status.success() => {}
                    Some((number, _)) => break number,
                    None => return std::future::pending().await,
                }
            }
        };
        // What the group notices, or what the node itself says, comes with it.
        let node = &mut self.0[number];
        let _ = tokio::time::timeout(END_MAX, &mut node.said).await;
        let told = node.told().unwrap_or_else(|| "it ended".into());
        Failure::Run(format!("node {}: {told}", number + 1))
    }

    /// Cuts the lifelines and waits until all are gone.
    pub async fn end<T>(self, done: Result<T, Failure>) -> Result<T, Failure> {
        for node in self.0 {
            let Node {
                mut child,
                lifeline,
                ..
            } = node;
            drop(lifeline);
            // One that does not end is killed when it is dropped.
            let _ = tokio::time::timeout(END_MAX, child.wait()).await;
        }
        done
    }
}

impl Node {
    async fn start(
        choice: &DeviceChoice,
        address: SocketAddr,
        number: usize,
        count: usize,
        token: &str,
    ) -> std::io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["perf", "protocols", "--lifeline"])
            .arg(format!("--connect={address}"))
            .arg(format!("--node={number}"))
            .arg(format!("--of={count}"))
            .arg(format!("--fabric={choice}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Its own group: Ctrl-C in the terminal is for this process to act on.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let mut lifeline = child.stdin.take().expect("stdin is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        lifeline.write_all(format!("{token}\n").as_bytes()).await?;
        let error = Arc::default();
        let said = tokio::spawn(listen_to(stderr, Arc::clone(&error)));
        Ok(Self {
            child,
            lifeline,
            said,
            error,
        })
    }

    fn told(&self) -> Option<String> {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.take()
    }
}

//! The coordinator's handle on its workers.

use crate::{ClusterOptions, Result, Session, Token};

/// A cluster's workers, as the coordinator sees them.
#[derive(Debug)]
pub struct Cluster {}

/// One worker, as the coordinator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    /// The worker's URL.
    pub url: String,
    /// Its process id, when this coordinator started it.
    pub pid: Option<u32>,
    /// Whether it answers.
    pub alive: bool,
}

impl Cluster {
    /// Starts worker processes on this host, on loopback, and waits until they serve.
    pub async fn start(_options: ClusterOptions) -> Result<Self> {
        unimplemented!()
    }

    /// Joins workers that were started by hand, given as `host:port`.
    pub async fn connect(
        _workers: Vec<String>,
        _token: Token,
        _options: ClusterOptions,
    ) -> Result<Self> {
        unimplemented!()
    }

    /// A new SQL session over the cluster, with its own tables and settings.
    pub fn session(&self) -> Result<Session> {
        unimplemented!()
    }

    /// The workers, in the order in which they were started or named.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        unimplemented!()
    }

    /// Ends the workers that were started here, and waits until they are gone.
    pub async fn stop(self) -> Result<()> {
        unimplemented!()
    }
}

//! Which fabric the coordinator's queries take: one that joins all workers, and has not failed again and again.

use std::fmt;

use parking_lot::Mutex;
use roundel_datafusion::engine::Devices;
use url::Url;

use crate::host::host_id;
use crate::protocol::control::Beat;
use crate::{EngineError, Fabric, FabricChoice, Result};

/// Runs in a row that may fail on a fabric before new queries take the next one.
const FAILURES_MAX: usize = 4;

/// Which fabric carries a query, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricReason {
    /// The fabric that was chosen.
    pub fabric: Fabric,
    /// Why it was chosen: a text for people.
    pub why: String,
}

impl fmt::Display for FabricReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.fabric, self.why)
    }
}

/// Chooses, and remembers what failed.
#[derive(Debug)]
pub(crate) struct FabricChooser {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The one in use first, then those that follow should it fail.
    usable: Vec<FabricReason>,
    /// Runs that failed on the one in use since the last that succeeded.
    failures: usize,
}

impl FabricChooser {
    /// Chooses among what all workers have.
    ///
    /// # Errors
    /// When the fabric asked for does not join them, with the reason.
    pub(crate) fn new(
        choice: &FabricChoice,
        own: &Devices,
        workers: &[(Url, Beat)],
    ) -> Result<Self> {
        let mut usable = Vec::new();
        let mut rejected = Vec::new();
        let candidates = match choice.fabric() {
            Some(fabric) => vec![fabric],
            None => Fabric::ALL.to_vec(),
        };
        for fabric in candidates {
            match joins(fabric, own, workers) {
                Ok(why) => {
                    let why = match choice.fabric() {
                        Some(_) => "asked for".to_owned(),
                        None => [vec![why], rejected.clone()].concat().join("; "),
                    };
                    usable.push(FabricReason { fabric, why });
                }
                Err(why) => rejected.push(format!("no {fabric}, because {why}")),
            }
        }
        let Some(first) = usable.first() else {
            return Err(EngineError::NoFabric(rejected.join("; ")));
        };
        tracing::info!(fabric = %first.fabric, why = first.why, "rows travel over");
        Ok(Self {
            state: Mutex::new(State {
                usable,
                failures: 0,
            }),
        })
    }

    /// What new queries take.
    pub(crate) fn current(&self) -> FabricReason {
        self.state.lock().usable[0].clone()
    }

    /// A run over a fabric came to its end.
    pub(crate) fn succeeded(&self, fabric: Fabric) {
        let mut state = self.state.lock();
        if state.usable[0].fabric == fabric {
            state.failures = 0;
        }
    }

    /// A connection of a fabric broke in a run, and no worker was lost.
    pub(crate) fn failed(&self, fabric: Fabric, error: &EngineError) {
        let mut state = self.state.lock();
        if state.usable[0].fabric != fabric {
            return;
        }
        state.failures += 1;
        if state.failures < FAILURES_MAX || state.usable.len() == 1 {
            return;
        }
        state.usable.remove(0);
        let failures = std::mem::take(&mut state.failures);
        let next = &mut state.usable[0];
        next.why = format!("{fabric} failed {failures} times in a row, last: {error}");
        tracing::warn!(from = %fabric, to = %next.fabric, failures, %error, "new queries take another fabric");
    }
}

/// Whether a fabric joins this process and all workers, and how; or why not.
fn joins(fabric: Fabric, own: &Devices, workers: &[(Url, Beat)]) -> Result<String, String> {
    if let Some(why) = own.lacks(fabric) {
        return Err(format!("this process has none: {why}"));
    }
    if fabric == Fabric::Grpc {
        return Ok("it reaches every worker".to_owned());
    }
    for (url, beat) in workers {
        let offer = beat
            .fabrics
            .iter()
            .find(|offer| offer.fabric == fabric.name())
            .ok_or_else(|| format!("worker {url} does not know it"))?;
        if !offer.lacks.is_empty() {
            return Err(format!("worker {url} has none: {}", offer.lacks));
        }
        if fabric == Fabric::Shm && beat.host != host_id() {
            return Err(format!("worker {url} runs on another host"));
        }
        if matches!(fabric, Fabric::Rdma | Fabric::Tcp) {
            own.reaches(fabric, offer.address())
                .map_err(|why| format!("worker {url} is out of reach: {why}"))?;
        }
    }
    Ok(match fabric {
        Fabric::Shm => "all workers run on this host".to_owned(),
        _ => "every worker has a device that can be reached".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(fabric: Fabric) -> FabricReason {
        FabricReason {
            fabric,
            why: "of a test".to_owned(),
        }
    }

    fn broken() -> EngineError {
        EngineError::LinkBroken("a to b".to_owned())
    }

    #[test]
    fn repeated_failures_take_the_next_fabric() {
        let chooser = FabricChooser {
            state: Mutex::new(State {
                usable: vec![reason(Fabric::Rdma), reason(Fabric::Grpc)],
                failures: 0,
            }),
        };
        for _ in 0..3 {
            for _ in 0..FAILURES_MAX - 1 {
                chooser.failed(Fabric::Rdma, &broken());
            }
            chooser.succeeded(Fabric::Rdma);
        }
        assert_eq!(chooser.current().fabric, Fabric::Rdma);
        for _ in 0..FAILURES_MAX {
            chooser.failed(Fabric::Rdma, &broken());
        }
        let now = chooser.current();
        assert_eq!(now.fabric, Fabric::Grpc);
        assert!(now.why.contains("rdma failed 4 times"), "{now}");
        // Queries that still ran over the old one change nothing, and the last one stays.
        for _ in 0..2 * FAILURES_MAX {
            chooser.failed(Fabric::Rdma, &broken());
            chooser.failed(Fabric::Grpc, &broken());
        }
        assert_eq!(chooser.current().fabric, Fabric::Grpc);
    }
}

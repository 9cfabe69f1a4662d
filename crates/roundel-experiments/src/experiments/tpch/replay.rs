//! Queries on simulated hardware, as they were recorded.

use super::TpchQuery;
use crate::error::Result;
use crate::recorded::Recording;
use crate::run::simulate;
use crate::setting::{Setting, Transport};

/// A query in a cluster.
#[derive(Debug, PartialEq)]
pub(crate) struct Replay {
    query: u32,
    /// What carries the rows between how many nodes; consuming alone where they need not be moved.
    setting: Setting,
}

impl Replay {
    /// Of a query as a setting carries it.
    pub(super) fn new(query: u32, setting: Setting) -> Self {
        Self { query, setting }
    }

    /// How many nodes it has, and threads of each.
    pub(crate) fn cluster(&self) -> (usize, Option<usize>) {
        (self.setting.nodes, Some(self.setting.threads))
    }

    /// Runs it.
    pub(crate) fn run(&self) -> Result<TpchQuery> {
        let recording = Recording::of(self.query)?;
        let seconds = match self.setting.transport {
            Transport::Consume => recording.local_seconds(&self.setting)?,
            _ => recording.seconds(&self.setting, |setting| {
                Ok(simulate(setting)?.bytes_per_second)
            })?,
        };
        Ok(TpchQuery::replayed(self.query, seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::tpch::QUERIES;

    #[test]
    fn what_the_experiment_runs_was_recorded() {
        for query in QUERIES {
            let recording = Recording::of(query).unwrap();
            let (bytes, seconds) = recording.of_node(1.0, 2);
            assert!(bytes > 0.0 && seconds > 0.0);
        }
        assert!(Recording::of(23).is_err());
    }
}

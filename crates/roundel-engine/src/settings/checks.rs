//! Which values of Roundel's settings and of datafusion-distributed's are refused.

use datafusion::error::Result;
use datafusion_distributed::DistributedConfig;

use super::options::{ExchangeConfig, Skew};
use super::ring::check_settings;
use super::shown::Settable;
use crate::EngineError;

/// Most tasks of a stage: with many more, connections between them all take longer than workers wait for each other.
const TASKS_MAX: usize = 16;

impl Settable for ExchangeConfig {
    fn check(&self, was: &Self) -> Result<()> {
        if self.fabric != was.fabric {
            return refused(
                "roundel.fabric is the cluster's, not a session's: start it with --fabric",
            );
        }
        self.skew.parse::<Skew>().map_err(|_| {
            EngineError::Query(format!(
                "unknown roundel.skew {:?}: use auto or off",
                self.skew
            ))
        })?;
        check_settings(self)
    }
}

impl Settable for DistributedConfig {
    fn check(&self, _was: &Self) -> Result<()> {
        if self.dynamic_task_count {
            return refused(
                "distributed.dynamic_task_count cannot be true: how the rows of a stage are \
                 exchanged is decided before the query starts",
            );
        }
        if self.partial_reduce {
            return refused(
                "distributed.partial_reduce cannot be true: it puts an aggregate between a \
                 shuffle and its exchange, and exchanges scatter rows by themselves",
            );
        }
        if self.children_isolator_unions {
            return refused(
                "distributed.children_isolator_unions cannot be true: a table in memory is read \
                 by all workers, and an isolated input of a union runs on some",
            );
        }
        for (name, value) in [
            (
                "file_scan_config_bytes_per_partition",
                self.file_scan_config_bytes_per_partition,
            ),
            // With none, nothing would ever be asked for.
            (
                "worker_connection_buffer_budget_bytes",
                self.worker_connection_buffer_budget_bytes,
            ),
        ] {
            if value == 0 {
                return refused(&format!("distributed.{name} is 0: use 1 or more"));
            }
        }
        if self.max_tasks_per_stage > TASKS_MAX {
            return refused(&format!(
                "distributed.max_tasks_per_stage is {}: use 0 to {TASKS_MAX}",
                self.max_tasks_per_stage
            ));
        }
        match self.compression.as_str() {
            "none" | "lz4" | "zstd" => Ok(()),
            other => refused(&format!(
                "unknown distributed.compression {other:?}: use none, lz4 or zstd"
            )),
        }
    }
}

fn refused<T>(why: &str) -> Result<T> {
    Err(EngineError::Query(why.to_owned()).into())
}

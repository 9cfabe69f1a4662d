//! The settings that are Roundel's own: `roundel.…`, which a session has, and what the coordinator decides for a query.
//!
//! It knows nothing of how they travel.

use std::any::Any;

use datafusion::common::extensions_options;
use datafusion::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::error::Result;
use datafusion_distributed::DistributedConfig;

use super::shown::Settable;
use crate::ring::check_settings;
use crate::{EngineError, Fabric, Skew};

/// Most tasks of a stage: with many more, connections between them all take longer than workers wait for each other.
const TASKS_MAX: usize = 16;

extensions_options! {
    /// How a session's rows are carried.
    pub(crate) struct ExchangeConfig {
        /// What carries the rows; the cluster's, so it cannot be set
        pub fabric: String, default = Fabric::Grpc.to_string()
        /// What is done about keys with far more rows than others: auto or off
        pub skew: String, default = Skew::default().to_string()
        /// How joins of rows on several workers are done: auto, cyclo, repartition or broadcast
        pub join: String, default = "auto".to_owned()
        /// Which side of a join spins on a ring: the smaller or the larger one
        pub spin: String, default = "smaller".to_owned()
        /// Buffers of a worker that elements of a ring come into
        pub ring_elements: usize, default = 8
        /// Bytes of an element of a ring: at least those of the longest row that spins
        pub ring_element_bytes: usize, default = 1 << 20
        /// Seconds for which a relation that spins stays in the workers' memory after the last query that joined it; 0 for not at all
        pub pin_seconds: u64, default = 0
    }
}

impl ConfigExtension for ExchangeConfig {
    const PREFIX: &'static str = "roundel";
}

impl ExchangeConfig {
    pub(crate) fn new(fabric: Fabric, skew: Skew) -> Self {
        Self {
            fabric: fabric.to_string(),
            skew: skew.to_string(),
            ..Self::default()
        }
    }
}

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

/// What the coordinator decides for one query; it travels with each of its tasks. No session can set it, or sees it.
#[derive(Debug, Clone, Default)]
pub(crate) struct StageConfig {
    /// How the rows of each stage are exchanged.
    pub stages: String,
    /// What stages are for joins whose heavy keys are spread.
    pub skewed_joins: String,
}

impl ConfigExtension for StageConfig {
    const PREFIX: &'static str = "roundel_query";
}

impl ExtensionOptions for StageConfig {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _value: &str) -> Result<()> {
        refused(&format!("{}.{key} cannot be set", Self::PREFIX))
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

//! An extension of DataFusion's settings that SHOW, SET and `information_schema.df_settings` treat as its own.
//!
//! DataFusion asks an extension for the names of its settings without the prefix by which they are set, and takes any
//! value that has the right type.

use std::any::Any;
use std::error::Error;

use datafusion::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::error::Result;

use crate::EngineError;

/// Settings of which some values are refused.
pub(super) trait Settable: ConfigExtension + Clone {
    /// Whether these can be a session's settings, which `was` are so far.
    ///
    /// # Errors
    /// Says which setting cannot be so, and why.
    fn check(&self, was: &Self) -> Result<()>;
}

/// `T`, named as it is set, and checked when it is. Code that asks for a `T` finds it.
#[derive(Debug, Clone)]
pub(super) struct Shown<T>(pub(super) T);

impl<T: Settable> ConfigExtension for Shown<T> {
    const PREFIX: &'static str = T::PREFIX;
}

impl<T: Settable> ExtensionOptions for Shown<T> {
    fn as_any(&self) -> &dyn Any {
        self.0.as_any()
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self.0.as_any_mut()
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let prefix = T::PREFIX;
        if !self.0.entries().iter().any(|entry| entry.key == key) {
            let why = format!("there is no setting {prefix}.{key}: SHOW ALL lists those there are");
            return Err(EngineError::Query(why).into());
        }
        let mut set = self.0.clone();
        set.set(key, value).map_err(|error| {
            EngineError::Query(format!(
                "{prefix}.{key} cannot be {value:?}: {}",
                cause(&error)
            ))
        })?;
        set.check(&self.0)?;
        self.0 = set;
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let mut entries = self.0.entries();
        for entry in &mut entries {
            entry.key = format!("{}.{}", T::PREFIX, entry.key);
        }
        entries
    }
}

/// The innermost reason.
fn cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use datafusion::config::ConfigOptions;
    use datafusion_distributed::DistributedConfig;

    use super::super::options::ExchangeConfig;
    use super::*;

    fn config() -> ConfigOptions {
        let mut config = ConfigOptions::new();
        config.extensions.insert(Shown(ExchangeConfig::default()));
        let mut theirs = DistributedConfig::default();
        theirs.children_isolator_unions = false;
        config.extensions.insert(Shown(theirs));
        config
    }

    #[test]
    fn settings_bear_their_prefix_and_are_found_by_their_type() {
        let mut config = config();
        config.set("roundel.join", "cyclo").unwrap();
        config.set("distributed.compression", "zstd").unwrap();
        let copy = config.clone();
        let own = copy.extensions.get::<ExchangeConfig>().unwrap();
        assert_eq!(own.join, "cyclo");
        let theirs = copy.extensions.get::<DistributedConfig>().unwrap();
        assert_eq!(theirs.compression, "zstd");
        let entries = copy.entries();
        let value = |key: &str| entries.iter().find(|e| e.key == key)?.value.as_deref();
        assert_eq!(value("roundel.join"), Some("cyclo"));
        assert_eq!(value("distributed.compression"), Some("zstd"));
        assert_eq!(value("join"), None);
    }

    #[test]
    fn what_cannot_be_is_refused_and_leaves_what_was() {
        let mut config = config();
        for (key, value, says) in [
            (
                "roundel.join",
                "bogus",
                "auto, cyclo, repartition or broadcast",
            ),
            ("roundel.skew", "maybe", "auto or off"),
            ("roundel.spin", "both", "smaller or larger"),
            ("roundel.ring_elements", "1", "use 2 to 1024"),
            ("roundel.ring_elements", "many", "invalid digit"),
            ("roundel.ring_element_bytes", "1", "use 4096 to"),
            ("roundel.pin_seconds", "100000", "use 0 to 86400"),
            ("roundel.fabric", "tcp", "--fabric"),
            ("roundel.stages", "1=x", "no setting roundel.stages"),
            ("roundel.skewed_joins", "1", "no setting"),
            (
                "distributed.dynamic_task_count",
                "true",
                "dynamic_task_count",
            ),
            ("distributed.partial_reduce", "true", "partial_reduce"),
            ("distributed.children_isolator_unions", "true", "isolated"),
            ("distributed.compression", "gzip", "none, lz4 or zstd"),
            ("distributed.max_tasks_per_stage", "100000", "use 0 to 16"),
            (
                "distributed.file_scan_config_bytes_per_partition",
                "0",
                "1 or more",
            ),
            (
                "distributed.worker_connection_buffer_budget_bytes",
                "0",
                "1 or more",
            ),
            ("distributed.bogus", "1", "no setting distributed.bogus"),
        ] {
            let before = config.entries();
            let error = EngineError::from(config.set(key, value).unwrap_err()).to_string();
            assert!(error.contains(says), "{key}: {error}");
            let after = config.entries();
            let same = before.iter().zip(&after).all(|(a, b)| a.value == b.value);
            assert!(same, "{key}");
        }
    }
}

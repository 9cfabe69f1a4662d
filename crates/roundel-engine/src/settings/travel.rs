//! How a session's settings reach its workers: as one header of each request that brings a plan.
//!
//! It holds what differs from what a worker has by itself, so it is empty for most sessions.

use std::collections::BTreeMap;

use datafusion::config::{ConfigField, ConfigOptions};
use datafusion::error::Result;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::DistributedConfig;
use http::{HeaderMap, HeaderName, HeaderValue};
use url::form_urlencoded;

use super::options::ExchangeConfig;
use super::shown::Shown;
use crate::EngineError;

/// The header of a request to a worker that carries a session's settings.
const HEADER: HeaderName = HeaderName::from_static("x-roundel-settings");

/// Most bytes of it. A session has far less, unless a setting holds a text of such a length.
pub(super) const BYTES_MAX: usize = 16 << 10;

/// Settings that depend on the host. The values that a session began with stand for the worker's own, so that only a
/// change of them travels.
const OF_THE_HOST: [&str; 2] = [
    "datafusion.execution.target_partitions",
    "datafusion.execution.planning_concurrency",
];

/// Names and values of settings.
pub(super) type Values = BTreeMap<String, Option<String>>;

pub(super) fn values(config: &ConfigOptions) -> Values {
    let entries = config.entries().into_iter();
    entries.map(|entry| (entry.key, entry.value)).collect()
}

/// The settings of a worker that was told nothing, for a session that began with `began`.
pub(super) fn untold(began: &Values) -> Values {
    let mut config = ConfigOptions::new();
    config.extensions.insert(Shown(ExchangeConfig::default()));
    config
        .extensions
        .insert(Shown(DistributedConfig::default()));
    let mut values = values(&config);
    for name in OF_THE_HOST {
        if let Some(value) = began.get(name) {
            values.insert(name.to_owned(), value.clone());
        }
    }
    values
}

/// What workers must be told of these settings.
///
/// # Errors
/// When it is more than a header can be.
pub(super) fn told(config: &ConfigOptions, untold: &Values) -> Result<HeaderMap> {
    let mut text = form_urlencoded::Serializer::new(String::new());
    for entry in config.entries() {
        // A setting without a value cannot be set, and a setting of somebody else's does not travel.
        if let (Some(value), Some(theirs)) = (&entry.value, untold.get(&entry.key))
            && Some(value) != theirs.as_ref()
        {
            text.append_pair(&entry.key, value);
        }
    }
    let text = text.finish();
    if text.len() > BYTES_MAX {
        let why = format!(
            "the session's settings are {} bytes long, and at most {BYTES_MAX} travel to the workers: RESET some",
            text.len()
        );
        return Err(EngineError::Query(why).into());
    }
    let mut headers = HeaderMap::new();
    if !text.is_empty() {
        let text = HeaderValue::from_str(&text).map_err(|e| EngineError::Query(e.to_string()))?;
        headers.insert(HEADER, text);
    }
    Ok(headers)
}

/// Makes a worker's settings what a coordinator told.
///
/// # Errors
/// When there is no such setting, or its value is none.
pub(crate) fn hear(config: &mut SessionConfig, headers: &HeaderMap) -> Result<()> {
    let options = config.options_mut();
    options.extensions.insert(ExchangeConfig::default());
    let Some(text) = headers.get(HEADER) else {
        return Ok(());
    };
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        match name.strip_prefix("datafusion.") {
            // Some of DataFusion's settings set others when a person sets them.
            Some(inner) => ConfigField::set(options, inner, &value),
            None => options.set(&name, &value),
        }
        .map_err(|error| {
            let why = error.strip_backtrace();
            EngineError::Query(format!("cannot have the session's {name} = {value}: {why}"))
        })?;
    }
    // It is DataFusion's size of batches for tasks, which was put into effect before.
    let shuffled = options.extensions.get::<DistributedConfig>();
    if let Some(size) = shuffled.map(|set| set.shuffle_batch_size)
        && size != 0
    {
        ConfigField::set(options, "execution.batch_size", &size.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> (ConfigOptions, Values) {
        let mut config = ConfigOptions::new();
        config.execution.target_partitions = 3;
        config.extensions.insert(Shown(ExchangeConfig::default()));
        let mut theirs = DistributedConfig::default();
        theirs.children_isolator_unions = false;
        config.extensions.insert(Shown(theirs));
        let untold = untold(&values(&config));
        (config, untold)
    }

    fn heard(headers: &HeaderMap) -> SessionConfig {
        let mut worker = SessionConfig::new();
        let theirs = DistributedConfig::default();
        worker.options_mut().extensions.insert(theirs);
        hear(&mut worker, headers).unwrap();
        worker
    }

    #[test]
    fn a_session_that_set_nothing_tells_what_it_is_built_with() {
        let (config, untold) = session();
        let headers = told(&config, &untold).unwrap();
        let text = headers.get(HEADER).unwrap().to_str().unwrap();
        assert_eq!(text, "distributed.children_isolator_unions=false");
    }

    #[test]
    fn what_is_set_is_what_workers_have() {
        let (mut config, untold) = session();
        for (name, value) in [
            ("datafusion.execution.time_zone", "+08:00"),
            ("datafusion.execution.batch_size", "100"),
            (
                "datafusion.execution.parquet.created_by",
                "käse & \n=\u{1F9C0}",
            ),
            ("datafusion.execution.target_partitions", "5"),
            (
                "datafusion.optimizer.enable_dynamic_filter_pushdown",
                "false",
            ),
            (
                "datafusion.optimizer.enable_topk_dynamic_filter_pushdown",
                "true",
            ),
            ("datafusion.sql_parser.default_null_ordering", "nulls_min"),
            ("roundel.join", "cyclo"),
            ("roundel.ring_elements", "9"),
            ("distributed.compression", "zstd"),
        ] {
            config.set(name, value).unwrap();
        }
        let worker = heard(&told(&config, &untold).unwrap());
        let options = worker.options();
        assert_eq!(options.execution.parquet.created_by, "käse & \n=\u{1F9C0}");
        assert_eq!(options.execution.target_partitions, 5);
        let own = options.extensions.get::<ExchangeConfig>().unwrap();
        assert_eq!((own.join.as_str(), own.ring_elements), ("cyclo", 9));
        let theirs = options.extensions.get::<DistributedConfig>().unwrap();
        assert_eq!(theirs.compression, "zstd");
        let mut of_datafusion = values(&config);
        of_datafusion.retain(|name, _| name.starts_with("datafusion."));
        for (name, value) in of_datafusion {
            let theirs = values(options).remove(&name);
            if !OF_THE_HOST.contains(&name.as_str()) {
                assert_eq!(theirs, Some(value), "{name}");
            }
        }
    }

    #[test]
    fn every_setting_can_be_set_to_what_it_is() {
        let (config, _) = session();
        let mut copy = config.clone();
        for entry in config.entries() {
            if let Some(value) = entry.value {
                copy.set(&entry.key, &value).unwrap();
            }
        }
        assert_eq!(values(&copy), values(&config));
    }

    #[test]
    fn the_size_of_batches_for_tasks_goes_first() {
        let (mut config, untold) = session();
        config
            .set("datafusion.execution.batch_size", "100")
            .unwrap();
        config.set("distributed.shuffle_batch_size", "7").unwrap();
        let worker = heard(&told(&config, &untold).unwrap());
        assert_eq!(worker.batch_size(), 7);
    }

    #[test]
    fn what_is_too_long_or_unknown_is_an_error() {
        let (mut config, untold) = session();
        config.execution.parquet.created_by = "x".repeat(BYTES_MAX);
        let error = told(&config, &untold).unwrap_err().to_string();
        assert!(error.contains("RESET"), "{error}");
        for text in [
            "datafusion.bogus.x=1",
            "roundel.bogus=1",
            "nothing",
            "datafusion.execution.batch_size=x",
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, HeaderValue::from_static(text));
            let heard = hear(&mut SessionConfig::new(), &headers);
            assert!(heard.is_err(), "{text}");
        }
    }
}

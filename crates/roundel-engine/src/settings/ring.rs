//! What a session sets of rings, by `SET roundel.…`; it travels with every task.

use std::time::Duration;

use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use roundel_ring::RingOptions;

use super::options::ExchangeConfig;
use crate::EngineError;

/// Buffers of a ring, and bytes of each.
const ELEMENTS: std::ops::RangeInclusive<usize> = 2..=1 << 10;
const ELEMENT_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=1 << 30;
/// Longest that a relation stays pinned to a ring that nobody uses.
const PIN_SECONDS_MAX: u64 = 24 * 60 * 60;

/// How joins of rows on several workers are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinChoice {
    /// As suits each.
    Auto,
    /// On a ring, wherever that can be.
    Cyclo,
    /// With both sides partitioned by the keys, where there are any.
    Repartition,
    /// With the one side sent to all workers.
    Broadcast,
}

/// Which side of a join spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spin {
    Smaller,
    Larger,
}

/// What is set of rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingSettings {
    pub join: JoinChoice,
    pub spin: Spin,
    pub options: RingOptions,
    /// How long relations that spin stay pinned after the last query that joined them; `None`: they are not pinned.
    pub pin: Option<Duration>,
}

/// Whether joins of a session may be done on rings.
///
/// # Errors
/// When something is set to what it cannot be.
pub(crate) fn may_use_rings(config: &ConfigOptions) -> Result<bool> {
    Ok(match RingSettings::of(config)?.join {
        JoinChoice::Auto | JoinChoice::Cyclo => true,
        JoinChoice::Repartition | JoinChoice::Broadcast => false,
    })
}

impl RingSettings {
    /// The settings of a session, read from its configuration or from that of a task of it.
    ///
    /// # Errors
    /// When something is set to what it cannot be.
    pub(crate) fn of(config: &ConfigOptions) -> Result<Self> {
        let unset = ExchangeConfig::default();
        Self::of_session(config.extensions.get::<ExchangeConfig>().unwrap_or(&unset))
    }

    /// The settings that follow from what a session has set, or is about to set.
    ///
    /// # Errors
    /// When something is set to what it cannot be.
    fn of_session(set: &ExchangeConfig) -> Result<Self> {
        let join = match set.join.as_str() {
            "auto" => JoinChoice::Auto,
            "cyclo" => JoinChoice::Cyclo,
            "repartition" => JoinChoice::Repartition,
            "broadcast" => JoinChoice::Broadcast,
            other => {
                return refused(format!(
                    "unknown roundel.join {other:?}: use auto, cyclo, repartition or broadcast"
                ));
            }
        };
        let spin = match set.spin.as_str() {
            "smaller" => Spin::Smaller,
            "larger" => Spin::Larger,
            other => {
                return refused(format!(
                    "unknown roundel.spin {other:?}: use smaller or larger"
                ));
            }
        };
        for (name, value, range) in [
            ("ring_elements", set.ring_elements, ELEMENTS),
            ("ring_element_bytes", set.ring_element_bytes, ELEMENT_BYTES),
        ] {
            if !range.contains(&value) {
                let (least, most) = range.into_inner();
                return refused(format!("roundel.{name} is {value}: use {least} to {most}"));
            }
        }
        if set.pin_seconds > PIN_SECONDS_MAX {
            return refused(format!(
                "roundel.pin_seconds is {}: use 0 to {PIN_SECONDS_MAX}",
                set.pin_seconds
            ));
        }
        Ok(Self {
            join,
            spin,
            options: RingOptions {
                elements: set.ring_elements,
                element_bytes: set.ring_element_bytes,
            },
            pin: (set.pin_seconds > 0).then(|| Duration::from_secs(set.pin_seconds)),
        })
    }
}

/// Whether a session may set this of rings.
///
/// # Errors
/// When something is set to what it cannot be.
pub(super) fn check_settings(set: &ExchangeConfig) -> Result<()> {
    RingSettings::of_session(set).map(drop)
}

fn refused<T>(why: String) -> Result<T> {
    Err(EngineError::Query(why).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(set: &[(&str, &str)]) -> Result<RingSettings> {
        let mut config = ConfigOptions::new();
        config.extensions.insert(ExchangeConfig::default());
        for (name, value) in set {
            config.set(&format!("roundel.{name}"), value)?;
        }
        RingSettings::of(&config)
    }

    #[test]
    fn what_is_not_set_is_the_default() {
        let default = RingSettings {
            join: JoinChoice::Auto,
            spin: Spin::Smaller,
            options: RingOptions::default(),
            pin: None,
        };
        assert_eq!(settings(&[]).unwrap(), default);
        assert_eq!(RingSettings::of(&ConfigOptions::new()).unwrap(), default);
    }

    #[test]
    fn what_is_set_is_taken_or_refused() {
        let set = settings(&[
            ("join", "cyclo"),
            ("spin", "larger"),
            ("ring_elements", "3"),
            ("ring_element_bytes", "65536"),
            ("pin_seconds", "60"),
        ]);
        let options = RingOptions {
            elements: 3,
            element_bytes: 65536,
        };
        let expected = RingSettings {
            join: JoinChoice::Cyclo,
            spin: Spin::Larger,
            options,
            pin: Some(Duration::from_secs(60)),
        };
        assert_eq!(set.unwrap(), expected);
        for wrong in [
            ("join", "maybe"),
            ("spin", "both"),
            ("ring_elements", "1"),
            ("ring_element_bytes", "100"),
            ("pin_seconds", "100000"),
        ] {
            let error = settings(&[wrong]).unwrap_err().to_string();
            assert!(error.contains("roundel."), "{error}");
            assert!(error.contains("use "), "{error}");
        }
    }
}

//! How the rows of one stage are exchanged: what the coordinator decides, and what the two ends of a
//! link must agree on.

use crate::{EngineError, Result};
use roundel_exchange::{Architecture, Buffers, Design};
use std::fmt;
use std::str::FromStr;

/// How the rows of a stage are exchanged. As text, `endpoint;MEMQ/SR;2;adaptive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Setting {
    pub architecture: Architecture,
    pub design: Design,
    /// Endpoints at each side of a node, at least 1; in a classic exchange, its units.
    pub endpoints: usize,
    pub buffers: Buffers,
}

/// Most endpoints that a peer can ask for.
const ENDPOINTS_MAX: usize = 1024;

impl Default for Setting {
    fn default() -> Self {
        Self {
            architecture: Architecture::default(),
            design: Design::default(),
            endpoints: 1,
            buffers: Buffers::default(),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            architecture,
            design,
            endpoints,
            buffers,
        } = self;
        write!(f, "{architecture};{design};{endpoints};{buffers}")
    }
}

impl FromStr for Setting {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self> {
        let setting = || {
            let mut parts = text.split(';');
            let setting = Self {
                architecture: parts.next()?.parse().ok()?,
                design: parts.next()?.parse().ok()?,
                endpoints: parts.next()?.parse().ok()?,
                buffers: parts.next()?.parse().ok()?,
            };
            let in_bounds = (1..=ENDPOINTS_MAX).contains(&setting.endpoints);
            (in_bounds && parts.next().is_none()).then_some(setting)
        };
        setting().ok_or_else(|| {
            EngineError::Usage(format!("{text:?} does not say how rows are exchanged"))
        })
    }
}

/// The settings of a query's stages as text: `1=endpoint;MEMQ/SR;2;adaptive,2=…`.
pub(super) fn to_text(stages: impl IntoIterator<Item = (usize, Setting)>) -> String {
    let stages: Vec<String> = stages
        .into_iter()
        .map(|(stage, setting)| format!("{stage}={setting}"))
        .collect();
    stages.join(",")
}

/// The setting of a stage in such a text; the default for one that is not in it.
pub(super) fn of_stage(text: &str, stage: usize) -> Result<Setting> {
    let stages = text.split(',').filter_map(|entry| entry.split_once('='));
    let mut own = stages.filter(|(number, _)| number.parse() == Ok(stage));
    own.next()
        .map_or_else(|| Ok(Setting::default()), |(_, setting)| setting.parse())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_written() {
        let one = Setting {
            architecture: Architecture::Multiplexer,
            design: Design::MemqSr,
            endpoints: 3,
            buffers: Buffers::Fixed(9),
        };
        let text = to_text([(1, one), (12, Setting::default())]);
        assert_eq!(of_stage(&text, 1).unwrap(), one);
        assert_eq!(of_stage(&text, 12).unwrap(), Setting::default());
        assert_eq!(of_stage(&text, 2).unwrap(), Setting::default());
        for wrong in [
            "1=",
            "1=endpoint;MEMQ/SR",
            "1=endpoint;MEMQ/SR;0;adaptive",
            "1=endpoint;MEMQ/SR;1;bdp",
            "1=MEMQ/SR;1;adaptive",
            "1=x;1;1;1",
        ] {
            assert!(of_stage(wrong, 1).is_err(), "{wrong}");
        }
    }
}

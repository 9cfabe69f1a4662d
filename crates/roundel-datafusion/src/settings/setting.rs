//! How the rows of one stage are exchanged: what the coordinator decides, and what the two ends of a
//! link must agree on.

use crate::protocol::SettingMessage;
use roundel_exchange::{Architecture, Buffers, Design};

/// Most endpoints that a peer can ask for.
const ENDPOINTS_MAX: usize = 1024;

/// How the rows of a stage are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// Which connections carry them.
    pub architecture: Architecture,
    /// How messages are moved.
    pub design: Design,
    /// Endpoints at each side of a node, at least 1; in a classic exchange, its units.
    pub endpoints: usize,
    /// Which registered buffers links keep.
    pub buffers: Buffers,
}

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

impl From<Setting> for SettingMessage {
    fn from(setting: Setting) -> Self {
        Self {
            architecture: setting.architecture.name().to_owned(),
            design: setting.design.name().to_owned(),
            endpoints: setting.endpoints as u64,
            buffers: setting.buffers.to_string(),
        }
    }
}

impl SettingMessage {
    /// Reads the message. `None` means that a value in it is out of its bounds.
    pub(crate) fn read(&self) -> Option<Setting> {
        let endpoints = usize::try_from(self.endpoints).ok()?;
        Some(Setting {
            architecture: self.architecture.parse().ok()?,
            design: self.design.parse().ok()?,
            endpoints: (1..=ENDPOINTS_MAX)
                .contains(&endpoints)
                .then_some(endpoints)?,
            buffers: self.buffers.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_told() {
        let one = Setting {
            architecture: Architecture::Multiplexer,
            design: Design::MemqSr,
            endpoints: 3,
            buffers: Buffers::Fixed(9),
        };
        let told = SettingMessage::from(one);
        assert_eq!(told.read(), Some(one));
        let default = SettingMessage::from(Setting::default());
        assert_eq!(default.read(), Some(Setting::default()));
        let wrong: [fn(&mut SettingMessage); 6] = [
            |told| told.endpoints = 0,
            |told| told.endpoints = ENDPOINTS_MAX as u64 + 1,
            |told| told.buffers = "fixed:1".to_owned(),
            |told| told.buffers = "fixed:4097".to_owned(),
            |told| told.design = "MEMQ".to_owned(),
            |told| told.architecture = String::new(),
        ];
        for wrong in wrong {
            let mut told = told.clone();
            wrong(&mut told);
            assert_eq!(told.read(), None, "{told:?}");
        }
    }
}

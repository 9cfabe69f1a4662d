//! What a user should know of a table that was registered, and did not ask.

use std::sync::Arc;

use datafusion::prelude::SessionConfig;
use parking_lot::Mutex;

/// Notices that nobody has taken yet; an extension of a session's configuration.
#[derive(Debug, Default)]
pub(crate) struct Notices(Mutex<Vec<String>>);

impl Notices {
    /// Adds to a session's notices, or to the log of a session that keeps none.
    pub(super) fn add(config: &SessionConfig, notice: String) {
        match config.get_extension::<Self>() {
            Some(notices) => {
                let mut all = notices.0.lock();
                // A statement may be planned more than once.
                if !all.contains(&notice) {
                    all.push(notice);
                }
            }
            None => tracing::info!("{notice}"),
        }
    }

    /// All notices since the last call.
    pub(crate) fn take(config: &SessionConfig) -> Vec<String> {
        let notices: Option<Arc<Self>> = config.get_extension();
        notices.map_or_else(Vec::new, |notices| std::mem::take(&mut notices.0.lock()))
    }
}

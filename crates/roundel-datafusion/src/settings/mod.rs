//! What a coordinator decides for one query. It travels with each of the query's tasks, as one message in a header.
//!
//! | module | for |
//! |---|---|
//! | `setting` | how the rows of a stage are exchanged |
//! | `role` | what a stage is for a join whose heavy keys are spread |

mod role;
mod setting;

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::execution::config::SessionConfig;
use http::{HeaderMap, HeaderName};
use prost::Message as _;
use tonic::metadata::{BinaryMetadataValue, MetadataMap};
use url::Url;

use crate::error::{Result, TransportError};
use crate::fabric::Fabric;
use crate::protocol::{HeardMessage, RoleMessage, StageMessage};

pub(crate) use role::Role;
pub use setting::Setting;

/// The header of a request with a plan that carries the settings of its query.
const HEADER: &str = "x-roundel-stages-bin";
/// Most bytes of these settings.
const BYTES_MAX: usize = 256 << 10;
/// Most stages of a query.
const STAGES_MAX: usize = 1024;
/// Largest number of a stage.
const STAGE_MAX: u64 = 1 << 20;

/// How the rows of a query are exchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuerySettings {
    /// How those of most stages are.
    pub setting: Setting,
    /// What was decided for single stages, by their numbers.
    pub(crate) stages: BTreeMap<usize, StageSettings>,
}

/// What was decided for one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StageSettings {
    pub setting: Setting,
    /// None for a stage that feeds no join whose heavy keys are spread.
    pub role: Option<Role>,
}

/// What a worker hears with a task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Heard {
    /// What carries the rows.
    pub fabric: Fabric,
    /// What the coordinator calls the worker.
    pub worker: Url,
    pub settings: Arc<QuerySettings>,
}

impl QuerySettings {
    /// Those of a task, if its session has any.
    pub(crate) fn of(config: &SessionConfig) -> Option<Arc<Self>> {
        config.get_extension::<Self>()
    }

    /// How the rows of a stage are exchanged.
    pub(crate) fn of_stage(&self, stage: usize) -> Setting {
        let own = self.stages.get(&stage);
        own.map_or(self.setting, |own| own.setting)
    }

    /// The role of a stage in a join whose heavy keys are spread. Most stages have none.
    pub(crate) fn role_of(&self, stage: usize) -> Option<&Role> {
        self.stages.get(&stage)?.role.as_ref()
    }
}

impl Heard {
    /// Adds what the worker is to hear to a request's headers.
    ///
    /// # Errors
    /// When the query has too many stages.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) -> Result<()> {
        let stages = self.settings.stages.iter();
        let message = HeardMessage {
            fabric: self.fabric.name().to_owned(),
            worker: self.worker.to_string(),
            setting: Some(self.settings.setting.into()),
            stages: stages
                .map(|(stage, own)| StageMessage {
                    stage: *stage as u64,
                    setting: Some(own.setting.into()),
                    role: own.role.as_ref().map(RoleMessage::from),
                })
                .collect(),
        };
        let (bytes, count) = (message.encode_to_vec(), message.stages.len());
        if bytes.len() > BYTES_MAX || count > STAGES_MAX {
            return Err(TransportError::Query(format!(
                "the query has {count} stages: at most {STAGES_MAX} are exchanged"
            )));
        }
        let mut binary = MetadataMap::new();
        binary.insert_bin(HEADER, BinaryMetadataValue::from_bytes(&bytes));
        headers.extend(binary.into_headers());
        Ok(())
    }

    /// Reads the headers of a request. `None` means that no exchange carries its rows.
    ///
    /// # Errors
    /// When nobody can have told that.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>> {
        let Some(told) = headers.get(HEADER) else {
            return Ok(None);
        };
        let heard = || {
            if told.len() > BYTES_MAX.div_ceil(3) * 4 {
                return None;
            }
            let own = HeaderMap::from_iter([(HeaderName::from_static(HEADER), told.clone())]);
            let bytes = MetadataMap::from_headers(own)
                .get_bin(HEADER)?
                .to_bytes()
                .ok()?;
            let message = HeardMessage::decode(bytes).ok()?;
            if message.stages.len() > STAGES_MAX {
                return None;
            }
            let stages = message.stages.into_iter().map(|own| {
                let role = match own.role {
                    Some(role) => Some(role.read()?),
                    None => None,
                };
                let setting = own.setting?.read()?;
                let stage = usize::try_from(own.stage).ok()?;
                (own.stage <= STAGE_MAX).then_some((stage, StageSettings { setting, role }))
            });
            Some(Self {
                fabric: message.fabric.parse().ok()?,
                worker: message.worker.parse().ok()?,
                settings: Arc::new(QuerySettings {
                    setting: message.setting?.read()?,
                    stages: stages.collect::<Option<_>>()?,
                }),
            })
        };
        let cannot_be = || TransportError::Usage(format!("{HEADER} does not say how rows travel"));
        heard().map(Some).ok_or_else(cannot_be)
    }
}

#[cfg(test)]
mod tests;

//! What the coordinator tells the tasks of a stage of the join that they feed.

use crate::settings::StageConfig;
use crate::{EngineError, Result};
use datafusion::config::ConfigOptions;
use roundel_exchange::skew::TASKS_MAX;
use std::fmt;
use std::str::FromStr;
use url::Url;

/// The part of a stage in a join. As text, `3;0;true;4;8;1000;-;http://10.0.0.1:7070/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::exchange) struct Role {
    /// The join: the number of the stage that is its left input.
    pub join: u64,
    /// Which of its inputs the stage is: 0 is the left one, 1 the right one.
    pub side: usize,
    /// Whether rows of a heavy key of this stage may be anywhere: then its tasks tell their samples.
    pub spreads: bool,
    /// Tasks of both inputs that tell samples.
    pub samplers: u64,
    /// Tasks of both inputs.
    pub tasks: u64,
    /// Rows that are expected of each input, where that is known.
    pub expected: [Option<u64>; 2],
    /// The worker at which they agree.
    pub place: Url,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            join,
            side,
            spreads,
            samplers,
            tasks,
            expected,
            place,
        } = self;
        write!(f, "{join};{side};{spreads};{samplers};{tasks}")?;
        for rows in expected {
            match rows {
                Some(rows) => write!(f, ";{rows}"),
                None => write!(f, ";-"),
            }?;
        }
        write!(f, ";{place}")
    }
}

impl FromStr for Role {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self> {
        let rows = |text: &str| match text {
            "-" => Some(None),
            rows => rows.parse().ok().map(Some),
        };
        let role = || {
            let mut parts = text.splitn(8, ';');
            let role = Self {
                join: parts.next()?.parse().ok()?,
                side: parts.next()?.parse().ok()?,
                spreads: parts.next()?.parse().ok()?,
                samplers: parts.next()?.parse().ok()?,
                tasks: parts.next()?.parse().ok()?,
                expected: [rows(parts.next()?)?, rows(parts.next()?)?],
                place: parts.next()?.parse().ok()?,
            };
            let in_bounds = role.side < 2
                && (1..=role.tasks).contains(&role.samplers)
                && role.tasks <= TASKS_MAX;
            in_bounds.then_some(role)
        };
        role().ok_or_else(|| {
            EngineError::Usage(format!("{text:?} does not say what a stage is for a join"))
        })
    }
}

/// The roles of a query's stages as text: `3=…,4=…`.
pub(super) fn to_text<'a>(roles: impl IntoIterator<Item = &'a (usize, Role)>) -> String {
    let roles: Vec<String> = roles
        .into_iter()
        .map(|(stage, role)| format!("{stage}={role}"))
        .collect();
    roles.join(",")
}

/// The role of a stage in a query, as its coordinator has told; none for most.
pub(in crate::exchange) fn role_of(config: &ConfigOptions, stage: usize) -> Result<Option<Role>> {
    let told = config.extensions.get::<StageConfig>();
    of_stage(told.map_or("", |told| &told.skewed_joins), stage)
}

fn of_stage(text: &str, stage: usize) -> Result<Option<Role>> {
    let stages = text.split(',').filter_map(|entry| entry.split_once('='));
    let mut own = stages.filter(|(number, _)| number.parse() == Ok(stage));
    own.next().map(|(_, role)| role.parse()).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_as_written() {
        let role = |side| Role {
            join: 3,
            side,
            spreads: side == 1,
            samplers: 4,
            tasks: 8,
            expected: [Some(1000), None],
            place: "http://[::1]:7070/".parse().unwrap(),
        };
        let text = to_text(&[(3, role(0)), (12, role(1))]);
        assert_eq!(of_stage(&text, 3).unwrap(), Some(role(0)));
        assert_eq!(of_stage(&text, 12).unwrap(), Some(role(1)));
        assert_eq!(of_stage(&text, 1).unwrap(), None);
        assert_eq!(of_stage("", 1).unwrap(), None);
        for wrong in [
            "1=",
            "1=3;2;true;4;8;1;1;http://a:1/",
            "1=3;0;maybe;4;8;1;1;http://a:1/",
            "1=3;0;true;9;8;1;1;http://a:1/",
            "1=3;0;true;0;8;1;1;http://a:1/",
            "1=3;0;true;4;8;1;x;http://a:1/",
            "1=3;0;true;4;8;1;1;nowhere",
            "1=3;0;true;4;99999999;1;1;http://a:1/",
        ] {
            assert!(of_stage(wrong, 1).is_err(), "{wrong}");
        }
    }
}

//! What the coordinator tells the tasks of a stage of the join that they feed.

use super::STAGE_MAX;
use crate::protocol::RoleMessage;
use roundel_exchange::skew::TASKS_MAX;
use url::Url;

/// The part of a stage in a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Role {
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
    /// Rows that are expected of each input, where that is known: any numbers, which are only compared.
    pub expected: [Option<u64>; 2],
    /// The worker at which they agree.
    pub place: Url,
}

impl From<&Role> for RoleMessage {
    fn from(role: &Role) -> Self {
        Self {
            join: role.join,
            right: role.side == 1,
            spreads: role.spreads,
            samplers: role.samplers,
            tasks: role.tasks,
            expected_left: role.expected[0],
            expected_right: role.expected[1],
            place: role.place.to_string(),
        }
    }
}

impl RoleMessage {
    /// Reads the message. `None` means that a value in it is out of its bounds.
    pub(crate) fn read(&self) -> Option<Role> {
        let in_bounds = self.join <= STAGE_MAX
            && (1..=self.tasks).contains(&self.samplers)
            && self.tasks <= TASKS_MAX;
        let place = self.place.parse().ok()?;
        in_bounds.then(|| Role {
            join: self.join,
            side: usize::from(self.right),
            spreads: self.spreads,
            samplers: self.samplers,
            tasks: self.tasks,
            expected: [self.expected_left, self.expected_right],
            place,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_as_told() {
        let role = |side| Role {
            join: 3,
            side,
            spreads: side == 1,
            samplers: 4,
            tasks: 8,
            expected: [Some(1000), None],
            place: "http://[::1]:7070/".parse().unwrap(),
        };
        for side in [0, 1] {
            assert_eq!(RoleMessage::from(&role(side)).read(), Some(role(side)));
        }
        let wrong: [fn(&mut RoleMessage); 5] = [
            |told| told.join = STAGE_MAX + 1,
            |told| told.samplers = 9,
            |told| told.samplers = 0,
            |told| told.tasks = TASKS_MAX + 1,
            |told| told.place = "nowhere".to_owned(),
        ];
        for wrong in wrong {
            let mut told = RoleMessage::from(&role(0));
            wrong(&mut told);
            assert_eq!(told.read(), None, "{told:?}");
        }
    }
}

//! What is needed to send lost messages again: what a group of a source has sent and keeps until every member has it,
//! and which messages of each group have arrived at a member. It knows sequence numbers, and not what a message is.

use super::sequence::Sequences;
use crate::wire::Missing;
use std::collections::vec_deque::Drain;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The messages of a group that a member may still ask for, oldest first.
pub(crate) struct Retained<T> {
    /// Sequence number of the oldest.
    first: u64,
    messages: VecDeque<T>,
    /// How many there may be.
    most: usize,
    /// By member: every message with a lower number has arrived there.
    acknowledged: Vec<u64>,
}

impl<T> Retained<T> {
    pub(crate) fn new(members: usize, most: usize) -> Self {
        Self {
            first: 0,
            messages: VecDeque::new(),
            most,
            acknowledged: vec![0; members],
        }
    }

    /// Keeps the next message.
    pub(crate) fn push(&mut self, message: T) {
        self.messages.push_back(message);
    }

    fn next(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    /// Every message below a number has arrived at a member: gives out those that have arrived
    /// everywhere. Messages that were never sent are ignored, and an older
    /// acknowledgement takes nothing back.
    pub(crate) fn acknowledge(&mut self, member: usize, below: u64) -> Drain<'_, T> {
        if below <= self.next() {
            let acknowledged = &mut self.acknowledged[member];
            *acknowledged = below.max(*acknowledged);
        }
        self.release()
    }

    /// A member is gone: gives out what was kept for it alone.
    pub(crate) fn forget(&mut self, member: usize) -> Drain<'_, T> {
        self.acknowledged[member] = u64::MAX;
        self.release()
    }

    fn release(&mut self) -> Drain<'_, T> {
        let everywhere = self.acknowledged.iter().min();
        let arrived = everywhere.map_or(u64::MAX, |below| below.saturating_sub(self.first));
        let count = usize::try_from(arrived)
            .unwrap_or(usize::MAX)
            .min(self.messages.len());
        self.first += count as u64;
        self.messages.drain(..count)
    }

    /// A message that a member says it misses, if it is one that may be missing there.
    pub(crate) fn missed(&mut self, member: usize, sequence: u64) -> Option<&mut T> {
        if sequence < self.acknowledged[member] {
            return None;
        }
        let index = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        self.messages.get_mut(index)
    }

    /// Whether a member has not acknowledged everything.
    pub(crate) fn is_owed(&self, member: usize) -> bool {
        self.acknowledged[member] < self.next()
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.most
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

/// What has arrived of each group of a source.
#[derive(Default)]
pub(crate) struct ArrivedByGroup {
    groups: BTreeMap<u16, Sequences>,
    /// The group whose turn it was last.
    in_turn: u16,
}

impl ArrivedByGroup {
    /// What has arrived of a group.
    pub(crate) fn of(&mut self, group: u16) -> &mut Sequences {
        self.groups.entry(group).or_default()
    }

    /// Groups that are known.
    pub(crate) fn count(&self) -> usize {
        self.groups.len()
    }

    /// Whether messages are missing.
    pub(crate) fn misses(&self) -> bool {
        self.groups.values().any(Sequences::misses)
    }

    /// What to ask the source for now, and of which group.
    pub(crate) fn ask(
        &mut self,
        now: Duration,
        interval: Duration,
        all_taken: bool,
    ) -> Vec<(u16, Missing)> {
        let groups = self.groups.iter_mut();
        groups
            .flat_map(|(group, arrived)| {
                let missing = arrived.ask(now, interval, all_taken).into_iter();
                missing.map(|missing| (*group, missing))
            })
            .collect()
    }

    /// Every message of a group below this one has arrived, as the source is told now.
    pub(crate) fn acknowledge(&mut self, group: u16) -> u64 {
        let Some(arrived) = self.groups.get_mut(&group) else {
            return 0;
        };
        arrived.acknowledged = arrived.next();
        arrived.acknowledged
    }

    /// The group of which most has arrived that its source has not been told.
    pub(crate) fn least_acknowledged(&self) -> u16 {
        let untold = self.groups.iter();
        let untold = untold.max_by_key(|(_, arrived)| arrived.next() - arrived.acknowledged);
        untold.map_or(0, |(group, _)| *group)
    }

    /// The groups in turn.
    pub(crate) fn next_group(&mut self) -> u16 {
        let after = self.groups.range(self.in_turn.saturating_add(1)..);
        let next = after.map(|(group, _)| *group).next();
        let next = next.or_else(|| self.groups.keys().next().copied());
        self.in_turn = next.unwrap_or(0);
        self.in_turn
    }
}

#[cfg(test)]
mod tests {
    use super::Retained;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Send,
        Acknowledge(usize, u64),
        Forget(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Send),
            4 => (0usize..3, 0u64..40).prop_map(|(member, below)| Step::Acknowledge(member, below)),
            1 => (0usize..3, Just(u64::MAX)).prop_map(|(member, below)| Step::Acknowledge(member, below)),
            1 => (0usize..3).prop_map(Step::Forget),
        ]
    }

    proptest! {
        /// A message is kept until every member has it or is gone, and can be had until then.
        #[test]
        fn messages_are_kept_until_they_are_everywhere(steps in prop::collection::vec(step(), 0..80)) {
            let mut retained = Retained::new(3, 7);
            let (mut sent, mut released) = (0u64, Vec::new());
            let mut members = [Some(0u64); 3];
            for step in steps {
                match step {
                    Step::Send => {
                        retained.push(sent);
                        sent += 1;
                    }
                    Step::Acknowledge(member, below) => {
                        released.extend(retained.acknowledge(member, below));
                        if let Some(known) = &mut members[member] && below <= sent {
                            *known = below.max(*known);
                        }
                    }
                    Step::Forget(member) => {
                        released.extend(retained.forget(member));
                        members[member] = None;
                    }
                }
                let Some(everywhere) = members.iter().flatten().min() else {
                    prop_assert!(retained.is_empty());
                    return Ok(());
                };
                prop_assert!(released.iter().copied().eq(0..*everywhere));
                prop_assert_eq!(retained.is_empty(), *everywhere == sent);
                prop_assert_eq!(retained.is_full(), sent - everywhere >= 7);
                for (member, known) in members.iter().enumerate() {
                    prop_assert_eq!(retained.is_owed(member), known.is_some_and(|known| known < sent));
                    for sequence in (0..sent + 2).chain([u64::MAX]) {
                        let missed = known.is_some_and(|known| (known..sent).contains(&sequence));
                        let found = retained.missed(member, sequence).copied();
                        prop_assert_eq!(found, missed.then_some(sequence));
                    }
                }
            }
        }
    }
}

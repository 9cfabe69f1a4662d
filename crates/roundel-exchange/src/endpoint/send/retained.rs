//! What a group has sent and keeps until every member has it. It knows sequence numbers, and not
//! what a message is.

use std::collections::VecDeque;
use std::collections::vec_deque::Drain;

/// The messages of a group that a member may still ask for, oldest first.
pub(super) struct Retained<T> {
    /// Sequence number of the oldest.
    first: u64,
    messages: VecDeque<T>,
    /// How many there may be.
    most: usize,
    /// By member: every message with a lower number has arrived there.
    acknowledged: Vec<u64>,
}

impl<T> Retained<T> {
    pub(super) fn new(members: usize, most: usize) -> Self {
        Self {
            first: 0,
            messages: VecDeque::new(),
            most,
            acknowledged: vec![0; members],
        }
    }

    /// Keeps the next message.
    pub(super) fn push(&mut self, message: T) {
        self.messages.push_back(message);
    }

    fn next(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    /// Every message below a number has arrived at a member: gives out those that have arrived
    /// everywhere. What it says of messages that were never sent is ignored, and an older
    /// acknowledgement takes nothing back.
    pub(super) fn acknowledge(&mut self, member: usize, below: u64) -> Drain<'_, T> {
        if below <= self.next() {
            let acknowledged = &mut self.acknowledged[member];
            *acknowledged = below.max(*acknowledged);
        }
        self.release()
    }

    /// A member is gone: gives out what was kept for it alone.
    pub(super) fn forget(&mut self, member: usize) -> Drain<'_, T> {
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
    pub(super) fn missed(&mut self, member: usize, sequence: u64) -> Option<&mut T> {
        if sequence < self.acknowledged[member] {
            return None;
        }
        let index = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        self.messages.get_mut(index)
    }

    /// Whether a member has not acknowledged everything.
    pub(super) fn is_owed(&self, member: usize) -> bool {
        self.acknowledged[member] < self.next()
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.most
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
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

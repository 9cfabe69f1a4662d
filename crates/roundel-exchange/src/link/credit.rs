//! Absolute credit, as the two ends of a link keep it: the number of messages that there has been room for at the
//! receiver so far, modulo 2^32. A credit that is repeated or overtaken does no harm.

/// What a source may send on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credit {
    granted: u32,
    spent: u32,
}

impl Credit {
    /// The highest credit heard of.
    pub(crate) fn granted(&self) -> u32 {
        self.granted
    }

    /// Messages that may be sent now.
    pub(crate) fn left(&self) -> u32 {
        let left = self.granted.wrapping_sub(self.spent);
        if left > i32::MAX as u32 { 0 } else { left }
    }

    /// Takes a credit; an older one does not take credit away.
    pub(crate) fn grant(&mut self, credit: u32) {
        if credit.wrapping_sub(self.granted) <= i32::MAX as u32 {
            self.granted = credit;
        }
    }

    /// Counts a message sent.
    pub(crate) fn spend(&mut self) {
        self.spent = self.spent.wrapping_add(1);
    }
}

/// What a receiver grants on a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    granted: u32,
    /// The part of it that the source has not been told.
    unsaid: u32,
    /// Messages heard that were paid for with it.
    heard: u32,
}

impl Grant {
    /// There is room for so many messages, which the source has not been told.
    pub(crate) fn new(messages: usize) -> Self {
        Self {
            granted: messages as u32,
            unsaid: messages as u32,
            heard: 0,
        }
    }

    /// Credit granted so far.
    pub(crate) fn granted(&self) -> u32 {
        self.granted
    }

    /// The part of it that the source has not been told.
    pub(crate) fn unsaid(&self) -> u32 {
        self.unsaid
    }

    /// There is room for so many messages more.
    pub(crate) fn add(&mut self, messages: u32) {
        self.granted = self.granted.wrapping_add(messages);
        self.unsaid += messages;
    }

    /// The credit to tell the source now.
    pub(crate) fn say(&mut self) -> u32 {
        self.unsaid = 0;
        self.granted
    }

    /// Counts a message; returns the credit that its source had left then, of the credit that it had seen.
    pub(crate) fn hear(&mut self, seen: u32) -> u32 {
        self.heard = self.heard.wrapping_add(1);
        seen.wrapping_sub(self.heard)
    }
}

#[cfg(test)]
impl Credit {
    /// As if so many messages more had been granted and sent.
    pub(crate) fn skip(&mut self, messages: u32) {
        self.granted = self.granted.wrapping_add(messages);
        self.spent = self.spent.wrapping_add(messages);
    }
}

#[cfg(test)]
impl Grant {
    /// As if so many messages more had been granted and heard.
    pub(crate) fn skip(&mut self, messages: u32) {
        self.granted = self.granted.wrapping_add(messages);
        self.heard = self.heard.wrapping_add(messages);
    }
}

#[cfg(test)]
mod tests {
    use super::Credit;
    use proptest::prelude::*;

    #[test]
    fn overtaken_and_repeated_credits_take_nothing_away() {
        let mut credit = Credit::default();
        for (heard, left) in [(2, 2), (6, 6), (4, 6), (6, 6), (0, 6)] {
            credit.grant(heard);
            assert_eq!(credit.left(), left);
        }
    }

    #[test]
    fn a_source_that_sent_more_than_it_was_granted_has_none_left() {
        let mut credit = Credit::default();
        credit.spend();
        assert_eq!(credit.left(), 0);
        credit.grant(3);
        assert_eq!(credit.left(), 2);
    }

    proptest! {
        #[test]
        fn it_wraps_around(start: u32, steps in prop::collection::vec((0u32..1000, 0u32..1000), 1..50)) {
            let mut credit = Credit { granted: start, spent: start };
            let (mut granted, mut spent) = (0u64, 0u64);
            for (more, wanted) in steps {
                granted += u64::from(more);
                credit.grant(start.wrapping_add(granted as u32));
                for _ in 0..wanted {
                    if credit.left() > 0 {
                        credit.spend();
                        spent += 1;
                    }
                }
                prop_assert!(spent <= granted);
                prop_assert_eq!(u64::from(credit.left()), granted - spent);
            }
        }
    }
}

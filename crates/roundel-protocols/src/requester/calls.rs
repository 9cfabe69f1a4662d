//! The calls of a connection, by the slots that they have.

use super::patience::Patience;
use std::time::Duration;

/// The calls of a connection.
pub(super) struct Calls {
    /// Number of the next one, and of the oldest whose slot is not free.
    pub next: u64,
    pub oldest: u64,
    pub slots: Vec<Slot>,
    pub patience: Patience,
    /// Which was the oldest when it was looked last, and since when nothing has come.
    seen: (u64, Duration),
}

#[derive(Clone, Default)]
pub(super) struct Slot {
    pub state: State,
    pub sequence: u64,
    pub token: u64,
    pub begun: Duration,
    pub deadline: Option<Duration>,
    /// When it was sent last, and how often again.
    pub sent: Duration,
    pub again: u32,
    /// Kept where it may be sent again.
    pub request: Vec<u8>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Free,
    Pending,
    /// Its caller has been told that it ended, and the responder has not answered.
    Abandoned,
}

impl Calls {
    /// So many at a time, whose requests are taken for lost after `resend_after` at the soonest.
    pub(super) fn new(pending: usize, resend_after: Duration) -> Self {
        Self {
            next: 0,
            oldest: 0,
            slots: vec![Slot::default(); pending],
            patience: Patience::new(resend_after),
            seen: (0, Duration::ZERO),
        }
    }

    pub(super) fn room(&self) -> usize {
        self.slots.len() - (self.next - self.oldest) as usize
    }

    /// When a request is sent again if it is not answered before.
    pub(super) fn sent_again_at(&mut self, sequence: u64) -> Duration {
        let slot = self.at(sequence);
        let (sent, again) = (slot.sent, slot.again);
        sent + self.patience.wait(again)
    }

    pub(super) fn at(&mut self, sequence: u64) -> &mut Slot {
        let slots = self.slots.len() as u64;
        &mut self.slots[(sequence % slots) as usize]
    }

    /// The slot of a call that has not been answered.
    pub(super) fn unanswered(&mut self, sequence: u64) -> Option<&mut Slot> {
        if !(self.oldest..self.next).contains(&sequence) {
            return None;
        }
        let slot = self.at(sequence);
        (slot.sequence == sequence && slot.state != State::Free).then_some(slot)
    }

    /// Whether calls have waited for so long, and none was answered meanwhile; once each time. On a reliable connection
    /// they are answered in order.
    pub(super) fn are_silent(&mut self, now: Duration, silence: Duration) -> bool {
        let (oldest, since) = self.seen;
        if self.oldest != oldest || self.oldest == self.next {
            self.seen = (self.oldest, now);
            return false;
        }
        let silent = now >= since.max(self.at(oldest).begun) + silence;
        if silent {
            self.seen = (oldest, now);
        }
        silent
    }

    /// Frees the slot of a call that has not been answered. Tells its mark and when it was begun, if its caller waits.
    pub(super) fn end(&mut self, sequence: u64) -> Option<(u64, Duration)> {
        let slot = self.unanswered(sequence)?;
        let waits = slot.state == State::Pending;
        let (token, begun) = (slot.token, slot.begun);
        slot.state = State::Free;
        while self.oldest < self.next && self.at(self.oldest).state == State::Free {
            self.oldest += 1;
        }
        waits.then_some((token, begun))
    }
}

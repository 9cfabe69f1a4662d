//! Over datagrams: messages that a receiver misses are sent again, from where they are kept until
//! it has acknowledged them.

use super::state::{CONTROL_SENDS, NO_RETURN, State};
use super::{Inner, SendEndpoint};
use crate::wire::Missing;
use roundel_verbs::{Payload, SharedBuffer};
use std::sync::Arc;
use std::time::Duration;

/// A message that was sent and may have to be sent again, as it is: all members of a group get the
/// same bytes, whenever.
pub(super) struct Kept {
    pub(super) buffer: SharedBuffer,
    /// Bytes of the message.
    pub(super) length: usize,
    /// The destinations to which it was sent again, and when it was last.
    repaired: Vec<(usize, Duration)>,
}

impl Kept {
    pub(super) fn new(buffer: SharedBuffer, length: usize) -> Self {
        Self {
            buffer,
            length,
            repaired: Vec::new(),
        }
    }

    /// Notes that it is sent again, unless it just was: then the receiver could not know yet.
    fn repair(&mut self, destination: usize, now: Duration, recent: Duration) -> bool {
        match self.repaired.iter_mut().find(|(to, _)| *to == destination) {
            Some((_, at)) if now.saturating_sub(*at) < recent => false,
            Some((_, at)) => {
                *at = now;
                true
            }
            None => {
                self.repaired.push((destination, now));
                true
            }
        }
    }
}

impl SendEndpoint {
    /// Sends a destination what it misses of a group. That costs no credit: what was lost has not
    /// used up the receive that it was paid for with. What does not fit in the send queue is asked
    /// for again; what was never sent, or has been acknowledged, is not sent.
    pub(super) fn repair(&self, state: &mut State, index: usize, group: u16, missing: Missing) {
        let now = self.0.fabric.context.now();
        let recent = self.0.options.repeat_interval / 2;
        for sequence in missing.sequences() {
            if !state.has_room(index, 1 + CONTROL_SENDS) {
                return;
            }
            let Some((member, retained)) = state.retained(index, usize::from(group)) else {
                return;
            };
            let Some(kept) = retained.missed(member, sequence) else {
                continue;
            };
            if !kept.repair(index, now, recent) {
                continue;
            }
            let payload = Payload::Shared {
                buffer: kept.buffer.clone(),
                length: kept.length,
            };
            if state.send(index, NO_RETURN, payload).is_err() {
                return;
            }
            state.report.repaired_messages += 1;
            state.destinations[index].report.repaired_messages += 1;
        }
    }

    /// Looks, every `repeat_interval`, whether a receiver misses something: the tasks that send
    /// may be busy with other things for long.
    pub(crate) fn attend(&self) -> impl Future<Output = ()> + Send + use<> {
        let context = self.0.fabric.context.clone();
        let interval = self.0.options.repeat_interval;
        let inner = Arc::downgrade(&self.0);
        async move {
            loop {
                context.sleep(interval).await;
                let Some(endpoint) = inner.upgrade().map(SendEndpoint) else {
                    return;
                };
                endpoint.look();
            }
        }
    }

    fn look(&self) {
        let Inner { state, queue, .. } = &*self.0;
        let mut state = state.lock();
        if state.keeps_any() {
            self.progress(&mut state);
            drop(state);
            // What was taken for others is theirs to find.
            queue.wake();
        }
    }
}

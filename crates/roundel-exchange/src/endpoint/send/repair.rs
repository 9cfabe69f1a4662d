//! Over datagrams: messages that a receiver misses are made once more, from what is kept of them
//! until the receiver has acknowledged them.

use super::SendEndpoint;
use super::kept::Repair;
use super::state::{CONTROL_SENDS, REPAIR, State};
use crate::designs::carrier::Filled;
use crate::wire::{HEADER_LENGTH, Missing};
use roundel_verbs::{Buffer, Payload};

/// Most buffers of an endpoint for repairs. There are none before something is lost.
const REPAIR_BUFFERS: usize = 8;

impl SendEndpoint {
    /// A destination misses messages of a group. What was never sent, or has been acknowledged, or
    /// was sent again just now, is not meant.
    pub(super) fn take_missing(
        &self,
        state: &mut State,
        index: usize,
        group: u16,
        missing: Missing,
    ) {
        let now = self.0.fabric.context.now();
        let recent = self.0.options.repeat_interval / 2;
        let State {
            groups, repairs, ..
        } = state;
        let Some((member, retained)) = State::retained(groups, index, usize::from(group)) else {
            return;
        };
        for sequence in missing.sequences() {
            let Some(kept) = retained.missed(member, sequence) else {
                continue;
            };
            let asked = kept.asked_by(index);
            let was_sent = |at| now.saturating_sub(at) < recent;
            if !asked.waits && !asked.sent_at.is_some_and(was_sent) {
                asked.waits = true;
                repairs.due.push_back(Repair {
                    destination: index,
                    group,
                    sequence,
                });
            }
        }
    }

    /// Sends again what is missing, as far as there are buffers and room; returns whether there
    /// was any. That costs no credit: what was lost has not used up the receive it was paid with.
    pub(super) fn repair(&self, state: &mut State) -> bool {
        let mut any = false;
        while let Some(next) = state.repairs.due.front().copied() {
            if !state.has_room(next.destination, 1 + CONTROL_SENDS) {
                break;
            }
            let Some(buffer) = self.repair_buffer(state) else {
                break;
            };
            state.repairs.due.pop_front();
            any = true;
            self.send_again(state, next, buffer);
        }
        any
    }

    fn repair_buffer(&self, state: &mut State) -> Option<Buffer> {
        let repairs = &mut state.repairs;
        if repairs.buffers.is_empty() && repairs.made < REPAIR_BUFFERS {
            let bytes = self.0.options.message_bytes;
            repairs.buffers.extend(self.0.fabric.buffer(bytes, false));
            repairs.made += repairs.buffers.len();
            state.report.hold(repairs.buffers.len(), bytes);
        }
        repairs.buffers.pop()
    }

    fn send_again(&self, state: &mut State, repair: Repair, mut buffer: Buffer) {
        let Repair {
            destination,
            group,
            sequence,
        } = repair;
        let index = usize::from(group);
        let kept = State::retained(&mut state.groups, destination, index)
            .and_then(|(member, retained)| retained.missed(member, sequence));
        let Some(kept) = kept else {
            // It has arrived meanwhile.
            state.repairs.buffers.push(buffer);
            return;
        };
        let asked = kept.asked_by(destination);
        asked.waits = false;
        asked.sent_at = Some(self.0.fabric.context.now());
        let (partition, data) = (kept.partition, kept.data);
        kept.write_payload(&mut buffer);
        let header = self.data_header(state, index, sequence, partition, data);
        buffer.write(0, &header.emit());
        let message = Filled::Bytes(Payload::Owned {
            buffer,
            length: HEADER_LENGTH + data.payload_length as usize,
        });
        // A destination that cannot be sent to has failed, and says so to whoever sends to it.
        if state.send(destination, REPAIR, message).is_ok() {
            state.report.repaired_messages += 1;
            state.destinations[destination].report.repaired_messages += 1;
        } else {
            state.repairs.made -= 1;
            state.report.give_back(1, self.0.options.message_bytes);
        }
    }
}

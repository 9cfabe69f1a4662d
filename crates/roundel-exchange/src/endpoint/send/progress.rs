//! What a SEND endpoint's completion queue brings: buffers back, credit, acknowledgements and
//! questions.

use super::SendEndpoint;
use super::state::{ARRIVAL, CONTROL, REPAIR, SHARED, State};
use crate::designs::send_ud;
use crate::error::Result;
use crate::link::queue_pair::{SendQueue, post_receive};
use crate::wire::{Body, FLAG_REPEATED, Header, Sent};
use roundel_verbs::{Completion, CompletionStatus, Opcode};

/// Completions taken from the queue at a time.
const POLL_BATCH: usize = 64;
/// Groups that an answer tells of: each message of it uses up a receive that nobody paid for, of
/// which a receiver has a few.
const ANSWERS: usize = 2;

impl SendEndpoint {
    /// Takes the completions that are there.
    pub(super) fn progress(&self, state: &mut State) {
        loop {
            let mut completions = std::mem::take(&mut state.completions);
            let found = self.0.queue.poll(&mut completions, POLL_BATCH);
            for completion in completions.drain(..) {
                self.take(state, completion);
            }
            state.completions = completions;
            if found < POLL_BATCH && !self.repair(state) {
                break;
            }
        }
        if self.0.options.has_queues() {
            state.take_queues();
        }
        // One answer for all the questions that came meanwhile.
        if std::mem::take(&mut state.asked) {
            for index in 0..state.destinations.len() {
                if std::mem::take(&mut state.destinations[index].asked) {
                    self.answer(state, index);
                }
            }
        }
    }

    fn take(&self, state: &mut State, completion: Completion) {
        if completion.opcode != Opcode::Receive {
            state.take_send(completion);
        } else if state.datagrams.is_none() {
            state.take_credit(&completion);
        } else if let Some((index, header)) = state.take_datagram(completion)
            && header.exchange == self.0.exchange
            && header.source == self.0.source
        {
            self.take_control(state, index, &header);
        }
    }

    /// A control message of a destination over datagrams.
    fn take_control(&self, state: &mut State, index: usize, header: &Header) {
        let destination = &mut state.destinations[index];
        match header.body {
            Body::Credit(credit) => {
                destination.credit.grant(credit.credit);
                // Of its window as much may be on its way as is left.
                let window = 2 * destination.credit.left() as usize;
                if header.is_repeated() {
                    destination.asked = true;
                    state.asked = true;
                }
                state.acknowledge(index, usize::from(header.group), credit.acknowledged);
                // Without memory for more, what does not get in is said again.
                let _ = self.0.post_control_receives(state, index, window);
            }
            Body::Acknowledge(messages) => {
                if let Some(end) = &mut destination.end
                    && messages == destination.digest.count
                {
                    end.acknowledged = true;
                    state.acknowledge_all(index);
                }
            }
            Body::Missing(missing) => self.take_missing(state, index, header.group, missing),
            Body::Joined => state.joined(index, usize::from(header.group)),
            _ => {}
        }
    }

    /// A receiver that has heard nothing for a while has said its credit again. It may not have
    /// heard of the end; or it has missed messages, and with them the credit that they used up,
    /// which nobody else would ever notice.
    fn answer(&self, state: &mut State, index: usize) {
        // Failing to answer is no failure: the receiver asks again.
        let _ = self.try_answer(state, index);
    }

    fn try_answer(&self, state: &mut State, index: usize) -> Result<()> {
        let destination = &state.destinations[index];
        let on_link = destination.digest.count;
        if let Some(end) = &destination.end {
            let recent = self.0.options.repeat_interval / 2;
            let ago = self.0.fabric.context.now().saturating_sub(end.said_at);
            if end.acknowledged {
                return Ok(());
            }
            if ago >= recent && state.has_room(index, 1) {
                self.say_end(state, index, FLAG_REPEATED)?;
            }
        }
        let mut groups: Vec<_> = state.owed_to(index).take(ANSWERS).collect();
        if groups.is_empty() && state.destinations[index].end.is_none() {
            groups.extend(state.first_group_of(index));
        }
        for group in groups {
            if !state.has_room(index, 1) {
                return Ok(());
            }
            let to_group = state.groups[group].sent;
            let body = Body::Sent(Sent { on_link, to_group });
            let header = self.header(group as u16, 0, body);
            state.send_control(index, &header)?;
        }
        Ok(())
    }
}

impl State {
    fn take_send(&mut self, completion: Completion) {
        // A receiver that has everything may close the connection before its answer is here.
        let failed = completion.status != CompletionStatus::Success && completion.id != ARRIVAL;
        match self.by_queue_pair.get(&completion.queue_pair) {
            Some(&index) => {
                let destination = &mut self.destinations[index];
                destination.sends.iter_mut().for_each(SendQueue::complete);
                destination.undelivered |= failed;
            }
            None => self.datagrams.iter_mut().for_each(SendQueue::complete),
        }
        if failed {
            self.fail_queue_pair(&completion);
        }
        if completion.id & CONTROL != 0 {
            return;
        }
        if completion.id & SHARED == 0 {
            match completion.buffer {
                Some(buffer) if completion.id == REPAIR => self.repairs.buffers.push(buffer),
                Some(buffer) => self.give_back(completion.id as usize, buffer),
                None => {}
            }
            return;
        }
        if let Some((group, buffer)) = self.shared.completed(completion.id & !SHARED) {
            self.give_back(group, buffer);
        }
    }

    /// A credit over Reliable Connection: it is the immediate data of an empty WRITE.
    fn take_credit(&mut self, completion: &Completion) {
        let Some(&index) = self.by_queue_pair.get(&completion.queue_pair) else {
            return;
        };
        if completion.status != CompletionStatus::Success {
            self.fail(index, completion.status);
            return;
        }
        let destination = &mut self.destinations[index];
        if let Some(credit) = completion.immediate {
            destination.credit.grant(credit);
        }
        if let Some(sends) = &destination.sends {
            post_receive(&sends.queue_pair, index as u64, None);
        }
    }

    /// The header of a datagram and the destination that it is from. Garbage and strangers are
    /// dropped; whoever spoke is told apart by its queue pair.
    fn take_datagram(&mut self, completion: Completion) -> Option<(usize, Header)> {
        let header = send_ud::header(&completion);
        let speaker = completion.source_queue_pair;
        if let (Some(buffer), Some(datagrams)) = (completion.buffer, &self.datagrams)
            && completion.status != CompletionStatus::Flushed
        {
            post_receive(&datagrams.queue_pair, 0, Some(buffer));
        }
        let header = header?;
        let index = header.partition as usize;
        let destination = self.destinations.get(index)?;
        let known = destination.carrier.is_some() && destination.remote.number == speaker;
        known.then_some((index, header))
    }
}

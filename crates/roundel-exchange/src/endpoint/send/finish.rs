//! End-of-stream: said once over Reliable Connection, repeated until it is acknowledged over
//! datagrams.

use super::destination::End;
use super::state::{ARRIVAL, State};
use super::{DestinationId, SendEndpoint};
use crate::error::Result;
use crate::wire::{Body, FLAG_REPEATED};
use roundel_verbs::completion_queue::until_ready;
use roundel_verbs::{Payload, SendOperation, SendRequest};
use std::task::Poll;

const WORD_BYTES: usize = 8;

impl SendEndpoint {
    /// Tells a destination that no more data comes, and waits until all of it, and the news, has
    /// been handed over: completed by the device over Reliable Connection, acknowledged by the
    /// receiver over datagrams, which does so when it has everything if lost messages are
    /// repaired. On iWARP the receiver has answered, or the connection broke before it did: it knows then what it misses.
    ///
    /// # Errors
    /// When the destination failed before.
    pub async fn finish(&self, destination: DestinationId) -> Result<()> {
        let queue = &self.0.queue;
        until_ready(&[queue], |_| self.poll_say_end(destination)).await?;
        loop {
            // The sleep bounds the wait for an acknowledgement that was lost.
            let mut repeat = self.0.fabric.context.sleep(self.0.options.repeat_interval);
            let done = until_ready(&[queue], |cx| {
                if let Poll::Ready(done) = self.poll_ended(destination) {
                    return Poll::Ready(Some(done));
                }
                repeat.as_mut().poll(cx).map(|()| None)
            })
            .await;
            match done {
                Some(done) => return done,
                None => self.repeat_end(destination)?,
            }
        }
    }

    fn poll_say_end(&self, destination: DestinationId) -> Poll<Result<()>> {
        let mut state = self.0.state.lock();
        self.progress(&mut state);
        let target = &state.destinations[destination.0];
        if let Some(error) = &target.failed {
            return Poll::Ready(Err(error.clone()));
        }
        if target.left() == 0 || !state.has_room(destination.0, 4) {
            self.wait_for(&mut state, &[destination.0]);
            return Poll::Pending;
        }
        Poll::Ready(self.say_end(&mut state, destination.0, 0))
    }

    pub(super) fn say_end(&self, state: &mut State, destination: usize, flags: u8) -> Result<()> {
        let target = &mut state.destinations[destination];
        target.credit.spend();
        let body = Body::EndOfStream(target.digest);
        target.end = Some(End {
            acknowledged: false,
            said_at: self.0.fabric.context.now(),
        });
        let header = self.header(0, flags, body);
        state.send_control(destination, &header)?;
        match self.0.fabric.device.capabilities().completes_on_arrival {
            true => Ok(()),
            false => self.ask_for_arrival(state, destination),
        }
    }

    /// Reads from a destination, behind all that was sent there: on iWARP nothing else says that it has arrived. Messages
    /// on their way are lost with their connection.
    fn ask_for_arrival(&self, state: &mut State, destination: usize) -> Result<()> {
        let target = &mut state.destinations[destination];
        let (Some(sends), Some(carrier)) = (&mut target.sends, &mut target.carrier) else {
            return Ok(());
        };
        let Some(bell) = carrier.bell() else {
            return Ok(());
        };
        let buffer = self.0.fabric.buffer(WORD_BYTES, false)?;
        sends.post(vec![SendRequest {
            id: ARRIVAL,
            operation: SendOperation::Read(bell.there.at()),
            payload: Payload::Owned {
                buffer,
                length: WORD_BYTES,
            },
            destination: None,
        }])
    }

    fn repeat_end(&self, destination: DestinationId) -> Result<()> {
        let mut state = self.0.state.lock();
        let target = &state.destinations[destination.0];
        // Without credit the receiver has no receive for it: it asks again when it wants to know.
        if state.datagrams.is_some()
            && target.carrier.is_some()
            && target.credit.left() > 0
            && state.has_room(destination.0, 1)
            && let Some(end) = &target.end
            && !end.acknowledged
        {
            return self.say_end(&mut state, destination.0, FLAG_REPEATED);
        }
        Ok(())
    }

    fn poll_ended(&self, destination: DestinationId) -> Poll<Result<()>> {
        let mut state = self.0.state.lock();
        self.progress(&mut state);
        let target = &state.destinations[destination.0];
        let done = match (&target.carrier, &target.sends) {
            (Some(carrier), Some(sends)) => {
                carrier.has_all_read() && sends.in_flight == 0 && !target.undelivered
            }
            (Some(_), None) => target.end.as_ref().is_some_and(|end| end.acknowledged),
            (None, _) => false,
        };
        // A receiver that has everything may close the connection first.
        match &target.failed {
            _ if done => Poll::Ready(Ok(())),
            Some(error) => Poll::Ready(Err(error.clone())),
            None => {
                self.wait_for(&mut state, &[destination.0]);
                Poll::Pending
            }
        }
    }
}

//! SEND over Reliable Connection (Liu et al. 2019, section 5.3): MEMQ/SR and SEMQ/SR. A message uses up a receive with
//! a buffer, for which its source has credit.

use super::carrier::{Allocate, Filled, LinkSizes, Place, ReceiverEnd, Requests, SourceEnd};
use crate::error::Result;
use roundel_verbs::{Buffer, Completion, SendOperation, SendRequest};

/// The end of a source.
pub(super) struct Source;

impl SourceEnd for Source {
    fn carry(&mut self, message: Filled, ids: [u64; 2]) -> Result<Requests, &'static str> {
        Ok(vec![SendRequest {
            id: ids[0],
            operation: SendOperation::Send,
            payload: message.into_bytes()?,
            destination: None,
        }])
    }
}

/// The end of a receiver.
pub(super) struct Receiver {
    /// The buffers that its receives begin with.
    first: Vec<Buffer>,
}

impl Receiver {
    pub(super) fn open(sizes: &LinkSizes, allocate: Allocate<'_>) -> Result<Self> {
        let buffers = (0..sizes.least).map(|_| allocate(sizes.message_bytes, false));
        let first = buffers.collect::<Result<_>>()?;
        Ok(Self { first })
    }
}

impl ReceiverEnd for Receiver {
    fn first_receives(&mut self, _: usize) -> Vec<Option<Buffer>> {
        self.first.drain(..).map(Some).collect()
    }

    fn counts_on_receives(&self) -> bool {
        true
    }

    fn received(&mut self, completion: Completion) -> Result<Option<Place>, &'static str> {
        match completion.written {
            true => Err("it writes where it should send"),
            false => Ok(completion.buffer.map(Place::of)),
        }
    }

    fn give_back(&mut self, buffer: Buffer, _: u32, retired: bool) -> Option<Option<Buffer>> {
        (!retired).then_some(Some(buffer))
    }
}

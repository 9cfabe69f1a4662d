//! SEND over Reliable Connection (Liu et al. 2019, sections 5.2 and 5.3): MEMQ/SR and SEMQ/SR. A message uses up a receive
//! with a buffer, for which its source has credit.
//!
//! Credit comes as the immediate data of an empty WRITE, which wakes the source. Or the receiver writes it to the source's memory,
//! as the paper's receivers do, each over the one before it. Devices need no immediate data for that, and a source that sleeps has
//! to ask for the bell.

use super::carrier::{Allocate, Bell, Filled, LinkSizes, Place, ReceiverEnd, Requests, SourceEnd};
use crate::error::Result;
use crate::link::queue::{Queue, QueueAddress, RemoteQueue};
use roundel_verbs::{Arena, Buffer, Completion, SendOperation, SendRequest};

/// Where one end of a link keeps credit in memory.
struct Credits {
    /// At the source, the credit that has come last; at the receiver, the source's wish for the bell.
    here: Queue,
    /// The same of the other end, once it is known.
    there: Option<RemoteQueue>,
}

impl Credits {
    /// With room for so many here, one or none; `None` where credit is immediate data.
    fn open(arena: &Arena, sizes: &LinkSizes, room: usize) -> Result<Option<Self>> {
        if !sizes.credit_in_memory {
            return Ok(None);
        }
        Ok(Some(Self {
            here: Queue::open(arena, room)?,
            there: None,
        }))
    }
}

/// The end of a source.
pub(super) struct Source(Option<Credits>);

impl Source {
    pub(super) fn open(arena: &Arena, sizes: &LinkSizes) -> Result<Self> {
        Credits::open(arena, sizes, 1).map(Self)
    }
}

impl SourceEnd for Source {
    fn queue(&self) -> Option<&Queue> {
        self.0.as_ref().map(|credits| &credits.here)
    }

    fn begin(&mut self, bell: Option<QueueAddress>, _: u32, peer: &str) -> Result<()> {
        if let Some(credits) = &mut self.0 {
            credits.there = Some(RemoteQueue::valid(bell, peer)?);
        }
        Ok(())
    }

    fn carry(&mut self, message: Filled, ids: [u64; 2]) -> Result<Requests, &'static str> {
        Ok(vec![SendRequest {
            id: ids[0],
            operation: SendOperation::Send,
            payload: message.into_bytes()?,
            destination: None,
        }])
    }

    fn take_credit(&mut self) -> Option<u32> {
        let credit = self.0.as_mut()?.here.take_newest()?;
        Some(credit as u32)
    }

    fn bell(&mut self) -> Option<Bell<'_>> {
        let credits = self.0.as_mut()?;
        Some(Bell::new(&credits.here, credits.there.as_mut()?))
    }
}

/// The end of a receiver.
pub(super) struct Receiver {
    /// The buffers that its receives begin with.
    first: Vec<Buffer>,
    credits: Option<Credits>,
}

impl Receiver {
    pub(super) fn open(arena: &Arena, sizes: &LinkSizes, allocate: Allocate<'_>) -> Result<Self> {
        let buffers = (0..sizes.least).map(|_| allocate(sizes.message_bytes, false));
        Ok(Self {
            first: buffers.collect::<Result<_>>()?,
            credits: Credits::open(arena, sizes, 0)?,
        })
    }
}

impl ReceiverEnd for Receiver {
    fn queue(&self) -> Option<&Queue> {
        self.credits.as_ref().map(|credits| &credits.here)
    }

    fn begin(&mut self, free: Option<QueueAddress>, peer: &str) -> Result<()> {
        if let Some(credits) = &mut self.credits {
            credits.there = Some(RemoteQueue::free(free, peer)?);
        }
        Ok(())
    }

    fn first_receives(&mut self, _: usize) -> Vec<Option<Buffer>> {
        self.first.drain(..).map(Some).collect()
    }

    fn counts_on_receives(&self) -> bool {
        true
    }

    fn tell_credit(&mut self, id: u64, credit: u32) -> Option<SendRequest> {
        let there = self.credits.as_mut()?.there.as_mut()?;
        Some(there.put_newest(id, credit.into()))
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

    /// Messages wake this end.
    fn bell(&mut self) -> Option<Bell<'_>> {
        let credits = self.credits.as_mut()?;
        let bell = Bell::new(&credits.here, credits.there.as_mut()?);
        Some(Bell {
            asks: false,
            ..bell
        })
    }
}

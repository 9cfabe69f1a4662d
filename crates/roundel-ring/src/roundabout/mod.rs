//! Data Roundabout (section III-D): a ring of hosts, each with a static ring of registered buffers, around which
//! elements go in one direction. Knows no rows: an element is a run of bytes, with notes that hosts change on its way.
//!
//! A [`Roundabout`] is a host's place in a ring that is connected. A task of its own, the mover, receives and transmits
//! while the host works on the element at hand. The elements of a ring begin at their origins, pass each other host
//! once, in the order in which they began, and end at the last of them.
//!
//! **Flow control.** A host transmits an element only into a buffer of its follower that it has credit for; so a slow
//! host holds its predecessor up only when its own buffers are full. An element that begins leaves the last free buffer
//! of the follower to those that are on their way: a ring that is full of elements moves on as long as there is one free
//! buffer in it.

mod mover;
mod opening;
mod wire;

pub use opening::Opening;

use crate::error::{Result, RingError};
use futures::StreamExt as _;
use futures::channel::{mpsc, oneshot};
use roundel_verbs::completion_queue::BoxFuture;
use roundel_verbs::rendezvous::LostPeer;
use roundel_verbs::{Arena, ArenaOptions, Buffer, CompletionChannel, Context, Device};
use std::sync::Arc;
use wire::{HEAD_BYTES, Head};

/// Most hosts of a ring.
pub const HOSTS_MAX: usize = 1024;
/// Buffers that elements of a host's own begin in: one is filled while another leaves.
const OWN_BUFFERS: usize = 2;

/// The place of a host in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number, from 0.
    pub number: usize,
    /// How many hosts the ring has.
    pub hosts: usize,
}

impl Place {
    /// The place that elements go to from here.
    pub fn follower(self) -> usize {
        (self.number + 1) % self.hosts
    }

    /// The place that elements come from.
    pub fn predecessor(self) -> usize {
        (self.number + self.hosts - 1) % self.hosts
    }
}

/// The ring of buffers of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// Buffers that elements of others come into; at least 2.
    pub elements: usize,
    /// Bytes of an element, its head included.
    pub element_bytes: usize,
}

impl Default for RingOptions {
    /// Eight elements of 1 MiB (section III-C).
    fn default() -> Self {
        Self {
            elements: 8,
            element_bytes: 1 << 20,
        }
    }
}

/// What a host brings.
#[derive(Clone)]
pub struct RingHost {
    /// The device that elements come and go through.
    pub device: Device,
    /// Registered memory on it.
    pub arena: Arena,
    /// A channel of the device that a [driver](CompletionChannel::drive) serves.
    pub channel: CompletionChannel,
    /// Time and tasks.
    pub context: Arc<dyn Context>,
}

impl RingHost {
    /// A host of its own on a device: with an arena, and a channel whose driver the context runs.
    ///
    /// # Errors
    /// When the device can have no channel more.
    pub fn new(device: Device, context: Arc<dyn Context>) -> Result<Self> {
        let channel = device.create_channel()?;
        context.spawn(Box::pin(channel.drive()?));
        Ok(Self {
            arena: device.arena(ArenaOptions::default()),
            device,
            channel,
            context,
        })
    }
}

/// An element that has come, or begins here.
#[derive(Debug)]
pub struct Element {
    buffer: Buffer,
    head: Head,
    /// Whether it lies in one of the buffers that elements begin in.
    begins: bool,
}

impl Element {
    /// The place that it comes from.
    pub fn origin(&self) -> usize {
        self.head.origin.into()
    }

    /// Whether no other host has to see it any more.
    pub fn ends_at(&self, place: Place) -> bool {
        usize::from(self.head.hops) + 1 >= place.hosts
    }

    /// A copy of its payload: peers may write to the memory that it lies in.
    pub fn payload(&self) -> Vec<u8> {
        self.copy(HEAD_BYTES, self.head.payload)
    }

    /// A copy of its notes.
    pub fn notes(&self) -> Vec<u8> {
        self.copy(HEAD_BYTES + self.head.payload as usize, self.head.notes)
    }

    /// Bytes of its notes.
    pub fn notes_len(&self) -> usize {
        self.head.notes as usize
    }

    /// Changes its notes, for those who get it after this host.
    ///
    /// # Panics
    /// When there are more of them, or less.
    pub fn set_notes(&mut self, notes: &[u8]) {
        assert_eq!(
            notes.len(),
            self.head.notes as usize,
            "notes keep their length"
        );
        self.buffer
            .write(HEAD_BYTES + self.head.payload as usize, notes);
    }

    fn copy(&self, from: usize, length: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length as usize);
        self.buffer.read_append(from, length as usize, &mut bytes);
        bytes
    }
}

/// A buffer for an element that is to begin.
#[derive(Debug)]
pub struct Blank(Buffer);

/// Requests to the mover.
enum Departure {
    /// This element goes on.
    Forward(Element),
    /// This one has been everywhere.
    End(Element),
}

/// A host's place in a ring.
pub struct Roundabout {
    place: Place,
    element_bytes: usize,
    arrived: mpsc::UnboundedReceiver<Result<Element>>,
    /// Other hosts whose last element has not come yet.
    unfinished: usize,
    blanks: mpsc::UnboundedReceiver<Buffer>,
    departures: mpsc::UnboundedSender<Departure>,
    /// Of elements that began here.
    sequence: u32,
    ended: oneshot::Receiver<Result<()>>,
}

/// What a host can go on with.
#[derive(Debug)]
pub enum Next {
    /// An element of another host has come.
    Element(Element),
    /// An element of this host can begin.
    Blank(Blank),
    /// All elements of all other hosts have come.
    End,
}

impl Roundabout {
    /// Where it is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Most bytes of the payload and the notes of an element.
    pub fn payload_bytes_max(&self) -> usize {
        self.element_bytes - HEAD_BYTES
    }

    /// Waits for the next element, or, where the host `has_own` elements to begin, for room for one of them: what has
    /// come goes first.
    ///
    /// # Errors
    /// When the ring is broken.
    pub async fn next(&mut self, has_own: bool) -> Result<Next> {
        if self.unfinished == 0 && !has_own {
            return Ok(Next::End);
        }
        let (arrived, blanks) = (&mut self.arrived, &mut self.blanks);
        let next = futures::future::poll_fn(|cx| {
            if let std::task::Poll::Ready(arrived) = arrived.poll_next_unpin(cx) {
                return std::task::Poll::Ready(arrived.map(|element| element.map(Next::Element)));
            }
            match has_own {
                true => blanks
                    .poll_next_unpin(cx)
                    .map(|blank| blank.map(|blank| Ok(Next::Blank(Blank(blank))))),
                false => std::task::Poll::Pending,
            }
        });
        let next = match next.await {
            Some(next) => next?,
            None => return Err(self.why_ended().await),
        };
        if let Next::Element(element) = &next
            && element.head.last
        {
            self.unfinished -= 1;
        }
        Ok(next)
    }

    /// An element that begins here.
    ///
    /// # Panics
    /// When payload and notes are more than [`payload_bytes_max`](Self::payload_bytes_max).
    pub fn begin(&mut self, blank: Blank, payload: &[u8], notes: &[u8], last: bool) -> Element {
        let mut buffer = blank.0;
        buffer.write(HEAD_BYTES, payload);
        buffer.write(HEAD_BYTES + payload.len(), notes);
        let head = Head {
            origin: self.place.number as u16,
            hops: 0,
            sequence: self.sequence,
            last,
            payload: payload.len() as u32,
            notes: notes.len() as u32,
        };
        self.sequence = self.sequence.wrapping_add(1);
        Element {
            buffer,
            head,
            begins: true,
        }
    }

    /// Passes an element on, or gives its buffer back where all have seen it.
    pub fn pass_on(&mut self, element: Element) {
        let departure = match element.ends_at(self.place) {
            true => Departure::End(element),
            false => Departure::Forward(element),
        };
        // A mover that is gone has said why.
        let _ = self.departures.unbounded_send(departure);
    }

    /// Waits until the follower has everything that was passed on.
    ///
    /// # Errors
    /// When the ring breaks before.
    pub async fn finish(self) -> Result<()> {
        drop(self.departures);
        drop(self.arrived);
        drop(self.blanks);
        self.ended.await.unwrap_or_else(|_| Err(stopped()))
    }

    async fn why_ended(&mut self) -> RingError {
        match (&mut self.ended).await {
            Ok(Err(error)) => error,
            _ => stopped(),
        }
    }
}

fn stopped() -> RingError {
    RingError::Unsupported("the ring was stopped".into())
}

/// Says when a host of the ring is lost.
pub type LostHosts = BoxFuture<'static, LostPeer>;

#[cfg(test)]
pub(crate) mod tests;

//! The seam of section 4.2: what the operators need of whatever moves their messages. Knows no rows but
//! those that are written straight into a buffer.
//!
//! ```text
//!   acquire(group) → buffer                     get → message
//!   write frames into it                        copy it out
//!   put(buffer, group, length) ═════════════►   release(message)
//!   finish                                      get → none
//! ```
//!
//! A thread of a node has a [`Sender`] and a [`Receiver`]. Those of the same number in all nodes belong
//! together, or all of a node share what is below.

pub mod memory;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod qperf;
pub mod runtime;
pub mod sockets;
pub mod verbs;

use crate::error::Result;
use crate::measured::Endpoints;
use arrow::buffer::Buffer;
use roundel_exchange::Selection;
use roundel_exchange::frame::RowSource;
use runtime::ThreadRuntime;
use std::future::Future;

/// A buffer in the hands of whoever fills it.
pub trait MessageBuffer {
    /// Bytes that fit.
    fn capacity(&self) -> usize;
    /// Copies bytes to an offset, where they fit.
    fn write(&mut self, at: usize, bytes: &[u8]);
    /// Writes the frame of these rows to an offset, where it fits; returns its length.
    fn encode(&mut self, at: usize, source: &RowSource<'_>, rows: &Selection<'_>) -> usize;
}

/// The sending side of a thread.
pub trait Sender {
    /// What is filled.
    type Buffer: MessageBuffer;

    /// Waits for a free buffer of a transmission group: a node for repartition, all for broadcast.
    fn acquire(&mut self, group: usize) -> impl Future<Output = Result<Self::Buffer>>;
    /// Sends the first `length` bytes of a buffer, which have so many rows, to all of the group.
    fn put(
        &mut self,
        buffer: Self::Buffer,
        group: usize,
        length: usize,
        rows: u32,
    ) -> impl Future<Output = Result<()>>;
    /// Tells all nodes that no more comes and waits until they have everything.
    fn finish(&mut self) -> impl Future<Output = Result<()>>;
}

/// A message that arrived.
pub trait Message {
    /// Its bytes.
    fn length(&self) -> usize;
    /// Copies it to a target of its length.
    fn copy_to(&self, target: &mut [u8]) -> Result<()>;
    /// A copy in memory of its own, as frames are aligned.
    fn copy(&self) -> Result<Buffer>;
}

/// The receiving side of a thread.
pub trait Receiver {
    /// What arrives.
    type Message: Message;

    /// The next message; none once all sources have said that no more comes.
    fn get(&mut self) -> impl Future<Output = Result<Option<Self::Message>>>;
    /// A message that has come already, where that can be seen without asking to be woken.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    fn take(&mut self) -> Result<Option<Self::Message>> {
        Ok(None)
    }
    /// Gives the memory of a message back.
    fn release(&mut self, message: Self::Message);
}

/// Asks what the endpoints of a node did so far.
pub type AskEndpoints = Box<dyn Fn() -> Endpoints + Send>;

/// What the threads of a node have opened.
pub struct Opened<S, R> {
    /// By thread.
    pub threads: Vec<Ends<S, R>>,
    /// What the endpoints of the node did so far.
    pub endpoints: AskEndpoints,
}

/// The two sides of a thread.
pub struct Ends<S, R> {
    /// Where rows go to.
    pub sender: S,
    /// Where they come from.
    pub receiver: R,
    /// What serves both, which are tasks of one thread then; without, each blocks a thread of its own.
    pub runtime: Option<ThreadRuntime>,
}

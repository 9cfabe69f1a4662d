//! Remote procedure calls: a client that calls, each time with a deadline, and a server that has a handler answer,
//! over any protocol of verbs.
//!
//! ```text
//!   Caller ── call ──► line of a connection ──► task: Requester ═══ verbs ═══ Responder :task ──► Handler
//!     ▲  clones         waits for room                │
//!     └──────────────── Call, a future ◄──── ended ───┘
//! ```
//!
//! Each end is a task of its [`Context`](roundel_verbs::Context), so that it runs as well on virtual time. The task
//! waits as the protocol lets it: asleep until there is a completion, or, where messages only show in memory, looking
//! again and again, less and less often. A client without pending calls sleeps.
//!
//! Each call ends in its answer or in one [`CallError`](crate::CallError), within its deadline: also one that waits
//! for room, whose peer has died, or whose client is closed. A call whose future is dropped is given up, and the
//! answer of its responder is ignored.
//!
//! It must not know what is asked and answered, nor how peers meet; [`meet()`] is for those who have a rendezvous.
//!
//! ```
//! use roundel_protocols::rpc::{Client, Server};
//! use roundel_protocols::{CallError, EndOptions, Fabric, Protocol};
//! use roundel_verbs::{TokioContext, shm};
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fabric = || -> roundel_protocols::error::Result<Fabric> {
//!     let device = shm::open(shm::ShmOptions::default())?;
//!     Ok(Fabric::new(device, Arc::new(TokioContext::current())))
//! };
//! let options = EndOptions::new(Protocol::WriteWrite);
//! let mut server = Server::open(&fabric()?, 1, 0, &options)?;
//! let mut client = Client::open(&fabric()?, 1, &options)?;
//! // Here both are in one process; else their offers go over a rendezvous.
//! server.connect(0, &client.offer(0), "the client")?;
//! client.connect(0, &server.offer(0), "the server")?;
//! let serving = server.start(|_: usize, request: &[u8], response: &mut Vec<u8>| {
//!     match request {
//!         b"" => Err("it asks for nothing".to_owned()),
//!         _ => Ok(response.extend(request.iter().rev())),
//!     }
//! })?;
//! let caller = client.start()?;
//! let soon = Duration::from_secs(5);
//! // Both are pending at a time.
//! let (one, other) = (caller.call(0, *b"desserts", soon), caller.call(0, [], soon));
//! assert_eq!(one.await?, b"stressed");
//! assert!(matches!(other.await, Err(CallError::Refused { .. })));
//! drop(serving);
//! # Ok(())
//! # }
//! ```

mod client;
mod line;
mod meet;
mod server;
mod wait;

pub use client::{Call, Caller, Client};
pub use meet::{Met, meet};
pub use server::{Server, Serving};

#[cfg(test)]
mod tests;

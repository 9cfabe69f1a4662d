//! Connections on iWARP, which only the connection manager (librdmacm) can make.
//!
//! Of two queue pairs that connect to each other one calls, which their addresses decide; the device of the other
//! listens, and takes the call if it names a queue pair that it has, also before that one's user connects it: devices
//! give up on a call that waits. [`Link`](super::link::Link) sees to it that nothing is sent too early.
//!
//! All calls of the manager are made by one thread per device, so that no user waits for a peer. With Soft-iWARP one of
//! them, `rdma_connect`, waits until the peer's host answers.

mod bindings;
mod connections;
mod hello;
mod library;
mod manager;
mod server;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(super) use bindings::{CONSTANTS, layouts};
pub(super) use connections::Connections;

//! The `tcp` provider: verbs over sockets, for hosts without RDMA.
//!
//! A connected queue pair talks to its peer's over one TCP connection, a datagram queue pair has a
//! UDP socket. One thread per device (module `events`) reads the sockets, so WRITE, READ and the
//! atomics are carried out whatever the application does. A thread that posts a send writes to the socket
//! itself when that is free. Payload goes from registered memory to the socket and from the socket
//! to registered memory, with nothing in between but what happens to be read along with a header.
//!
//! A sender knows how many receives its peer has posted and sends no message that would find none,
//! so whatever arrives can be taken at once and reading never stops. Nothing that comes from the
//! network is believed: a connection that carries what it must not is closed.

mod address;
mod completion_queue;
mod connection;
mod datagram;
mod device;
mod events;
mod frame;
mod handshake;
mod hello;
mod memory;
mod socket;
mod state;
#[cfg(test)]
mod tests;

pub use device::{TcpOptions, open};

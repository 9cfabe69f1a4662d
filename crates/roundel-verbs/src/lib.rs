//! The verbs object model: devices, memory regions, queue pairs, completion queues and channels,
//! work requests and work completions, shaped like libibverbs, with providers behind it.
//!
//! ```text
//!   Device ──creates──► Arena ──allocates──► Buffer ──moved into──► SendRequest / ReceiveRequest
//!     │                                                                    │ post
//!     ├──creates──► QueuePair  ◄───────────────────────────────────────────┘
//!     └──creates──► CompletionQueue ──poll──► Completion (gives the buffer back)
//!                        └── CompletionChannel: says when polling again is worth it
//! ```
//!
//! This crate knows nothing of rows, exchanges or queries. The layers above know nothing of the
//! provider below: they see [`Device`] and what its [`Capabilities`] say.
//!
//! * [`device`] is what users call; [`provider`] is what a provider implements.
//! * [`memory`] has the arena and the three ownerships of a buffer.
//! * [`numa`] has the regions of the host, in which memory lies and threads stay.
//! * [`rdma`] is real devices through libibverbs.
//! * [`shm`] is the software NIC in shared memory, for the processes of one host.
//! * [`tcp`] is verbs over sockets, for hosts without RDMA.
//! * [`sim`] is a cluster on virtual time, from a seed.
//! * [`rendezvous`] is how peers exchange addresses and learn of each other's death.
//! * [`loopback`] says quickly which verbs work on an open device.
//!
//! The crate `roundel-conformance` is the suite that every provider passes.

// Model checking leaves all but the shared rings out.
#![cfg_attr(roundel_loom, allow(dead_code, unused_imports))]

pub mod address;
mod address_handle;
pub mod capabilities;
#[cfg(not(roundel_loom))]
pub mod choice;
pub mod completion_queue;
pub mod context;
pub mod counters;
pub mod device;
pub mod error;
mod event;
mod guarded;
mod in_flight;
#[cfg(not(roundel_loom))]
pub mod loopback;
pub mod memory;
pub mod multicast;
pub mod numa;
pub mod provider;
pub mod queue_pair;
#[cfg(not(roundel_loom))]
pub mod rdma;
pub mod rendezvous;
pub mod shared_receive;
pub mod shm;
#[cfg(not(roundel_loom))]
pub mod sim;
#[cfg(not(roundel_loom))]
pub mod tcp;
mod transport;
pub mod work;

pub use address::{DeviceAddress, QueuePairAddress};
pub use capabilities::Capabilities;
#[cfg(not(roundel_loom))]
pub use choice::{DeviceChoice, DeviceOptions, UnknownDevice};
pub use completion_queue::{CompletionChannel, CompletionQueue, WaitPolicy};
pub use context::{Context, TokioContext, VirtualLock, Work, settle};
pub use counters::{CounterSnapshot, Opcode};
pub use device::Device;
pub use error::{Blame, LINE_CHARS_MAX, VerbsError, one_line};
pub use guarded::{Guard, Guarded};
pub use memory::{Arena, ArenaOptions, Buffer, ExposedBuffer, RemoteAddress, SharedBuffer};
pub use multicast::MulticastGroup;
pub use numa::{Region, Regions};
pub use queue_pair::{
    AddressHandle, QUEUE_KEY_MAX, QueuePair, QueuePairOptions, QueuePairState, Transport,
};
pub use rendezvous::{Rendezvous, SocketListener, SocketOptions, SocketRendezvous};
pub use shared_receive::SharedReceiveQueue;
pub use work::{Completion, CompletionStatus, Payload, ReceiveRequest, SendOperation, SendRequest};

//! The `rdma` provider: InfiniBand, RoCE and iWARP devices, and Soft-RoCE, through libibverbs.
//!
//! The library is opened at run time (module `library`), so a host without it runs everything
//! else. `bindings` has the few structs and constants in use, kept by hand and compared with the
//! header in a test. Data-path calls go through the operations table of the context, as the
//! header's inline functions do.
//!
//! Connections are set up with what peers exchange out of band (`address`, queue pair numbers,
//! packet sequence numbers); on iWARP by the connection manager (`iwarp`, `link`), which others do without. Completion
//! queues grow with the queue pairs on them, so they never overrun. One thread per device reads its asynchronous events.

mod address;
mod address_handle;
mod bindings;
#[cfg(test)]
mod bindings_test;
mod channel;
mod choice;
mod completion_queue;
mod context;
mod device;
mod device_state;
mod doorbell;
mod events;
mod interface;
pub mod inventory;
mod iwarp;
mod layout;
mod library;
mod link;
mod locked_memory;
mod memory;
mod multicast;
mod pair_state;
mod pairs;
mod queue_pair;
mod shared_receive;
pub mod sysfs;
mod work;

pub use choice::RdmaOptions;
pub use device::open;
pub use locked_memory::LockedMemory;

//! The `shm` provider: a software NIC in shared memory, for the processes of one host.
//!
//! A device is a memfd that its peers map whole: memory regions, receive rings and the flags that
//! wake sleepers lie in it (module `layout`). A SEND copies straight into the receive that the peer
//! posted, WRITE and READ copy directly; the thread that posts does the copy, so there is no NIC
//! thread and no system call on the data path unless a sleeper must be woken. One thread per
//! device (module `monitor`) accepts new peers on an abstract socket and notices when one dies.
//!
//! What a peer process can write is never believed: offsets and lengths are read once and checked
//! against the mapping; the owner keeps its own copy of what it posted.

mod layout;
mod sync;

mod connected_ring;
mod datagram_ring;
#[cfg(all(test, roundel_loom))]
mod loom_tests;
mod wakeup;

#[cfg(not(roundel_loom))]
mod completion_queue;
#[cfg(not(roundel_loom))]
mod datagram_receives;
#[cfg(not(roundel_loom))]
mod device;
#[cfg(not(roundel_loom))]
mod hello;
#[cfg(not(roundel_loom))]
mod mapping;
#[cfg(not(roundel_loom))]
mod monitor;
#[cfg(not(roundel_loom))]
mod peer;
#[cfg(not(roundel_loom))]
mod peers;
#[cfg(not(roundel_loom))]
mod queue_pair;
#[cfg(not(roundel_loom))]
mod receive;
#[cfg(not(roundel_loom))]
mod receive_side;
#[cfg(not(roundel_loom))]
mod segment;
#[cfg(not(roundel_loom))]
mod send_side;
#[cfg(not(roundel_loom))]
mod verbs;
#[cfg(not(roundel_loom))]
mod visitor;
#[cfg(not(roundel_loom))]
mod watch_list;

#[cfg(not(roundel_loom))]
pub use {device::ShmOptions, verbs::open};

//! Exchanges end to end, on shared memory: one module per property.

mod account;
#[path = "../../src/frame/tests/arrays.rs"]
mod arrays;
mod broadcast;
mod buffers;
mod cancel;
mod cluster;
mod designs;
mod faults;
mod faulty;
mod machine;
mod memory;
mod multicast;
mod multiplexer;
mod order;
mod patterns;
mod random;
mod regions;
mod repair;
mod restart;
mod scatter;
mod schedule;
mod shared;
mod simulated;
mod types;

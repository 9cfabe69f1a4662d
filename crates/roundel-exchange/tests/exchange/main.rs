//! Exchanges end to end, on shared memory: one module per property.

mod cluster;
mod designs;
mod faults;
mod faulty;

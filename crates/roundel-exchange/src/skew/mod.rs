//! Heavy keys of a join whose two inputs are shuffled by its keys: found in samples of hashes, spread over all partitions
//! from the one input, and sent to all partitions from the other, so that one key does not overload one node (PRPD, Xu et
//! al., SIGMOD 2008; Flow-Join, Rödiger et al., ICDE 2016).
//!
//! ```text
//!   tasks of both inputs   count the keys of their first rows      Sample ──┐
//!   one place              hears all samples, and decides once   Agreement ◄┘ ──► Decision, the same for all
//!   tasks of both inputs   a heavy key's rows in turn, or to all    Router
//! ```
//!
//! Hashes stand for keys. This module knows no rows and no time, nor how tasks and place talk: whoever has the tasks
//! carries samples and decisions, and [gives up](Agreement::give_up) on what does not come.

mod agreement;
mod heavy;
mod router;
mod sample;

pub use agreement::{Agreement, Seen, TASKS_MAX, Task, Terms};
pub use heavy::{Decision, HEAVY_MAX, HeavyKeys, Routes};
pub use router::{Routed, Router};
pub use sample::{CANDIDATES_MAX, SAMPLE_BYTES, SAMPLE_ROWS, Sample};

//! Which protocol for which conversation: a model of what each call takes of NICs, links and processors says how many
//! calls there can be and what limits them, and with it which protocol, how many threads and how many pending calls
//! to use.
//!
//! ```text
//!   Parameters (a generation of hardware) ─► Model ── predict(setting) ──► Prediction: calls, Limit
//!   measured points of this host ─► Measured host ──────────────┘               │
//!                                                  advise(Wish) ──► the best ◄──┘
//! ```
//!
//! The model is arithmetic, and answers at once. Its answers are compared with the simulator's, which plays every packet.

mod check;
mod choice;
mod demand;
mod measured;
mod model;

pub use check::{GOOD, Range, Verdict, check};
pub use choice::{Advice, Wish, advise};
pub use measured::{HostModel, probes};
pub use model::{Limit, Model, Predict, Prediction};

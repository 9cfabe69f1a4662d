//! Registered memory: an arena of segments that grows on demand and shrinks under pressure, and
//! the three ownerships of a buffer.
//!
//! A peer's device may write to registered memory at any time, so nothing here hands out a Rust
//! reference to it: bytes are copied in and out, exposed words go through atomics.

mod arena;
mod buffer;
mod copy;
mod pages;
mod ranges;
mod segment;

pub use arena::{Arena, ArenaOptions, ArenaUsage};
pub use buffer::{Buffer, ExposedBuffer, RemoteAddress, SharedBuffer};
pub(crate) use copy::{copy_last_byte_last, copy_words_whole};
pub(crate) use pages::Pages;
pub(crate) use ranges::FreeRanges;
pub use segment::ProviderSegment;

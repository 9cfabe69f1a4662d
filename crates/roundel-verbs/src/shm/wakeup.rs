//! How a sleeper is woken without a system call for those who are awake.
//!
//! ```text
//!   sleeper: arm ── fence ── poll once more ── sleep on the eventfd
//!   waker:   make the completion visible ── fence ── armed? disarm it, signal the eventfd
//! ```
//!
//! With both fences either the sleeper's last poll sees the completion, or the waker sees that
//! the queue is armed.

use super::layout::QueueEntry;
use super::sync::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use super::sync::fence;

/// Sleeper: asks to be woken at the next completion; returns whether it was armed already. Poll
/// once more afterwards.
pub(super) fn arm(entry: &QueueEntry) -> bool {
    let before = entry.armed.swap(1, AcqRel);
    fence(SeqCst);
    before == 1
}

/// Whether the queue is armed.
pub(super) fn is_armed(entry: &QueueEntry) -> bool {
    entry.armed.load(Acquire) == 1
}

/// Waker, after the completion was made visible: whether the sleeper must be signalled. Of
/// several wakers one is told so.
pub(super) fn take_armed(entry: &QueueEntry) -> bool {
    fence(SeqCst);
    entry.armed.load(Relaxed) == 1 && entry.armed.swap(0, AcqRel) == 1
}

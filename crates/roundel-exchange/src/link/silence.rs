//! How long the other end of a link has been silent, and what is said again until it answers. It knows times, and not
//! what is said.

use std::time::Duration;

/// Over Reliable Connection: how long a peer may be silent before it is probed with an empty WRITE,
/// and then between two probes. Devices notice that a peer is gone when they send to it; an end that
/// only waits would wait for ever.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The silence of a peer.
pub(crate) struct Silence {
    /// When it was last heard, and when it was last asked to say something.
    heard_at: Duration,
    asked_at: Duration,
    /// How often it was asked in vain.
    pub(crate) asks: u32,
}

impl Silence {
    pub(crate) fn since(now: Duration) -> Self {
        Self {
            heard_at: now,
            asked_at: now,
            asks: 0,
        }
    }

    pub(crate) fn hear(&mut self, now: Duration) {
        self.heard_at = now;
    }

    /// How long it has lasted.
    pub(crate) fn lasts(&self, now: Duration) -> Duration {
        now.saturating_sub(self.heard_at)
    }

    /// Whether to ask now, so long after the last time; counts it.
    pub(crate) fn asks_again(&mut self, now: Duration, interval: Duration) -> bool {
        let due = now.saturating_sub(self.asked_at) >= interval;
        if due {
            self.asked_at = now;
            self.asks = self.asks.saturating_add(1);
        }
        due
    }

    /// Whether to probe the peer now: it was neither heard nor probed for long.
    pub(crate) fn probes(&mut self, now: Duration) -> bool {
        let since = now.saturating_sub(self.heard_at.max(self.asked_at));
        let due = since >= PROBE_INTERVAL;
        if due {
            self.asked_at = now;
        }
        due
    }
}

/// Something that is said again, at first more and more rarely.
#[derive(Default)]
pub(crate) struct Repetition {
    /// When it was first said, and when and after how long to say it again.
    said_at: Duration,
    again_at: Duration,
    after: Duration,
}

impl Repetition {
    /// It is said now, and again after `interval`.
    pub(crate) fn start(now: Duration, interval: Duration) -> Self {
        Self {
            said_at: now,
            again_at: now + interval,
            after: interval,
        }
    }

    /// Whether to say it again now; `rarest` is the longest time between two.
    pub(crate) fn repeats(&mut self, now: Duration, rarest: Duration) -> bool {
        let due = now >= self.again_at;
        if due {
            self.after = self.after.saturating_mul(2).min(rarest);
            self.again_at = now.saturating_add(self.after);
        }
        due
    }

    /// How long ago it was first said.
    pub(crate) fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.said_at)
    }
}

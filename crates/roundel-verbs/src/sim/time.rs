//! Virtual time, in picoseconds: a byte on a fast link takes some tens of them.

use std::ops::{Add, AddAssign, Mul, Sub};
use std::time::Duration;

/// A moment, since the simulation began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Time(u64);

impl Time {
    /// Picoseconds since the start.
    pub(super) fn picos(self) -> u64 {
        self.0
    }

    pub(super) fn since_start(self) -> Duration {
        Duration::from_nanos(self.0 / 1000)
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0 + span.0)
    }
}

impl Sub for Time {
    type Output = Span;
    /// Nothing when the other one is later.
    fn sub(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// A length of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// So many picoseconds.
    pub const fn picos(picos: u64) -> Self {
        Self(picos)
    }

    /// So many nanoseconds.
    pub const fn nanos(nanos: u64) -> Self {
        Self(nanos * 1000)
    }

    /// So many microseconds.
    pub const fn micros(micros: u64) -> Self {
        Self::nanos(micros * 1000)
    }

    /// The length in picoseconds.
    pub fn as_picos(self) -> u64 {
        self.0
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(
            (duration.as_nanos() * 1000)
                .try_into()
                .unwrap_or(u64::MAX / 4),
        )
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        Self::from_nanos(span.0 / 1000)
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0 + other.0)
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        self.0 += other.0;
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, times: u64) -> Span {
        Span(self.0 * times)
    }
}

/// How fast bytes go somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    picos_per_kib: u64,
}

impl Rate {
    /// So many bytes in a second.
    pub const fn bytes_per_second(bytes: u64) -> Self {
        Self {
            picos_per_kib: (1024 * 1_000_000_000_000u128 / bytes as u128) as u64,
        }
    }

    /// What bytes take.
    pub fn time(self, bytes: usize) -> Span {
        Span(bytes as u64 * self.picos_per_kib / 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_takes_what_its_bytes_take() {
        let rate = Rate::bytes_per_second(12_500_000_000);
        assert_eq!(rate.time(4096), Span::picos(327_680));
        assert_eq!(rate.time(1), Span::picos(80));
        assert_eq!(Span::from(Duration::from_micros(3)), Span::micros(3));
    }
}

//! When all slots are looked at, where messages may be lost: most looks are at the next slot alone, and find nothing
//! behind a message that was lost.

use std::time::Duration;

/// Between two sweeps where nothing comes.
const QUIET_INTERVAL: Duration = Duration::from_micros(50);
/// Between two where other messages come all the time: a connection must not wait for the others to fall silent.
const BUSY_INTERVAL: Duration = Duration::from_millis(1);

/// When all slots were looked at.
#[derive(Default)]
pub(crate) struct Sweeps {
    last: Duration,
    /// Whether something may be there that the last sweep did not see.
    wanted: bool,
}

impl Sweeps {
    /// Whether to sweep now, after a look that found so many messages.
    pub(crate) fn is_time(&mut self, now: Duration, found: usize) -> bool {
        let interval = match found {
            0 => QUIET_INTERVAL,
            _ => BUSY_INTERVAL,
        };
        let is_time = now >= self.last + interval;
        if is_time {
            self.last = now;
        }
        self.wanted = !is_time;
        is_time
    }

    /// When to look again although nothing comes, if at all.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.wanted.then(|| self.last + QUIET_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_are_busy_sweep_too_and_those_who_swept_rest() {
        let at = Duration::from_micros;
        let mut sweeps = Sweeps::default();
        assert!(sweeps.is_time(at(1000), 0));
        assert_eq!(sweeps.due(), None);
        assert!(!sweeps.is_time(at(1010), 0));
        assert_eq!(sweeps.due(), Some(at(1050)));
        assert!(!sweeps.is_time(at(1060), 1));
        assert!(sweeps.is_time(at(1060), 0));
        assert!((0..100).any(|step| sweeps.is_time(at(1060 + 20 * step), 1)));
    }
}

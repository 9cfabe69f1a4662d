//! The clocks of a run: that of the host, and that of a process' CPU time.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Seconds of the host's monotonic clock.
pub fn monotonic() -> f64 {
    seconds(clock_gettime(ClockId::Monotonic))
}

/// CPU seconds of this process, of user and system.
pub fn cpu() -> f64 {
    seconds(clock_gettime(ClockId::ProcessCPUTime))
}

fn seconds(time: Timespec) -> f64 {
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

//! What a measurement gives.

use super::test::Test;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What was measured of one test.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// The test.
    #[serde(flatten)]
    pub test: Test,
    /// The run of the median, which counts.
    pub median: Run,
    /// Every timed run, in order.
    pub runs: Vec<Run>,
}

/// One timed run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Messages sent in one direction; of latency, round trips.
    pub messages: u64,
    /// Those that arrived, on a lossy transport fewer. None where nobody knows: of WRITE on a lossy
    /// transport, whose bandwidth is that of what was sent.
    pub received: Option<u64>,
    /// `messages - received`, where that is known.
    pub lost: Option<u64>,
    /// From the first post to the last completion, at the initiator.
    pub seconds: f64,
    /// Messages that arrived per second, or were sent where nobody knows of arrivals.
    pub messages_per_second: f64,
    /// Payload bytes of these messages per second.
    pub bytes_per_second: f64,
    /// Of latency only.
    #[serde(rename = "latency_microseconds")]
    pub latency: Option<LatencyMicroseconds>,
    /// CPU time of both processes.
    pub cpu_seconds: CpuSeconds,
}

/// How the times of single messages or calls are distributed, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyMicroseconds {
    /// The shortest.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// 90 % are not longer.
    pub p90: f64,
    /// 99 % are not longer.
    pub p99: f64,
    /// 99.9 % are not longer.
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

/// CPU time, in user and system mode, of the processes of both ends.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CpuSeconds {
    /// Of the initiator.
    pub initiator: f64,
    /// Of the responder.
    pub responder: f64,
}

impl Measurement {
    /// The runs of a test, of which there is at least one.
    pub(super) fn new(test: Test, runs: Vec<Run>) -> Option<Self> {
        let mut order: Vec<&Run> = runs.iter().collect();
        order.sort_by(|a, b| a.seconds_per_message().total_cmp(&b.seconds_per_message()));
        // Of an even number the faster of the two in the middle.
        let median = order.get(order.len().checked_sub(1)? / 2)?;
        let median = Run::clone(median);
        Some(Self { test, median, runs })
    }
}

impl Run {
    /// A run at the initiator; `received` and the last argument are what the responder told.
    pub(super) fn new(
        bytes: usize,
        messages: u64,
        received: Option<u64>,
        elapsed: Duration,
        latency: Option<LatencyMicroseconds>,
        cpu_seconds: CpuSeconds,
    ) -> Self {
        let seconds = elapsed.as_secs_f64();
        let counted = received.unwrap_or(messages);
        let messages_per_second = counted as f64 / seconds.max(f64::MIN_POSITIVE);
        Self {
            messages,
            received,
            lost: received.map(|received| messages.saturating_sub(received)),
            seconds,
            messages_per_second,
            bytes_per_second: messages_per_second * bytes as f64,
            latency,
            cpu_seconds,
        }
    }

    /// What runs are compared by.
    fn seconds_per_message(&self) -> f64 {
        match &self.latency {
            Some(latency) => latency.p50,
            None => 1.0 / self.messages_per_second,
        }
    }
}

impl LatencyMicroseconds {
    /// Of times in nanoseconds, each of `trips` trips.
    pub(crate) fn of(times: &Histogram<u64>, trips: f64) -> Option<Self> {
        if times.is_empty() {
            return None;
        }
        let microsecond = 1000.0 * trips;
        let at = |quantile| times.value_at_quantile(quantile) as f64 / microsecond;
        Some(Self {
            min: times.min() as f64 / microsecond,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: times.max() as f64 / microsecond,
            mean: times.mean() / microsecond,
        })
    }
}

/// CPU time that this process has used.
pub(crate) fn cpu_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::test::tests::bandwidth_test;

    fn run(messages: u64, seconds: f64) -> Run {
        let cpu_seconds = CpuSeconds {
            initiator: 0.0,
            responder: 0.0,
        };
        let elapsed = Duration::from_secs_f64(seconds);
        Run::new(
            100,
            messages + 5,
            Some(messages),
            elapsed,
            None,
            cpu_seconds,
        )
    }

    #[test]
    fn rates_count_what_arrived() {
        let run = run(1000, 0.5);
        assert_eq!(
            (run.messages_per_second, run.bytes_per_second, run.lost),
            (2000.0, 200_000.0, Some(5))
        );
    }

    #[test]
    fn rates_count_what_was_sent_where_arrivals_are_unknown() {
        let cpu_seconds = CpuSeconds {
            initiator: 0.0,
            responder: 0.0,
        };
        let elapsed = Duration::from_millis(500);
        let run = Run::new(10, 1000, None, elapsed, None, cpu_seconds);
        assert_eq!((run.messages_per_second, run.lost), (2000.0, None));
    }

    #[test]
    fn the_median_run_counts() {
        let of = |seconds: &[f64]| {
            let runs = seconds.iter().map(|seconds| run(100, *seconds)).collect();
            Measurement::new(bandwidth_test(), runs).map(|m| m.median.seconds)
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0]), Some(3.0));
        assert_eq!(of(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[9.0, 1.0, 2.0, 4.0]), Some(2.0));
    }

    #[test]
    fn half_a_round_trip_counts() {
        let mut times = Histogram::new(3).unwrap();
        assert!(LatencyMicroseconds::of(&times, 2.0).is_none());
        for nanoseconds in 1..=1000 {
            times.record(nanoseconds * 2).unwrap();
        }
        let latency = LatencyMicroseconds::of(&times, 2.0).unwrap();
        assert_eq!((latency.min, latency.max), (0.001, 1.0));
        assert_eq!((latency.p50, latency.p99), (0.5, 0.99));
        assert!((latency.mean - 0.5005).abs() < 0.001);
    }
}

//! How much a device holds in flight: its bandwidth and its delay, measured against itself.

use super::bench::{Bench, Result, Trouble, now};
use crate::device::Device;
use crate::error::VerbsError;
use crate::memory::Buffer;
use crate::queue_pair::{QueuePair, Transport};
use crate::work::{Payload, SendOperation};
use std::time::Duration;

/// Bytes of a message with which bandwidth is measured, and how many are sent.
const MESSAGE_BYTES: usize = 64 << 10;
const MESSAGES: usize = 256;
/// Of them in flight at a time.
const IN_FLIGHT: usize = 4;
/// Round trips of an empty message, of which the median counts.
const ROUND_TRIPS: usize = 101;

/// A device as a pipe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pipe {
    /// Bytes per second.
    pub bandwidth: f64,
    /// From a message of one end to the other's answer: one round trip.
    pub delay: Duration,
}

impl Pipe {
    /// The bandwidth-delay product, in bytes.
    pub fn bytes_in_flight(&self) -> usize {
        (self.bandwidth * self.delay.as_secs_f64()).ceil() as usize
    }
}

/// Measures a device with connected queue pairs of its own. Blocks for some milliseconds.
///
/// # Errors
/// When messages do not arrive.
pub fn measure(device: &Device) -> std::result::Result<Pipe, VerbsError> {
    let measured = || {
        let bench = Bench::new(device, None)?;
        let (one, other) = bench.connected(Transport::ReliableConnection)?;
        Ok(Pipe {
            delay: delay(&bench, &one, &other)?,
            bandwidth: bandwidth(&bench, &one, &other)?,
        })
    };
    measured().map_err(|trouble: Trouble| VerbsError::System {
        call: "measure bandwidth and delay",
        source: std::io::Error::other(match trouble {
            Trouble::NotSupported => "the device has no connections".to_owned(),
            Trouble::Failed(reason) => reason,
        }),
    })
}

fn delay(bench: &Bench, one: &QueuePair, other: &QueuePair) -> Result<Duration> {
    let mut trips = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let started = now();
        for (from, to) in [(one, other), (other, one)] {
            bench.post_receive(to, 1)?;
            bench.post(from, SendOperation::Send, bench.payload(&[0])?, None)?;
            bench.received()?;
        }
        trips.push(started.elapsed());
        bench.sent()?;
        bench.sent()?;
    }
    trips.sort();
    Ok(trips[ROUND_TRIPS / 2])
}

fn bandwidth(bench: &Bench, from: &QueuePair, to: &QueuePair) -> Result<f64> {
    let mut free: Vec<Buffer> = Vec::new();
    for _ in 0..IN_FLIGHT {
        free.push(bench.arena.allocate(MESSAGE_BYTES)?);
    }
    let started = now();
    let (mut posted, mut arrived) = (0, 0);
    while arrived < MESSAGES {
        while posted < MESSAGES
            && let Some(buffer) = free.pop()
        {
            let length = MESSAGE_BYTES;
            bench.post_receive(to, length)?;
            let payload = Payload::Owned { buffer, length };
            bench.post(from, SendOperation::Send, payload, None)?;
            posted += 1;
        }
        bench.received()?;
        free.extend(bench.sent()?.buffer);
        arrived += 1;
    }
    Ok((MESSAGES * MESSAGE_BYTES) as f64 / started.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::{self, ShmOptions};

    #[test]
    fn a_device_holds_some_bytes_in_flight() {
        let device = shm::open(ShmOptions::default()).expect("shared memory works");
        let pipe = measure(&device).expect("the device works");
        assert!(pipe.bandwidth > 0.0 && pipe.delay > Duration::ZERO);
        assert!(pipe.bytes_in_flight() > 0);
    }
}

//! Devices with which shares of all that is posted go wrong, at random.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use roundel_testbed::faulty::{Fate, Posted};
use roundel_verbs::{Device, Transport};

/// Most milliseconds, or requests posted meanwhile, that something is held back.
const TURNS_MAX: u32 = 8;

/// Shares of what goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lost: f64,
    pub repeated: f64,
    pub late: f64,
}

/// Wraps a device.
pub fn wrap(device: &Device, faults: Faults, seed: u64) -> Device {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let judge = move |posted: &Posted<'_>| {
        let reliable = posted.transport == Transport::ReliableConnection;
        let turns = random.random_range(1..=TURNS_MAX);
        let mut drawn = random.random::<f64>();
        let mut is_of = |share: f64| {
            drawn -= share;
            drawn < 0.0
        };
        if is_of(faults.late) {
            Fate::HeldBack(turns)
        } else if reliable {
            Fate::Delivered
        } else if is_of(faults.lost) {
            Fate::Lost
        } else if is_of(faults.repeated) {
            // Every other repetition comes late.
            match turns.is_multiple_of(2) {
                true => Fate::Repeated,
                false => Fate::RepeatedLater(turns),
            }
        } else {
            Fate::Delivered
        }
    };
    roundel_testbed::faulty::wrap(device, Box::new(judge))
}

//! A setting on simulated hardware once it runs evenly: all calls that were begun at once at the start ended long before
//! anything counts.

use super::report::Measured;
use super::setting::{Load, Paradigm, Setting};
use super::simulation::simulate;
use crate::error::{ProtocolError, Result};
use roundel_verbs::sim::Parameters;

/// Before anything counts, all pending calls have ended and been followed by others so often.
const TURNS_BEFORE: f64 = 2.0;
/// What counts is as many calls as are pending, and at least these: one at a time says little.
const CALLS_MIN: f64 = 10_000.0;
/// First guess of the calls that a NIC answers in a second, and of its bytes.
const CALLS_PER_SECOND: f64 = 8e6;
const BYTES_PER_SECOND: f64 = 5e9;
/// Where so many times as many calls are pending on a connection, these are tried first: the rate is about the same, and soon
/// known.
const FEW_PENDING: usize = 8;
const MANY_TIMES: usize = 4;
/// More than was found to be needed, so that it is enough the next time.
const MORE: f64 = 1.15;
/// A setting that is not even after so many tries never will be.
const TRIES: usize = 8;

/// Runs a closed loop, over and over for longer, until it is even. `warm_up` and `seconds` of the setting are the least that
/// is taken; those of what was measured say what was. The same setting measures the same.
///
/// # Errors
/// Those of [`simulate`], and when it does not become even.
pub fn simulate_steady(setting: &Setting, parameters: &Parameters, seed: u64) -> Result<Measured> {
    if setting.load != Load::Closed {
        let told = "only a closed loop becomes even: an open one has the rate that it was given";
        return Err(ProtocolError::Unsupported(told.into()));
    }
    let links = setting.links().len();
    let pending = (links * setting.pending) as f64;
    let guess = match setting.pending >= MANY_TIMES * FEW_PENDING {
        true => {
            let few = Setting {
                pending: FEW_PENDING,
                ..setting.clone()
            };
            simulate_steady(&few, parameters, seed)?.calls_per_second
        }
        false => guess(setting),
    };
    let mut setting = setting.clone();
    give(&mut setting, pending / guess, guess);
    for _ in 0..TRIES {
        let measured = simulate(&setting, parameters, seed)?;
        let rate = measured.calls_per_second;
        let Some(latency) = measured.latency.filter(|_| rate > 0.0) else {
            setting.warm_up *= 2.0;
            setting.seconds *= 2.0;
            continue;
        };
        // All pending calls take their turn in this time. While those of the start are still being answered, others have
        // waited for longer than that.
        let turn = f64::max(pending / rate, latency.mean * 1e-6);
        if setting.warm_up >= TURNS_BEFORE * turn && setting.seconds >= turn.max(CALLS_MIN / rate) {
            return Ok(measured);
        }
        give(&mut setting, turn, rate);
    }
    Err(ProtocolError::Unsupported(format!(
        "it is still uneven after {} s of virtual time",
        setting.warm_up
    )))
}

/// A guess of the calls that all nodes answer in a second.
fn guess(setting: &Setting) -> f64 {
    let busy = match setting.paradigm {
        Paradigm::ManyToMany => setting.nodes as f64,
        Paradigm::ManyToOne | Paradigm::OneToMany => 1.0,
    };
    busy * CALLS_PER_SECOND.min(BYTES_PER_SECOND / setting.response_bytes as f64)
}

/// Enough time for a turn of so many seconds at this rate.
fn give(setting: &mut Setting, turn: f64, rate: f64) {
    let warm_up = TURNS_BEFORE * turn * MORE;
    let seconds = turn.max(CALLS_MIN / rate) * MORE;
    setting.warm_up = setting.warm_up.max(warm_up);
    setting.seconds = setting.seconds.max(seconds);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Protocol;

    fn setting(pending: usize) -> Setting {
        Setting {
            pending,
            warm_up: 0.0,
            seconds: 1e-5,
            ..Setting::new(Paradigm::OneToMany, Protocol::WriteWrite, 4)
        }
    }

    #[test]
    fn the_calls_of_the_start_are_over_when_it_counts() {
        let measured = simulate_steady(&setting(512), &Parameters::fdr(), 1).unwrap();
        let (run, latency) = (&measured.setting, measured.latency.unwrap());
        assert!(run.warm_up >= 2e-6 * latency.mean, "{run:?} {latency:?}");
        let longer = Setting {
            warm_up: 3.0 * run.warm_up,
            seconds: 2.0 * run.seconds,
            ..run.clone()
        };
        let longer = simulate(&longer, &Parameters::fdr(), 1).unwrap();
        let ratio = measured.calls_per_second / longer.calls_per_second;
        assert!((0.97..1.03).contains(&ratio), "{ratio}");
    }

    #[test]
    fn few_calls_are_counted_for_longer() {
        let measured = simulate_steady(&setting(1), &Parameters::fdr(), 1).unwrap();
        let calls: u64 = measured.nodes.iter().map(|node| node.calls).sum();
        assert!(calls as f64 >= 0.99 * CALLS_MIN, "{calls}");
    }

    #[test]
    fn an_open_loop_is_refused() {
        let open = Setting {
            load: Load::Open(1000.0),
            ..setting(1)
        };
        let error = simulate_steady(&open, &Parameters::fdr(), 1).unwrap_err();
        assert!(error.to_string().contains("closed loop"), "{error}");
    }
}

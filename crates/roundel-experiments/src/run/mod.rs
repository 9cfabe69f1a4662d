//! Runs a setting: with a process for each node, or in simulation with all nodes in this one.

mod processes;
mod simulation;

use crate::error::{Error, Result};
use crate::measured::{Measured, Rows};
use crate::node::Job;
use crate::ring::{self, RingJoin, RingMeasured};
use crate::setting::{Setting, Transport};

pub use processes::{Hosts, NodeCommand};

/// Runs a setting once. `command` starts nodes, where they are processes.
///
/// # Errors
/// When the setting makes no sense, a node failed, which it names, or other rows arrived than were sent.
pub fn run(setting: &Setting, command: &NodeCommand) -> Result<Measured> {
    match setting.fabric.is_simulated() {
        true => simulate(setting),
        false => checked(setting, |setting| {
            let job = Job::Setting(Box::new(setting.clone()));
            Ok(Measured::of(processes::run(&job, command)?))
        }),
    }
}

/// Runs a join on a ring once.
///
/// # Errors
/// When it makes no sense, a host failed, or other pairs were found than there are.
pub fn run_ring(join: &RingJoin, command: &NodeCommand) -> Result<RingMeasured> {
    if join.fabric.is_simulated() {
        return ring::simulate(join);
    }
    join.check()?;
    let hosts = processes::run(&Job::Ring(Box::new(join.clone())), command)?;
    ring::verify(join, &hosts)?;
    Ok(RingMeasured { hosts })
}

/// Runs a setting once in simulation. The same setting measures the same.
///
/// # Errors
/// Those of [`run`].
pub fn simulate(setting: &Setting) -> Result<Measured> {
    checked(setting, simulation::run)
}

fn checked(setting: &Setting, run: impl Fn(&Setting) -> Result<Measured>) -> Result<Measured> {
    setting.check()?;
    let measured = run(setting)?;
    verify(setting, &measured)?;
    Ok(measured)
}

/// Whether each node got exactly what was sent to it.
fn verify(setting: &Setting, measured: &Measured) -> Result<()> {
    if matches!(setting.transport, Transport::Partition | Transport::Consume) {
        return Ok(());
    }
    for (number, node) in measured.nodes.iter().enumerate() {
        let mut sent = Rows::default();
        for from in &measured.nodes {
            sent.add(from.sent.get(number).copied().unwrap_or_default());
        }
        if sent != node.received || sent.count == 0 {
            return Err(Error::Wrong(format!(
                "node {number} received {:?} of {sent:?} that were sent to it",
                node.received
            )));
        }
    }
    Ok(())
}

//! All hosts of a ring on simulated hardware: nodes, the ring around them, and what it measures.

use super::costs::Costs;
use super::host::{Fragments, Host, RECEIVES};
use super::{HostPhases, RingJoin, RingMeasured, rates};
use crate::error::{Error, Result};
use crate::fabric::FabricChoice;
use futures::channel::mpsc;
use futures::{FutureExt as _, TryStreamExt as _};
use roundel_ring::roundabout::Opening;
use roundel_ring::{RingHost, RingOptions, Roundabout};
use roundel_verbs::sim::{Link, Nic, Parameters, SimNode, Simulation, Switch};
use std::sync::Arc;
use std::time::Duration;

/// Longest virtual time of a join.
pub(super) const END_MAX: Duration = Duration::from_secs(1_000_000);
/// Bytes that an element has here, whatever it stands for; it is a little longer where that is no multiple.
const BYTES: usize = 1 << 10;
/// Bytes of a message that stand for themselves, at least.
const PLAIN: usize = 64;
/// Trains of packets that an element is sent in, about, where it has more packets. Links carry 0.6 % less than with packets.
const TRAINS: usize = 64;

/// Runs a join that makes sense once.
///
/// # Errors
/// When the ring breaks.
pub(super) fn run(join: &RingJoin) -> Result<RingMeasured> {
    let parameters = hardware(&join.fabric, join.element_bytes, TRAINS)?;
    let simulation = Simulation::new(parameters.clone(), join.fabric.seed());
    let nodes: Vec<_> = (0..join.hosts)
        .map(|_| simulation.add_node(rates::CORES))
        .collect();
    let observer = simulation.add_node(1);
    let options = RingOptions {
        element_bytes: parameters.bytes_for(join.element_bytes),
        ..RingOptions::default()
    };
    let rings = connect(&nodes, options)?;
    let head = options.element_bytes - rings[0].payload_bytes_max();
    let costs = Costs::new(join, &parameters);
    let fragments = Fragments::new(join, join.element_bytes - head);
    let (join, costs, parameters) = (
        Arc::new(join.clone()),
        Arc::new(costs),
        Arc::new(parameters),
    );
    let (done, ended) = mpsc::unbounded::<Result<(usize, HostPhases)>>();
    for ((number, node), ring) in nodes.iter().enumerate().zip(rings) {
        let host = Host {
            number,
            node: node.clone(),
            join: join.clone(),
            costs: costs.clone(),
            fragments,
            parameters: parameters.clone(),
        };
        let done = done.clone();
        let task = async move {
            let phases = host.run(ring).await.map(|phases| (number, phases));
            // Whoever waits for it has failed otherwise.
            let _ = done.unbounded_send(phases);
        };
        node.spawn(0, task.boxed());
    }
    drop(done);
    let all = ended.try_collect::<Vec<_>>();
    let mut hosts = simulation.run(&observer, END_MAX, all)??;
    hosts.sort_by_key(|(number, _)| *number);
    Ok(RingMeasured {
        hosts: hosts.into_iter().map(|(_, phases)| phases).collect(),
    })
}

/// The hardware, where messages of so many bytes have lengths only, and are sent in so many trains of packets, where they
/// have more packets: each of which takes as long as all its packets do, and has as much room where it waits.
pub(super) fn hardware(fabric: &FabricChoice, bytes: usize, trains: usize) -> Result<Parameters> {
    let plain = fabric.parameters();
    let plain = plain.ok_or_else(|| Error::Setting(format!("{fabric} is not simulated")))?;
    let times = (bytes - PLAIN) / (BYTES - PLAIN);
    let packets = (bytes / (trains * plain.link.packet_bytes)).max(1);
    let all = packets as u64;
    let coarse = Parameters {
        link: Link {
            packet_bytes: plain.link.packet_bytes * packets,
            header_bytes: plain.link.header_bytes * packets,
            ..plain.link
        },
        nic: Nic {
            packet: plain.nic.packet * all,
            split: plain.nic.split * all,
            input_bytes: plain.nic.input_bytes * packets,
            ..plain.nic
        },
        switch: Switch {
            input_bytes: plain.switch.input_bytes * packets,
            ..plain.switch
        },
        ..plain
    };
    Ok(coarse.with_payload_times(times))
}

/// Makes a ring of nodes.
fn connect(nodes: &[SimNode], options: RingOptions) -> Result<Vec<Roundabout>> {
    let host = |node: &SimNode| RingHost::new(node.device(), node.context_of(RECEIVES));
    let hosts = nodes.iter().map(host).collect::<Result<Vec<_>, _>>()?;
    Ok(Opening::all(&hosts, options)?)
}

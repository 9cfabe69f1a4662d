//! What queries of TPC-H exchange and compute, as recorded in real runs (`recorded.json`, written by `record_tpch.py`).
//! In simulation as much is exchanged, and for each tuple that comes there is as much to compute. It knows volumes and
//! processor time, not rows.

use crate::error::{Error, Result};
use crate::setting::{Pattern, ROUND_CYCLES, Setting, TUPLE_BYTES};
use roundel_verbs::sim::Parameters;
use serde::Deserialize;

const RECORDED: &str = include_str!("recorded.json");
/// Data of a node, in units of the scale factor, as in the paper.
const SCALE_OF_NODE: f64 = 100.0;

/// What a query takes for each unit of the scale factor.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Recording {
    query: u32,
    /// Bytes that go to one node each, which for some is where they are.
    repartitioned_bytes: f64,
    /// Bytes that go to every node.
    broadcast_bytes: f64,
    /// Of processors, without exchanging.
    cpu_seconds: f64,
}

#[derive(Deserialize)]
struct Recorded {
    queries: Vec<Recording>,
}

impl Recording {
    /// Of this query.
    ///
    /// # Errors
    /// When it was not recorded.
    pub fn of(query: u32) -> Result<Self> {
        let recorded: Recorded = serde_json::from_str(RECORDED)
            .map_err(|error| Error::Setting(format!("recorded queries: {error}")))?;
        let found = recorded.queries.into_iter().find(|one| one.query == query);
        found.ok_or_else(|| Error::Setting(format!("query {query} was not recorded")))
    }

    /// Bytes that come to a node of so many, by how they are sent.
    fn received(&self, nodes: usize) -> [(Pattern, f64); 2] {
        [
            (
                Pattern::Repartition,
                SCALE_OF_NODE * self.repartitioned_bytes,
            ),
            (
                Pattern::Broadcast,
                SCALE_OF_NODE * self.broadcast_bytes * nodes as f64,
            ),
        ]
    }

    /// What one of so many nodes does of the query over tables of a scale factor: bytes that it gets from others, and
    /// seconds of a processor of the base case.
    pub fn of_node(&self, scale: f64, nodes: usize) -> (f64, f64) {
        let others = (nodes - 1) as f64;
        let nodes = nodes as f64;
        let moved = self.repartitioned_bytes * others / nodes + self.broadcast_bytes * others;
        (scale * moved / nodes, scale * self.cpu_seconds / nodes)
    }

    /// Seconds of the query where its data need not be moved.
    ///
    /// # Errors
    /// When nothing is simulated.
    pub fn local_seconds(&self, setting: &Setting) -> Result<f64> {
        let parameters = parameters(setting)?;
        // A second of the host that recorded is one of the base case.
        let slower =
            parameters.cpu.cycle.as_picos() as f64 / Parameters::edr().cpu.cycle.as_picos() as f64;
        Ok(SCALE_OF_NODE * self.cpu_seconds * slower / setting.threads as f64)
    }

    /// Seconds of the query, of which `rate` says the bytes per second that a node receives in a setting.
    ///
    /// # Errors
    /// Those of `rate`.
    pub fn seconds(
        &self,
        setting: &Setting,
        rate: impl Fn(&Setting) -> Result<f64>,
    ) -> Result<f64> {
        let local = self.local_seconds(setting)?;
        let received = self.received(setting.nodes);
        let tuples = received.iter().map(|(_, bytes)| bytes).sum::<f64>() / TUPLE_BYTES as f64;
        let cycle = parameters(setting)?.cpu.cycle.as_picos() as f64 * 1e-12;
        let cycles = local * setting.threads as f64 / cycle;
        let rounds = (cycles / tuples.max(1.0) / ROUND_CYCLES as f64).round() as u32;
        let mut seconds = 0.0;
        for (pattern, bytes) in received {
            if bytes > 0.0 {
                let exchange = Setting {
                    pattern,
                    work: vec![rounds],
                    ..setting.clone()
                };
                seconds += bytes / rate(&exchange)?;
            }
        }
        Ok(seconds.max(local))
    }
}

fn parameters(setting: &Setting) -> Result<Parameters> {
    let parameters = setting.fabric.parameters();
    parameters.ok_or_else(|| Error::Setting(format!("{} is not simulated", setting.fabric)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Transport;

    fn setting(nodes: usize) -> Setting {
        let fabric: crate::fabric::FabricChoice = "sim:edr".parse().unwrap();
        Setting {
            nodes,
            threads: 14,
            ..Setting::new(Transport::Mpi, fabric)
        }
    }

    #[test]
    fn nodes_share_what_is_computed_and_each_gets_what_is_broadcast() {
        let recording = Recording::of(3).unwrap();
        let (two, four) = (recording.of_node(1.0, 2), recording.of_node(1.0, 4));
        assert_eq!(two.1, 2.0 * four.1);
        let Recording {
            repartitioned_bytes: dealt,
            broadcast_bytes: broadcast,
            ..
        } = recording;
        assert!((two.0 - (dealt / 4.0 + broadcast / 2.0)).abs() < 1.0);
        assert!((four.0 - (dealt * 3.0 / 16.0 + broadcast * 0.75)).abs() < 1.0);
        assert_eq!(recording.of_node(1.0, 1).0, 0.0);
        let (bytes, seconds) = recording.of_node(10.0, 4);
        assert!((bytes - 10.0 * four.0).abs() < 1.0 && (seconds - 10.0 * four.1).abs() < 1e-9);
    }

    #[test]
    fn a_fast_network_leaves_the_computing_and_a_slow_one_the_bytes() {
        let recording = Recording::of(4).unwrap();
        let local = recording.local_seconds(&setting(8)).unwrap();
        let fast = recording.seconds(&setting(8), |_| Ok(1e15)).unwrap();
        assert_eq!(fast, local);
        let slow = |nodes| recording.seconds(&setting(nodes), |_| Ok(1e6)).unwrap();
        let bytes: f64 = recording.received(8).iter().map(|(_, bytes)| bytes).sum();
        assert!((slow(8) / (bytes / 1e6) - 1.0).abs() < 1e-9);
        assert!(slow(16) > slow(8), "each node gets what is broadcast");
    }

    #[test]
    fn the_more_there_is_to_compute_the_more_is_asked_of_receivers() {
        let recording = Recording::of(3).unwrap();
        let twice = Recording {
            cpu_seconds: 2.0 * recording.cpu_seconds,
            ..recording
        };
        let rounds = |recording: Recording| {
            let asked = std::cell::Cell::new(0);
            let rate = |setting: &Setting| {
                asked.set(setting.work[0]);
                Ok(1e9)
            };
            recording.seconds(&setting(4), rate).unwrap();
            asked.get()
        };
        assert!(rounds(twice) > rounds(recording));
    }
}

//! A setting on simulated hardware: all nodes in this process, on virtual time.

use super::asking::Begin;
use super::hand::{Hand, Worker};
use super::report::{Measured, NodeReport};
use super::setting::Setting;
use crate::drive::drive;
use crate::end::Fabric;
use crate::error::{ProtocolError, Result};
use parking_lot::Mutex;
use roundel_verbs::completion_queue::{BoxFuture, WaitPolicy};
use roundel_verbs::sim::{Parameters, SimNode, Simulation};
use roundel_verbs::{Arena, ArenaOptions, Context, VirtualLock, Work};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Registered memory of a node: as much as it wants.
const REGISTERED_BYTES_MAX: usize = 1 << 40;
const SEGMENT_BYTES: usize = 4 << 20;
/// Responses that are longer have lengths only.
const PLAIN_BYTES_MAX: usize = 4096;

/// Runs a setting on hardware of these parameters, with a seed of everything that is drawn. The same measures the same.
///
/// # Errors
/// When it makes no sense, the hardware cannot carry it, or a call failed.
pub fn simulate(setting: &Setting, parameters: &Parameters, seed: u64) -> Result<Measured> {
    let times = setting.response_bytes.div_ceil(PLAIN_BYTES_MAX);
    let parameters = parameters.clone().with_payload_times(times);
    let scaled = Setting {
        response_bytes: parameters.bytes_for(setting.response_bytes),
        ..setting.clone()
    };
    let mut nodes = run(&scaled, &parameters, seed)?;
    for node in &mut nodes {
        node.registered_bytes *= times;
    }
    let measured = Measured::new(setting.clone(), nodes);
    match measured.failure() {
        Some(failure) => Err(ProtocolError::Unsupported(failure)),
        None => Ok(measured),
    }
}

/// A worker's node, and the worker, unless it failed.
type Ended = (usize, Result<Worker>);

fn run(setting: &Setting, parameters: &Parameters, seed: u64) -> Result<Vec<NodeReport>> {
    let simulation = Simulation::new(parameters.clone(), seed);
    let count = setting.all_nodes();
    let threads = setting.threads + setting.answering_threads();
    let nodes: Vec<_> = (0..count).map(|_| simulation.add_node(threads)).collect();
    let mut hands = Vec::with_capacity(count);
    let mut arenas = Vec::with_capacity(count);
    for (number, node) in nodes.iter().enumerate() {
        let arena = node.device().arena(ArenaOptions {
            registered_bytes_max: REGISTERED_BYTES_MAX,
            segment_bytes: SEGMENT_BYTES,
        });
        let hand = Hand::open(setting, number, |thread| {
            fabric(node, thread, &arena, parameters)
        })?;
        hands.push(hand);
        arenas.push(arena);
    }
    connect(&mut hands)?;
    let mut reports: Vec<_> = hands.iter().zip(&arenas).map(opened).collect();
    let begin = Begin {
        start: simulation.now(),
        seed,
        drain: false,
    };
    let ended: Arc<Mutex<Vec<Ended>>> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    for (number, (hand, node)) in hands.into_iter().zip(&nodes).enumerate() {
        let begin = Begin {
            seed: seed + (number * threads) as u64,
            ..begin
        };
        for (thread, mut worker) in hand.workers(begin, &stop).into_iter().enumerate() {
            let (context, ended) = (node.context_of(thread), ended.clone());
            let work = async move {
                let done = drive(&mut worker, &*context).await;
                ended.lock().push((number, done.map(|()| worker)));
            };
            node.spawn(thread, Box::pin(work));
        }
    }
    let worked = |at: f64| {
        simulation.advance(begin.start + Duration::from_secs_f64(at));
        nodes.iter().map(SimNode::worked).collect::<Vec<_>>()
    };
    let before = worked(setting.warm_up);
    let after = worked(setting.warm_up + setting.seconds);
    for ((report, before), after) in reports.iter_mut().zip(before).zip(after) {
        report.cpu_seconds = (after - before).as_secs_f64();
    }
    // Those that ask notice that it is over when they look next.
    simulation.advance(begin.start + setting.ends() + Duration::from_millis(1));
    let mut latencies: Vec<_> = reports.iter().map(|_| NodeReport::histogram()).collect();
    for (number, worker) in std::mem::take(&mut *ended.lock()) {
        worker?.report(&mut reports[number], &mut latencies[number]);
    }
    for (report, latencies) in reports.iter_mut().zip(&latencies) {
        report.set_latencies(latencies);
    }
    Ok(reports)
}

fn opened((hand, arena): (&Hand, &Arena)) -> NodeReport {
    NodeReport {
        queue_pairs: hand.queue_pairs(),
        registered_bytes: arena.usage().registered_max,
        ..NodeReport::default()
    }
}

fn connect(hands: &mut [Hand]) -> Result<()> {
    let offers: Vec<_> = hands.iter().map(Hand::offers).collect();
    for (number, hand) in hands.iter_mut().enumerate() {
        let own: Vec<_> = offers.iter().map(|offers| offers[number].clone()).collect();
        hand.connect(&own)?;
    }
    Ok(())
}

fn fabric(node: &SimNode, thread: usize, arena: &Arena, parameters: &Parameters) -> Result<Fabric> {
    let device = node.device();
    let channel = device.create_channel()?;
    channel.set_wait_policy(WaitPolicy::Poll);
    Ok(Fabric {
        device,
        arena: arena.clone(),
        context: Arc::new(Scaled {
            context: node.context_of(thread),
            parameters: parameters.clone(),
        }),
        channel: Some(channel),
        address: Ipv4Addr::LOCALHOST.into(),
    })
}

/// Copies take what those take that they stand for.
struct Scaled {
    context: Arc<dyn Context>,
    parameters: Parameters,
}

impl Context for Scaled {
    fn now(&self) -> Duration {
        self.context.now()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.context.sleep(duration)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.context.spawn(task);
    }

    fn random(&self) -> u64 {
        self.context.random()
    }

    fn charge(&self, work: Work) {
        self.context.charge(match work {
            Work::Copy(bytes) => Work::Copy(self.parameters.length_of(bytes)),
            other => other,
        });
    }

    fn lock(&self) -> Option<Arc<dyn VirtualLock>> {
        self.context.lock()
    }

    fn is_ahead(&self) -> bool {
        self.context.is_ahead()
    }
}

#[cfg(test)]
mod tests {
    use super::super::setting::{Load, Paradigm};
    use super::*;
    use crate::protocol::Protocol;

    fn setting(paradigm: Paradigm, protocol: Protocol) -> Setting {
        Setting {
            warm_up: 0.0002,
            seconds: 0.0005,
            threads: 2,
            ..Setting::new(paradigm, protocol, 3)
        }
    }

    #[test]
    fn every_protocol_runs_in_every_paradigm() {
        for protocol in Protocol::ALL
            .into_iter()
            .filter(|one| *one != Protocol::Tcp)
        {
            for paradigm in Paradigm::ALL {
                let measured =
                    simulate(&setting(paradigm, protocol), &Parameters::fdr(), 1).unwrap();
                println!("{protocol} {paradigm} {:.2} Gb/s", measured.gigabits());
                assert!(
                    measured.calls_per_second > 1e5,
                    "{protocol} {paradigm} {measured:?}"
                );
                let answered: u64 = measured.nodes.iter().map(|node| node.answered).sum();
                assert_eq!(answered, 0, "who answers goes on to the end");
            }
        }
    }

    #[test]
    fn an_open_loop_has_the_rate_that_it_was_given() {
        let setting = Setting {
            load: Load::Open(200_000.0),
            seconds: 0.02,
            ..setting(Paradigm::ManyToOne, Protocol::WriteWrite)
        };
        let measured = simulate(&setting, &Parameters::fdr(), 1).unwrap();
        // Six threads ask.
        let share = measured.calls_per_second / 1_200_000.0;
        assert!((0.97..1.03).contains(&share), "{share}");
    }

    #[test]
    fn long_values_are_lengths_only_and_fill_the_link() {
        let setting = Setting {
            response_bytes: 65536,
            seconds: 0.002,
            ..setting(Paradigm::ManyToOne, Protocol::WriteWrite)
        };
        let gigabits = simulate(&setting, &Parameters::fdr(), 1)
            .unwrap()
            .gigabits();
        assert!((40.0..54.0).contains(&gigabits), "{gigabits}");
    }
}

//! On virtual time: many seeds of every protocol, paradigm and fault. A seed that fails is told.

use crate::book::Book;
use crate::nodes::{Asking, Case, Fault, Node, Tally, protocols, servers_of};
use parking_lot::Mutex;
use roundel_protocols::Fabric;
use roundel_protocols::paradigm::Paradigm;
use roundel_verbs::sim::{Faults, Moment, Parameters, SimNode, Simulation, Trouble};
use roundel_verbs::{ArenaOptions, Context, Work};
use std::sync::Arc;
use std::time::Duration;

const SEEDS: u64 = 216;
const ROUNDS: usize = 4;
/// Longer than hardware goes on trying, unless handlers are slow.
const DEADLINE: Duration = Duration::from_secs(3);
const HURRY: Duration = Duration::from_micros(400);
/// A slow handler's cycles: about a millisecond.
const SLOW_CYCLES: u64 = 2_500_000;

fn fabric(node: &SimNode, context: Arc<dyn Context>) -> Fabric {
    let device = node.device();
    Fabric {
        arena: device.arena(ArenaOptions {
            segment_bytes: 1 << 18,
            ..ArenaOptions::default()
        }),
        device,
        context,
        channel: None,
        address: [127, 0, 0, 1].into(),
    }
}

fn faults(case: &Case, seed: u64) -> Faults {
    let share = [0.01, 0.05, 0.2][(seed % 3) as usize];
    let moment = |node| Moment {
        at: Duration::from_micros(5 + seed * 7 % 150),
        node,
        what: Trouble::Crash,
    };
    let mut faults = Faults::default();
    match case.fault {
        Fault::Nothing | Fault::SlowHandler => {}
        Fault::Loss => faults.loss = share / 2.0,
        Fault::Duplicates => faults.duplication = share,
        Fault::Delay => {
            faults.delayed = share;
            faults.delay = Duration::from_micros(300);
        }
        Fault::KilledPeer => faults.moments = case.victim(seed).map(moment).into_iter().collect(),
    }
    faults
}

/// What a client heard from a server, and, where that was killed, in a last round.
type Heard = Vec<(usize, usize, Tally, Tally)>;

/// Runs a case; returns how calls ended, and how many answers were sent again.
fn run(case: Case, seed: u64) -> (Tally, u64) {
    let told = format!("{case:?} with seed {seed}");
    let simulation = Simulation::new(Parameters::fdr(), seed);
    let links = case.setting().links();
    let book = Arc::new(Book::default());
    let hosts: Vec<_> = (0..case.setting().all_nodes())
        .map(|_| simulation.add_node(2))
        .collect();
    let open = |(number, host): (usize, &SimNode)| {
        let end = |asks: bool| fabric(host, host.context_of(usize::from(!asks)));
        Node::open(&case, number, end).unwrap()
    };
    let mut nodes: Vec<_> = hosts.iter().enumerate().map(open).collect();
    let offers: Vec<_> = nodes
        .iter()
        .enumerate()
        .map(|(at, node)| node.offers(&links, at))
        .collect();
    let heard: Arc<Mutex<Heard>> = Arc::default();
    let mut servings = Vec::new();
    let mut wanted = 0;
    simulation.set_faults(faults(&case, seed));
    for (number, mut node) in std::mem::take(&mut nodes).into_iter().enumerate() {
        node.connect(&links, number, &offers).unwrap();
        let context = hosts[number].context_of(1);
        let slow = case.fault == Fault::SlowHandler;
        let (caller, serving) = node.start(&book, move |number| {
            if slow && number.is_multiple_of(7) {
                context.charge(Work::Cycles(SLOW_CYCLES));
            }
        });
        servings.push(serving);
        let Some(caller) = caller else { continue };
        let asking = Asking {
            protocol: case.protocol,
            book: book.clone(),
            context: hosts[number].context(),
            deadline: if slow { HURRY } else { DEADLINE },
            slack: Duration::from_micros(100),
            told: told.clone(),
        };
        for (connection, server) in servers_of(&links, number).into_iter().enumerate() {
            wanted += usize::from(case.victim(seed) != Some(number));
            let (caller, asking, heard) = (caller.clone(), asking.clone(), heard.clone());
            let task = async move {
                let rounds = asking.rounds(ROUNDS, DEADLINE, &caller, connection);
                let (tally, last) = rounds.await;
                heard.lock().push((number, server, tally, last));
            };
            hosts[number].spawn(0, Box::pin(task));
        }
    }
    let end = DEADLINE * (2 + ROUNDS as u32);
    let victim = case.victim(seed);
    let of_others = |heard: &Heard| heard.iter().filter(|one| victim != Some(one.0)).count();
    while of_others(&heard.lock()) < wanted && simulation.now() < end && simulation.step() {}
    let heard = heard.lock();
    assert_eq!(of_others(&heard), wanted, "some never ended: {told}");
    for (client, server, tally, last) in heard.iter() {
        let with_victim = [Some(*client), Some(*server)].contains(&victim);
        match case.fault {
            _ if with_victim => {}
            Fault::SlowHandler => assert_eq!(last.answered, last.all(), "{told} {last:?}"),
            _ => {
                assert_eq!(tally.answered, tally.all(), "{told} {tally:?}");
                assert_eq!(last.answered, last.all(), "{told} {last:?}");
            }
        }
    }
    book.check(&told);
    let mut all = Tally::default();
    for (_, _, tally, last) in heard.iter() {
        all.add(*tally);
        all.add(*last);
    }
    let repeated = servings.iter().flatten().map(|serving| serving.counts().1);
    (all, repeated.sum())
}

#[test]
fn each_call_ends_once_whatever_goes_wrong_on_many_seeds() {
    for protocol in protocols() {
        let mut seen = [(Tally::default(), 0); Fault::ALL.len()];
        for seed in 0..SEEDS {
            // Every paradigm with every fault, twelve seeds each.
            let at = (seed / 3 % 6) as usize;
            let case = Case {
                protocol,
                paradigm: Paradigm::ALL[(seed % 3) as usize],
                fault: Fault::ALL[at],
            };
            let (tally, repeated) = run(case, seed / 18);
            seen[at].0.add(tally);
            seen[at].1 += repeated;
        }
        println!("{protocol}: {seen:?}");
        // What was to go wrong did.
        let [_, (_, repeated), _, _, (killed, _), (slow, _)] = seen;
        assert_eq!(
            repeated > 0,
            protocol.is_lossy(),
            "{protocol} repeated {repeated}"
        );
        assert!(killed.late + killed.gone > 0, "{protocol} {killed:?}");
        assert_eq!(slow.late > 0, protocol.can_write(), "{protocol} {slow:?}");
    }
}

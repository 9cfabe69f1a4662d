//! On shared memory and over sockets, in this process: devices lose, repeat and hold back what is posted, and handlers
//! are slow. On RDMA devices too, which only a [`machine`](crate::machine) has.

use crate::book::Book;
use crate::faulty::{Faults, wrap};
use crate::nodes::{Asking, Case, Fault, Node, Tally, protocols, servers_of};
use roundel_protocols::Fabric;
use roundel_protocols::paradigm::Paradigm;
use roundel_verbs::{Context, Device, TokioContext, rdma, shm, tcp};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

const ROUNDS: usize = 3;
/// A busy host may take its time.
const SLACK: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(20);
const HURRY: Duration = Duration::from_millis(8);
const SLOW: Duration = Duration::from_millis(12);

/// The devices that can be opened here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Provider {
    Shm,
    Tcp,
    Rdma,
}

impl Provider {
    /// The device of a node.
    pub fn open(self, node: usize) -> Device {
        let address = [127, 0, 0, 1].into();
        match self {
            Self::Shm => shm::open(shm::ShmOptions::default()).unwrap(),
            Self::Tcp => tcp::open(tcp::TcpOptions { address }).unwrap(),
            Self::Rdma => {
                let names = roundel_testbed::devices().expect("a machine has devices");
                rdma::open(&names[node % names.len()].parse().unwrap()).unwrap()
            }
        }
    }
}

pub fn fabric(device: &Device) -> Fabric {
    Fabric::new(device.clone(), Arc::new(TokioContext::current()))
}

fn faults(fault: Fault) -> Faults {
    let mut faults = Faults::default();
    match fault {
        Fault::Loss => faults.lost = 0.05,
        Fault::Duplicates => faults.repeated = 0.2,
        Fault::Delay => faults.late = 0.1,
        Fault::Nothing | Fault::KilledPeer | Fault::SlowHandler => {}
    }
    faults
}

async fn run(case: Case, provider: Provider, seed: u64) {
    let told = format!("{case:?} on {provider:?}");
    let links = case.setting().links();
    let book = Arc::new(Book::default());
    let slow = case.fault == Fault::SlowHandler;
    let mut nodes: Vec<_> = (0..case.setting().all_nodes())
        .map(|number| {
            let mut device = provider.open(number);
            if !slow && case.fault != Fault::Nothing {
                device = wrap(&device, faults(case.fault), seed + number as u64);
            }
            Node::open(&case, number, |_| fabric(&device)).unwrap()
        })
        .collect();
    let offers: Vec<_> = nodes
        .iter()
        .enumerate()
        .map(|(at, node)| node.offers(&links, at))
        .collect();
    for (number, node) in nodes.iter_mut().enumerate() {
        node.connect(&links, number, &offers).unwrap();
    }
    let context: Arc<dyn Context> = Arc::new(TokioContext::current());
    let (mut servings, mut tasks) = (Vec::new(), Vec::new());
    for (number, node) in nodes.into_iter().enumerate() {
        let (caller, serving) = node.start(&book, move |number| {
            if slow && number.is_multiple_of(7) {
                std::thread::sleep(SLOW);
            }
        });
        servings.push(serving);
        let Some(caller) = caller else { continue };
        for connection in 0..servers_of(&links, number).len() {
            let asking = Asking {
                protocol: case.protocol,
                book: book.clone(),
                context: context.clone(),
                deadline: if slow { HURRY } else { DEADLINE },
                slack: SLACK,
                told: told.clone(),
            };
            let caller = caller.clone();
            tasks.push(tokio::spawn(async move {
                asking.rounds(ROUNDS, DEADLINE, &caller, connection).await
            }));
        }
    }
    let mut all = Tally::default();
    for task in tasks {
        let (tally, last) = task.await.unwrap();
        assert_eq!(last.answered, last.all(), "{told} {last:?}");
        all.add(tally);
    }
    match slow {
        // Whoever reads has to do with no handler.
        true => assert!(all.late > 0 || !case.protocol.can_write(), "{told} {all:?}"),
        false => assert_eq!(all.answered, all.all(), "{told} {all:?}"),
    }
    let repeated: u64 = servings.iter().flatten().map(|one| one.counts().1).sum();
    if case.fault == Fault::Loss {
        assert_eq!(
            repeated > 0,
            case.protocol.is_lossy(),
            "{told}: {repeated} repeated"
        );
    }
    book.check(&told);
}

/// With every fault but that of killed peers, who are processes of their own.
pub async fn every_case(provider: Provider) {
    let faults = Fault::ALL
        .into_iter()
        .filter(|fault| *fault != Fault::KilledPeer);
    for fault in faults {
        every_protocol(provider, fault).await;
    }
}

/// Every protocol in every paradigm.
pub async fn every_protocol(provider: Provider, fault: Fault) {
    for protocol in protocols() {
        for (seed, paradigm) in Paradigm::ALL.into_iter().enumerate() {
            let case = Case {
                protocol,
                paradigm,
                fault,
            };
            run(case, provider, seed as u64).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn each_call_ends_once_in_shared_memory() {
    every_case(Provider::Shm).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn each_call_ends_once_over_sockets() {
    every_case(Provider::Tcp).await;
}

//! Nodes that are processes of their own, and are killed while they ask and answer: this binary starts itself again as
//! the node that dies.

use crate::book::Book;
use crate::nodes::{Asking, Case, Fault, Node, Tally, protocols, servers_of};
use crate::real::{Provider, fabric};
use roundel_protocols::Protocol;
use roundel_protocols::paradigm::Paradigm;
use roundel_verbs::{Context, TokioContext};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const CHILD: &str = "ROUNDEL_FAULTS_CHILD";
const DEADLINE: Duration = Duration::from_millis(250);
/// Of calls to those who live.
const PATIENCE: Duration = Duration::from_secs(20);
/// A busy host may take its time.
const SLACK: Duration = Duration::from_secs(2);
/// It is killed so long after all have spoken with it.
const ALIVE: Duration = Duration::from_millis(20);
/// In so many rounds a process that has just started answers, at most.
const ROUNDS_MAX: usize = 40;
/// So long after a peer was killed its connections are noticed to be broken, at most. An RDMA device sends again what
/// nobody acknowledges before it gives up.
const NOTICED: Duration = Duration::from_secs(20);
/// Numbers of requests that the victim makes.
const OF_VICTIM: u64 = 1 << 22;

/// What a node offers, for each link.
type Offers = Vec<Vec<u8>>;

/// Who dies of whom: who answers all, one of those who ask it, one of those who answer, one of all.
const VICTIMS: [(Paradigm, usize); 4] = [
    (Paradigm::ManyToOne, 0),
    (Paradigm::ManyToOne, 1),
    (Paradigm::OneToMany, 1),
    (Paradigm::ManyToMany, 1),
];

fn case(protocol: Protocol, paradigm: Paradigm) -> Case {
    Case {
        protocol,
        paradigm,
        fault: Fault::KilledPeer,
    }
}

/// Not a test: what this binary does when it was started as a node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn started_as_a_node() {
    let Ok(given) = std::env::var(CHILD) else {
        return;
    };
    let kill = rustix::process::Signal::KILL;
    rustix::process::set_parent_process_death_signal(Some(kill)).unwrap();
    let (provider, protocol, paradigm, number): (Provider, Protocol, Paradigm, usize) =
        serde_json::from_str(&given).unwrap();
    let (case, device) = (case(protocol, paradigm), provider.open(number));
    let links = case.setting().links();
    let mut node = Node::open(&case, number, |_| fabric(&device)).unwrap();
    println!(
        "\n@{}",
        serde_json::to_string(&node.offers(&links, number)).unwrap()
    );
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let offers: Vec<Offers> = serde_json::from_str(&line).unwrap();
    node.connect(&links, number, &offers).unwrap();
    let book = Arc::new(Book::starting_at(OF_VICTIM));
    let (caller, _serving) = node.start(&book, |_| {});
    println!("\n@");
    let asking = asking(case, book, "the node that is killed");
    loop {
        for connection in 0..servers_of(&links, number).len() {
            asking.round(caller.as_ref().unwrap(), connection).await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn asking(case: Case, book: Arc<Book>, told: &str) -> Asking {
    Asking {
        protocol: case.protocol,
        book,
        context: Arc::new(TokioContext::current()) as Arc<dyn Context>,
        deadline: DEADLINE,
        slack: SLACK,
        told: told.to_owned(),
    }
}

struct Victim {
    child: Child,
    stdin: ChildStdin,
    lines: Box<dyn Iterator<Item = String> + Send>,
}

impl Victim {
    fn start(case: Case, provider: Provider, number: usize) -> Self {
        let given = (provider, case.protocol, case.paradigm, number);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::started_as_a_node", "--nocapture"])
            .env(CHILD, serde_json::to_string(&given).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            stdin,
            lines: Box::new(lines.map_while(Result::ok)),
        }
    }

    fn said(&mut self) -> String {
        let line = self.lines.find(|line| line.starts_with('@'));
        line.expect("the node speaks").split_off(1)
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn run(protocol: Protocol, provider: Provider, (paradigm, number): (Paradigm, usize)) {
    let case = case(protocol, paradigm);
    let told = format!("{case:?} on {provider:?}, node {number} was killed");
    let links = case.setting().links();
    let mut victim = Victim::start(case, provider, number);
    let mut nodes: Vec<_> = (0..case.setting().all_nodes())
        .map(|node| {
            let device = provider.open(node);
            (node != number).then(|| Node::open(&case, node, |_| fabric(&device)).unwrap())
        })
        .collect();
    let mut offers: Vec<Offers> = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        offers.push(match node {
            Some(node) => node.offers(&links, at),
            None => serde_json::from_str(&victim.said()).unwrap(),
        });
    }
    for (at, node) in nodes.iter_mut().enumerate() {
        if let Some(node) = node {
            node.connect(&links, at, &offers).unwrap();
        }
    }
    writeln!(victim.stdin, "{}", serde_json::to_string(&offers).unwrap()).unwrap();
    assert_eq!(victim.said(), "");
    let book = Arc::new(Book::default());
    let (killed, spoken) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (mut servings, mut tasks) = (Vec::new(), Vec::new());
    for (at, node) in nodes.into_iter().enumerate() {
        let Some(node) = node else { continue };
        let (caller, serving) = node.start(&book, |_| {});
        servings.push(serving);
        let Some(caller) = caller else { continue };
        for (connection, server) in servers_of(&links, at).into_iter().enumerate() {
            let mut asking = asking(case, book.clone(), &told);
            if server != number {
                asking.deadline = PATIENCE;
            }
            let (caller, killed, spoken) = (caller.clone(), killed.clone(), spoken.clone());
            tasks.push(tokio::spawn(async move {
                let mut before = Tally::default();
                // On a busy host a process may be late for some rounds.
                for _ in 0..ROUNDS_MAX {
                    before.add(asking.round(&caller, connection).await);
                    if before.answered > 0 {
                        break;
                    }
                }
                spoken.fetch_add(1, Ordering::AcqRel);
                while !killed.load(Ordering::Acquire) {
                    before.add(asking.round(&caller, connection).await);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let noticed = asking.context.now() + NOTICED;
                let mut after = asking.round(&caller, connection).await;
                let notices = server == number && !asking.protocol.is_lossy();
                while notices && after.gone < after.all() && asking.context.now() < noticed {
                    // Memory of the dead can be read until they are known to be.
                    let answers = asking.protocol.can_write() && after.answered > 0;
                    assert!(!answers, "{}: {after:?}", asking.told);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    after = asking.round(&caller, connection).await;
                }
                (server, before, after)
            }));
        }
    }
    // A task that has ended by now has found something wrong.
    while spoken.load(Ordering::Acquire) < tasks.len()
        && !tasks.iter().any(tokio::task::JoinHandle::is_finished)
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(ALIVE).await;
    victim.kill();
    killed.store(true, Ordering::Release);
    for task in tasks {
        let (server, before, after) = task.await.unwrap();
        assert!(before.answered > 0, "{told}, {server} answers: {before:?}");
        match server == number {
            // Where datagrams are all that there is, nothing tells that a peer has died.
            true if protocol.is_lossy() => assert_eq!(after.answered, 0, "{told}: {after:?}"),
            true => assert_eq!(after.gone, after.all(), "{told}: {after:?}"),
            false => {
                assert_eq!(before.answered, before.all(), "{told}: {before:?}");
                assert_eq!(after.answered, after.all(), "{told}: {after:?}");
            }
        }
    }
    book.check(&told);
}

pub async fn every_case(provider: Provider) {
    for protocol in protocols() {
        let runs = VICTIMS.map(|victim| tokio::spawn(run(protocol, provider, victim)));
        for run in runs {
            run.await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn calls_to_killed_processes_end_in_shared_memory() {
    every_case(Provider::Shm).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn calls_to_killed_processes_end_over_sockets() {
    every_case(Provider::Tcp).await;
}

//! A setting on real devices: a process for each node, which meet in a rendezvous. Node 0 says what is measured.
//!
//! Each step of a measurement ends in an exchange in which every node says that it has come so far, or why it has
//! not: when one fails, all others know which and why.

use super::asking::Begin;
use super::hand::{Hand, Worker};
use super::processors::{self, Processors};
use super::report::{Measured, NodeReport};
use super::setting::Setting;
use crate::drive::drive_here;
use crate::end::Fabric;
use crate::error::{ProtocolError, Result, one_line};
use crate::perf::cpu_time;
use roundel_verbs::rendezvous::LostPeer;
use roundel_verbs::{Arena, ArenaOptions, Context, Device, Rendezvous, VerbsError};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Version of what nodes say to each other.
const VERSION: u32 = 1;
/// Between the moment when all nodes are connected and the first request.
const BEGIN_AFTER: Duration = Duration::from_millis(1);

/// What a node says at the end of a step.
#[derive(Debug, Serialize, Deserialize)]
enum Said {
    /// It has reached this step.
    Ready,
    /// Node 0: the next setting.
    Setting(u32, Box<Setting>),
    /// Node 0: there are no more.
    Finish,
    /// What it measured.
    Report(Box<NodeReport>),
    /// It failed.
    Failed(String),
}

/// A node among others that it has met.
pub struct Group {
    device: Device,
    rendezvous: Box<dyn Rendezvous>,
    context: Arc<dyn Context>,
    place: GroupPlace,
}

/// Where a node is.
#[derive(Clone, Copy, Debug)]
pub struct GroupPlace {
    /// Where it listens, where the protocol is TCP.
    pub address: IpAddr,
    /// Whether all nodes are on this host, and share its processors.
    pub together: bool,
}

impl Group {
    /// Of nodes that have met, by their ranks.
    pub fn new(
        device: Device,
        rendezvous: impl Rendezvous + 'static,
        context: Arc<dyn Context>,
        place: GroupPlace,
    ) -> Self {
        Self {
            device,
            rendezvous: Box::new(rendezvous),
            context,
            place,
        }
    }

    /// Node 0: measures a setting of at most as many nodes as there are; the others stand by.
    ///
    /// # Errors
    /// When it makes no sense, a device cannot carry it, or a node failed, which it names. Only a setting that makes no
    /// sense can be followed by another.
    pub async fn measure(&mut self, setting: &Setting) -> Result<Measured> {
        setting.check_on(self.device.capabilities())?;
        let there = self.rendezvous.peers();
        if setting.all_nodes() > there {
            return Err(ProtocolError::Unsupported(format!(
                "{} nodes, of which {there} are there",
                setting.all_nodes()
            )));
        }
        self.exchange(Said::Setting(VERSION, Box::new(setting.clone())))
            .await?;
        let reports = self.run(setting).await?;
        Ok(Measured::new(setting.clone(), reports))
    }

    /// Node 0: lets the others go.
    ///
    /// # Errors
    /// When one is gone already.
    pub async fn finish(mut self) -> Result<()> {
        self.exchange(Said::Finish).await.map(drop)
    }

    /// The others: take part in what node 0 measures, until it lets them go.
    ///
    /// # Errors
    /// When a node failed, which it names.
    pub async fn take_part(mut self) -> Result<()> {
        loop {
            let mut all = self.exchange(Said::Ready).await?;
            match all.swap_remove(0) {
                Said::Setting(VERSION, setting) => self.run(&setting).await.map(drop)?,
                Said::Setting(version, _) => {
                    return Err(ProtocolError::Offer {
                        peer: "0".into(),
                        reason: format!("it speaks version {version}, this side {VERSION}"),
                    });
                }
                Said::Finish => return Ok(()),
                other => return Err(unexpected(0, &other)),
            }
        }
    }

    /// Says how a step ended, and hears it of the others.
    async fn exchange(&mut self, said: Said) -> Result<Vec<Said>> {
        let bytes = serde_json::to_vec(&said).expect("what nodes say is plain data");
        let all = self.rendezvous.exchange(bytes).await.map_err(of_node)?;
        let mut heard = Vec::with_capacity(all.len());
        for (node, bytes) in all.iter().enumerate() {
            let said = serde_json::from_slice(bytes).map_err(|error| ProtocolError::Offer {
                peer: node.to_string(),
                reason: format!("what it says cannot be read: {error}"),
            })?;
            match said {
                Said::Failed(reason) => {
                    return Err(ProtocolError::Node {
                        node,
                        reason: one_line(&reason),
                    });
                }
                said => heard.push(said),
            }
        }
        Ok(heard)
    }

    /// The same, where the work of this node may have failed.
    async fn after<T>(&mut self, done: Result<T>) -> Result<T> {
        let said = match &done {
            Ok(_) => Said::Ready,
            Err(error) => Said::Failed(error.to_string()),
        };
        let heard = self.exchange(said).await;
        let done = done?;
        heard?;
        Ok(done)
    }

    async fn run(&mut self, setting: &Setting) -> Result<Vec<NodeReport>> {
        let node = self.rendezvous.rank();
        let takes_part = node < setting.all_nodes();
        let arena = self.device.arena(ArenaOptions {
            registered_bytes_max: self.device.capabilities().registered_bytes_max,
            ..ArenaOptions::default()
        });
        let opened = match takes_part {
            true => self.open(setting, node, &arena).map(Some),
            false => Ok(None),
        };
        let mut hand = self.after(opened).await?;
        let mut offers = hand.as_ref().map_or(Vec::new(), Hand::offers);
        offers.resize(self.rendezvous.peers(), Vec::new());
        let offers = self.rendezvous.exchange_each(offers).await;
        let offers = offers.map_err(of_node)?;
        let connected = match &mut hand {
            Some(hand) => hand.connect(&offers[..setting.all_nodes()]),
            None => Ok(()),
        };
        self.after(connected).await?;
        let mut report = NodeReport {
            queue_pairs: hand.as_ref().map_or(0, Hand::queue_pairs),
            registered_bytes: arena.usage().registered_max,
            ..NodeReport::default()
        };
        let worked = match hand {
            Some(hand) => self.work(setting, hand, &mut report).await,
            None => self.after(Ok(())).await,
        };
        worked?;
        let heard = self.exchange(Said::Report(Box::new(report))).await?;
        let reports = heard
            .into_iter()
            .enumerate()
            .map(|(node, said)| match said {
                Said::Report(report) => Ok(*report),
                other => Err(unexpected(node, &other)),
            });
        reports.take(setting.all_nodes()).collect()
    }

    fn open(&self, setting: &Setting, node: usize, arena: &Arena) -> Result<Hand> {
        let fabric = Fabric {
            device: self.device.clone(),
            arena: arena.clone(),
            context: self.context.clone(),
            channel: None,
            address: self.place.address,
        };
        Hand::open(setting, node, |_| Ok(fabric.clone()))
    }

    /// Has the threads of this node ask and answer, until all nodes have had their answers.
    async fn work(&mut self, setting: &Setting, hand: Hand, report: &mut NodeReport) -> Result<()> {
        let stop = Arc::new(AtomicBool::new(false));
        let begin = Begin {
            start: self.context.now() + BEGIN_AFTER,
            seed: self.context.random(),
            drain: true,
        };
        let (mut asking, mut answering) = (Vec::new(), Vec::new());
        for worker in hand.workers(begin, &stop) {
            match worker {
                Worker::Asks(_) => asking.push(worker),
                Worker::Answers(_) => answering.push(worker),
            }
        }
        let before = match self.place.together {
            true => setting.threads_before(self.rendezvous.rank()),
            false => 0,
        };
        let mut threads = Threads {
            running: Vec::new(),
            stop,
            processors: Processors::from(before),
        };
        let answering = threads.start(answering, &self.context)?;
        let asking = threads.start(asking, &self.context)?;
        let (counted, cpu) = oneshot::channel();
        let count = cpu_seconds(self.context.clone(), begin, setting.clone());
        self.context.spawn(Box::pin(async move {
            let _ = counted.send(count.await);
        }));
        let mut lost = self.rendezvous.lost();
        let asked = tokio::select! {
            asked = ended(asking) => asked,
            lost = &mut lost => Err(gone(lost)),
        };
        let waited = self.after(asked).await;
        threads.stop.store(true, Ordering::Relaxed);
        let answered = ended(answering).await;
        let mut latencies = NodeReport::histogram();
        for worker in waited?.into_iter().chain(answered?) {
            worker.report(report, &mut latencies);
        }
        report.set_latencies(&latencies);
        report.cpu_seconds = cpu.await.unwrap_or(0.0);
        Ok(())
    }
}

/// CPU seconds of this process while it counts.
async fn cpu_seconds(context: Arc<dyn Context>, begin: Begin, setting: Setting) -> f64 {
    let at = |seconds: f64| {
        let at = begin.start + Duration::from_secs_f64(seconds);
        context.sleep(at.saturating_sub(context.now()))
    };
    at(setting.warm_up).await;
    let before = cpu_time();
    at(setting.warm_up + setting.seconds).await;
    (cpu_time() - before).as_secs_f64()
}

/// Threads that end when this is dropped, at the latest.
struct Threads {
    running: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    processors: Processors,
}

/// A worker that gives itself back when it has ended.
type Ended = oneshot::Receiver<Result<Worker>>;

impl Threads {
    fn start(&mut self, workers: Vec<Worker>, context: &Arc<dyn Context>) -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        for mut worker in workers {
            let (done, end) = oneshot::channel();
            let (context, stop) = (context.clone(), self.stop.clone());
            let processor = self.processors.next();
            let body = move || {
                processors::stay_on(processor);
                let result = drive_here(&mut worker, &*context, &stop);
                // Nobody waits for it any more when the others have failed.
                let _ = done.send(result.map(|()| worker));
            };
            let thread = std::thread::Builder::new().name("protocol".to_owned());
            #[expect(
                clippy::disallowed_methods,
                reason = "these are real hosts; `simulation` has tasks instead"
            )]
            let thread = thread.spawn(body).map_err(|source| ProtocolError::System {
                what: "cannot start a thread".into(),
                source,
            })?;
            self.running.push(thread);
            ended.push(end);
        }
        Ok(ended)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.running.drain(..) {
            // One that panicked has given nothing back, which was noticed.
            let _ = thread.join();
        }
    }
}

async fn ended(workers: Vec<Ended>) -> Result<Vec<Worker>> {
    let mut all = Vec::with_capacity(workers.len());
    for worker in workers {
        let panicked = |_| ProtocolError::Unsupported("a thread ended without a result".into());
        all.push(worker.await.map_err(panicked)??);
    }
    Ok(all)
}

/// What the rendezvous says of a peer, which is a node.
fn of_node(error: VerbsError) -> ProtocolError {
    match error {
        VerbsError::PeerDied { peer, reason } => match peer.parse() {
            Ok(node) => ProtocolError::Node { node, reason },
            Err(_) => VerbsError::PeerDied { peer, reason }.into(),
        },
        other => other.into(),
    }
}

fn gone(lost: LostPeer) -> ProtocolError {
    ProtocolError::Node {
        node: lost.rank,
        reason: lost.reason,
    }
}

fn unexpected(node: usize, said: &Said) -> ProtocolError {
    ProtocolError::Offer {
        peer: node.to_string(),
        reason: format!("it said {said:?} out of turn"),
    }
}

//! Nodes of a cluster in one process, each with a device of its own.

use roundel_exchange::operator::Group;
use roundel_exchange::{
    Design, Destination, ExchangeOptions, Fabric, MemoryBudget, Receive, ReceiveLink, Shuffle,
    Unlimited,
};
use roundel_verbs::{ArenaOptions, Device, TokioContext, rdma, shm};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One node: a device, and an exchange's two sides on it.
pub struct Node {
    pub fabric: Fabric,
    pub shuffle: Arc<Shuffle>,
    pub receive: Receive,
}

/// Links between all pairs of nodes.
pub struct Links {
    /// By source, then by target.
    pub destinations: Vec<Vec<(Destination, Group)>>,
    /// By target, then by source.
    pub links: Vec<Vec<ReceiveLink>>,
}

/// A device of its own: in shared memory, every other one of which reads at once, or in the machine with
/// RDMA devices these in turn, so that neighbours reach each other over the wire.
pub fn open_device() -> Device {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    match roundel_testbed::devices() {
        None => {
            let options = shm::ShmOptions {
                reads_at_once: next.is_multiple_of(2),
                ..shm::ShmOptions::default()
            };
            shm::open(options).unwrap()
        }
        Some(names) => rdma::open(&names[next % names.len()].parse().unwrap()).unwrap(),
    }
}

/// Every design, in every variant, that can run on the devices at hand.
pub fn designs() -> Vec<Design> {
    let device = open_device();
    let lacks = |design: &Design| {
        let lack = design.lacks(device.capabilities());
        if let Some(why) = lack {
            eprintln!(
                "SKIPPED {design} on {}: {why}",
                device.capabilities().device
            );
        }
        lack.is_none()
    };
    Design::every().filter(lacks).collect()
}

/// The default options of a design.
pub fn options(design: Design, threads: usize) -> ExchangeOptions {
    let device = open_device();
    let mut options = ExchangeOptions::new(design, threads, device.capabilities());
    // Batches come out as they went in.
    options.batch_rows = 1;
    options
}

/// What an exchange needs of a device, whose channel is served.
pub fn fabric(device: Device, arena: ArenaOptions) -> Fabric {
    let channel = device.create_channel().unwrap();
    tokio::spawn(channel.drive().unwrap());
    Fabric {
        arena: device.arena(arena),
        device,
        channel,
        context: Arc::new(TokioContext::current()),
    }
}

impl Node {
    pub fn open(options: &ExchangeOptions) -> Self {
        let device = open_device();
        Self::on(fabric(device, ArenaOptions::default()), options)
    }

    /// One more exchange on a fabric.
    pub fn on(fabric: Fabric, options: &ExchangeOptions) -> Self {
        Self::with_budget(fabric, options, Arc::new(Unlimited))
    }

    pub fn with_budget(
        fabric: Fabric,
        options: &ExchangeOptions,
        budget: Arc<dyn MemoryBudget>,
    ) -> Self {
        let exchange = fabric.context.random();
        Self {
            shuffle: Arc::new(Shuffle::open(&fabric, options, exchange, 7).unwrap()),
            receive: Receive::open(&fabric, options, &budget).unwrap(),
            fabric,
        }
    }
}

/// The partitions of a node when each belongs to one node and every node has `count`.
pub fn own(node: usize, count: u32) -> Range<u32> {
    let first = node as u32 * count;
    first..first + count
}

/// Connects every node with every node, itself included; a node reads the partitions that
/// `partitions` gives it.
pub fn connect(cluster: &[Node], partitions: impl Fn(usize) -> Range<u32>) -> Links {
    let mut links = Links {
        destinations: cluster.iter().map(|_| Vec::new()).collect(),
        links: Vec::new(),
    };
    for (target, receiver) in cluster.iter().enumerate() {
        let mut incoming = Vec::new();
        for (source, sender) in cluster.iter().enumerate() {
            let (link, offers) = receiver
                .receive
                .offer(&format!("node {source}"), partitions(target))
                .unwrap();
            let (destination, answers) = sender
                .shuffle
                .accept(&offers, &format!("node {target}"))
                .unwrap();
            receiver.receive.connect(&link, &answers).unwrap();
            let group = sender
                .shuffle
                .group(std::slice::from_ref(&destination))
                .unwrap();
            links.destinations[source].push((destination, group));
            incoming.push(link);
        }
        links.links.push(incoming);
    }
    links
}

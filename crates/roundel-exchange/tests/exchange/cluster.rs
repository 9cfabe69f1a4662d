//! Nodes of a cluster in one process, each with a device of its own.

use roundel_exchange::operator::{Group, LocalLinks};
use roundel_exchange::{
    CreditBy, Design, Destination, ExchangeOptions, Fabric, MemoryBudget, Multiplexer,
    MultiplexerOptions, Notification, Receive, ReceiveLink, Route, Shuffle, Unlimited,
};
use roundel_verbs::{ArenaOptions, Capabilities, Device, Regions, TokioContext, rdma, shm};
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One node: a device, and an exchange's two sides on it.
pub struct Node {
    pub fabric: Fabric,
    pub shuffle: Arc<Shuffle>,
    pub receive: Receive,
    pub multiplexer: Option<Multiplexer>,
    /// Those within its process, where it has a multiplexer.
    links: Arc<LocalLinks>,
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

/// How rows travel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// By endpoints of every exchange's own.
    Endpoints(Design),
    /// Through the multiplexers of the nodes.
    Multiplexer(Design),
    /// The same, with credit that is written to memory.
    CreditInMemory(Design),
    /// Between units, by endpoints of their own.
    Classic(Design),
}

impl Way {
    /// The design, where endpoints have one.
    pub fn design(self) -> Option<Design> {
        match self {
            Self::Multiplexer(_) => None,
            _ => Some(self.shuffled_by()),
        }
    }

    /// The design of endpoints or multiplexers.
    pub fn shuffled_by(self) -> Design {
        let (Self::Endpoints(design)
        | Self::CreditInMemory(design)
        | Self::Classic(design)
        | Self::Multiplexer(design)) = self;
        design
    }

    /// What `options` are then, of nodes with so many threads.
    pub fn applied(
        self,
        mut options: ExchangeOptions,
        threads: usize,
        capabilities: &Capabilities,
    ) -> Options {
        match self {
            Self::Endpoints(_) => options.into(),
            Self::CreditInMemory(_) => {
                options.credit_by = CreditBy::Memory;
                options.into()
            }
            Self::Classic(_) => options.classic(threads).into(),
            Self::Multiplexer(design) => {
                let sizes = MultiplexerOptions {
                    design,
                    ..MultiplexerOptions::new(capabilities)
                };
                Options::from(options).through(sizes, Regions::made_up(2))
            }
        }
    }
}

/// The designs that can have credit in memory.
pub const CREDIT_IN_MEMORY: [Way; 2] = [
    Way::CreditInMemory(Design::MemqSr),
    Way::CreditInMemory(Design::SemqSr),
];

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Endpoints(design) => design.fmt(f),
            Self::CreditInMemory(design) => write!(f, "{design} with credit in memory"),
            Self::Multiplexer(design) => write!(f, "multiplexer {design}"),
            Self::Classic(design) => write!(f, "classic {design}"),
        }
    }
}

impl From<Design> for Way {
    fn from(design: Design) -> Self {
        Self::Endpoints(design)
    }
}

/// Every design that can run on the devices at hand and that multiplexers can have.
pub fn multiplexed() -> impl Iterator<Item = Design> {
    let can = open_device().capabilities().immediate_data;
    let designs = designs().into_iter().filter(move |_| can);
    designs.filter(|design| design.check_multiplexed().is_ok())
}

/// Every design that can run on the devices at hand, by endpoints, multiplexers, and units.
pub fn ways() -> Vec<Way> {
    let designs = designs();
    let mut ways = vec![Way::Classic(Design::MemqSr)];
    ways.extend(CREDIT_IN_MEMORY);
    ways.extend(multiplexed().map(Way::Multiplexer));
    let written = Design::MemqWr(Notification::CompletionQueue);
    ways.extend(designs.contains(&written).then_some(Way::Classic(written)));
    ways.extend(designs.into_iter().map(Way::Endpoints));
    ways
}

/// The settings of an exchange, and of the multiplexer that each node opens for it.
#[derive(Clone, Debug)]
pub struct Options {
    exchange: ExchangeOptions,
    multiplexer: Option<(MultiplexerOptions, Regions)>,
    /// Where all nodes are one process, within which rows are handed over in memory.
    process: Option<Arc<LocalLinks>>,
}

impl From<ExchangeOptions> for Options {
    fn from(exchange: ExchangeOptions) -> Self {
        Self {
            exchange,
            multiplexer: None,
            process: None,
        }
    }
}

impl Options {
    /// The same through multiplexers of these sizes, in regions of a process.
    pub fn through(self, sizes: MultiplexerOptions, regions: Regions) -> Self {
        let mut through = Self {
            multiplexer: Some((sizes, regions)),
            ..self
        };
        through.message_bytes = sizes.message_bytes;
        through
    }

    /// The same for nodes that are one process.
    pub fn in_one_process(self) -> Self {
        Self {
            process: Some(Arc::default()),
            ..self
        }
    }
}

impl Deref for Options {
    type Target = ExchangeOptions;

    fn deref(&self) -> &ExchangeOptions {
        &self.exchange
    }
}

impl DerefMut for Options {
    fn deref_mut(&mut self) -> &mut ExchangeOptions {
        &mut self.exchange
    }
}

/// The default options of a way.
pub fn options(way: impl Into<Way>, threads: usize) -> Options {
    let device = open_device();
    let way = way.into();
    let capabilities = device.capabilities();
    let mut options = ExchangeOptions::new(way.shuffled_by(), threads, capabilities);
    // Batches come out as they went in.
    options.batch_rows = 1;
    way.applied(options, threads, capabilities)
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
    pub fn open(options: &Options) -> Self {
        let device = open_device();
        Self::on(fabric(device, ArenaOptions::default()), options)
    }

    /// One more exchange on a fabric.
    pub fn on(fabric: Fabric, options: &Options) -> Self {
        Self::with_budget(fabric, options, Arc::new(Unlimited))
    }

    pub fn with_budget(fabric: Fabric, options: &Options, budget: Arc<dyn MemoryBudget>) -> Self {
        let multiplexer = options.multiplexer.as_ref().map(|(sizes, regions)| {
            let sizes = MultiplexerOptions {
                message_bytes: options.message_bytes,
                ..*sizes
            };
            multiplexer(&fabric, sizes, regions)
        });
        let links = Arc::default();
        let route = match (&multiplexer, &options.process) {
            (Some(own), _) => Route::through(own, 1, &links),
            (None, Some(process)) => Route::beside(process),
            (None, None) => Route::direct(),
        };
        Self::of(fabric, options, budget, multiplexer, links, &route)
    }

    /// One more exchange of the same node, through its multiplexer.
    pub fn beside(&self, options: &ExchangeOptions) -> Self {
        let own = self.multiplexer.clone().unwrap();
        let links = self.links.clone();
        let route = Route::through(&own, 1, &links);
        let (fabric, budget) = (self.fabric.clone(), Arc::new(Unlimited));
        Self::of(fabric, options, budget, Some(own), links, &route)
    }

    fn of(
        fabric: Fabric,
        options: &ExchangeOptions,
        budget: Arc<dyn MemoryBudget>,
        multiplexer: Option<Multiplexer>,
        links: Arc<LocalLinks>,
        route: &Route,
    ) -> Self {
        let exchange = fabric.context.random();
        let shuffle = Shuffle::open(&fabric, options, route, exchange, 7).unwrap();
        Self {
            shuffle: Arc::new(shuffle),
            receive: Receive::open(&fabric, options, route, &budget).unwrap(),
            multiplexer,
            links,
            fabric,
        }
    }
}

/// The partitions of a node when each belongs to one node and every node has `count`.
pub fn own(node: usize, count: u32) -> Range<u32> {
    let first = node as u32 * count;
    first..first + count
}

/// A multiplexer that is driven.
pub fn multiplexer(fabric: &Fabric, options: MultiplexerOptions, regions: &Regions) -> Multiplexer {
    let multiplexer = Multiplexer::open(fabric, options, regions).unwrap();
    fabric.context.spawn(Box::pin(multiplexer.drive()));
    multiplexer
}

/// Connects two multiplexers, once.
pub fn meet(one: &Multiplexer, other: &Multiplexer) {
    if !one.is_connected(other.id()) {
        let address = one.meet(other.id(), "other").unwrap();
        let answer = other.accept(one.id(), "one", &address).unwrap();
        one.join(other.id(), &answer).unwrap();
    }
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
            let name = format!("node {source}");
            let met = match (&receiver.multiplexer, &sender.multiplexer) {
                (Some(here), Some(there)) => {
                    meet(here, there);
                    Some(there.id())
                }
                _ => None,
            };
            let offered = receiver.receive.offer(&name, met, partitions(target));
            let (link, offers) = offered.unwrap();
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

//! What is run: one point of a figure. Nodes get it as JSON.

use crate::error::{Error, Result};
use crate::fabric::FabricChoice;
use roundel_exchange::{Buffers, Design};
use roundel_simtest::as_text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most nodes of a run.
const NODES_MAX: usize = 4096;
/// Bytes of a key.
pub const KEY_BYTES: usize = 8;
/// Bytes of a tuple of the base case: a key and a value.
pub const TUPLE_BYTES: usize = 2 * KEY_BYTES;
/// Cycles of a round of a consumer's work: a multiplication, a shift, and an exclusive or, each of which waits for
/// the one before.
pub const ROUND_CYCLES: u64 = 5;
/// Rows of a batch.
pub const BATCH_ROWS: usize = 8192;
/// Bytes of a message of sockets (section 7.1).
pub const SOCKET_MESSAGE_BYTES: usize = 128 << 10;
/// Bytes of a message of MPI and of those that are sent over and over (section 7.1).
pub const MESSAGE_BYTES: usize = 64 << 10;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// What moves the rows.
    #[serde(with = "as_text")]
    pub transport: Transport,
    /// What the verbs transports run over.
    pub fabric: FabricChoice,
    /// Who gets which rows.
    pub pattern: Pattern,
    /// Nodes, each of which is a process.
    pub nodes: usize,
    /// Threads of each.
    pub threads: usize,
    /// Rows of each thread's part of the relation.
    pub rows: usize,
    /// Bytes of a tuple: a key of 8 bytes, and a value of the others.
    pub tuple_bytes: usize,
    /// Seconds after which no scan of the relation begins.
    pub seconds: f64,
    /// Bytes of a message, header included; the transport's own when there is none.
    pub message_bytes: Option<usize>,
    /// How many messages may be in flight.
    #[serde(with = "as_text")]
    pub buffers: Buffers,
    /// Receives for which credit is written back once; the exchange's own when there is none.
    pub credit_frequency: Option<u32>,
    /// Whether credit for SENDs over connections is written to memory.
    #[serde(default)]
    pub credit_in_memory: bool,
    /// Rounds of work that the consumer does for each tuple, by node; the last for all further nodes.
    pub work: Vec<u32>,
    /// Rounds of work in the middle half of the run instead, in which registered memory is then watched.
    pub work_midway: Option<u32>,
    /// How completions are waited for.
    pub wait: Wait,
    /// Whether it is measured how long buffers are away, which costs a little for each message.
    #[serde(default)]
    pub watch_buffers: bool,
}

/// What moves the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A design of the shuffle, over verbs.
    Design(Design),
    /// The same, where a tuple is a message that lies in registered memory already.
    ZeroCopy(Design),
    /// Sockets, of which one receiver in a node polls all: the paper's IPoIB.
    Sockets,
    /// Arrow Flight: streams of gRPC.
    Grpc,
    /// MPI, whose process the threads of a node share.
    Mpi,
    /// The same, where each thread is a process: in simulation only, as processes are nodes otherwise.
    MpiProcesses,
    /// One registered buffer, sent over and over: what the network can do.
    Qperf,
    /// A few bytes, back and forth between nodes 0 and 1, 2 and 3, …: how long that takes.
    PingPong,
    /// Partitioning into memory, and nothing else.
    Partition,
    /// Consuming batches in memory, and nothing else.
    Consume,
}

/// Who gets which rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Each row goes to one node, by a hash of its key.
    Repartition,
    /// Each row goes to all nodes.
    Broadcast,
}

/// How completions are waited for (section 7.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Asleep, until there is an event.
    Events,
    /// Awake for so many microseconds, then asleep.
    Spin(u64),
    /// Awake all the time.
    Poll,
}

impl Setting {
    /// The nodes of each transmission group: each node by itself, or all.
    pub fn groups(&self) -> Vec<Vec<usize>> {
        match self.pattern {
            Pattern::Repartition => (0..self.nodes).map(|node| vec![node]).collect(),
            Pattern::Broadcast => vec![(0..self.nodes).collect()],
        }
    }

    /// The base case: two nodes of one thread repartition tuples of 16 bytes. Simulated threads stay awake, as
    /// those of the paper do: there is nobody else to run.
    pub fn new(transport: Transport, fabric: impl Into<FabricChoice>) -> Self {
        let fabric = fabric.into();
        Self {
            transport,
            pattern: Pattern::Repartition,
            nodes: 2,
            threads: 1,
            rows: 1 << 20,
            tuple_bytes: TUPLE_BYTES,
            seconds: 1.0,
            message_bytes: None,
            buffers: Buffers::Adaptive,
            credit_frequency: None,
            credit_in_memory: false,
            work: vec![0],
            work_midway: None,
            wait: match fabric.is_simulated() {
                true => Wait::Poll,
                false => Wait::Events,
            },
            watch_buffers: false,
            fabric,
        }
    }

    /// Rounds of work of a node.
    pub fn work_of(&self, node: usize) -> u32 {
        let own = self.work.get(node).or(self.work.last());
        own.copied().unwrap_or_default()
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<()> {
        let wrong = if self.nodes == 0 || self.nodes > NODES_MAX {
            format!("{} nodes; there can be 1 to {NODES_MAX}", self.nodes)
        } else if self.threads == 0 || self.threads > 256 {
            format!("{} threads; there can be 1 to 256", self.threads)
        } else if self.rows == 0 || self.rows > 1 << 30 {
            format!("{} rows; there can be 1 to 2^30", self.rows)
        } else if self.tuple_bytes < TUPLE_BYTES || self.tuple_bytes > 32 << 10 {
            format!("tuples of {} bytes; 16 to 32 KiB", self.tuple_bytes)
        } else if !(0.0..=600.0).contains(&self.seconds) {
            format!("{} seconds; 0 to 600", self.seconds)
        } else if self
            .message_bytes
            .is_some_and(|bytes| !(1024..=16 << 20).contains(&bytes))
        {
            "messages have 1 KiB to 16 MiB".into()
        } else if matches!(self.buffers, Buffers::Fixed(0 | 1)) {
            "a link has at least two buffers".into()
        } else if self.credit_frequency == Some(0) {
            "credit is written back for at least one receive".into()
        } else if self.transport == Transport::PingPong && self.nodes % 2 == 1 {
            "ping pong is between two nodes each".into()
        } else if matches!(self.wait, Wait::Spin(_)) && self.fabric.is_simulated() {
            "threads that spin for a while are not simulated".into()
        } else if self.transport == Transport::MpiProcesses && !self.fabric.is_simulated() {
            "processes of MPI that share a node are simulated only: make each a node".into()
        } else if self.transport == Transport::Mpi
            && !cfg!(feature = "mpi")
            && !self.fabric.is_simulated()
        {
            "this program was built without MPI: use --features mpi".into()
        } else {
            return Ok(());
        };
        Err(Error::Setting(wrong))
    }
}

impl Transport {
    /// Its name in figures: `MESQ/SR`, `sockets`, ….
    pub fn name(self) -> &'static str {
        self.names().1
    }

    /// The name by which nodes and the command line know it, and that in figures. The first is a prefix where a design
    /// follows.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Design(design) => (design.name(), design.name()),
            Self::ZeroCopy(_) => (ZERO_COPY, "zero copy"),
            Self::Sockets => ("sockets", "sockets"),
            Self::Grpc => ("grpc", "gRPC"),
            Self::Mpi => ("mpi", "MPI"),
            Self::MpiProcesses => ("mpi-processes", "MPI processes"),
            Self::Qperf => ("qperf", "qperf"),
            Self::PingPong => ("ping-pong", "ping pong"),
            Self::Partition => ("partition", "partitioning alone"),
            Self::Consume => ("consume", "consuming alone"),
        }
    }
}

/// The prefix of zero copy, before the name of its design.
const ZERO_COPY: &str = "zero-copy:";

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names().0)?;
        match self {
            Self::ZeroCopy(design) => f.write_str(design.name()),
            _ => Ok(()),
        }
    }
}

impl std::str::FromStr for Transport {
    type Err = Error;

    fn from_str(key: &str) -> Result<Self> {
        let plain = [
            Self::Sockets,
            Self::Grpc,
            Self::Mpi,
            Self::MpiProcesses,
            Self::Qperf,
            Self::PingPong,
            Self::Partition,
            Self::Consume,
        ];
        if let Some(found) = plain.into_iter().find(|one| one.names().0 == key) {
            return Ok(found);
        }
        let design = |name: &str| {
            let design = name.parse::<Design>();
            design.map_err(|error| Error::Setting(error.to_string()))
        };
        match key.strip_prefix(ZERO_COPY) {
            Some(name) => design(name).map(Self::ZeroCopy),
            None => design(key).map(Self::Design),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_comes_back_from_json() {
        let designs = Design::every().map(Transport::Design);
        let others = [
            "sockets",
            "grpc",
            "qperf",
            "ping-pong",
            "partition",
            "zero-copy:MEMQ/SR",
        ];
        let others = others.iter().map(|key| key.parse().unwrap());
        for transport in designs.chain(others) {
            let setting = Setting {
                buffers: Buffers::Fixed(16),
                wait: Wait::Spin(50),
                ..Setting::new(transport, FabricChoice::default())
            };
            let json = serde_json::to_string(&setting).unwrap();
            assert_eq!(serde_json::from_str::<Setting>(&json).unwrap(), setting);
        }
        assert!("pigeons".parse::<Transport>().is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let good = Setting::new(Transport::Sockets, FabricChoice::default());
        good.check().unwrap();
        let wrong = [
            Setting {
                nodes: 0,
                ..good.clone()
            },
            Setting {
                threads: 0,
                ..good.clone()
            },
            Setting {
                tuple_bytes: 8,
                ..good.clone()
            },
            Setting {
                seconds: f64::NAN,
                ..good.clone()
            },
            Setting {
                buffers: Buffers::Fixed(1),
                ..good.clone()
            },
            Setting {
                credit_frequency: Some(0),
                ..good.clone()
            },
            Setting {
                message_bytes: Some(10),
                ..good
            },
        ];
        for wrong in wrong {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}

//! What the two ends of an exchange say to each other over gRPC.

use crate::settings::SettingMessage;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::Partitioning;
use datafusion_distributed::{ExecuteTaskRequest, MaybeEncoded, ProducerHead, TaskKey};
use std::ops::Range;
use std::sync::Arc;
use uuid::Uuid;

/// Path prefix of the service, its gRPC name.
pub(super) const SERVICE_NAME: &str = "roundel.Exchange";
pub(super) const EXECUTE_PATH: &str = "/roundel.Exchange/Execute";
pub(super) const BEGIN_PATH: &str = "/roundel.Exchange/Begin";
pub(super) const MEET_PATH: &str = "/roundel.Exchange/Meet";
pub(super) const AGREE_PATH: &str = "/roundel.Exchange/Agree";
pub(super) const CAUSE_PATH: &str = "/roundel.Exchange/Cause";
pub(super) const COUNTERS_PATH: &str = "/roundel.Exchange/Counters";

/// Asks a worker to run partitions of a task and to send their rows to the offered endpoints.
/// The producer stops when the response stream is dropped.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Execute {
    /// The query, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub query: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub stage: u64,
    #[prost(uint64, tag = "3")]
    pub task: u64,
    #[prost(uint64, tag = "4")]
    pub partition_start: u64,
    #[prost(uint64, tag = "5")]
    pub partition_end: u64,
    #[prost(message, optional, tag = "6")]
    pub head: Option<Head>,
    /// The consumer's ends of the links, one per endpoint.
    #[prost(bytes = "vec", repeated, tag = "7")]
    pub offers: Vec<Vec<u8>>,
    /// How rows are exchanged: both sides must do the same.
    #[prost(message, optional, tag = "8")]
    pub setting: Option<SettingMessage>,
    /// Who asks, for messages to people.
    #[prost(string, tag = "9")]
    pub consumer: String,
    /// The fabric's name.
    #[prost(string, tag = "10")]
    pub fabric: String,
}

/// The node that the producer's plan ends in.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Head {
    /// Set for a repartitioning: DataFusion's encoding of it.
    #[prost(bytes = "vec", optional, tag = "1")]
    pub repartition: Option<Vec<u8>>,
    /// Set for a broadcast: its output partitions.
    #[prost(uint64, optional, tag = "2")]
    pub broadcast: Option<u64>,
    /// Set for a repartitioning by a hash: its partitions, over all consumers.
    #[prost(uint64, optional, tag = "3")]
    pub hash_partitions: Option<u64>,
}

/// What the producer answers, in this order.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Answer {
    #[prost(oneof = "AnswerKind", tags = "1, 2, 3")]
    pub kind: Option<AnswerKind>,
}

/// See [`Answer`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum AnswerKind {
    /// The links are there; rows flow.
    #[prost(message, tag = "1")]
    Accepted(Accepted),
    /// All rows have been sent.
    #[prost(message, tag = "2")]
    Sent(Sent),
    /// The task failed: its message.
    #[prost(message, tag = "3")]
    Failed(Failed),
}

/// The producer's ends of the links.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Accepted {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub answers: Vec<Vec<u8>>,
    /// The schema of the rows, as Arrow IPC.
    #[prost(bytes = "vec", tag = "2")]
    pub schema: Vec<u8>,
}

/// What the producer's endpoints sent to this consumer.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Sent {
    #[prost(uint64, tag = "1")]
    pub messages: u64,
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    #[prost(uint64, tag = "3")]
    pub blocked_ns: u64,
    /// Of the messages, those that were sent again because they had been lost.
    #[prost(uint64, tag = "4")]
    pub repaired: u64,
    /// Phases of the producer's multiplexer, for all queries, since it last told of them.
    #[prost(uint64, tag = "5")]
    pub phases: u64,
    /// How long its rows waited in these for a neighbour to end a phase.
    #[prost(uint64, tag = "6")]
    pub stalled_ns: u64,
    /// Bytes of rows that messages to all consumers of the task were filled with, since it last told of them.
    #[prost(uint64, tag = "7")]
    pub filled: u64,
}

/// Why a task failed.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Failed {
    #[prost(string, tag = "1")]
    pub message: String,
    #[prost(enumeration = "FailureKind", tag = "2")]
    pub kind: i32,
}

/// What a task failed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum FailureKind {
    /// Something is wrong with the query.
    Query = 0,
    /// Memory ran out.
    Memory = 1,
    /// Datagrams were lost: running the query again may help.
    Datagrams = 2,
    /// A connection broke: the same. Another task's failure may be behind it.
    Link = 3,
    /// Those who it was for have left: another task's failure, or the query's end, is behind it.
    Orphaned = 4,
    /// The disk that it spilled to is full.
    Disk = 5,
}

/// Says that rows which a task scatters are wanted now: it begins when all of its consumers have come
/// and one of them reads.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Begin {
    /// The query, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub query: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub stage: u64,
    #[prost(uint64, tag = "3")]
    pub task: u64,
    /// The fabric's name.
    #[prost(string, tag = "4")]
    pub fabric: String,
}

/// The answer to [`Begin`].
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Begun {}

/// Asks a process which node of the multiplexers of a design it is, and to connect its own with that of the one that
/// asks.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Meet {
    /// The fabric's name.
    #[prost(string, tag = "1")]
    pub fabric: String,
    /// The node that asks.
    #[prost(fixed64, tag = "2")]
    pub node: u64,
    /// What errors call it.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Its end of the connection to the node that is asked.
    #[prost(bytes = "vec", optional, tag = "4")]
    pub address: Option<Vec<u8>>,
    /// The design of its multiplexer, which that of the node that is asked must have, too.
    #[prost(string, tag = "5")]
    pub design: String,
}

/// The answer to [`Meet`].
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Met {
    /// The node that was asked.
    #[prost(fixed64, tag = "1")]
    pub node: u64,
    /// Its end of the connection to the one that asks, if that gave one.
    #[prost(bytes = "vec", tag = "2")]
    pub address: Vec<u8>,
}

/// Asks which keys of a join are heavy, and tells what the asking task saw of them. The answer comes when all tasks that
/// tell samples have told theirs.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Agree {
    /// The query, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub query: Vec<u8>,
    /// The join: the number of the stage that is its left input.
    #[prost(uint64, tag = "2")]
    pub join: u64,
    /// Which input the task is of: 0 is the left one.
    #[prost(uint32, tag = "3")]
    pub side: u32,
    /// The task's number.
    #[prost(uint64, tag = "4")]
    pub task: u64,
    /// Tasks of both inputs that tell samples.
    #[prost(uint64, tag = "5")]
    pub samplers: u64,
    /// Tasks of both inputs.
    #[prost(uint64, tag = "6")]
    pub tasks: u64,
    /// Partitions of the join, over all of its tasks.
    #[prost(uint64, tag = "7")]
    pub partitions: u64,
    /// Rows that are expected of the left input.
    #[prost(uint64, optional, tag = "8")]
    pub expected_left: Option<u64>,
    /// And of the right one.
    #[prost(uint64, optional, tag = "9")]
    pub expected_right: Option<u64>,
    /// Nothing from a task whose rows stay where their hash says.
    #[prost(message, optional, tag = "10")]
    pub sample: Option<KeySample>,
}

/// What a task saw of its first rows.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct KeySample {
    #[prost(uint64, tag = "1")]
    pub rows: u64,
    /// The keys that may be heavy.
    #[prost(message, repeated, tag = "2")]
    pub heavy: Vec<Heavy>,
    /// The task failed: nobody need wait for it.
    #[prost(bool, tag = "3")]
    pub failed: bool,
}

/// A key, by its hash, and how many rows had it.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Heavy {
    #[prost(fixed64, tag = "1")]
    pub hash: u64,
    #[prost(uint32, tag = "2")]
    pub count: u32,
}

/// The answer to [`Agree`]: the hashes of heavy keys, by the input whose rows are spread. Those of the other input are
/// sent to all.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Agreed {
    #[prost(fixed64, repeated, tag = "1")]
    pub left: Vec<u64>,
    #[prost(fixed64, repeated, tag = "2")]
    pub right: Vec<u64>,
}

/// Asks what a query failed of on a worker.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Cause {
    /// The query, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub query: Vec<u8>,
}

/// The answer to [`Cause`].
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Caused {
    /// Nothing if none of its tasks failed there.
    #[prost(message, optional, tag = "1")]
    pub failed: Option<Failed>,
}

/// Asks for the counters of a worker's device.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CountersRequest {
    /// Of which fabric.
    #[prost(string, tag = "1")]
    pub fabric: String,
}

/// Counters of one process, since it started.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CountersAnswer {
    #[prost(message, repeated, tag = "1")]
    pub counts: Vec<OpcodeCount>,
    #[prost(uint64, tag = "2")]
    pub registered_bytes_max: u64,
    #[prost(uint64, tag = "3")]
    pub queue_pairs_max: u64,
    #[prost(uint64, tag = "4")]
    pub buffer_bytes: u64,
    /// Most queue pairs that the device had at a time.
    #[prost(uint64, tag = "5")]
    pub device_queue_pairs_max: u64,
}

/// Messages and bytes of one opcode.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct OpcodeCount {
    #[prost(string, tag = "1")]
    pub opcode: String,
    #[prost(uint64, tag = "2")]
    pub messages: u64,
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
}

impl Head {
    pub(super) fn encode(head: ProducerHead, context: &Arc<TaskContext>) -> Result<Self> {
        Ok(match head {
            ProducerHead::None => Self::default(),
            ProducerHead::BroadcastExec { output_partitions } => Self {
                broadcast: Some(output_partitions as u64),
                ..Self::default()
            },
            ProducerHead::RepartitionExec { partitioning } => Self {
                hash_partitions: match &partitioning {
                    MaybeEncoded::Decoded(Partitioning::Hash(_, count)) => Some(*count as u64),
                    _ => None,
                },
                repartition: Some(partitioning.encode(context)?),
                broadcast: None,
            },
        })
    }

    fn decode(self) -> ProducerHead {
        match (self.repartition, self.broadcast) {
            (Some(partitioning), _) => ProducerHead::RepartitionExec {
                partitioning: MaybeEncoded::Encoded(partitioning),
            },
            (None, Some(output_partitions)) => ProducerHead::BroadcastExec {
                output_partitions: output_partitions as usize,
            },
            (None, None) => ProducerHead::None,
        }
    }
}

impl Begin {
    /// The task that is asked for rows.
    pub(super) fn task(&self) -> Result<TaskKey> {
        task_key(&self.query, self.stage, self.task)
    }
}

/// The id of a query.
pub(super) fn query_id(query: &[u8]) -> Result<Uuid> {
    Uuid::from_slice(query)
        .map_err(|error| DataFusionError::Execution(format!("a query's id: {error}")))
}

fn task_key(query: &[u8], stage: u64, task: u64) -> Result<TaskKey> {
    Ok(TaskKey {
        query_id: query_id(query)?,
        stage_id: stage as usize,
        task_number: task as usize,
    })
}

impl Execute {
    /// What the exchange calls the partitions: all consumers of a broadcast get the same messages, and the same partitions.
    pub(super) fn names(&self) -> Range<u32> {
        let first = match self.broadcast_consumers() {
            Some(_) => 0,
            None => self.partition_start,
        };
        let count = self.partition_end.saturating_sub(self.partition_start);
        first as u32..(first + count) as u32
    }

    /// How many consumers get the same rows, if the task's plan ends in a broadcast.
    pub(super) fn broadcast_consumers(&self) -> Option<usize> {
        let partitions = self.head.as_ref()?.broadcast?;
        let own = self.partition_end.saturating_sub(self.partition_start);
        Some(partitions.checked_div(own)? as usize)
    }

    /// The task and the partitions that are asked for.
    pub(super) fn request(&self) -> Result<ExecuteTaskRequest> {
        if self.partition_end < self.partition_start {
            return Err(DataFusionError::Execution(
                "a task was asked for a range of partitions that ends before it begins".into(),
            ));
        }
        Ok(ExecuteTaskRequest {
            task_key: task_key(&self.query, self.stage, self.task)?,
            target_partition_start: self.partition_start as usize,
            target_partition_end: self.partition_end as usize,
            producer_head: self.head.clone().unwrap_or_default().decode(),
        })
    }
}

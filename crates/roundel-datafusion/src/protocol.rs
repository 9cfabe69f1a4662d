//! What the two ends of an exchange say to each other over gRPC: the messages of `proto/exchange.proto`, and how they
//! are read.

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::Partitioning;
use datafusion_distributed::{ExecuteTaskRequest, MaybeEncoded, ProducerHead, TaskKey};
use std::ops::Range;
use std::sync::Arc;
use uuid::Uuid;

#[allow(missing_docs)]
mod messages {
    tonic::include_proto!("roundel.exchange");
}

pub(super) use messages::answer::Kind as AnswerKind;
pub(super) use messages::exchange_client::ExchangeClient;
pub(super) use messages::exchange_server::Exchange;
pub use messages::exchange_server::ExchangeServer;
pub(super) use messages::*;

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

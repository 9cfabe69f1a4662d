//! Counters of the verbs layer, collected from all processes of a cluster.

use crate::calls::{Channels, status_error};
use crate::error::Result;
use crate::fabric::Fabric;
use crate::node::ExchangeNode;
use crate::protocol::{CountersAnswer, CountersRequest};
use serde::Serialize;
use std::collections::BTreeMap;
use url::Url;

/// Counters of the verbs layer, over all processes of a cluster since they started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FabricCounters {
    /// Most queue pairs that one operator, a SHUFFLE or a RECEIVE, had in one process. A worker
    /// exchanges rows with the other workers, the coordinator with all of them.
    pub queue_pairs: u64,
    /// Most queue pairs that the device of one process had at a time, of all operators of all queries together.
    pub device_queue_pairs: u64,
    /// Messages by opcode, such as `send`.
    pub messages: BTreeMap<String, u64>,
    /// Bytes of these messages, their headers included.
    pub bytes: BTreeMap<String, u64>,
    /// Most bytes that were registered at one time in one process.
    pub registered_bytes_max: u64,
    /// Most bytes that were registered at one time in each process, added up.
    pub registered_bytes_sum: u64,
    /// Bytes that buffers of running queries hold now, in all processes. It changes all the time, so that no report has it.
    #[serde(skip)]
    pub buffer_bytes: u64,
}

impl FabricCounters {
    fn add(&mut self, process: CountersAnswer) {
        self.queue_pairs = self.queue_pairs.max(process.queue_pairs_max);
        self.device_queue_pairs = self.device_queue_pairs.max(process.device_queue_pairs_max);
        self.registered_bytes_max = self.registered_bytes_max.max(process.registered_bytes_max);
        self.registered_bytes_sum += process.registered_bytes_max;
        self.buffer_bytes += process.buffer_bytes;
        for count in process.counts {
            *self.messages.entry(count.opcode.clone()).or_default() += count.messages;
            *self.bytes.entry(count.opcode).or_default() += count.bytes;
        }
    }
}

/// Adds up what this process and the workers at `urls` have counted.
/// # Errors
/// When a worker does not answer.
pub async fn collect(
    fabric: Fabric,
    node: &ExchangeNode,
    channels: &Channels,
    urls: &[Url],
) -> Result<FabricCounters> {
    let mut sum = FabricCounters::default();
    sum.add(node.counters());
    for url in urls {
        sum.add(ask(fabric, channels, url).await?);
    }
    Ok(sum)
}

async fn ask(fabric: Fabric, channels: &Channels, url: &Url) -> Result<CountersAnswer> {
    let request = CountersRequest {
        fabric: fabric.name().to_owned(),
    };
    let counted = channels.exchange(url).await?.count(request).await;
    let counters = counted.map_err(|status| status_error(url, &status))?;
    Ok(counters.into_inner())
}

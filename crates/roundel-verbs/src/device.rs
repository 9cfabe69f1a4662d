//! A device. All other objects are created from one.

use crate::address::{DeviceAddress, QueuePairAddress};
use crate::capabilities::Capabilities;
use crate::completion_queue::{CompletionChannel, CompletionQueue};
use crate::counters::{CounterSnapshot, QueuePairCount};
use crate::error::{Result, VerbsError};
use crate::memory::{Arena, ArenaOptions};
use crate::multicast::MulticastGroup;
use crate::provider::{ProviderDevice, RawQueuePairOptions};
use crate::queue_pair::{
    AddressHandle, QUEUE_KEY_MAX, QueuePair, QueuePairOptions, RequestLimits, Transport,
};
use crate::shared_receive::SharedReceiveQueue;
use std::sync::Arc;

/// An open device of some provider. Clones share it.
#[derive(Clone)]
pub struct Device {
    provider: Arc<dyn ProviderDevice>,
    queue_pairs: Arc<QueuePairCount>,
}

impl Device {
    /// Wraps a provider's device.
    pub fn new(provider: Arc<dyn ProviderDevice>) -> Self {
        Self {
            provider,
            queue_pairs: Arc::default(),
        }
    }

    /// The provider's device, for a provider that wraps it.
    pub fn provider(&self) -> &Arc<dyn ProviderDevice> {
        &self.provider
    }

    /// Limits and properties.
    pub fn capabilities(&self) -> &Capabilities {
        self.provider.capabilities()
    }

    /// Its address, for peers.
    pub fn address(&self) -> DeviceAddress {
        self.provider.address()
    }

    /// An arena of registered memory on this device.
    pub fn arena(&self, options: ArenaOptions) -> Arena {
        let provider = self.provider.clone();
        let register =
            move |length, exposed, node| provider.register_segment(length, exposed, node);
        Arena::new(Box::new(register), options)
    }

    /// A completion channel.
    pub fn create_channel(&self) -> Result<CompletionChannel> {
        Ok(CompletionChannel::new(self.provider.create_channel()?))
    }

    /// A completion queue for at most `depth` completions, on a channel if its user wants to
    /// sleep.
    pub fn create_completion_queue(
        &self,
        depth: usize,
        channel: Option<&CompletionChannel>,
    ) -> Result<CompletionQueue> {
        let provider = self
            .provider
            .create_completion_queue(depth, channel.map(CompletionChannel::provider))?;
        Ok(CompletionQueue::new(provider, channel.cloned()))
    }

    /// A queue pair in state INIT.
    pub fn create_queue_pair(
        &self,
        options: &QueuePairOptions,
        send_queue: &CompletionQueue,
        receive_queue: &CompletionQueue,
    ) -> Result<QueuePair> {
        self.queue_pair(options, send_queue, receive_queue, None)
    }

    /// A queue pair in state INIT that takes its receives from a shared receive queue; its own
    /// receive depth is not used.
    pub fn create_queue_pair_with_shared_receives(
        &self,
        options: &QueuePairOptions,
        send_queue: &CompletionQueue,
        receive_queue: &CompletionQueue,
        shared: &SharedReceiveQueue,
    ) -> Result<QueuePair> {
        let options = QueuePairOptions {
            receive_depth: shared.depth(),
            ..options.clone()
        };
        self.queue_pair(&options, send_queue, receive_queue, Some(shared))
    }

    fn queue_pair(
        &self,
        options: &QueuePairOptions,
        send_queue: &CompletionQueue,
        receive_queue: &CompletionQueue,
        shared: Option<&SharedReceiveQueue>,
    ) -> Result<QueuePair> {
        let transport = options.transport;
        if !self.capabilities().transports.contains(&transport) {
            return Err(VerbsError::Unsupported {
                provider: self.capabilities().provider,
                what: transport.queue_pairs(),
            });
        }
        within_queue_keys(options.queue_key)?;
        let limit = self.capabilities().work_requests_max;
        within("requests per send queue", options.send_depth, limit)?;
        if shared.is_none() {
            within("requests per receive queue", options.receive_depth, limit)?;
        }
        let provider = self.provider.create_queue_pair(RawQueuePairOptions {
            transport,
            send_queue: send_queue.provider().clone(),
            receive_queue: receive_queue.provider().clone(),
            send_depth: options.send_depth,
            receive_depth: options.receive_depth,
            rnr_retry: options.rnr_retry,
            queue_key: match transport {
                Transport::UnreliableDatagram => options.queue_key,
                _ => 0,
            },
            shared_receive_queue: shared.map(|shared| shared.provider().clone()),
        })?;
        Ok(QueuePair::new(
            provider,
            options.clone(),
            RequestLimits {
                inline_bytes_max: self.capabilities().inline_bytes_max,
                immediate_data: self.capabilities().immediate_data,
            },
            send_queue.clone(),
            receive_queue.clone(),
            shared.cloned(),
            self.queue_pairs.one_more(),
        ))
    }

    /// Resolves a UD destination.
    pub fn create_address_handle(&self, remote: &QueuePairAddress) -> Result<AddressHandle> {
        within_queue_keys(remote.queue_key)?;
        Ok(AddressHandle(self.provider.create_address_handle(remote)?))
    }

    /// Whether a peer's device is within reach, as far as can be told without asking it. May block for a second. Of devices
    /// without datagrams only a connection tells.
    ///
    /// # Errors
    /// Why it is not.
    pub fn reaches(&self, peer: &DeviceAddress) -> Result<()> {
        let transports = &self.capabilities().transports;
        if !transports.contains(&Transport::UnreliableDatagram) {
            return Ok(());
        }
        let anyone = QueuePairAddress {
            device: peer.clone(),
            number: 1,
            incarnation: 0,
            queue_key: 0,
        };
        self.create_address_handle(&anyone).map(drop)
    }

    /// A receive queue for at most `depth` receives that many queue pairs take theirs from.
    pub fn create_shared_receive_queue(&self, depth: usize) -> Result<SharedReceiveQueue> {
        if self.capabilities().shared_receive_queues_max == 0 {
            return Err(self.provider.unsupported("shared receive queues"));
        }
        let limit = self.capabilities().shared_receives_max;
        within("receives per shared receive queue", depth, limit)?;
        let provider = self.provider.create_shared_receive_queue(depth)?;
        Ok(SharedReceiveQueue::new(provider, depth))
    }

    /// Resolves a multicast group as a UD destination.
    pub fn create_multicast_handle(&self, group: &MulticastGroup) -> Result<AddressHandle> {
        if self.capabilities().multicast_groups_max == 0 {
            return Err(self.provider.unsupported("multicast"));
        }
        within_queue_keys(group.queue_key)?;
        Ok(AddressHandle(self.provider.create_multicast_handle(group)?))
    }

    /// Queue pairs that there are.
    pub fn queue_pairs(&self) -> &QueuePairCount {
        &self.queue_pairs
    }

    /// Messages and bytes of all queue pairs so far, the destroyed ones too.
    pub fn counters(&self) -> CounterSnapshot {
        self.provider.counters()
    }
}

fn within(what: &'static str, requested: usize, limit: usize) -> Result<()> {
    if requested > limit {
        return Err(VerbsError::DeviceLimit {
            what,
            requested,
            limit,
        });
    }
    Ok(())
}

fn within_queue_keys(key: u32) -> Result<()> {
    if key > QUEUE_KEY_MAX {
        return Err(VerbsError::InvalidRequest(format!(
            "the queue key {key:#x} is for privileged users: the largest is {QUEUE_KEY_MAX:#x}"
        )));
    }
    Ok(())
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.capabilities().provider)
    }
}

//! A device: what everything else is created from.

use crate::address::{DeviceAddress, QueuePairAddress};
use crate::capabilities::Capabilities;
use crate::completion_queue::{CompletionChannel, CompletionQueue};
use crate::counters::CounterSnapshot;
use crate::error::{Result, VerbsError};
use crate::memory::{Arena, ArenaOptions};
use crate::provider::{ProviderDevice, RawQueuePairOptions};
use crate::queue_pair::{AddressHandle, QueuePair, QueuePairOptions, Transport};
use std::sync::Arc;

/// An open device of some provider. Clones share it.
#[derive(Clone)]
pub struct Device(Arc<dyn ProviderDevice>);

impl Device {
    /// Wraps a provider's device.
    pub fn new(provider: Arc<dyn ProviderDevice>) -> Self {
        Self(provider)
    }

    /// The provider's device, for a provider that wraps it.
    pub fn provider(&self) -> &Arc<dyn ProviderDevice> {
        &self.0
    }

    /// Limits and properties.
    pub fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    /// Its address, for peers.
    pub fn address(&self) -> DeviceAddress {
        self.0.address()
    }

    /// An arena of registered memory on this device.
    pub fn arena(&self, options: ArenaOptions) -> Arena {
        Arena::new(self.0.clone(), options)
    }

    /// A completion channel.
    pub fn create_channel(&self) -> Result<CompletionChannel> {
        Ok(CompletionChannel::new(self.0.create_channel()?))
    }

    /// A completion queue for at most `depth` completions, on a channel if its user wants to
    /// sleep.
    pub fn create_completion_queue(
        &self,
        depth: usize,
        channel: Option<&CompletionChannel>,
    ) -> Result<CompletionQueue> {
        let provider = self
            .0
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
        let limit = self.capabilities().work_requests_max;
        for depth in [options.send_depth, options.receive_depth] {
            if depth > limit {
                return Err(VerbsError::DeviceLimit {
                    what: "work requests per queue",
                    requested: depth,
                    limit,
                });
            }
        }
        let provider = self.0.create_queue_pair(RawQueuePairOptions {
            transport: options.transport,
            send_queue: send_queue.provider().clone(),
            receive_queue: receive_queue.provider().clone(),
            send_depth: options.send_depth,
            receive_depth: options.receive_depth,
            rnr_retry: options.rnr_retry,
            queue_key: match options.transport {
                Transport::ReliableConnection => 0,
                Transport::UnreliableDatagram => options.queue_key,
            },
        })?;
        Ok(QueuePair::new(
            provider,
            options.transport,
            self.capabilities().inline_bytes_max,
            send_queue.clone(),
            receive_queue.clone(),
        ))
    }

    /// Resolves a UD destination.
    pub fn create_address_handle(&self, remote: &QueuePairAddress) -> Result<AddressHandle> {
        Ok(AddressHandle(self.0.create_address_handle(remote)?))
    }

    /// Messages and bytes of all queue pairs so far, the destroyed ones too.
    pub fn counters(&self) -> CounterSnapshot {
        self.0.counters()
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.capabilities().provider)
    }
}

//! The verbs of a device, which the object model calls, and how it is opened.

use super::completion_queue::{ShmChannel, ShmCompletionQueue};
use super::device::{self, DeviceState, ShmOptions};
use super::monitor;
use super::queue_pair::ShmQueuePair;
use super::send_side::ShmAddressHandle;
use crate::address::{DeviceAddress, QueuePairAddress};
use crate::capabilities::Capabilities;
use crate::counters::CounterSnapshot;
use crate::device::Device;
use crate::error::Result;
use crate::provider::{
    ProviderAddressHandle, ProviderChannel, ProviderCompletionQueue, ProviderDevice,
    ProviderQueuePair, ProviderSegment, RawQueuePairOptions,
};
use std::sync::Arc;

/// Opens a device in shared memory. Its peers are other devices of this host, in this process or
/// in others of the same user.
pub fn open(options: ShmOptions) -> Result<Device> {
    let (state, listener) = device::create(options)?;
    monitor::start(&state, listener)?;
    Ok(Device::new(Arc::new(ShmDevice(state))))
}

struct ShmDevice(Arc<DeviceState>);

impl ProviderDevice for ShmDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    fn address(&self) -> DeviceAddress {
        self.0.address.encode()
    }

    fn register_segment(
        &self,
        length: usize,
        exposed: bool,
        node: Option<u32>,
    ) -> Result<Box<dyn ProviderSegment>> {
        self.0.sweep_retired();
        Ok(Box::new(self.0.register(length, exposed, node)?))
    }

    fn create_channel(&self) -> Result<Arc<dyn ProviderChannel>> {
        Ok(Arc::new(ShmChannel::create(&self.0)?))
    }

    fn create_completion_queue(
        &self,
        _depth: usize,
        channel: Option<&Arc<dyn ProviderChannel>>,
    ) -> Result<Arc<dyn ProviderCompletionQueue>> {
        Ok(Arc::new(ShmCompletionQueue::create(&self.0, channel)?))
    }

    fn create_queue_pair(
        &self,
        options: RawQueuePairOptions,
    ) -> Result<Arc<dyn ProviderQueuePair>> {
        self.0.sweep_retired();
        Ok(ShmQueuePair::create(&self.0, options)?)
    }

    fn create_address_handle(
        &self,
        remote: &QueuePairAddress,
    ) -> Result<Arc<dyn ProviderAddressHandle>> {
        let peer = self.0.peer(&remote.device)?;
        Ok(Arc::new(ShmAddressHandle {
            peer,
            number: remote.number,
            incarnation: remote.incarnation,
            queue_key: remote.queue_key,
        }))
    }

    fn counters(&self) -> CounterSnapshot {
        self.0.counters()
    }
}

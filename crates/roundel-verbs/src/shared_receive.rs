//! Shared receive queues: receives that whichever of many queue pairs takes that gets a message.
#![allow(unsafe_code)] // Upholds the contract of the provider's post verb by keeping the buffers.

use crate::error::Result;
use crate::in_flight::Receives;
use crate::provider::ProviderSharedReceiveQueue;
use crate::work::ReceiveRequest;
use std::sync::Arc;

/// A receive queue of many queue pairs. Clones share it; it lives as long as its queue pairs.
///
/// Completions come to the receive queue of the queue pair that took the message.
#[derive(Clone)]
pub struct SharedReceiveQueue(Arc<Inner>);

struct Inner {
    provider: Arc<dyn ProviderSharedReceiveQueue>,
    receives: Arc<Receives>,
    depth: usize,
}

impl SharedReceiveQueue {
    pub(crate) fn new(provider: Arc<dyn ProviderSharedReceiveQueue>, depth: usize) -> Self {
        Self(Arc::new(Inner {
            provider,
            receives: Arc::default(),
            depth,
        }))
    }

    pub(crate) fn provider(&self) -> &Arc<dyn ProviderSharedReceiveQueue> {
        &self.0.provider
    }

    pub(crate) fn receives(&self) -> &Arc<Receives> {
        &self.0.receives
    }

    /// Most receives posted.
    pub fn depth(&self) -> usize {
        self.0.depth
    }

    /// Frees the receives that a queue pair took which is destroyed.
    pub(crate) fn reclaim(&self) {
        for receive in self.0.provider.take_abandoned() {
            drop(self.0.receives.forget(receive));
        }
    }

    /// Posts requests, from the front of the vector, and removes those that were taken; returns
    /// how many.
    pub fn post_receive(&self, requests: &mut Vec<ReceiveRequest>) -> Result<usize> {
        self.0.receives.post(requests, self.0.depth, |raw| {
            // SAFETY: the slots own the buffers until a completion, or until this queue is
            // dropped, which is after its queue pairs and destroys it at the provider first.
            unsafe { self.0.provider.post_receive(raw) }
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.provider.destroy();
        drop(self.receives.take_all());
    }
}

impl std::fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedReceiveQueue({})", self.0.depth)
    }
}

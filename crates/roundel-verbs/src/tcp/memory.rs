//! Registered memory: pages of this process, found by their local key, and by their remote key
//! when peers may reach them. Knows nothing of connections.

use crate::error::Result;
use crate::memory::{Pages, RemoteAddress};
use crate::provider::{ProviderSegment, RawLocal};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

/// The memory of a device, by key.
#[derive(Default)]
pub(super) struct Registry(RwLock<Keys>);

#[derive(Default)]
struct Keys {
    local: HashMap<u32, Arc<Pages>>,
    remote: HashMap<u32, Arc<Pages>>,
}

impl Keys {
    /// A key that nobody can guess and that opens nothing else, not even as one of the other kind.
    fn unused(&self) -> u32 {
        loop {
            let key = rand::random();
            if key != 0 && !self.local.contains_key(&key) && !self.remote.contains_key(&key) {
                return key;
            }
        }
    }
}

impl Registry {
    pub(super) fn register(
        self: &Arc<Self>,
        length: usize,
        exposed: bool,
        node: Option<u32>,
    ) -> Result<TcpSegment> {
        let pages = Arc::new(Pages::map(length, node)?);
        let mut keys = self.0.write();
        let local_key = keys.unused();
        keys.local.insert(local_key, pages.clone());
        let mut remote_key = 0;
        if exposed {
            remote_key = keys.unused();
            keys.remote.insert(remote_key, pages.clone());
        }
        drop(keys);
        Ok(TcpSegment {
            registry: self.clone(),
            pages,
            local_key,
            remote_key,
        })
    }

    /// The address of local memory, if its key covers it. No bytes need no key.
    pub(super) fn local(&self, local: &RawLocal) -> Option<*mut u8> {
        if local.length == 0 {
            return Some(std::ptr::NonNull::dangling().as_ptr());
        }
        let keys = self.0.read();
        keys.local
            .get(&local.local_key)?
            .range(local.address, local.length)
    }

    /// The address of exposed memory, if the key covers it, with what keeps it mapped. No bytes need no
    /// key.
    pub(super) fn exposed(
        &self,
        at: RemoteAddress,
        length: usize,
    ) -> Option<(*mut u8, Option<Arc<Pages>>)> {
        if length == 0 {
            return Some((std::ptr::null_mut(), None));
        }
        let keys = self.0.read();
        let pages = keys.remote.get(&at.remote_key)?;
        Some((pages.range(at.address, length)?, Some(pages.clone())))
    }
}

/// A registered segment.
pub(super) struct TcpSegment {
    registry: Arc<Registry>,
    pages: Arc<Pages>,
    local_key: u32,
    remote_key: u32,
}

impl ProviderSegment for TcpSegment {
    fn base(&self) -> *mut u8 {
        self.pages.base()
    }

    fn remote_base(&self) -> u64 {
        self.pages.base() as u64
    }

    fn len(&self) -> usize {
        self.pages.len()
    }

    fn local_key(&self) -> u32 {
        self.local_key
    }

    fn remote_key(&self) -> u32 {
        self.remote_key
    }
}

impl Drop for TcpSegment {
    fn drop(&mut self) {
        let mut keys = self.registry.0.write();
        keys.local.remove(&self.local_key);
        keys.remote.remove(&self.remote_key);
    }
}

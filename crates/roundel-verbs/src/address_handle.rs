//! The resolved address of a receiver of datagrams.

use std::sync::Arc;

/// A resolved destination of datagrams, as a provider keeps it.
pub trait ProviderAddressHandle: Send + Sync + std::any::Any {}

/// A resolved UD destination.
#[derive(Clone)]
pub struct AddressHandle(pub(crate) Arc<dyn ProviderAddressHandle>);

impl std::fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AddressHandle")
    }
}

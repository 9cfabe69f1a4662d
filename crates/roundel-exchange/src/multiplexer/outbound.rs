//! The sending side of one operator, as SHUFFLE uses it: waits for the credit of its links and for a message of the pool,
//! and hands filled messages over. What the multiplexer knows of it is in `sources`.

use super::outgoing::SourceKey;
use super::sources::Reserved;
use super::{Multiplexer, State};
use crate::account::{Spending, waiting_for, waits_for};
use crate::endpoint::{DestinationId, GroupId, LinkAddress, SendBuffer, TakesBack};
use crate::error::{ExchangeError, Result};
use crate::report::{DestinationReport, EndpointReport};
use crate::wire::Data;
use roundel_verbs::Buffer;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

/// The sending side of one operator. Clones share it; every method may be called by any thread.
#[derive(Clone)]
pub(crate) struct Outbound(Arc<Shared>);

struct Shared {
    multiplexer: Multiplexer,
    key: SourceKey,
}

impl Outbound {
    /// Opens source `source` of `exchange`, which uses the memory of a query.
    ///
    /// # Errors
    /// When the node has that source already.
    pub(crate) fn open(
        multiplexer: &Multiplexer,
        query: u64,
        exchange: u64,
        source: u32,
    ) -> Result<Self> {
        let key = SourceKey { exchange, source };
        multiplexer.0.with(|state| state.open_source(key, query))?;
        Ok(Self(Arc::new(Shared {
            multiplexer: multiplexer.clone(),
            key,
        })))
    }

    /// Accepts the offer of a receiver named `peer`, with whose node there is a connection.
    pub(crate) fn accept(
        &self,
        offer: &LinkAddress,
        peer: &str,
    ) -> Result<(DestinationId, LinkAddress)> {
        self.with(|state, key| state.accept(key, offer, peer))
    }

    /// Makes a transmission group.
    pub(crate) fn group(&self, members: &[DestinationId]) -> Result<GroupId> {
        self.with(|state, key| state.group(key, members))
    }

    /// Waits until every member of a group has granted credit, and for a message.
    pub(crate) async fn acquire(&self, group: GroupId) -> Result<SendBuffer> {
        let context = &self.0.multiplexer.0.fabric.context;
        let mut since = None;
        let acquired = std::future::poll_fn(|cx| {
            let acquired = self.poll_acquire(group, cx);
            if acquired.is_pending() {
                since.get_or_insert_with(|| context.now());
            }
            acquired
        });
        let acquired = waiting_for(Spending::Credit, acquired).await;
        if let Some(since) = since {
            let blocked = context.now().saturating_sub(since);
            self.with(|state, key| state.note_blocked(key, group, blocked));
        }
        acquired
    }

    fn poll_acquire(&self, group: GroupId, cx: &mut Context<'_>) -> Poll<Result<SendBuffer>> {
        let inner = &self.0.multiplexer.0;
        let mut reserved = self.with(|state, key| state.reserve(key, group, None));
        if let Ok(Reserved::Later(_)) = reserved {
            inner.progress();
            reserved = self.with(|state, key| state.reserve(key, group, Some(cx.waker())));
        }
        match reserved {
            Ok(Reserved::Now(buffer)) => {
                let home = Arc::downgrade(&self.0) as Weak<dyn TakesBack>;
                Poll::Ready(Ok(SendBuffer::new(buffer, group, home)))
            }
            Ok(Reserved::Later(what)) => {
                waits_for(what);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Sends the first `data.payload_length` bytes of the payload to every member of its group.
    pub(crate) fn put(&self, mut buffer: SendBuffer, partition: u32, data: Data) -> Result<()> {
        let (group, memory) = (buffer.group(), buffer.take());
        self.with(|state, key| state.send(key, group, memory, partition, data))
    }

    /// Tells a destination that no more comes, and waits until everything has been handed over.
    pub(crate) async fn finish(&self, destination: DestinationId) -> Result<()> {
        std::future::poll_fn(|cx| {
            let inner = &self.0.multiplexer.0;
            let mut done = self.with(|state, key| state.finish(key, destination, None));
            if done.is_pending() {
                inner.progress();
                done = self.with(|state, key| state.finish(key, destination, Some(cx.waker())));
            }
            done
        })
        .await
    }

    /// Forgets a destination: it has all that it wanted, or it is gone.
    pub(crate) fn close(&self, destination: DestinationId, error: Option<ExchangeError>) {
        self.with(|state, key| state.close_destination(key, destination.0, error));
    }

    /// Whether a destination can be sent no more.
    pub(crate) fn has_failed(&self, destination: DestinationId) -> bool {
        self.with(|state, key| state.has_failed(key, destination.0))
    }

    /// What it did so far.
    pub(crate) fn report(&self) -> EndpointReport {
        self.with(|state, key| EndpointReport {
            blocked_for_credit: state.blocked_for_credit(key),
            ..EndpointReport::default()
        })
    }

    /// What it sent to one destination so far.
    pub(crate) fn destination_report(&self, destination: DestinationId) -> DestinationReport {
        self.with(|state, key| state.destination_report(key, destination))
    }

    fn with<T>(&self, act: impl FnOnce(&mut State, SourceKey) -> T) -> T {
        let key = self.0.key;
        self.0.multiplexer.0.with(|state| act(state, key))
    }
}

impl TakesBack for Shared {
    fn take_back(&self, group: GroupId, buffer: Buffer) {
        self.multiplexer.0.with(|state| {
            state.take_back(self.key, group, buffer);
        });
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let key = self.key;
        self.multiplexer.0.with(|state| state.close_source(key));
    }
}

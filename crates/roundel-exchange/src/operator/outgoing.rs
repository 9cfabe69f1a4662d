//! Where the messages of a SHUFFLE go: an endpoint of its own, or the node's multiplexer.

use super::route::Route;
use crate::endpoint::{
    DestinationId, Fabric, GroupId, LinkAddress, Origin, SendBuffer, SendEndpoint,
};
use crate::error::{ExchangeError, Result};
use crate::multiplexer::Outbound;
use crate::options::ExchangeOptions;
use crate::report::{DestinationReport, EndpointReport};
use crate::wire::Data;
use std::sync::Arc;

/// Where messages go.
pub(super) enum Outgoing {
    Endpoint(SendEndpoint),
    Multiplexer(Outbound),
}

impl Outgoing {
    /// What source `source` of an exchange sends through.
    pub(super) fn open(
        fabric: &Fabric,
        options: &ExchangeOptions,
        route: &Route,
        exchange: u64,
        source: u32,
    ) -> Result<Vec<Self>> {
        if let Some(own) = &route.multiplexer {
            let outbound = Outbound::open(&own.multiplexer, own.query, exchange, source)?;
            return Ok(vec![Self::Multiplexer(outbound)]);
        }
        let endpoints = (0..options.endpoints.max(1))
            .map(|_| SendEndpoint::open(fabric, options, exchange, source))
            .collect::<Result<Vec<_>>>()?;
        for endpoint in &endpoints {
            fabric.context.spawn(Box::pin(endpoint.attend()));
        }
        Ok(endpoints.into_iter().map(Self::Endpoint).collect())
    }

    pub(super) fn accept(
        &self,
        offer: &LinkAddress,
        peer: &str,
    ) -> Result<(DestinationId, LinkAddress)> {
        either!(self, to => to.accept(offer, peer))
    }

    pub(super) fn group(&self, members: &[DestinationId]) -> Result<GroupId> {
        either!(self, to => to.group(members))
    }

    /// Waits for a free buffer of the group.
    pub(super) async fn acquire(&self, group: GroupId) -> Result<SendBuffer> {
        either!(self, to => to.acquire(group).await)
    }

    /// Sends a buffer to its group; `origin` is what its payload was cut from, where it may have to be sent again.
    pub(super) async fn put(
        &self,
        buffer: SendBuffer,
        partition: u32,
        data: Data,
        origin: Option<&Arc<dyn Origin>>,
    ) -> Result<()> {
        match self {
            Self::Endpoint(endpoint) => endpoint.put(buffer, partition, data, origin).await,
            Self::Multiplexer(outbound) => outbound.put(buffer, partition, data),
        }
    }

    pub(super) async fn finish(&self, destination: DestinationId) -> Result<()> {
        either!(self, to => to.finish(destination).await)
    }

    pub(super) fn close(&self, destination: DestinationId, error: Option<ExchangeError>) {
        either!(self, to => to.close(destination, error))
    }

    /// Whether a destination can be sent no more.
    pub(super) fn has_failed(&self, destination: DestinationId) -> bool {
        either!(self, to => to.has_failed(destination))
    }

    pub(super) fn report(&self) -> EndpointReport {
        either!(self, to => to.report())
    }

    pub(super) fn destination_report(&self, destination: DestinationId) -> DestinationReport {
        either!(self, to => to.destination_report(destination))
    }
}

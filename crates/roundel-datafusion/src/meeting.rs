//! How the multiplexers of two processes get their connection: whoever wants rows of a worker meets it first, once for
//! as long as both live.

use crate::calls::{Channels, status_error};
use crate::error::{Result, TransportError};
use crate::fabric::Fabric;
use crate::failure::exchange_error;
use crate::node::ExchangeNode;
use crate::protocol::{Meet, Met};
use datafusion::error::DataFusionError;
use roundel_exchange::{ConnectionAddress, Design, NodeId, UnknownDesign};
use url::Url;

impl ExchangeNode {
    /// The node of a worker, with which there is a connection when this returns.
    pub(super) async fn meet(
        &self,
        fabric: Fabric,
        design: Design,
        channels: &Channels,
        url: &Url,
    ) -> Result<NodeId, DataFusionError> {
        let own = self.multiplexers().of(design)?;
        let multiplexer = &own.multiplexer;
        let known = own.acquaintances.lock().get(url).copied();
        if let Some(node) = known.filter(|node| multiplexer.is_connected(*node)) {
            return Ok(node);
        }
        let failed = |error| exchange_error(self.name(), error);
        // A process that was started again at the same place is another node.
        let request = Meet {
            fabric: fabric.name().to_owned(),
            node: multiplexer.id().0,
            name: self.name().to_owned(),
            address: None,
            design: design.name().to_owned(),
        };
        let met = ask(channels, url, request.clone()).await?;
        let node = NodeId(met.node);
        if !multiplexer.is_connected(node) {
            let address = multiplexer.meet(node, url.as_str()).map_err(failed)?;
            let address = Some(address.to_bytes());
            let met = ask(channels, url, Meet { address, ..request }).await?;
            let answer = ConnectionAddress::from_bytes(&met.address, url.as_str());
            let joined = answer.and_then(|answer| multiplexer.join(node, &answer));
            joined.map_err(failed)?;
        }
        own.acquaintances.lock().insert(url.clone(), node);
        Ok(node)
    }

    /// Answers a process that asks.
    pub(super) fn be_met(&self, meet: &Meet) -> Result<Met> {
        let design: Design = (meet.design.parse())
            .map_err(|error: UnknownDesign| TransportError::Usage(error.to_string()))?;
        let own = self.multiplexers().of(design)?;
        let multiplexer = &own.multiplexer;
        let mut met = Met {
            node: multiplexer.id().0,
            address: Vec::new(),
        };
        if let Some(address) = &meet.address {
            let remote = ConnectionAddress::from_bytes(address, &meet.name);
            let own = remote
                .and_then(|remote| multiplexer.accept(NodeId(meet.node), &meet.name, &remote))
                .map_err(|error| TransportError::LinkBroken(error.to_string()))?;
            met.address = own.to_bytes();
        }
        Ok(met)
    }
}

/// Asks a worker which node it is, and to connect with the one that asks if that gives its end.
async fn ask(channels: &Channels, url: &Url, request: Meet) -> Result<Met, DataFusionError> {
    match channels.exchange(url).await?.meet(request).await {
        Ok(met) => Ok(met.into_inner()),
        Err(status) if status.code() == tonic::Code::Aborted => {
            Err(TransportError::LinkBroken(format!("{url}: {}", status.message())).into())
        }
        Err(status) => Err(status_error(url, &status).into()),
    }
}

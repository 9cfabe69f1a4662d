//! How the multiplexers of two processes get their connection: whoever wants rows of a worker meets it first, once for
//! as long as both live.

use super::client::exchange_error;
use super::node::ExchangeNode;
use super::protocol::{MEET_PATH, Meet, Met};
use crate::channel::{Channels, status_error};
use crate::{EngineError, Fabric, Result};
use datafusion::error::DataFusionError;
use parking_lot::Mutex;
use roundel_exchange::NodeId;
use roundel_verbs::QueuePairAddress;
use std::collections::HashMap;
use url::Url;

/// The nodes of the workers that were met.
#[derive(Default)]
pub(super) struct Acquaintances(Mutex<HashMap<Url, NodeId>>);

impl ExchangeNode {
    /// The node of a worker, with which there is a connection when this returns.
    pub(super) async fn meet(
        &self,
        fabric: Fabric,
        channels: &Channels,
        url: &Url,
    ) -> Result<NodeId, DataFusionError> {
        let multiplexer = self.multiplexer();
        let known = self.acquaintances().0.lock().get(url).copied();
        if let Some(node) = known.filter(|node| multiplexer.is_connected(*node)) {
            return Ok(node);
        }
        let failed = |error| exchange_error(self, error);
        // A process that was started again at the same place is another node.
        let met = self.ask(fabric, channels, url, None).await?;
        let node = NodeId(met.node);
        if !multiplexer.is_connected(node) {
            let own = multiplexer.meet(node, url.as_str()).map_err(failed)?;
            let met = self.ask(fabric, channels, url, Some(&own)).await?;
            let answer =
                QueuePairAddress::from_bytes(&met.address).map_err(|error| failed(error.into()))?;
            multiplexer.join(node, &answer).map_err(failed)?;
        }
        self.acquaintances().0.lock().insert(url.clone(), node);
        Ok(node)
    }

    /// Asks a worker which node it is, and to connect with a queue pair if there is one.
    async fn ask(
        &self,
        fabric: Fabric,
        channels: &Channels,
        url: &Url,
        own: Option<&QueuePairAddress>,
    ) -> Result<Met, DataFusionError> {
        let request = Meet {
            fabric: fabric.name().to_owned(),
            node: self.multiplexer().id().0,
            name: self.name().to_owned(),
            address: own.map(|own| own.to_bytes().to_vec()),
        };
        match channels.call(url, MEET_PATH, request).await? {
            Ok(met) => Ok(met),
            Err(status) if status.code() == tonic::Code::Aborted => {
                Err(EngineError::LinkBroken(format!("{url}: {}", status.message())).into())
            }
            Err(status) => Err(status_error(url, &status).into()),
        }
    }

    /// Answers a process that asks.
    pub(super) fn be_met(&self, meet: &Meet) -> Result<Met, roundel_exchange::ExchangeError> {
        let multiplexer = self.multiplexer();
        let mut met = Met {
            node: multiplexer.id().0,
            address: Vec::new(),
        };
        if let Some(address) = &meet.address {
            let remote = QueuePairAddress::from_bytes(address)?;
            let own = multiplexer.accept(NodeId(meet.node), &meet.name, &remote)?;
            met.address = own.to_bytes().to_vec();
        }
        Ok(met)
    }
}

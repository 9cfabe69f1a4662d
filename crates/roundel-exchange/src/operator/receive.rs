//! RECEIVE: messages become frames, frames become batches, one stream per source and partition.
//!
//! Registered buffers go back at once: a fragment is copied to its frame, which waits in memory
//! that the budget accounts for. Messages are taken from an endpoint only by a reader that has
//! nothing to read, so that a reader that lags behind holds up nobody, and what piles up is what
//! others needed to get on. A reader that has waited for long takes them from the other lanes too:
//! its source may be a task that waits for credit there.

use super::coalesce::Coalesce;
use super::incoming::Incoming;
use super::lane::Lane;
use super::link_end::LinkEnd;
use super::local::{LocalLinks, localize};
use super::route::Route;
use super::stream::PartitionStream;
use crate::account::{Account, Spent};
use crate::budget::MemoryBudget;
use crate::endpoint::{Fabric, LinkAddress, ReceiveEndpoint};
use crate::error::{ExchangeError, Result};
use crate::frame::FrameDecoder;
use crate::multiplexer::{Inbound, NodeId};
use crate::options::ExchangeOptions;
use crate::report::EndpointReport;
use arrow::datatypes::SchemaRef;
use std::ops::Range;
use std::sync::Arc;

/// The receiving side of an exchange in one node. Every method may be called by any thread.
pub struct Receive {
    fabric: Fabric,
    options: ExchangeOptions,
    local: Option<Arc<LocalLinks>>,
    lanes: Vec<Arc<Lane>>,
}

/// A link to one source: a stream per partition. When the link and its streams are dropped, the
/// source can no longer send.
pub struct ReceiveLink(Arc<LinkEnd>);

impl Receive {
    /// Opens the receiving endpoints of a node.
    pub fn open(
        fabric: &Fabric,
        options: &ExchangeOptions,
        route: &Route,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self> {
        let options = route.options(options);
        let endpoints = match &route.multiplexer {
            // Its readers share what comes.
            Some(own) => vec![Incoming::Multiplexer(Inbound::open(&own.multiplexer))],
            None => (0..options.endpoints.max(1))
                .map(|_| ReceiveEndpoint::open(fabric, &options).map(Box::new))
                .map(|endpoint| endpoint.map(Incoming::Endpoint))
                .collect::<Result<_>>()?,
        };
        let lanes = endpoints
            .into_iter()
            .map(|endpoint| Lane::open(fabric, &options, endpoint, budget))
            .collect();
        Ok(Self {
            fabric: fabric.clone(),
            options,
            local: route.local.clone(),
            lanes,
        })
    }

    /// Offers a link for `partitions` to the source `peer`; the addresses are for it. `node` is `None` without a
    /// multiplexer. With one, it is the node of the source: this one, or one that the multiplexer has met.
    ///
    /// # Errors
    /// When there is no memory or queue pair left. When a multiplexer gets no node, or one that it has not met. When there
    /// is a node and no multiplexer.
    pub fn offer(
        &self,
        peer: &str,
        node: Option<NodeId>,
        partitions: Range<u32>,
    ) -> Result<(ReceiveLink, Vec<LinkAddress>)> {
        let mut end = LinkEnd {
            lanes: Vec::with_capacity(self.lanes.len()),
            partitions: partitions.clone(),
            peer: peer.into(),
            // 0 is of none.
            number: self.fabric.context.random().max(1),
            accounts: partitions
                .clone()
                .map(|_| Account::new(self.fabric.context.clone()))
                .collect(),
        };
        let units = self.options.units();
        let mut addresses = Vec::with_capacity(self.lanes.len() * units);
        for lane in &self.lanes {
            end.lanes.push((lane.clone(), Vec::with_capacity(units)));
            for _ in 0..units {
                let (link, mut address) = lane.state.lock().endpoint.offer(peer, node)?;
                if self.local.is_some() {
                    address.local = end.number;
                }
                if let Some((_, links)) = end.lanes.last_mut() {
                    links.push(link);
                }
                addresses.push(address);
            }
        }
        for partition in partitions {
            let (lane, links) = end.lane(partition);
            let mut state = lane.state.lock();
            for link in links {
                state.expect(*link, partition, self.options.ordered);
            }
        }
        let end = Arc::new(end);
        if let Some(local) = &self.local {
            local.offer(end.number, &end);
        }
        Ok((ReceiveLink(end), addresses))
    }

    /// Completes a link with the source's answers, one per address: rows begin to flow.
    pub fn connect(&self, link: &ReceiveLink, answers: &[LinkAddress]) -> Result<()> {
        let links = link.0.links().count();
        if answers.len() != links {
            return Err(ExchangeError::protocol(
                &link.0.peer,
                format!("it answers for {} endpoints of {links}", answers.len()),
            ));
        }
        if self.local.is_some() && answers.iter().all(|one| one.local == link.0.number) {
            localize(&link.0);
            return Ok(());
        }
        for ((lane, id), answer) in link.0.links().zip(answers) {
            lane.state.lock().endpoint.connect(id, answer)?;
        }
        Ok(())
    }

    /// The rows of a partition from the link's source, of the given schema. Each partition can be
    /// read once.
    ///
    /// # Errors
    /// When rows of this schema cannot be received.
    pub fn stream(
        &self,
        link: &ReceiveLink,
        partition: u32,
        schema: &SchemaRef,
    ) -> Result<PartitionStream> {
        let decoder = FrameDecoder::try_new(schema.clone())
            .map_err(|error| ExchangeError::frame(&link.0.peer, error))?;
        let joined = Coalesce::new(schema, self.options.batch_rows);
        let silence = self.options.repeat_interval;
        let end = link.0.clone();
        let stream = PartitionStream::new(&self.fabric, end, partition, decoder, joined, silence);
        Ok(stream)
    }

    /// What its endpoints did so far.
    pub fn report(&self) -> EndpointReport {
        let mut report = EndpointReport::default();
        for lane in &self.lanes {
            report.merge(&lane.state.lock().report());
        }
        report
    }
}

impl ReceiveLink {
    /// What each reader of a partition spent its time on, in the order of the partitions: it computes while it takes frames in and makes
    /// batches of them, and waits for rows of the source, or for who takes the batches.
    pub fn spent(&self) -> Vec<Spent> {
        self.0.accounts.iter().map(Account::spent).collect()
    }

    /// Ends the link with an error that was learnt elsewhere, unless everything has arrived.
    pub fn abort(&self, error: &ExchangeError) {
        self.0.abort(error);
    }

    /// A handle that can abort the link and does not keep it alive.
    pub fn aborter(&self) -> impl Fn(&ExchangeError) + Send + Sync + use<> {
        let end = Arc::downgrade(&self.0);
        move |error| {
            if let Some(end) = end.upgrade() {
                ReceiveLink(end).abort(error);
            }
        }
    }
}

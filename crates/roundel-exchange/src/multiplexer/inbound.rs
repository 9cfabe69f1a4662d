//! The receiving side of one operator: its links, what has arrived on each, and the credit that their sources are
//! granted.

use super::address::NodeId;
use super::arrivals::{Arrivals, Member};
use super::news::News;
use super::{Multiplexer, State};
use crate::endpoint::{LinkAddress, LinkId, LinkState};
use crate::error::{ExchangeError, Result};
use crate::link::credit::Grant;
use crate::report::EndpointReport;
use crate::wire::{Body, Credit, Header, SequenceDigest};
use roundel_verbs::{CompletionStatus, QueuePairAddress};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Credit of a link is said once for so many parts of it.
const CREDITS_PER_LINK: usize = 4;

/// The links of this node's operators, by the numbers that peers know them by.
#[derive(Default)]
pub(super) struct Ends {
    next: u32,
    ends: BTreeMap<u32, End>,
}

struct End {
    arrivals: Arc<Arrivals>,
    link: LinkId,
    /// Who may send on it.
    connection: usize,
}

/// The receiving side of one operator. Its owner serialises access.
pub(crate) struct Inbound {
    multiplexer: Multiplexer,
    arrivals: Arc<Arrivals>,
    links: Vec<Link>,
}

struct Link {
    peer: String,
    /// The connection and the number of the link there; absent where the source is of this node.
    end: Option<(usize, u32)>,
    exchange: u64,
    source: u32,
    destination: u32,
    /// Its source has answered: it can be told things.
    connected: bool,
    arrived: SequenceDigest,
    sent: Option<SequenceDigest>,
    state: LinkState,
    grant: Grant,
}

impl Inbound {
    pub(crate) fn open(multiplexer: &Multiplexer) -> Self {
        Self {
            arrivals: Arc::new(Arrivals::new(
                Arc::downgrade(&multiplexer.0),
                &multiplexer.0.regions,
            )),
            multiplexer: multiplexer.clone(),
            links: Vec::new(),
        }
    }

    /// What has come for it.
    pub(crate) fn arrivals(&self) -> &Arc<Arrivals> {
        &self.arrivals
    }

    /// Serves the connections, so that what has come is there.
    pub(crate) fn progress(multiplexer: &Multiplexer) {
        multiplexer.0.progress();
    }

    pub(crate) fn multiplexer(&self) -> &Multiplexer {
        &self.multiplexer
    }

    /// Offers a link to the source `peer` on a node with which there is a connection, or on this one.
    pub(crate) fn offer(&mut self, peer: &str, node: NodeId) -> Result<(LinkId, LinkAddress)> {
        let link = LinkId(self.links.len());
        let inner = &self.multiplexer.0;
        let mut grant = Grant::new(inner.options.link_messages);
        let credit = grant.say();
        let (end, queue_pair) = if node == inner.id {
            // Nobody but this process can accept it.
            let nowhere = QueuePairAddress {
                device: inner.fabric.device.address(),
                number: 0,
                incarnation: 0,
                queue_key: 0,
            };
            (None, nowhere)
        } else {
            let arrivals = self.arrivals.clone();
            let (end, address) = inner.with(|state| state.open_end(node, peer, arrivals, link))?;
            (Some(end), address)
        };
        self.links.push(Link {
            peer: peer.into(),
            end,
            exchange: 0,
            source: 0,
            destination: 0,
            connected: false,
            arrived: SequenceDigest::default(),
            sent: None,
            state: LinkState::Open,
            grant,
        });
        let address = LinkAddress {
            exchange: 0,
            source: 0,
            destination: end.map_or(0, |(_, number)| number),
            credit,
            queue: None,
            local: 0,
            queue_pair,
        };
        Ok((link, address))
    }

    /// Completes a link with the source's answer.
    pub(crate) fn connect(&mut self, link: LinkId, answer: &LinkAddress) -> Result<()> {
        let target = &mut self.links[link.0];
        if target.connected || target.end.is_none() {
            return Err(target.broke_protocol("it answers an offer that it was not made"));
        }
        target.exchange = answer.exchange;
        target.source = answer.source;
        target.destination = answer.destination;
        target.connected = true;
        self.say_credit(link);
        Ok(())
    }

    /// A message has arrived, which had not before.
    pub(crate) fn count(&mut self, link: LinkId, group: u16, sequence: u64) {
        let target = &mut self.links[link.0];
        target.arrived.add(group, sequence);
        target.check_end();
    }

    /// A source may send so many messages more. It hears of them with others.
    pub(crate) fn grant(&mut self, link: LinkId, messages: u32) {
        let target = &mut self.links[link.0];
        target.grant.add(messages);
        let window = self.multiplexer.0.options.link_messages;
        if target.grant.unsaid() as usize >= (window / CREDITS_PER_LINK).max(1) {
            self.say_credit(link);
        }
    }

    fn say_credit(&mut self, link: LinkId) {
        let target = &mut self.links[link.0];
        // After the end nobody needs credit.
        if target.grant.unsaid() > 0 && target.sent.is_none() && target.connected {
            let body = Body::Credit(Credit {
                credit: target.grant.say(),
                acknowledged: 0,
            });
            self.say(link, body);
        }
    }

    /// Tells the source of a link something.
    fn say(&self, link: LinkId, body: Body) {
        let target = &self.links[link.0];
        let Some((connection, _)) = target.end else {
            return;
        };
        let header = Header::of(target.exchange, target.source, target.destination, body);
        self.multiplexer
            .0
            .with(|state| state.say(connection, header));
    }

    /// How a link goes on.
    pub(crate) fn tell(&mut self, link: LinkId, news: News) {
        let target = &mut self.links[link.0];
        match news {
            News::End(sent) => {
                target.sent = Some(sent);
                target.check_end();
            }
            News::Lost(status) => {
                let lost = target.lost(status);
                target.state.fail(lost);
            }
        }
    }

    /// How a link stands: `None` while more may come, then how it ended.
    pub(crate) fn ended(&self, link: LinkId) -> Option<Result<()>> {
        self.links[link.0].state.ended()
    }

    /// The links on which more may come.
    pub(crate) fn open_links(&self) -> impl Iterator<Item = LinkId> {
        let links = self.links.iter().enumerate();
        let open = links.filter(|(_, link)| link.state.is_open());
        open.map(|(index, _)| LinkId(index))
    }

    /// What it did so far.
    pub(crate) fn report(&self) -> EndpointReport {
        EndpointReport {
            steals: self.arrivals.steals(),
            region_steals: self.arrivals.region_steals(),
            ..EndpointReport::default()
        }
    }

    /// Ends a link with an error that was learnt elsewhere, unless it is complete.
    pub(crate) fn abort(&mut self, link: LinkId, error: ExchangeError) {
        self.links[link.0].state.fail(error);
    }

    /// An offered link turns out to be one within the process.
    pub(crate) fn localize(&mut self, link: LinkId) {
        self.forget(link);
    }

    /// All of a link within the process has arrived.
    pub(crate) fn complete(&mut self, link: LinkId) {
        let target = &mut self.links[link.0];
        if target.state.is_open() {
            target.state = LinkState::Complete;
        }
    }

    /// Nobody wants a link's data any more.
    pub(crate) fn close(&mut self, link: LinkId) {
        let target = &mut self.links[link.0];
        let done = matches!(target.state, LinkState::Complete);
        let connected = target.connected;
        let lost = target.lost(CompletionStatus::Flushed);
        target.state.fail(lost);
        if connected && !done {
            self.say(link, Body::Leave);
        }
        self.forget(link);
    }

    fn forget(&mut self, link: LinkId) {
        if let Some((connection, number)) = self.links[link.0].end.take() {
            self.multiplexer
                .0
                .with(|state| state.close_end(connection, number));
        }
    }

    /// The name of a link's peer.
    pub(crate) fn peer(&self, link: LinkId) -> &str {
        &self.links[link.0].peer
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        // What nobody reads any more gives its receives back, and reaches the links of others that it is for.
        while self.arrivals.take_in(None) {}
    }
}

impl Link {
    fn check_end(&mut self) {
        let Some(sent) = self.sent else {
            return;
        };
        if self.arrived == sent {
            if self.state.is_open() {
                self.state = LinkState::Complete;
            }
        } else if self.arrived.count >= sent.count {
            let error = self.broke_protocol("its end-of-stream does not match what it sent");
            self.state.fail(error);
        }
    }

    fn lost(&self, status: CompletionStatus) -> ExchangeError {
        ExchangeError::lost(&self.peer, status)
    }

    fn broke_protocol(&self, reason: &str) -> ExchangeError {
        ExchangeError::protocol(&self.peer, reason)
    }
}

impl State {
    /// A number for a link, over the connection to a node; with the queue pair of that.
    fn open_end(
        &mut self,
        node: NodeId,
        peer: &str,
        arrivals: Arc<Arrivals>,
        link: LinkId,
    ) -> Result<((usize, u32), QueuePairAddress)> {
        let connection = self.by_peer.get(&node).copied();
        let address = connection.and_then(|index| self.connections[index].address().cloned());
        let (Some(connection), Some(address)) = (connection, address) else {
            return Err(ExchangeError::own(format!(
                "a link with {peer}, whose node {node} was not met"
            )));
        };
        let number = self.ends.next;
        // After four billion links the first ones are long closed.
        self.ends.next = self.ends.next.wrapping_add(1);
        self.ends.ends.insert(
            number,
            End {
                arrivals,
                link,
                connection,
            },
        );
        Ok(((connection, number), address))
    }

    fn close_end(&mut self, connection: usize, number: u32) {
        self.ends.ends.remove(&number);
        let groups = &mut self.connections[connection].groups;
        groups.retain(|_, members| {
            if members.iter().any(|member| member.number == number) {
                let others = members.iter().filter(|member| member.number != number);
                *members = others.cloned().collect();
            }
            !members.is_empty()
        });
    }

    /// A link becomes a member of a peer's group.
    pub(super) fn join_group(&mut self, connection: usize, header: &Header) {
        let number = header.partition;
        let Some(end) = self.ends.ends.get(&number) else {
            // It was closed meanwhile.
            return;
        };
        if end.connection != connection {
            return;
        }
        let member = Member {
            arrivals: end.arrivals.clone(),
            link: end.link,
            number,
        };
        let key = (header.exchange, header.source, header.group);
        let groups = &mut self.connections[connection].groups;
        let members = groups.entry(key).or_insert_with(|| Arc::new([]));
        *members = members.iter().cloned().chain([member]).collect();
    }

    /// Something has come about a link here.
    pub(super) fn tell(&mut self, connection: usize, number: u32, news: News) {
        if let Some(end) = self.ends.ends.get(&number)
            && end.connection == connection
        {
            end.arrivals.push_news(end.link, news);
        }
    }

    /// The links over a connection that is gone.
    pub(super) fn lose_links(&mut self, connection: usize, status: CompletionStatus) {
        for end in self.ends.ends.values() {
            if end.connection == connection {
                end.arrivals.push_news(end.link, News::Lost(status));
            }
        }
    }
}

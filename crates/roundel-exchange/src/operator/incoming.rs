//! Where the messages of a RECEIVE come from: an endpoint of its own, or the node's multiplexer. And how its
//! readers wait for them.

use crate::endpoint::{LinkAddress, LinkId, Message, ReceiveEndpoint};
use crate::error::{ExchangeError, Result};
use crate::multiplexer::{Arrivals, Inbound, Multiplexer, NodeId};
use crate::report::EndpointReport;
use roundel_verbs::{CompletionQueue, CompletionStatus};
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

/// Where messages come from.
pub(super) enum Incoming {
    Endpoint(Box<ReceiveEndpoint>),
    Multiplexer(Inbound),
}

/// How readers wait.
pub(super) enum Readers {
    /// For completions, of which each takes those of all.
    Queue(CompletionQueue),
    /// For what the multiplexer brings.
    Arrivals(Multiplexer, Arc<Arrivals>),
}

impl Readers {
    /// Has the reader of a partition woken when there may be something for it.
    pub(super) fn wait(&self, reader: (LinkId, u32), cx: &Context<'_>) {
        match self {
            Self::Queue(queue) => queue.wake_at_next(&mut Context::from_waker(cx.waker())),
            Self::Arrivals(_, arrivals) => arrivals.wait(reader, cx.waker()),
        }
    }

    /// Wakes all readers.
    pub(super) fn wake(&self) {
        match self {
            Self::Queue(queue) => queue.wake(),
            Self::Arrivals(_, arrivals) => arrivals.wake_all(),
        }
    }

    /// The reader of a partition takes in one message that the multiplexer has brought, also if it is another's;
    /// whether there was any.
    pub(super) fn take_in(&self, reader: (LinkId, u32)) -> bool {
        match self {
            Self::Queue(_) => false,
            Self::Arrivals(multiplexer, arrivals) => {
                arrivals.take_in(Some(reader)) || {
                    Inbound::progress(multiplexer);
                    arrivals.take_in(Some(reader))
                }
            }
        }
    }

    /// Takes in all that the multiplexer has brought, for readers who do not; returns whether there was anything.
    pub(super) fn take_in_all(&self) -> bool {
        let mut any = false;
        if let Self::Arrivals(_, arrivals) = self {
            while arrivals.take_in(None) {
                any = true;
            }
        }
        any
    }
}

impl Incoming {
    /// Its readers.
    pub(super) fn readers(&self) -> Readers {
        match self {
            Self::Endpoint(endpoint) => Readers::Queue(endpoint.queue().clone()),
            Self::Multiplexer(inbound) => {
                Readers::Arrivals(inbound.multiplexer().clone(), inbound.arrivals().clone())
            }
        }
    }

    /// Offers a link to a source, on a node that the multiplexer knows.
    pub(super) fn offer(
        &mut self,
        peer: &str,
        node: Option<NodeId>,
    ) -> Result<(LinkId, LinkAddress)> {
        match (self, node) {
            (Self::Endpoint(endpoint), None) => endpoint.offer(peer),
            (Self::Multiplexer(inbound), Some(node)) => inbound.offer(peer, node),
            (Self::Endpoint(_), Some(_)) => Err(ExchangeError::own(format!(
                "a link through a multiplexer with {peer}, where there is none"
            ))),
            (Self::Multiplexer(_), None) => Err(ExchangeError::own(format!(
                "a link through a multiplexer with {peer}, whose node is not said"
            ))),
        }
    }

    pub(super) fn connect(&mut self, link: LinkId, answer: &LinkAddress) -> Result<()> {
        either!(self, from => from.connect(link, answer))
    }

    /// How a link stands: `None` while more may come, then how it ended.
    pub(super) fn ended(&self, link: LinkId) -> Option<Result<()>> {
        either!(self, from => from.ended(link))
    }

    /// The links on which more may come.
    pub(super) fn open_links(&self) -> Vec<LinkId> {
        either!(self, from => from.open_links().collect())
    }

    pub(super) fn abort(&mut self, link: LinkId, error: ExchangeError) {
        either!(self, from => from.abort(link, error))
    }

    pub(super) fn localize(&mut self, link: LinkId) {
        either!(self, from => from.localize(link))
    }

    pub(super) fn complete(&mut self, link: LinkId) {
        either!(self, from => from.complete(link))
    }

    pub(super) fn close(&mut self, link: LinkId) {
        either!(self, from => from.close(link))
    }

    pub(super) fn peer(&self, link: LinkId) -> &str {
        either!(self, from => from.peer(link))
    }

    pub(super) fn report(&self) -> EndpointReport {
        either!(self, from => from.report())
    }

    /// Appends messages that have arrived at an endpoint; whether there was anything. Those of a multiplexer are
    /// [taken in](Readers::take_in) one by one.
    pub(super) fn poll(&mut self, messages: &mut Vec<Message>, limit: usize) -> bool {
        match self {
            Self::Endpoint(endpoint) => endpoint.poll(messages, limit),
            Self::Multiplexer(_) => false,
        }
    }

    /// Gives the buffer of an endpoint's message back.
    pub(super) fn release(&mut self, message: Message, fresh: bool) {
        if let Self::Endpoint(endpoint) = self {
            endpoint.release(message, fresh);
        }
    }

    pub(super) fn lose(&mut self, link: LinkId, status: CompletionStatus) {
        if let Self::Endpoint(endpoint) = self {
            endpoint.lose(link, status);
        }
    }

    pub(super) fn give_up(&mut self, link: LinkId) {
        if let Self::Endpoint(endpoint) = self {
            endpoint.give_up(link);
        }
    }

    pub(super) fn may_lose(&self) -> bool {
        match self {
            Self::Endpoint(endpoint) => endpoint.may_lose(),
            Self::Multiplexer(_) => false,
        }
    }

    pub(super) fn owes_acknowledgement(&self, linger: Duration) -> bool {
        match self {
            Self::Endpoint(endpoint) => endpoint.owes_acknowledgement(linger),
            Self::Multiplexer(_) => false,
        }
    }

    pub(super) fn attend(&mut self) {
        if let Self::Endpoint(endpoint) = self {
            endpoint.attend();
        }
    }

    pub(super) fn on_silence(&mut self) {
        if let Self::Endpoint(endpoint) = self {
            endpoint.on_silence();
        }
    }
}

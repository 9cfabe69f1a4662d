//! How the messages of an operator get to other nodes, and its rows to consumers in its own process. It holds what of an
//! exchange is alive; the settings of the exchange are plain data.

use super::local::LocalLinks;
use crate::multiplexer::Multiplexer;
use crate::options::ExchangeOptions;
use std::sync::Arc;

/// The way that both operators of an exchange take.
#[derive(Clone, Debug, Default)]
pub struct Route {
    pub(super) local: Option<Arc<LocalLinks>>,
    pub(super) multiplexer: Option<Multiplexed>,
}

/// The multiplexer of a node, as the exchanges of one query use it.
#[derive(Clone, Debug)]
pub(super) struct Multiplexed {
    pub multiplexer: Multiplexer,
    pub query: u64,
}

impl Route {
    /// Over endpoints of each operator's own, also to consumers of this process.
    pub fn direct() -> Self {
        Self::default()
    }

    /// Over endpoints of each operator's own. Rows for a consumer of this process, whose links these are, are handed over in
    /// memory.
    pub fn beside(links: &Arc<LocalLinks>) -> Self {
        Self {
            local: Some(links.clone()),
            multiplexer: None,
        }
    }

    /// Through the multiplexer of this node. The exchanges of one query, which has this number, share its quota of messages. Rows
    /// for a consumer of this process, whose links these are, are handed over in memory.
    pub fn through(multiplexer: &Multiplexer, query: u64, links: &Arc<LocalLinks>) -> Self {
        Self {
            local: Some(links.clone()),
            multiplexer: Some(Multiplexed {
                multiplexer: multiplexer.clone(),
                query,
            }),
        }
    }

    /// The settings of an exchange that goes this way: a multiplexer has a design and messages of its own.
    pub(super) fn options(&self, options: &ExchangeOptions) -> ExchangeOptions {
        let mut options = options.clone();
        if let Some(own) = &self.multiplexer {
            options.design = own.multiplexer.options().design;
            options.message_bytes = own.multiplexer.options().message_bytes;
            options.classic = false;
        }
        options
    }
}

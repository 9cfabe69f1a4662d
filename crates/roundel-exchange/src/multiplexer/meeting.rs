//! How two nodes get their connection: each makes a queue pair for the other, and they exchange the addresses out
//! of band. Both may begin at once.
//!
//! ```text
//!   A: meet(B) → address of A's end ────────────────────► B: accept(A, address) → address of B's
//!   A: join(B, address) ◄──────────────────────────────── B is connected, and waits to hear from A
//!      A is connected, and says its credit ═════════════► B says its own
//! ```

use super::address::{ConnectionAddress, NodeId};
use super::connection::Connection;
use super::{Inner, Multiplexer, State};
use crate::error::{ExchangeError, Result};
use roundel_verbs::{CompletionStatus, QueuePairAddress};

impl Multiplexer {
    /// Whether there is a connection to a node, from both sides, or the node is this one.
    pub fn is_connected(&self, node: NodeId) -> bool {
        let open = |state: &mut State| {
            let connection = state.by_peer.get(&node);
            connection.is_some_and(|index| state.connections[*index].is_open())
        };
        node == self.id() || self.0.with(open)
    }

    /// Begins a connection to a node, if there is none: the address for [`accept`](Self::accept) there. Errors will
    /// call the node `name`.
    ///
    /// # Errors
    /// When there is no memory or no queue pair left for it.
    pub fn meet(&self, node: NodeId, name: &str) -> Result<ConnectionAddress> {
        let inner = &self.0;
        inner.with(|state| {
            let index = inner.connection(state, node, name)?;
            state.connections[index].own_end()
        })
    }

    /// Accepts a node that has [met](Self::meet) this one; the address is for [`join`](Self::join) there. A
    /// connection to another queue pair of that node was to one that it has given up.
    ///
    /// # Errors
    /// As [`meet`](Self::meet), and when the node cannot be reached, or moves rows by another design.
    pub fn accept(
        &self,
        node: NodeId,
        name: &str,
        remote: &ConnectionAddress,
    ) -> Result<ConnectionAddress> {
        let inner = &self.0;
        remote.check_design(inner.options.design, name, node)?;
        inner.with(|state| {
            let mut index = inner.connection(state, node, name)?;
            let known = state.connections[index].remote();
            if known.is_some_and(|known| *known != remote.queue_pair) {
                state.fail_connection(index, CompletionStatus::Flushed);
                index = inner.connection(state, node, name)?;
            }
            state.connect(index, remote)?;
            state.connections[index].own_end()
        })
    }

    /// Completes a connection with the answer of its peer, which is connected already.
    ///
    /// # Errors
    /// When the peer was not met, or cannot be reached, or moves rows by another design.
    pub fn join(&self, node: NodeId, remote: &ConnectionAddress) -> Result<()> {
        self.0.with(|state| {
            let Some(&index) = state.by_peer.get(&node) else {
                return Err(ExchangeError::own(format!(
                    "node {node} joined that was not met, or that is lost"
                )));
            };
            state.connect(index, remote)?;
            if state.connections[index].begin() {
                state.schedule_peers();
            }
            Ok(())
        })
    }
}

impl Inner {
    /// The connection to a node, which is made when there is none.
    fn connection(&self, state: &mut State, node: NodeId, name: &str) -> Result<usize> {
        if let Some(&index) = state.by_peer.get(&node) {
            return Ok(index);
        }
        let connection = Connection::open(
            &self.fabric,
            &self.queue,
            &self.options,
            &self.regions,
            node,
            name,
        )?;
        let index = state.connections.len();
        if let Some(address) = connection.address() {
            state.by_queue_pair.insert(address.number, index);
        }
        state.by_peer.insert(node, index);
        state.connections.push(connection);
        let alive = state.by_peer.len();
        state.report.connections_max = state.report.connections_max.max(alive);
        Ok(index)
    }
}

impl State {
    /// Connects a connection, unless it is.
    fn connect(&mut self, index: usize, remote: &ConnectionAddress) -> Result<()> {
        let connection = &mut self.connections[index];
        match connection.remote() {
            Some(known) if *known == remote.queue_pair => Ok(()),
            Some(_) => Err(ExchangeError::own(format!(
                "{} answers with another queue pair than before",
                connection.name
            ))),
            None => {
                let agreed = remote.check_design(self.design, &connection.name, connection.peer);
                let connected = agreed.and_then(|()| connection.connect(remote));
                connected.inspect_err(|_| {
                    self.fail_connection(index, CompletionStatus::Flushed);
                })
            }
        }
    }

    /// The connection whose other end has this queue pair.
    pub(super) fn connection_to(&self, remote: &QueuePairAddress, peer: &str) -> Result<usize> {
        let mut connections = self.connections.iter();
        let found = connections.position(|one| one.is_alive() && one.remote() == Some(remote));
        found.ok_or_else(|| {
            ExchangeError::own(format!("a link with {peer}, whose node was not met"))
        })
    }
}

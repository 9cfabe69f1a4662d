//! Clients and servers of a group meet through a rendezvous: every client is connected to all servers but that of its
//! own peer, in the order of their ranks, and every server to all such clients.

use super::client::Client;
use super::server::Server;
use crate::error::{ProtocolError, Result};
use roundel_verbs::Rendezvous;

/// Bits of what a peer has.
const CLIENT: u8 = 1;
const SERVER: u8 = 2;

/// The peers that a peer has met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// The rank of the server at each connection of the client.
    pub servers: Vec<usize>,
    /// The rank of the client at each connection of the server.
    pub clients: Vec<usize>,
}

/// Connects this peer's client and server, whichever it has, to those of all others. All peers call it; when it
/// returns, all can be called.
///
/// # Errors
/// When a peer is lost, an offer does not fit, or this peer's client or server has another number of connections.
pub async fn meet(
    rendezvous: &mut dyn Rendezvous,
    mut client: Option<&mut Client>,
    mut server: Option<&mut Server>,
) -> Result<Met> {
    let own = rendezvous.rank();
    let has = if client.is_some() { CLIENT } else { 0 } | if server.is_some() { SERVER } else { 0 };
    let roles = rendezvous.exchange(vec![has]).await?;
    let with = |role: u8, wanted: bool| -> Vec<usize> {
        let others = (0..roles.len()).filter(|rank| wanted && *rank != own);
        let has = |rank: &usize| roles[*rank].first().is_some_and(|has| has & role != 0);
        others.filter(has).collect()
    };
    let met = Met {
        servers: with(SERVER, client.is_some()),
        clients: with(CLIENT, server.is_some()),
    };
    let own_counts = [
        (
            client.as_ref().map(|client| client.connections()),
            &met.servers,
        ),
        (
            server.as_ref().map(|server| server.connections()),
            &met.clients,
        ),
    ];
    for (connections, others) in own_counts {
        if let Some(connections) = connections
            && connections != others.len()
        {
            return Err(ProtocolError::Unsupported(format!(
                "{connections} connections for {} peers",
                others.len()
            )));
        }
    }
    let mut offers = vec![Vec::new(); roles.len()];
    if let Some(client) = &client {
        offer(&mut offers, &met.servers, |connection| {
            client.offer(connection)
        });
    }
    let to_servers = rendezvous.exchange_each(offers).await?;
    let mut offers = vec![Vec::new(); roles.len()];
    if let Some(server) = &server {
        offer(&mut offers, &met.clients, |connection| {
            server.offer(connection)
        });
    }
    let to_clients = rendezvous.exchange_each(offers).await?;
    if let Some(server) = &mut server {
        for (connection, rank) in met.clients.iter().enumerate() {
            server.connect(connection, &to_servers[*rank], &rank.to_string())?;
        }
    }
    if let Some(client) = &mut client {
        for (connection, rank) in met.servers.iter().enumerate() {
            client.connect(connection, &to_clients[*rank], &rank.to_string())?;
        }
    }
    // A device may give up on a peer that is not connected yet.
    rendezvous.exchange(Vec::new()).await?;
    Ok(met)
}

fn offer(offers: &mut [Vec<u8>], ranks: &[usize], of: impl Fn(usize) -> Vec<u8>) {
    for (connection, rank) in ranks.iter().enumerate() {
        offers[*rank] = of(connection);
    }
}

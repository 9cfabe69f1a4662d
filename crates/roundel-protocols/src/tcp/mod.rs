//! The same conversations over TCP connections, for comparison: one socket for each connection, all that is to be said
//! in one call, `epoll` to learn who has something to say.
//!
//! It is for measuring: calls have no deadlines, and are answered in order.

mod readiness;
mod requester;
mod responder;
mod stream;

pub(crate) use requester::TcpRequester;
pub(crate) use responder::TcpResponder;

use crate::error::ProtocolError;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// What an end tells its peer. It comes from outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct TcpOffer {
    /// This end's number of the connection.
    connection: u32,
    /// Where it listens, if it is the one that answers, and what it wants to hear first.
    listens: Option<(SocketAddr, u64)>,
}

impl TcpOffer {
    fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an offer is plain data")
    }

    fn parse(bytes: &[u8], peer: &str) -> Result<Self, ProtocolError> {
        serde_json::from_slice(bytes).map_err(|error| ProtocolError::Offer {
            peer: peer.to_owned(),
            reason: format!("its offer cannot be read: {error}"),
        })
    }
}

/// An error of the operating system.
fn system(what: String) -> impl FnOnce(std::io::Error) -> ProtocolError {
    move |source| ProtocolError::System { what, source }
}

//! The end that asks.

use super::readiness::Readiness;
use super::stream::Stream;
use super::{TcpOffer, system};
use crate::end::{EndOptions, Fabric};
use crate::error::{CallError, Result};
use crate::message::frame::Kind;
use crate::requester::Ended;
use std::collections::VecDeque;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The end that asks.
pub(crate) struct TcpRequester {
    options: EndOptions,
    readiness: Readiness,
    connections: Vec<Connection>,
    ready: Vec<u64>,
}

struct Connection {
    peer: String,
    stream: Option<Stream>,
    next: u64,
    /// The marks of calls, and when they were begun.
    pending: VecDeque<(u64, Duration)>,
    unsent: bool,
}

impl TcpRequester {
    pub(crate) fn open(_: &Fabric, connections: usize, options: &EndOptions) -> Result<Self> {
        let connection = |_| Connection {
            peer: String::new(),
            stream: None,
            next: 0,
            pending: VecDeque::new(),
            unsent: false,
        };
        Ok(Self {
            options: options.clone(),
            readiness: Readiness::new()?,
            connections: (0..connections).map(connection).collect(),
            ready: Vec::new(),
        })
    }

    pub(crate) fn offer(&self, connection: usize) -> Vec<u8> {
        let offer = TcpOffer {
            connection: connection as u32,
            listens: None,
        };
        offer.to_bytes()
    }

    pub(crate) fn connect(&mut self, connection: usize, offer: &[u8], peer: &str) -> Result<()> {
        let offer = TcpOffer::parse(offer, peer)?;
        let what = || format!("cannot connect to node {peer} over TCP");
        let refused = || std::io::Error::other("it does not listen");
        let (address, nonce) = offer.listens.ok_or_else(|| system(what())(refused()))?;
        let open = || {
            let mut socket = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
            socket.write_all(&nonce.to_le_bytes())?;
            socket.write_all(&offer.connection.to_le_bytes())?;
            let stream = Stream::new(socket, self.options.response_bytes, self.options.pending)?;
            self.readiness.watch(&stream, connection as u64)?;
            Ok(stream)
        };
        let stream = open().map_err(system(format!("{} at {address}", what())))?;
        let known = &mut self.connections[connection];
        (known.peer, known.stream) = (peer.to_owned(), Some(stream));
        Ok(())
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.len()
    }

    pub(crate) fn room(&self, connection: usize) -> usize {
        self.options.pending - self.connections[connection].pending.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        let mut connections = self.connections.iter();
        connections.all(|connection| connection.pending.is_empty())
    }

    pub(crate) fn call(
        &mut self,
        connection: usize,
        token: u64,
        request: &[u8],
        now: Duration,
    ) -> Result<bool, CallError> {
        if self.room(connection) == 0 {
            return Ok(false);
        }
        let connection = &mut self.connections[connection];
        let Some(stream) = &mut connection.stream else {
            return Err(connection.gone("it is not connected"));
        };
        stream.put(connection.next, Kind::Plain, request);
        connection.next += 1;
        connection.pending.push_back((token, now));
        connection.unsent = true;
        Ok(true)
    }

    pub(crate) fn flush(&mut self) {
        for connection in &mut self.connections {
            if !connection.unsent {
                continue;
            }
            // An error shows at the next look, too, where it ends the calls.
            let flushed = connection.stream.as_mut().map(Stream::flush);
            connection.unsent = matches!(flushed, Some(Ok(false)));
        }
    }

    pub(crate) fn poll(&mut self, mut ended: impl FnMut(Ended<'_>)) -> Result<usize> {
        self.flush();
        self.readiness.look(&mut self.ready)?;
        let mut happened = 0;
        for number in &self.ready {
            let number = *number as usize;
            let connection = &mut self.connections[number];
            let taken = connection.take(number, &mut ended);
            happened += taken.unwrap_or_else(|error| {
                let gone = connection.gone(&error.to_string());
                connection.stream = None;
                let pending = std::mem::take(&mut connection.pending);
                for (token, begun) in &pending {
                    ended(Ended {
                        connection: number,
                        token: *token,
                        begun: *begun,
                        outcome: Err(gone.clone()),
                    });
                }
                1 + pending.len()
            });
        }
        Ok(happened)
    }
}

impl Connection {
    fn gone(&self, reason: &str) -> CallError {
        CallError::PeerGone {
            peer: self.peer.clone(),
            reason: reason.to_owned(),
        }
    }

    fn take(&mut self, number: usize, ended: &mut impl FnMut(Ended<'_>)) -> std::io::Result<usize> {
        let Some(stream) = &mut self.stream else {
            return Ok(0);
        };
        let mut taken = 0;
        if stream.fill()? {
            while let Some((head, response)) = stream.next()? {
                let Some((token, begun)) = self.pending.pop_front() else {
                    return Err(std::io::Error::other("it answered what nobody asked"));
                };
                let outcome = match head.kind {
                    Kind::Plain => Ok(response),
                    Kind::Refusal => Err(CallError::Refused {
                        peer: self.peer.clone(),
                        reason: String::from_utf8_lossy(response).replace(char::is_control, " "),
                    }),
                };
                taken += 1;
                ended(Ended {
                    connection: number,
                    token,
                    begun,
                    outcome,
                });
            }
        }
        Ok(taken)
    }
}

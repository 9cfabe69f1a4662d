//! The end that answers: it listens, and knows its requesters by what they say first.

use super::readiness::Readiness;
use super::stream::Stream;
use super::{TcpOffer, system};
use crate::end::{EndOptions, Fabric};
use crate::error::Result;
use crate::message::frame::Kind;
use crate::responder::Handler;
use std::io::{self, ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// What requesters say first: a nonce, and the connection.
const HELLO_BYTES: usize = 12;
/// Longest wait for it, once a connection is there.
const HELLO_MAX: Duration = Duration::from_secs(2);
/// The number of the listener among connections.
const LISTENER: u64 = u64::MAX;

/// The end that answers.
pub(crate) struct TcpResponder {
    options: EndOptions,
    readiness: Readiness,
    listener: TcpListener,
    address: SocketAddr,
    nonce: u64,
    streams: Vec<Option<Stream>>,
    ready: Vec<u64>,
    response: Vec<u8>,
    answered: u64,
}

impl TcpResponder {
    pub(crate) fn open(fabric: &Fabric, connections: usize, options: &EndOptions) -> Result<Self> {
        let what = || format!("cannot listen on {}", fabric.address);
        let listener = TcpListener::bind((fabric.address, 0)).map_err(system(what()))?;
        let readiness = Readiness::new()?;
        let listen = || {
            listener.set_nonblocking(true)?;
            readiness.watch(&listener, LISTENER)?;
            listener.local_addr()
        };
        let address = listen().map_err(system(what()))?;
        Ok(Self {
            options: options.clone(),
            readiness,
            address,
            listener,
            nonce: fabric.context.random(),
            streams: (0..connections).map(|_| None).collect(),
            ready: Vec::new(),
            response: Vec::new(),
            answered: 0,
        })
    }

    pub(crate) fn offer(&self, connection: usize) -> Vec<u8> {
        let offer = TcpOffer {
            connection: connection as u32,
            listens: Some((self.address, self.nonce)),
        };
        offer.to_bytes()
    }

    pub(crate) fn answered(&self) -> u64 {
        self.answered
    }

    pub(crate) fn poll(&mut self, handler: &mut impl Handler) -> Result<usize> {
        let mut ready = std::mem::take(&mut self.ready);
        self.readiness.look(&mut ready)?;
        let mut happened = 0;
        for number in &ready {
            match *number {
                LISTENER => {
                    happened += 1;
                    // A stranger is not let in, and is not this end's failure.
                    let _ = self.accept();
                }
                connection => match self.serve(connection as usize, handler) {
                    Ok(count) => happened += count,
                    // The requester is gone.
                    Err(_) => self.streams[connection as usize] = None,
                },
            }
        }
        self.ready = ready;
        Ok(happened)
    }

    fn accept(&mut self) -> io::Result<()> {
        let (mut socket, _) = self.listener.accept()?;
        let (nonce, connection) = hello(&mut socket)?;
        let place = self
            .streams
            .get_mut(connection)
            .filter(|place| place.is_none());
        let Some(place) = place.filter(|_| nonce == self.nonce) else {
            return Err(ErrorKind::PermissionDenied.into());
        };
        let stream = Stream::new(socket, self.options.request_bytes, self.options.pending)?;
        self.readiness.watch_both(&stream, connection as u64)?;
        *place = Some(stream);
        Ok(())
    }

    fn serve(&mut self, connection: usize, handler: &mut impl Handler) -> io::Result<usize> {
        let Some(stream) = self.streams.get_mut(connection).and_then(Option::as_mut) else {
            return Ok(0);
        };
        let most = self.options.response_bytes;
        let mut count = 0;
        // Readiness is reported once for all that comes, so all of it is taken.
        while stream.fill()? {
            loop {
                self.response.clear();
                let sequence = self.answered;
                let Some((_, request)) = stream.next()? else {
                    break;
                };
                let done = handler.handle(connection, request, &mut self.response);
                let kind = match done {
                    Ok(()) if self.response.len() <= most => Kind::Plain,
                    Ok(()) => {
                        self.response = b"its response is too long".to_vec();
                        Kind::Refusal
                    }
                    Err(reason) => {
                        self.response = reason.into_bytes();
                        Kind::Refusal
                    }
                };
                self.response.truncate(most);
                stream.put(sequence, kind, &self.response);
                self.answered += 1;
                count += 1;
            }
            stream.flush()?;
        }
        stream.flush()?;
        Ok(count)
    }
}

fn hello(socket: &mut TcpStream) -> io::Result<(u64, usize)> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(HELLO_MAX))?;
    let mut bytes = [0; HELLO_BYTES];
    socket.read_exact(&mut bytes)?;
    let [a, b, c, d, e, f, g, h, connection @ ..] = bytes;
    let nonce = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    Ok((nonce, u32::from_le_bytes(connection) as usize))
}

//! The ends of a setting, over verbs or over TCP, and what workers ask of either.

use crate::end::{EndOptions, Fabric};
use crate::error::{CallError, Result};
use crate::protocol::Protocol;
use crate::requester::{Ended, Requester};
use crate::responder::{Handler, Responder};
use crate::tcp::{TcpRequester, TcpResponder};
use roundel_verbs::CompletionQueue;
use std::time::Duration;

/// The end that asks.
pub(super) enum Asker {
    Verbs(Box<Requester>),
    Tcp(TcpRequester),
}

/// The end that answers.
pub(super) enum Answerer {
    Verbs(Box<Responder>),
    Tcp(TcpResponder),
}

impl Asker {
    pub(super) fn open(fabric: &Fabric, connections: usize, options: &EndOptions) -> Result<Self> {
        Ok(match options.protocol {
            Protocol::Tcp => Self::Tcp(TcpRequester::open(fabric, connections, options)?),
            _ => Self::Verbs(Box::new(Requester::open(fabric, connections, options)?)),
        })
    }

    pub(super) fn offer(&self, connection: usize) -> Vec<u8> {
        match self {
            Self::Verbs(end) => end.offer(connection),
            Self::Tcp(end) => end.offer(connection),
        }
    }

    pub(super) fn connect(&mut self, connection: usize, offer: &[u8], peer: &str) -> Result<()> {
        match self {
            Self::Verbs(end) => end.connect(connection, offer, peer),
            Self::Tcp(end) => end.connect(connection, offer, peer),
        }
    }

    pub(super) fn connections(&self) -> usize {
        match self {
            Self::Verbs(end) => end.connections(),
            Self::Tcp(end) => end.connections(),
        }
    }

    pub(super) fn queue_pairs(&self) -> usize {
        match self {
            Self::Verbs(end) => end.queue_pairs(),
            Self::Tcp(_) => 0,
        }
    }

    pub(super) fn room(&self, connection: usize) -> usize {
        match self {
            Self::Verbs(end) => end.room(connection),
            Self::Tcp(end) => end.room(connection),
        }
    }

    pub(super) fn readable(&self, connection: usize) -> u64 {
        match self {
            Self::Verbs(end) => end.readable(connection),
            Self::Tcp(_) => 0,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        match self {
            Self::Verbs(end) => end.is_idle(),
            Self::Tcp(end) => end.is_idle(),
        }
    }

    pub(super) fn resent(&self) -> u64 {
        match self {
            Self::Verbs(end) => end.resent(),
            Self::Tcp(_) => 0,
        }
    }

    /// When it has something to do although nothing comes.
    pub(super) fn due(&self) -> Option<Duration> {
        match self {
            Self::Verbs(end) => Some(end.due()),
            Self::Tcp(_) => None,
        }
    }

    pub(super) fn queue(&self) -> Option<&CompletionQueue> {
        match self {
            Self::Verbs(end) => Some(end.queue()),
            Self::Tcp(_) => None,
        }
    }

    pub(super) fn call(
        &mut self,
        connection: usize,
        token: u64,
        request: &[u8],
        now: Duration,
    ) -> Result<bool, CallError> {
        match self {
            Self::Verbs(end) => end.call(connection, token, request, None, now),
            Self::Tcp(end) => end.call(connection, token, request, now),
        }
    }

    pub(super) fn read(
        &mut self,
        connection: usize,
        token: u64,
        range: (u64, usize),
        now: Duration,
    ) -> Result<bool, CallError> {
        match self {
            Self::Verbs(end) => end.read(connection, token, range, None, now),
            Self::Tcp(_) => Err(CallError::Unsupported("TCP has no READ".into())),
        }
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        match self {
            Self::Verbs(end) => end.flush(),
            Self::Tcp(end) => {
                end.flush();
                Ok(())
            }
        }
    }

    pub(super) fn poll(&mut self, now: Duration, ended: impl FnMut(Ended<'_>)) -> Result<usize> {
        match self {
            Self::Verbs(end) => end.poll(now, ended),
            Self::Tcp(end) => end.poll(ended),
        }
    }
}

impl Answerer {
    pub(super) fn open(
        fabric: &Fabric,
        connections: usize,
        readable: usize,
        options: &EndOptions,
    ) -> Result<Self> {
        Ok(match options.protocol {
            Protocol::Tcp => Self::Tcp(TcpResponder::open(fabric, connections, options)?),
            _ => Self::Verbs(Box::new(Responder::open(
                fabric,
                connections,
                readable,
                options,
            )?)),
        })
    }

    pub(super) fn offer(&self, connection: usize) -> Vec<u8> {
        match self {
            Self::Verbs(end) => end.offer(connection),
            Self::Tcp(end) => end.offer(connection),
        }
    }

    pub(super) fn connect(&mut self, connection: usize, offer: &[u8], peer: &str) -> Result<()> {
        match self {
            Self::Verbs(end) => end.connect(connection, offer, peer),
            // It is connected to.
            Self::Tcp(_) => Ok(()),
        }
    }

    pub(super) fn queue_pairs(&self) -> usize {
        match self {
            Self::Verbs(end) => end.queue_pairs(),
            Self::Tcp(_) => 0,
        }
    }

    pub(super) fn answered(&self) -> u64 {
        match self {
            Self::Verbs(end) => end.counts().0,
            Self::Tcp(end) => end.answered(),
        }
    }

    pub(super) fn due(&self) -> Option<Duration> {
        match self {
            Self::Verbs(end) => end.due(),
            Self::Tcp(_) => None,
        }
    }

    pub(super) fn queue(&self) -> Option<&CompletionQueue> {
        match self {
            Self::Verbs(end) => Some(end.queue()),
            Self::Tcp(_) => None,
        }
    }

    pub(super) fn poll(&mut self, now: Duration, handler: &mut impl Handler) -> Result<usize> {
        match self {
            Self::Verbs(end) => end.poll(now, handler),
            Self::Tcp(end) => end.poll(handler),
        }
    }
}

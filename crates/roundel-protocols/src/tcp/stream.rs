//! Messages on a TCP connection: each begins with what is a trailer elsewhere.

use crate::message::frame::{Kind, TRAILER_BYTES, Trailer};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes taken with one call.
const READ_BYTES: usize = 256 << 10;

/// A connection that never blocks.
pub(super) struct Stream {
    socket: TcpStream,
    incoming: Vec<u8>,
    /// What was taken out of `incoming`, and what was put there.
    taken: usize,
    filled: usize,
    outgoing: Vec<u8>,
    written: usize,
    /// Most bytes of a payload that comes.
    bytes: usize,
    /// For numbers of messages.
    slots: usize,
}

impl Stream {
    pub(super) fn new(socket: TcpStream, bytes: usize, slots: usize) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let room = READ_BYTES.max(2 * (bytes + TRAILER_BYTES));
        Ok(Self {
            socket,
            incoming: vec![0; room],
            taken: 0,
            filled: 0,
            outgoing: Vec::new(),
            written: 0,
            bytes,
            slots,
        })
    }

    /// Puts a message in line.
    pub(super) fn put(&mut self, sequence: u64, kind: Kind, payload: &[u8]) {
        let head = Trailer::new(payload.len(), kind, sequence, self.slots);
        self.outgoing
            .extend_from_slice(&head.to_word().to_le_bytes());
        self.outgoing.extend_from_slice(payload);
    }

    /// Writes what is in line, as far as there is room; whether nothing is left.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        while self.written < self.outgoing.len() {
            match self.socket.write(&self.outgoing[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.outgoing.clear();
        self.written = 0;
        Ok(true)
    }

    /// Takes what has come, with one call; whether there is anything.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
        } else if self.incoming.len() - self.filled < self.bytes + TRAILER_BYTES {
            self.incoming.copy_within(self.taken..self.filled, 0);
            (self.taken, self.filled) = (0, self.filled - self.taken);
        }
        loop {
            return match self.socket.read(&mut self.incoming[self.filled..]) {
                Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.filled += count;
                    Ok(true)
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
        }
    }

    /// The next message that has come whole.
    pub(super) fn next(&mut self) -> io::Result<Option<(Trailer, &[u8])>> {
        let there = &self.incoming[self.taken..self.filled];
        let Some((word, rest)) = there.split_first_chunk::<TRAILER_BYTES>() else {
            return Ok(None);
        };
        let head = Trailer::from_word(u64::from_le_bytes(*word));
        let head = head.filter(|head| head.length <= self.bytes);
        let head = head.ok_or_else(|| io::Error::other("it sent what is no message"))?;
        if rest.len() < head.length {
            return Ok(None);
        }
        let from = self.taken + TRAILER_BYTES;
        self.taken = from + head.length;
        Ok(Some((head, &self.incoming[from..self.taken])))
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

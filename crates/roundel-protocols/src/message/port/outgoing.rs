//! The sending half of a port: messages get their frames, and are posted together.

use super::Port;
use crate::error::Result;
use crate::message::frame::{Kind, Tail, Trailer};
use crate::protocol::{Via, Way};
use roundel_verbs::work::InlineBytes;
use roundel_verbs::{Buffer, Payload, RemoteAddress, SendOperation, SendRequest, Work};

/// Payload that is longer is copied into a buffer.
const INLINE_BYTES_MAX: usize = roundel_verbs::work::INLINE_BYTES_MAX;

/// WRITEs of no bytes go there: they need no key.
const NOWHERE: RemoteAddress = RemoteAddress {
    address: 0,
    remote_key: 0,
};

/// What waits to be posted.
pub(crate) struct Outgoing {
    way: Option<Way>,
    /// Most bytes of a payload.
    bytes: usize,
    inline_bytes_max: usize,
    /// For each connection, or in the first place for all of them.
    posts: Vec<Vec<SendRequest>>,
    /// Those that have any.
    waiting: Vec<usize>,
    free: Vec<Buffer>,
}

impl Outgoing {
    pub(super) fn new(
        way: Option<Way>,
        bytes: usize,
        connections: usize,
        inline_bytes_max: usize,
    ) -> Self {
        Self {
            way,
            bytes,
            inline_bytes_max: inline_bytes_max.min(INLINE_BYTES_MAX),
            posts: (0..connections).map(|_| Vec::new()).collect(),
            waiting: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Whether messages of the greatest length are copied into buffers, of how many bytes.
    pub(super) fn buffer_bytes(&self) -> Option<usize> {
        let way = self.way?;
        let longest = self.bytes + crate::message::frame::overhead(way);
        (longest > self.inline_bytes_max).then(|| slot_bytes(self.bytes, way))
    }

    pub(super) fn way(&self) -> Option<Way> {
        self.way
    }

    pub(super) fn add(&mut self, place: usize, request: SendRequest) {
        let posts = &mut self.posts[place];
        if posts.is_empty() {
            self.waiting.push(place);
        }
        posts.push(request);
    }

    pub(super) fn give_back(&mut self, buffer: Option<Buffer>) {
        self.free.extend(buffer);
    }
}

impl Port {
    /// Puts a message in line for [`flush`](Self::flush). To a peer that is gone nothing is sent.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn send(
        &mut self,
        connection: usize,
        sequence: u64,
        kind: Kind,
        payload: &[u8],
    ) -> Result<()> {
        let slots = self.options.pending;
        let Some(way) = self.outgoing.way else {
            return Ok(());
        };
        if self.gone(connection).is_some() {
            return Ok(());
        }
        let Some(peer) = &self.peers[connection] else {
            return Ok(());
        };
        let trailer = Trailer::new(payload.len(), kind, sequence, slots);
        let guard = way.is_lossy().then_some(peer.guard);
        let tail = Tail::new(payload, trailer, guard);
        let tail = tail.as_slice();
        let length = payload.len() + tail.len();
        let slot = (sequence % slots as u64) as usize;
        let target = peer.memory.map(|memory| {
            let end = (slot + 1) * slot_bytes(self.outgoing.bytes, way);
            memory.offset(end - length)
        });
        let operation = match (way.via, target) {
            (Via::Write, Some(at)) => SendOperation::Write(at),
            (Via::WriteImmediate, Some(at)) => SendOperation::WriteWithImmediate(at, slot as u32),
            _ => SendOperation::Send,
        };
        let destination = match way.transport.is_connected() {
            true => None,
            false => peer.handle.clone(),
        };
        let payload = match length <= self.outgoing.inline_bytes_max {
            true => InlineBytes::joined(payload, tail).map_or(Payload::Empty, Payload::Inline),
            false => {
                let mut buffer = match self.outgoing.free.pop() {
                    Some(buffer) => buffer,
                    None => {
                        let most = slot_bytes(self.outgoing.bytes, way);
                        self.arena.allocate(most)?
                    }
                };
                buffer.write(0, payload);
                buffer.write(payload.len(), tail);
                self.context.charge(Work::Copy(length));
                Payload::Owned { buffer, length }
            }
        };
        let request = SendRequest {
            id: (connection as u64) << 32,
            operation,
            payload,
            destination,
        };
        let place = if way.transport.is_connected() {
            connection
        } else {
            0
        };
        self.outgoing.add(place, request);
        Ok(())
    }

    /// Puts a WRITE of no bytes in line, on a reliable connection: the peer's device answers it. Where there is none
    /// any more it fails, and the connection with it. A request that waits to be posted has the same effect.
    pub(crate) fn probe(&mut self, connection: usize) {
        if self.outgoing.posts[connection].is_empty() {
            let request = SendRequest {
                id: (connection as u64) << 32,
                operation: SendOperation::Write(NOWHERE),
                payload: Payload::Empty,
                destination: None,
            };
            self.outgoing.add(connection, request);
        }
    }

    /// Posts the requests in line, with one call for each queue pair. Those that do not fit stay.
    ///
    /// # Errors
    /// When a verb fails.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let mut at = 0;
        while let Some(&place) = self.outgoing.waiting.get(at) {
            let posts = &mut self.outgoing.posts[place];
            let datagrams = self
                .outgoing
                .way
                .is_some_and(|way| !way.transport.is_connected());
            let pair = match datagrams {
                true => self.datagram.as_ref(),
                false => self.connected.get(place),
            };
            match pair {
                Some(pair) if datagrams || self.gone[place].is_none() => pair.post_send(posts)?,
                _ => posts.drain(..).count(),
            };
            match posts.is_empty() {
                true => _ = self.outgoing.waiting.swap_remove(at),
                false => at += 1,
            }
        }
        Ok(())
    }
}

/// Bytes of a slot for payloads of at most so many bytes: whole cache lines, so that who looks at one is not disturbed
/// by who writes the next.
pub(super) fn slot_bytes(payload: usize, way: Way) -> usize {
    const CACHE_LINE_BYTES: usize = 64;
    (payload + crate::message::frame::overhead(way)).next_multiple_of(CACHE_LINE_BYTES)
}

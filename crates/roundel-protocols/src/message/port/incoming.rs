//! The receiving half of a port: messages that consumed receives, and those that were written into slots. Both are
//! copied out before they are looked at: a peer can write to its slots at any time.

use super::Port;
use super::outgoing::slot_bytes;
use crate::error::{Gone, Result};
use crate::message::frame::{self, Guard, Kind, TRAILER_BYTES, Trailer};
use crate::protocol::{Via, Way};
use roundel_verbs::{
    Buffer, Completion, CompletionStatus, ExposedBuffer, ReceiveRequest, RemoteAddress, Work,
};
use std::sync::atomic::Ordering;

/// Cycles for a look at a slot where nothing has come: its word is in the first cache.
const LOOK_CYCLES: u64 = 5;
/// Cycles for the first look at what a device has written: it is in the last cache.
const FOUND_CYCLES: u64 = 50;

/// Messages that came.
#[derive(Default)]
pub(crate) struct Arrivals {
    bytes: Vec<u8>,
    list: Vec<Arrival>,
}

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub connection: usize,
    /// Its number, as far as the wire has it.
    pub sequence: u32,
    pub kind: Kind,
    from: usize,
    length: usize,
}

impl Arrivals {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.list.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arrival, &[u8])> {
        let payload = |arrival: &Arrival| &self.bytes[arrival.from..arrival.from + arrival.length];
        self.list
            .iter()
            .map(move |arrival| (arrival, payload(arrival)))
    }

    fn add(&mut self, connection: usize, trailer: Trailer, from: usize) {
        self.list.push(Arrival {
            connection,
            sequence: trailer.sequence,
            kind: trailer.kind,
            from,
            length: trailer.length,
        });
    }
}

/// Receives and slots.
pub(crate) struct Incoming {
    way: Option<Way>,
    /// Most bytes of a payload.
    bytes: usize,
    slots: usize,
    /// Those of each connection, in one piece.
    memory: Vec<ExposedBuffer>,
    /// To be posted again, for each connection, or in the first place for all.
    receives: Vec<Vec<ReceiveRequest>>,
    /// Those that have any.
    waiting: Vec<usize>,
}

impl Incoming {
    pub(super) fn new(way: Option<Way>, bytes: usize, slots: usize) -> Self {
        Self {
            way,
            bytes,
            slots,
            memory: Vec::new(),
            receives: Vec::new(),
            waiting: Vec::new(),
        }
    }

    fn give_back(&mut self, id: u64, buffer: Option<Buffer>) {
        let place = id as usize;
        let receives = &mut self.receives[place];
        if receives.is_empty() {
            self.waiting.push(place);
        }
        receives.push(ReceiveRequest { id, buffer });
    }
}

impl Port {
    /// Exposes the slots that peers write to.
    pub(super) fn open_slots(&mut self) -> Result<()> {
        let Some(way) = self.incoming.way.filter(|way| way.goes_to_memory()) else {
            return Ok(());
        };
        let bytes = self.incoming.slots * slot_bytes(self.incoming.bytes, way);
        for _ in 0..self.peers.len() {
            let memory = self.arena.allocate_exposed(bytes)?;
            self.incoming.memory.push(memory);
        }
        Ok(())
    }

    pub(super) fn slots_of(&self, connection: usize) -> Option<RemoteAddress> {
        let memory = self.incoming.memory.get(connection);
        memory.map(ExposedBuffer::remote_address)
    }

    pub(super) fn post_first_receives(&mut self, depth: usize) -> Result<()> {
        let Some(way) = self.incoming.way else {
            return Ok(());
        };
        let places = match way.transport.is_connected() {
            true => self.peers.len(),
            false => 1,
        };
        let bytes = self.header_bytes(way) + self.incoming.bytes + frame::overhead(way);
        self.incoming.receives = (0..places).map(|_| Vec::new()).collect();
        for place in 0..places {
            for _ in 0..depth {
                let buffer = match way.via {
                    Via::Send => Some(self.arena.allocate(bytes)?),
                    _ => None,
                };
                self.incoming.give_back(place as u64, buffer);
            }
        }
        self.post_receives()
    }

    /// Bytes in front of a message in a receive.
    fn header_bytes(&self, way: Way) -> usize {
        match way.transport.is_connected() {
            true => 0,
            false => self.device.capabilities().grh_bytes,
        }
    }

    pub(super) fn post_receives(&mut self) -> Result<()> {
        while let Some(place) = self.incoming.waiting.pop() {
            let receives = &mut self.incoming.receives[place];
            let pair = match self
                .incoming
                .way
                .is_some_and(|way| way.transport.is_connected())
            {
                true => self.connected.get(place),
                false => self.datagram.as_ref(),
            };
            if let Some(pair) = pair {
                pair.post_receive(receives)?;
            }
            // There is room for as many as there are; those of a peer that is gone are not posted.
            receives.clear();
        }
        Ok(())
    }

    /// A receive has ended.
    pub(super) fn received(&mut self, completion: Completion, arrivals: &mut Arrivals) {
        let place = completion.id as usize;
        if completion.status != CompletionStatus::Success {
            let gone = Gone::status("receive", completion.status);
            self.failed(place, self.incoming.way, gone);
            return;
        }
        let Some(way) = self.incoming.way else { return };
        match (&completion.buffer, way.via) {
            (_, Via::WriteImmediate) => {
                let slot = completion.immediate.map(|slot| slot as usize);
                let known = slot.filter(|slot| completion.written && *slot < self.incoming.slots);
                if !known.is_some_and(|slot| self.take_slot(place, slot, None, arrivals)) {
                    self.malformed(place);
                }
            }
            (Some(buffer), _) => {
                let header = self.header_bytes(way);
                let from = arrivals.bytes.len();
                let length = completion.bytes.saturating_sub(header);
                buffer.read_append(header, length, &mut arrivals.bytes);
                self.context.charge(Work::Copy(length));
                match self.whole(place, &arrivals.bytes[from..], way) {
                    Some((connection, trailer)) => arrivals.add(connection, trailer, from),
                    None => {
                        arrivals.bytes.truncate(from);
                        if !way.is_lossy() {
                            self.malformed(place);
                        }
                    }
                }
            }
            (None, _) => {}
        }
        self.incoming.give_back(completion.id, completion.buffer);
    }

    fn malformed(&mut self, connection: usize) {
        self.give_up(connection, Gone("it sent what is no message".into()));
    }

    /// The connection of a message, and its trailer, if it is one. A message that may come from anybody is
    /// checked to be for this port.
    fn whole(&self, place: usize, message: &[u8], way: Way) -> Option<(usize, Trailer)> {
        let (trailer, named) = frame::open(message, way)?;
        let connection = match (named, way.transport.is_connected()) {
            (Some(named), false) => named as usize,
            _ => place,
        };
        if connection >= self.peers.len() || trailer.length > self.incoming.bytes {
            return None;
        }
        let whole = !way.is_lossy() || frame::is_whole(message, self.guard(connection));
        whole.then_some((connection, trailer))
    }

    fn guard(&self, connection: usize) -> Guard {
        Guard {
            connection: connection as u32,
            nonce: self.nonce,
        }
    }

    /// Whether messages are looked for in memory.
    pub(crate) fn looks_at_slots(&self) -> bool {
        self.incoming.way.is_some_and(|way| way.via == Via::Write)
    }

    /// Takes the message with this number from its slot, if it has come.
    pub(crate) fn look(
        &mut self,
        connection: usize,
        sequence: u64,
        arrivals: &mut Arrivals,
    ) -> bool {
        let slot = (sequence % self.incoming.slots as u64) as usize;
        self.take_slot(connection, slot, Some(sequence), arrivals)
    }

    /// Takes any message that is in a slot.
    pub(crate) fn look_at_slot(
        &mut self,
        connection: usize,
        slot: usize,
        arrivals: &mut Arrivals,
    ) -> bool {
        self.take_slot(connection, slot, None, arrivals)
    }

    fn take_slot(
        &mut self,
        connection: usize,
        slot: usize,
        wanted: Option<u64>,
        arrivals: &mut Arrivals,
    ) -> bool {
        self.context.charge(Work::Cycles(LOOK_CYCLES));
        let (Some(way), Some(memory)) = (self.incoming.way, self.incoming.memory.get(connection))
        else {
            return false;
        };
        let end = (slot + 1) * slot_bytes(self.incoming.bytes, way);
        let at = memory.word(end - TRAILER_BYTES);
        let word = at.load(Ordering::Acquire);
        let marked = match wanted {
            Some(sequence) => frame::is_marked(word, sequence, self.incoming.slots),
            None => frame::marker_of(word) != 0,
        };
        let Some(trailer) = Trailer::from_word(word).filter(|_| marked) else {
            return false;
        };
        if wanted.is_some_and(|sequence| !trailer.is_of(sequence, self.incoming.slots)) {
            return false;
        }
        if trailer.length > self.incoming.bytes {
            if !way.is_lossy() {
                self.malformed(connection);
            }
            return false;
        }
        let length = trailer.length + frame::overhead(way);
        let from = arrivals.bytes.len();
        memory.read_append(end - length, length, &mut arrivals.bytes);
        self.context.charge(Work::Cycles(FOUND_CYCLES));
        self.context.charge(Work::Copy(length));
        // On a reliable connection the marker says that all of it has come, and its sender keeps its hands off
        // until it is answered. Else a late copy of an older message may have come in between.
        if way.is_lossy() {
            let message = &arrivals.bytes[from..];
            let (trailer_read, _) = frame::open(message, way).unzip();
            let whole =
                trailer_read == Some(trailer) && frame::is_whole(message, self.guard(connection));
            if !whole {
                arrivals.bytes.truncate(from);
                return false;
            }
        }
        // One that came meanwhile, where an answered one was sent again, stays.
        let _ = at.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
        arrivals.add(connection, trailer, from);
        true
    }
}

//! What a peer's frames do here: requests are carried out, answers end requests. Everything in a
//! frame is checked here before it is used.
#![allow(unsafe_code)] // Reaches words of exposed memory.

use super::breaking::Break;
use super::reader::{Next, Sink};
use super::requests::Response;
use super::send_side::{Garbage, RETURNING_MAX, SendSide};
use super::{Receiving, StreamPair};
use crate::counters::Opcode;
use crate::memory::RemoteAddress;
use crate::provider::{RawCompletion, RawReceiveRequest};
use crate::tcp::frame::{Frame, Refusal};
use crate::work::{ATOMIC_BYTES, CompletionStatus, SendOperation};
use std::sync::atomic::{AtomicU64, Ordering};

/// What to do when a payload has come whole.
pub(super) enum Then {
    /// A message has arrived in a receive.
    Receive(Arrived),
    /// A WRITE has; it may have taken a receive.
    Write(Option<Arrived>),
    /// What a READ asked for has.
    Read,
}

/// A receive that was taken.
pub(super) struct Arrived {
    id: u64,
    bytes: usize,
    written: bool,
    immediate: Option<u32>,
}

impl Then {
    /// The receive that it holds.
    pub(super) fn receive(self) -> Option<u64> {
        match self {
            Self::Receive(arrived) | Self::Write(Some(arrived)) => Some(arrived.id),
            Self::Write(None) | Self::Read => None,
        }
    }
}

impl StreamPair {
    /// Does what the frames say that have been read.
    pub(super) fn take_frames(&self, receiving: &mut Receiving) -> Result<(), Garbage> {
        while let Some(next) = receiving.reader.next()? {
            match next {
                Next::Payload(then) => self.arrived(receiving, then)?,
                Next::Frame(frame) if self.is(super::READY) => self.frame(receiving, frame)?,
                Next::Frame(Frame::Gone) => self.send.lock().peer_gone = true,
                Next::Frame(frame) => receiving.reader.ignore(frame.payload()),
            }
        }
        Ok(())
    }

    fn arrived(&self, receiving: &mut Receiving, then: Then) -> Result<(), Garbage> {
        let arrived = match then {
            Then::Receive(arrived) => Some(arrived),
            Then::Write(arrived) => arrived,
            Then::Read => {
                let read = self.send.lock().finish_returning().ok_or(Garbage)?;
                let done = self.completion(&read, CompletionStatus::Success);
                receiving.completed.push(done);
                return Ok(());
            }
        };
        receiving.done += 1;
        if let Some(arrived) = arrived {
            self.counters.add(Opcode::Receive, arrived.bytes);
            receiving.received.push(RawCompletion {
                id: arrived.id,
                queue_pair: self.number,
                status: CompletionStatus::Success,
                opcode: Opcode::Receive,
                bytes: arrived.bytes,
                written: arrived.written,
                immediate: arrived.immediate,
                source_queue_pair: 0,
            });
        }
        Ok(())
    }

    fn frame(&self, receiving: &mut Receiving, frame: Frame) -> Result<(), Garbage> {
        if frame.payload() > self.device.capabilities.rc_message_bytes_max {
            return Err(Garbage);
        }
        match frame {
            Frame::Send { length, immediate } => self.send(receiving, length as usize, immediate),
            Frame::Write {
                at,
                length,
                immediate,
            } => self.write(receiving, at, length as usize, immediate),
            Frame::Read { at, length } => self.read_request(receiving, at, length as usize),
            Frame::CompareAndSwap { at, compare, swap } => self.atomic(receiving, at, |word| {
                match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(before) | Err(before) => before,
                }
            }),
            Frame::FetchAndAdd { at, add } => {
                self.atomic(receiving, at, |word| word.fetch_add(add, Ordering::SeqCst))
            }
            Frame::Acknowledge { done, posted } => {
                let mut send = self.send.lock();
                send.grant(posted);
                self.finish_before(receiving, &mut send, done)
            }
            Frame::ReadResponse { sequence, length } => {
                self.read_response(receiving, sequence, length as usize)
            }
            Frame::AtomicResponse { sequence, word } => {
                self.atomic_response(receiving, sequence, word)
            }
            Frame::Refuse { sequence, refusal } => {
                let mut send = self.send.lock();
                self.finish_before(receiving, &mut send, sequence)?;
                if !self.reliable || !send.is_begun(sequence) {
                    return Err(Garbage);
                }
                drop(send);
                self.break_with(receiving, Break::request(refusal.status()));
                Ok(())
            }
            Frame::Gone => {
                self.peer_gone(receiving);
                Ok(())
            }
        }
    }

    /// The peer's queue pair is not ready any more. Requests under way fail now. Without any, the
    /// next request does.
    pub(super) fn peer_gone(&self, receiving: &mut Receiving) {
        let mut send = self.send.lock();
        send.peer_gone = true;
        let waits = !send.requests.is_empty();
        drop(send);
        match (self.reliable, waits) {
            (true, true) => {
                let cause = Break::request(CompletionStatus::RetryExceeded);
                self.break_with(receiving, cause);
            }
            (true, false) => {}
            (false, _) => self.drop_requests(),
        }
    }

    fn finish_before(
        &self,
        receiving: &mut Receiving,
        send: &mut SendSide,
        sequence: u64,
    ) -> Result<(), Garbage> {
        if !self.reliable {
            return Ok(());
        }
        send.finish_before(sequence, |request| {
            let done = self.completion(&request, CompletionStatus::Success);
            receiving.completed.push(done);
        })
    }

    fn take_receive(&self) -> Option<RawReceiveRequest> {
        let mut posted = self.posted.lock();
        let request = posted.requests.pop_front()?;
        posted.taken += 1;
        Some(request)
    }

    /// A message or a WRITE that finds no receive: a reliable peer knew that there is none.
    fn no_receive(&self, receiving: &mut Receiving, length: usize) -> Result<(), Garbage> {
        if self.reliable {
            return Err(Garbage);
        }
        receiving.reader.ignore(length);
        Ok(())
    }

    fn send(
        &self,
        receiving: &mut Receiving,
        length: usize,
        immediate: Option<u32>,
    ) -> Result<(), Garbage> {
        let Some(receive) = self.take_receive() else {
            return self.no_receive(receiving, length);
        };
        let failed = match self.device.memory.local(&receive.local) {
            None => (CompletionStatus::LocalProtection, Refusal::Operation),
            Some(_) if receive.local.length < length => {
                (CompletionStatus::LocalLength, Refusal::Invalid)
            }
            Some(at) => {
                let arrived = Arrived {
                    id: receive.id,
                    bytes: length,
                    written: false,
                    immediate,
                };
                // The memory is this connection's until the receive is completed or flushed.
                let sink = Sink::plain(at, length, Then::Receive(arrived));
                receiving.reader.deliver(sink);
                return Ok(());
            }
        };
        let (status, refusal) = failed;
        receiving.reader.ignore(length);
        receiving
            .received
            .push(self.failed_receive(receive.id, status));
        if self.reliable {
            self.break_with(receiving, Break::of_peer(refusal));
        } else {
            self.break_with(receiving, Break::OWN);
        }
        Ok(())
    }

    fn write(
        &self,
        receiving: &mut Receiving,
        at: RemoteAddress,
        length: usize,
        immediate: Option<u32>,
    ) -> Result<(), Garbage> {
        let target = self.device.memory.exposed(at, length);
        let Some((address, pages)) = target else {
            return self.refuse_access(receiving, length);
        };
        let mut arrived = None;
        if immediate.is_some() {
            let Some(receive) = self.take_receive() else {
                return self.no_receive(receiving, length);
            };
            arrived = Some(Arrived {
                id: receive.id,
                bytes: length,
                written: true,
                immediate,
            });
        }
        let sink = Sink::exposed(address, length, pages, Then::Write(arrived));
        receiving.reader.deliver(sink);
        Ok(())
    }

    /// The key, the range or the rights do not allow the access.
    fn refuse_access(&self, receiving: &mut Receiving, length: usize) -> Result<(), Garbage> {
        receiving.reader.ignore(length);
        if self.reliable {
            self.break_with(receiving, Break::of_peer(Refusal::Access));
        }
        Ok(())
    }

    fn read_request(
        &self,
        receiving: &mut Receiving,
        at: RemoteAddress,
        length: usize,
    ) -> Result<(), Garbage> {
        if length > self.device.capabilities.rc_message_bytes_max {
            return Err(Garbage);
        }
        let source = self.device.memory.exposed(at, length);
        let Some((address, pages)) = source else {
            return self.refuse_access(receiving, 0);
        };
        self.answer(
            receiving,
            Response::Read {
                sequence: receiving.done,
                address: address as usize,
                length,
                _pages: pages,
            },
        )
    }

    fn atomic(
        &self,
        receiving: &mut Receiving,
        at: RemoteAddress,
        change: impl FnOnce(&AtomicU64) -> u64,
    ) -> Result<(), Garbage> {
        let word = self.device.memory.exposed(at, ATOMIC_BYTES);
        let Some((address, _pages)) = word.filter(|_| at.address.is_multiple_of(8)) else {
            return self.refuse_access(receiving, 0);
        };
        // SAFETY: inside mapped pages, which `_pages` keeps, and aligned: remote addresses are
        // those of this process. Exposed words are reached through atomics only.
        let word = change(unsafe { AtomicU64::from_ptr(address.cast()) });
        self.answer(
            receiving,
            Response::Atomic {
                sequence: receiving.done,
                word,
            },
        )
    }

    /// Queues the answer to a request of the peer, which says that the request is done.
    fn answer(&self, receiving: &mut Receiving, response: Response) -> Result<(), Garbage> {
        let mut send = self.send.lock();
        if !self.reliable || send.answering() >= RETURNING_MAX {
            return Err(Garbage);
        }
        send.acknowledge(receiving.done);
        receiving.done += 1;
        send.answer(response, receiving.done);
        Ok(())
    }

    fn read_response(
        &self,
        receiving: &mut Receiving,
        sequence: u64,
        length: usize,
    ) -> Result<(), Garbage> {
        let mut send = self.send.lock();
        self.finish_before(receiving, &mut send, sequence)?;
        let request = send.returning(sequence)?;
        if !matches!(request.operation, SendOperation::Read(_)) || request.length != length {
            return Err(Garbage);
        }
        // The memory is the request's until it is completed or flushed, which ends this payload.
        let sink = Sink::plain(request.address as *mut u8, length, Then::Read);
        receiving.reader.deliver(sink);
        Ok(())
    }

    fn atomic_response(
        &self,
        receiving: &mut Receiving,
        sequence: u64,
        word: u64,
    ) -> Result<(), Garbage> {
        let mut send = self.send.lock();
        self.finish_before(receiving, &mut send, sequence)?;
        let request = send.returning(sequence)?;
        if request.operation.atomic_word().is_none() || request.length != ATOMIC_BYTES {
            return Err(Garbage);
        }
        // SAFETY: eight bytes of local memory that are the request's until it is completed.
        unsafe { (request.address as *mut u64).write_unaligned(word) };
        let request = send.finish_returning().ok_or(Garbage)?;
        let done = self.completion(&request, CompletionStatus::Success);
        receiving.completed.push(done);
        Ok(())
    }
}

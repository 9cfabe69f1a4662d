//! Datagram queue pairs (UD): a UDP socket each, whose port is the queue pair's number.
#![allow(unsafe_code)] // Moves datagrams between sockets and registered memory.

mod header;
mod verbs;

use super::address::TcpAddress;
use super::completion_queue::{TcpCompletionQueue, queue_of_this_provider};
use super::events::{News, Source};
use super::socket::{self, Destination};
use super::state::DeviceState;
use crate::address::QueuePairAddress;
use crate::capabilities::GRH_BYTES;
use crate::counters::{Counters, Opcode};
use crate::error::{Result, VerbsError};
use crate::provider::{
    ProviderAddressHandle, RawCompletion, RawQueuePairOptions, RawReceiveRequest, RawSendRequest,
};
use crate::work::{CompletionStatus, InlineBytes, SendOperation};
use header::{HEADER_BYTES, Header};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

const INIT: u8 = 0;
const READY: u8 = 1;
const ERROR: u8 = 2;

/// Datagrams read before others have their turn.
const READS_AT_A_TIME: usize = 256;

/// Datagrams dropped at a time: those that come faster are taken for new ones.
const DROPS_AT_A_TIME: usize = 100_000;

/// A resolved destination.
pub(super) struct TcpAddressHandle {
    to: Destination,
    number: u32,
    incarnation: u32,
    queue_key: u32,
}

impl TcpAddressHandle {
    /// The destination of a queue pair's address, for sockets of a device.
    pub(super) fn resolve(device: &DeviceState, remote: &QueuePairAddress) -> Result<Self> {
        let address = TcpAddress::decode(&remote.device)?;
        let own = device.address.listener;
        if own.is_ipv4() != address.listener.is_ipv4() {
            return Err(VerbsError::PeerUnreachable {
                peer: address.listener.ip().to_string(),
                reason: format!(
                    "this device is at {}: datagrams stay among IPv4 or IPv6 addresses",
                    own.ip()
                ),
            });
        }
        // The queue pair of another number has no datagrams: those to it go nowhere, as on devices.
        let port = u16::try_from(remote.number).unwrap_or(0);
        Ok(Self {
            to: Destination::from(SocketAddr::new(address.listener.ip(), port)),
            number: remote.number,
            incarnation: remote.incarnation,
            queue_key: remote.queue_key,
        })
    }
}

impl ProviderAddressHandle for TcpAddressHandle {}

pub(super) struct DatagramPair {
    device: Arc<DeviceState>,
    socket: OwnedFd,
    token: OnceLock<u64>,
    number: u32,
    incarnation: u32,
    queue_key: u32,
    send_queue: Arc<TcpCompletionQueue>,
    receive_queue: Arc<TcpCompletionQueue>,
    receive_depth: usize,
    state: AtomicU8,
    receives: Mutex<Receives>,
    sends: Mutex<Sends>,
    counters: Counters,
}

#[derive(Default)]
struct Receives {
    requests: VecDeque<RawReceiveRequest>,
    completed: Vec<RawCompletion>,
    /// The queue pair is broken: posted requests are flushed.
    broken: bool,
}

#[derive(Default)]
struct Sends {
    /// The socket tells when it has room again.
    blocked: bool,
    /// Datagrams that the socket had no room for.
    waiting: VecDeque<Waiting>,
    completed: Vec<RawCompletion>,
    broken: bool,
}

/// A datagram that is to be sent.
struct Waiting {
    id: u64,
    header: [u8; HEADER_BYTES],
    inline: Option<InlineBytes>,
    address: usize,
    length: usize,
    /// The request's, which keeps it until it is completed.
    to: Destination,
}

impl DatagramPair {
    pub(super) fn create(
        device: &Arc<DeviceState>,
        options: RawQueuePairOptions,
    ) -> Result<Arc<Self>> {
        let send_queue = queue_of_this_provider(options.send_queue)?;
        let receive_queue = queue_of_this_provider(options.receive_queue)?;
        let (socket, at) = socket::datagrams(device.address.listener.ip())?;
        let number = u32::from(at.port());
        let pair = Arc::new(Self {
            device: device.clone(),
            socket,
            token: OnceLock::new(),
            number,
            incarnation: device.new_incarnation(),
            queue_key: options.queue_key,
            send_queue,
            receive_queue,
            receive_depth: options.receive_depth.max(1),
            state: AtomicU8::new(INIT),
            receives: Mutex::default(),
            sends: Mutex::default(),
            counters: Counters::default(),
        });
        let me = Arc::downgrade(&pair);
        let source = Source::of(me.clone(), |pair, _, news| pair.ready(news));
        let token = device.events.watch_datagrams(&pair.socket, source)?;
        let _ = pair.token.set(token);
        device.datagrams.write().insert(number, me);
        Ok(pair)
    }

    fn is(&self, state: u8) -> bool {
        self.state.load(Ordering::Acquire) == state
    }

    fn token(&self) -> u64 {
        *self.token.get().unwrap_or(&0)
    }

    fn send_completion(&self, id: u64, status: CompletionStatus, bytes: usize) -> RawCompletion {
        if status == CompletionStatus::Success {
            self.counters.add(Opcode::Send, bytes);
        }
        RawCompletion {
            id,
            queue_pair: self.number,
            status,
            opcode: Opcode::Send,
            bytes,
            written: false,
            immediate: None,
            source_queue_pair: 0,
        }
    }

    fn failed_receive(&self, id: u64, status: CompletionStatus) -> RawCompletion {
        RawCompletion {
            opcode: Opcode::Receive,
            ..self.send_completion(id, status, 0)
        }
    }

    /// Goes to the error state: posted requests are flushed.
    fn break_off(&self) {
        self.break_with(&mut self.receives.lock());
    }

    fn break_with(&self, receives: &mut Receives) {
        if self.is(ERROR) {
            return;
        }
        self.state.store(ERROR, Ordering::Release);
        receives.broken = true;
        let Receives {
            requests,
            completed,
            ..
        } = receives;
        let flushed = CompletionStatus::Flushed;
        completed.extend(
            requests
                .drain(..)
                .map(|request| self.failed_receive(request.id, flushed)),
        );
        self.receive_queue.push(completed);
        let mut sends = self.sends.lock();
        sends.broken = true;
        let Sends {
            waiting, completed, ..
        } = &mut *sends;
        completed.extend(
            waiting
                .drain(..)
                .map(|one| self.send_completion(one.id, flushed, one.length)),
        );
        self.send_queue.push(completed);
    }

    /// Something happened on the socket.
    fn ready(&self, news: News) {
        if news.writable {
            let mut sends = self.sends.lock();
            if std::mem::take(&mut sends.blocked) {
                self.device
                    .events
                    .watch_room(&self.socket, self.token(), false);
                self.send_waiting(&mut sends);
            }
        }
        self.read();
    }

    /// Sends what waits, as far as the socket has room.
    fn send_waiting(&self, sends: &mut Sends) {
        while let Some(one) = sends.waiting.front()
            && !sends.blocked
        {
            let payload = match &one.inline {
                Some(bytes) => bytes.as_slice().as_ptr(),
                None => one.address as *const u8,
            };
            let ranges = [
                socket::range(one.header.as_ptr(), HEADER_BYTES),
                socket::range(payload, one.length),
            ];
            // SAFETY: the header and inline bytes are in the queue; other memory is the request's
            // until it is completed, which is below.
            match unsafe { socket::send_to(&self.socket, &ranges, &one.to) } {
                Err(Errno::AGAIN) => {
                    sends.blocked = true;
                    self.device
                        .events
                        .watch_room(&self.socket, self.token(), true);
                    break;
                }
                Ok(_) => {}
                // Such a datagram is lost, as one that the network loses.
                Err(errno) => tracing::debug!(%errno, "a datagram was not sent"),
            }
            let done = self.send_completion(one.id, CompletionStatus::Success, one.length);
            sends.completed.push(done);
            sends.waiting.pop_front();
        }
        self.send_queue.push(&mut sends.completed);
    }

    /// Reads all datagrams that are there. A datagram that finds no receive is dropped.
    fn read(&self) {
        let mut receives = self.receives.lock();
        let mut left = READS_AT_A_TIME;
        while left > 0 && self.read_one(&mut receives) {
            left -= 1;
        }
        self.receive_queue.push(&mut receives.completed);
        drop(receives);
        if left == 0 {
            self.device.events.again(self.token());
        }
    }

    /// Reads one datagram into the first receive; false when there is none.
    fn read_one(&self, receives: &mut Receives) -> bool {
        let mut header = [0; HEADER_BYTES];
        let Some(receive) = receives.requests.front().map(|request| request.local) else {
            let header = socket::range(header.as_mut_ptr(), HEADER_BYTES);
            // SAFETY: the range is the array; the system leaves the rest of the datagram out.
            return unsafe { socket::receive(&self.socket, &[header]) }.is_ok();
        };
        let Some(at) = self.device.memory.local(&receive) else {
            if let Some(request) = receives.requests.pop_front() {
                let status = CompletionStatus::LocalProtection;
                let failed = self.failed_receive(request.id, status);
                receives.completed.push(failed);
            }
            self.break_with(receives);
            return true;
        };
        let room = receive.length.saturating_sub(GRH_BYTES);
        // One byte more than fits: a datagram that fills it is too long.
        let mut excess = [0u8; 1];
        let ranges = [
            socket::range(header.as_mut_ptr(), HEADER_BYTES),
            socket::range(at.wrapping_add(GRH_BYTES), room),
            socket::range(excess.as_mut_ptr(), 1),
        ];
        // SAFETY: the arrays, and the part of the posted receive behind the routing header, if
        // there is one; the receive is this queue pair's while the lock is held.
        let count = match unsafe { socket::receive(&self.socket, &ranges) } {
            Ok(count) => count,
            Err(_) => return false,
        };
        let Some(payload) = count.checked_sub(HEADER_BYTES) else {
            return true;
        };
        let header = Header::decode(&header).filter(|header| {
            header.number == self.number
                && header.incarnation == self.incarnation
                && header.queue_key == self.queue_key
        });
        let fits = payload <= room && receive.length >= GRH_BYTES;
        if let Some(header) = header
            && fits
            && self.is(READY)
            && let Some(request) = receives.requests.pop_front()
        {
            // SAFETY: the receive has room for the routing header, and is still ours.
            unsafe { std::ptr::write_bytes(at, 0, GRH_BYTES) };
            let bytes = GRH_BYTES + payload;
            self.counters.add(Opcode::Receive, bytes);
            receives.completed.push(RawCompletion {
                status: CompletionStatus::Success,
                bytes,
                immediate: header.immediate,
                source_queue_pair: header.source,
                ..self.failed_receive(request.id, CompletionStatus::Flushed)
            });
        }
        true
    }
}

impl DatagramPair {
    /// Drops what has arrived and found no receive, or no queue pair that was ready.
    fn drop_early(&self, receives: &mut Receives) {
        debug_assert!(
            receives.requests.is_empty() || self.is(INIT),
            "none is lost"
        );
        let mut header = [0; HEADER_BYTES];
        let header = socket::range(header.as_mut_ptr(), HEADER_BYTES);
        for _ in 0..DROPS_AT_A_TIME {
            // SAFETY: the range is the array; the system leaves the rest of the datagram out.
            if unsafe { socket::receive(&self.socket, &[header]) }.is_err() {
                return;
            }
        }
    }

    /// A request as it waits; `None` when its memory is not registered.
    fn waiting(&self, request: &RawSendRequest) -> Option<Waiting> {
        let address = self.device.memory.local(&request.local)? as usize;
        let any: &dyn std::any::Any = &**request.destination.as_ref()?;
        let handle = any.downcast_ref::<TcpAddressHandle>()?;
        let immediate = match request.operation {
            SendOperation::SendWithImmediate(immediate) => Some(immediate),
            _ => None,
        };
        let header = Header {
            number: handle.number,
            incarnation: handle.incarnation,
            queue_key: handle.queue_key,
            source: self.number,
            immediate,
        };
        Some(Waiting {
            id: request.id,
            header: header.encode(),
            inline: request.inline,
            address,
            length: request
                .inline
                .as_ref()
                .map_or(request.local.length, |bytes| bytes.as_slice().len()),
            to: handle.to,
        })
    }
}

//! The send queue of a queue pair: each request is carried out by the thread that posts it, or,
//! when the receiver was not ready, by a later poll.
#![allow(unsafe_code)] // Copies messages between the mappings of two devices.

use super::connected_ring::{self, Completed, Posted};
use super::datagram_ring;
use super::device::DeviceState;
use super::layout::{
    HAS_IMMEDIATE, PAIR_ERROR, PAIR_INIT, PAIR_READY, PairEntry, SlotEntry, TOO_LONG, WRITTEN, life,
};

use super::peer::Peer;
use super::segment::split_remote_key;
use super::sync::Ordering;
use crate::capabilities::GRH_BYTES;
use crate::memory::{RemoteAddress, copy_last_byte_last, copy_words_whole};
use crate::provider::{ProviderAddressHandle, RawLocal, RawSendRequest};
use crate::work::CompletionStatus::{
    LocalProtection, RemoteAccess, RemoteInvalidRequest, RetryExceeded, Success,
};
use crate::work::{ATOMIC_BYTES, CompletionStatus, InlineBytes, SendOperation};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// The queue pair at the other end of a connection.
pub(super) struct Remote {
    /// Whether what goes wrong here breaks both ends.
    pub reliable: bool,
    pub peer: Arc<Peer>,
    pub number: u32,
    pub incarnation: u32,
    /// How the peer's entry must name this side.
    pub identity: u64,
}

impl Remote {
    pub(super) fn pair(&self) -> Option<&PairEntry> {
        self.peer.mapping.pair(self.number as usize)
    }

    /// Wakes the peer's sends that wait for a receive here, or that will wait in vain.
    pub(super) fn kick_sends(&self) {
        if let Some(pair) = self.pair() {
            self.peer.kick(pair.send_queue.load(Ordering::Relaxed));
        }
    }
}

/// A queue pair's number and incarnation in one word.
pub(super) fn identity(number: u32, incarnation: u32) -> u64 {
    u64::from(incarnation) << 32 | u64::from(number)
}

/// A UD destination.
pub(super) struct ShmAddressHandle {
    pub peer: Arc<Peer>,
    pub number: u32,
    pub incarnation: u32,
    pub queue_key: u32,
}

impl ProviderAddressHandle for ShmAddressHandle {}

/// A request as far as it still has to be carried out; where datagrams go is not part of it.
#[derive(Clone)]
pub(super) struct Transfer {
    pub id: u64,
    pub operation: SendOperation,
    pub inline: Option<InlineBytes>,
    pub local: RawLocal,
}

impl From<&RawSendRequest> for Transfer {
    fn from(request: &RawSendRequest) -> Self {
        Self {
            id: request.id,
            operation: request.operation,
            inline: request.inline,
            local: request.local,
        }
    }
}

/// What came of trying.
pub(super) enum Outcome {
    Done(CompletionStatus),
    /// The receiver has no receive posted, or is not connected yet; it has been told to wake us.
    NotReady,
}

/// What this side knows of its operations on the peer: the truth, while the words in shared
/// memory are for the peer, who may spoil them.
#[derive(Default)]
pub(super) struct Progress {
    /// The peer's receives used so far.
    taken: u64,
    /// Operations on the peer's memory so far.
    visits: u64,
}

impl Transfer {
    pub(super) fn bytes(&self) -> usize {
        match &self.inline {
            Some(inline) => inline.as_slice().len(),
            None => self.local.length,
        }
    }

    /// The bytes to send: an address that is readable for `bytes()`; `None` when the local key
    /// does not cover the range.
    fn source(&self, device: &DeviceState) -> Option<*const u8> {
        match &self.inline {
            Some(inline) => Some(inline.as_slice().as_ptr()),
            None if self.local.length == 0 => Some(std::ptr::NonNull::<u8>::dangling().as_ptr()),
            None => device.local_memory(&self.local).map(<*mut u8>::cast_const),
        }
    }

    /// Carries the request out on a connection; `own` is this side's entry.
    pub(super) fn over_connection(
        &self,
        device: &DeviceState,
        own: &PairEntry,
        remote: &Remote,
        progress: &mut Progress,
    ) -> Outcome {
        let outcome = visit(own, remote, progress, |pair, taken| {
            self.inside(device, remote, pair, taken)
        });
        if let Outcome::Done(Success) = outcome
            && self.consumes_receive()
            && let Some(pair) = remote.pair()
        {
            remote.peer.kick(pair.receive_queue.load(Ordering::Relaxed));
        }
        outcome
    }

    fn consumes_receive(&self) -> bool {
        matches!(
            self.operation,
            SendOperation::Send
                | SendOperation::SendWithImmediate(_)
                | SendOperation::WriteWithImmediate(..)
        )
    }

    fn inside(
        &self,
        device: &DeviceState,
        remote: &Remote,
        pair: &PairEntry,
        taken: &mut u64,
    ) -> Outcome {
        let Some(source) = self.source(device) else {
            return Outcome::Done(LocalProtection);
        };
        let bytes = self.bytes();
        match self.operation {
            SendOperation::Read(from) => {
                let Some(from) = exposed(&remote.peer, from, bytes) else {
                    return Outcome::Done(RemoteAccess);
                };
                let Some(to) = device.local_memory(&self.local) else {
                    return Outcome::Done(LocalProtection);
                };
                // SAFETY: both ranges were checked against their mappings; a buffer that can be
                // posted never overlaps exposed memory.
                unsafe { copy_words_whole(from, to, bytes) };
                Outcome::Done(Success)
            }
            SendOperation::CompareAndSwap { at, .. } | SendOperation::FetchAndAdd { at, .. } => {
                let Some(word) = exposed(&remote.peer, at, ATOMIC_BYTES) else {
                    return Outcome::Done(RemoteAccess);
                };
                let Some(to) = device.local_memory(&self.local) else {
                    return Outcome::Done(LocalProtection);
                };
                // SAFETY: the word lies in the peer's exposed memory (checked), is aligned (the
                // object model checks the address, segments begin at pages), and everybody
                // reaches exposed memory through atomics only.
                let word = unsafe { AtomicU64::from_ptr(word.cast()) };
                let before = match self.operation {
                    SendOperation::CompareAndSwap { compare, swap, .. } => word
                        .compare_exchange(compare, swap, SeqCst, SeqCst)
                        .unwrap_or_else(|before| before),
                    SendOperation::FetchAndAdd { add, .. } => word.fetch_add(add, SeqCst),
                    _ => return Outcome::Done(LocalProtection),
                };
                // SAFETY: `local_memory` checked the range, which the object model made as long
                // as the word; a posted buffer is this request's alone.
                unsafe { to.cast::<u64>().write_unaligned(before) };
                Outcome::Done(Success)
            }
            // Like a device: an operation that moves no byte is not checked.
            SendOperation::Write(_) if bytes == 0 => Outcome::Done(Success),
            SendOperation::Write(to) => match exposed(&remote.peer, to, bytes) {
                None => Outcome::Done(RemoteAccess),
                Some(to) => {
                    // SAFETY: both ranges were checked; exposed memory never overlaps a buffer
                    // that can be posted.
                    unsafe { copy_last_byte_last(source, to, bytes) };
                    Outcome::Done(Success)
                }
            },
            SendOperation::WriteWithImmediate(to, immediate) => {
                let Some(slots) = ring(remote, pair) else {
                    return Outcome::Done(RetryExceeded);
                };
                if receive(pair, slots, *taken).is_none() {
                    return Outcome::NotReady;
                }
                let Some(to) = exposed(&remote.peer, to, bytes) else {
                    return Outcome::Done(RemoteAccess);
                };
                // SAFETY: as for WRITE.
                unsafe { copy_last_byte_last(source, to, bytes) };
                let completed = Completed {
                    bytes: bytes as u32,
                    immediate,
                    flags: HAS_IMMEDIATE | WRITTEN,
                    source_pair: 0,
                };
                connected_ring::complete(pair, slots, *taken, completed);
                *taken += 1;
                Outcome::Done(Success)
            }
            SendOperation::Send | SendOperation::SendWithImmediate(_) => {
                let Some(slots) = ring(remote, pair) else {
                    return Outcome::Done(RetryExceeded);
                };
                let Some(posted) = receive(pair, slots, *taken) else {
                    return Outcome::NotReady;
                };
                let (immediate, flags) = self.immediate();
                let mut completed = Completed {
                    bytes: bytes as u32,
                    immediate,
                    flags,
                    source_pair: 0,
                };
                let mut status = Success;
                if bytes > posted.length as usize {
                    completed.bytes = 0;
                    completed.flags |= TOO_LONG;
                    status = RemoteInvalidRequest;
                } else if bytes > 0 {
                    let Some(to) = remote.peer.mapping.segment_range(posted.at, bytes) else {
                        return Outcome::Done(RetryExceeded);
                    };
                    // SAFETY: the source was checked; the target lies in the peer's segments, is
                    // `posted.length` ≥ `bytes` long, and is ours to fill until `complete`. A
                    // peer that lies about it may make them overlap, which `copy` allows.
                    unsafe { std::ptr::copy(source, to, bytes) };
                }
                connected_ring::complete(pair, slots, *taken, completed);
                *taken += 1;
                Outcome::Done(status)
            }
        }
    }

    /// Carries a datagram out. One that cannot be delivered is dropped, which is a success.
    pub(super) fn as_datagram(
        &self,
        device: &DeviceState,
        handle: &ShmAddressHandle,
        source_pair: u32,
    ) -> CompletionStatus {
        let Some(source) = self.source(device) else {
            return LocalProtection;
        };
        let peer = &handle.peer;
        let Some(pair) = peer.mapping.pair(handle.number as usize) else {
            return Success;
        };
        if peer.is_dead()
            || pair.life.load(Ordering::Acquire) != life(handle.incarnation, PAIR_READY)
            || pair.queue_key.load(Ordering::Relaxed) != handle.queue_key
        {
            return Success;
        }
        let Some(slots) = peer.mapping.slots(
            pair.ring_at.load(Ordering::Relaxed),
            pair.ring_slots.load(Ordering::Relaxed),
        ) else {
            return Success;
        };
        let Some((sequence, posted)) =
            datagram_ring::claim(pair, slots, handle.incarnation, peer.token)
        else {
            return Success;
        };
        let bytes = self.bytes();
        let total = GRH_BYTES + bytes;
        let (immediate, flags) = self.immediate();
        let mut completed = Completed {
            bytes: total as u32,
            immediate,
            flags,
            source_pair,
        };
        match peer.mapping.segment_range(posted.at, total) {
            Some(to) if total <= posted.length as usize => {
                // SAFETY: the target lies in the peer's segments, is at least `total` long and
                // ours to fill until `complete`; the source was checked. A peer that lies about
                // its receive may make them overlap, which `copy` allows.
                unsafe {
                    std::ptr::write_bytes(to, 0, GRH_BYTES);
                    std::ptr::copy(source, to.add(GRH_BYTES), bytes);
                }
            }
            _ => {
                completed.bytes = 0;
                completed.flags |= TOO_LONG;
            }
        }
        datagram_ring::complete(slots, handle.incarnation, sequence, completed);
        peer.kick(pair.receive_queue.load(Ordering::Relaxed));
        Success
    }

    fn immediate(&self) -> (u32, u32) {
        match self.operation {
            SendOperation::SendWithImmediate(immediate) => (immediate, HAS_IMMEDIATE),
            _ => (0, 0),
        }
    }
}

/// Copies from the peer's exposed memory, as a READ would that overtakes everything posted.
pub(super) fn read_at_once(
    own: &PairEntry,
    remote: &Remote,
    progress: &mut Progress,
    from: RemoteAddress,
    target: &mut [MaybeUninit<u8>],
) -> Outcome {
    visit(own, remote, progress, |_, _| {
        let Some(from) = exposed(&remote.peer, from, target.len()) else {
            return Outcome::Done(RemoteAccess);
        };
        // SAFETY: the source was checked against the peer's mapping, the target is this thread's own
        // and no part of a device's memory. Words that a peer writes meanwhile may come out torn.
        unsafe { copy_words_whole(from, target.as_mut_ptr().cast(), target.len()) };
        Outcome::Done(Success)
    })
}

/// Carries WRITEs out, one after the other, up to the first that fails; returns how many. The caller
/// carries that one out by itself, to find out what becomes of it.
pub(super) fn write_all(
    device: &DeviceState,
    own: &PairEntry,
    remote: &Remote,
    progress: &mut Progress,
    requests: &[RawSendRequest],
) -> usize {
    let mut written = 0;
    visit(own, remote, progress, |_, _| {
        let writes = requests
            .iter()
            .take_while(|request| write(device, remote, request));
        written = writes.count();
        Outcome::Done(Success)
    });
    written
}

/// Carries a WRITE out; false when it cannot be.
fn write(device: &DeviceState, remote: &Remote, request: &RawSendRequest) -> bool {
    let bytes = bytes_of(request);
    let source = match &request.inline {
        Some(inline) => Some(inline.as_slice().as_ptr()),
        None => device
            .local_memory(&request.local)
            .map(<*mut u8>::cast_const),
    };
    let target = match request.operation {
        SendOperation::Write(to) => exposed(&remote.peer, to, bytes),
        _ => None,
    };
    match (source, target) {
        (Some(source), Some(target)) if bytes > 0 => {
            // SAFETY: both ranges were checked; exposed memory never overlaps a buffer that can be posted.
            unsafe { copy_last_byte_last(source, target, bytes) };
            true
        }
        _ => false,
    }
}

/// Payload bytes of a request.
pub(super) fn bytes_of(request: &RawSendRequest) -> usize {
    match &request.inline {
        Some(inline) => inline.as_slice().len(),
        None => request.local.length,
    }
}

/// Does something with the peer's memory, and with its queue pair and the count of its receives that were
/// used: between entering and leaving, which its device waits for before it takes the memory away.
fn visit(
    own: &PairEntry,
    remote: &Remote,
    progress: &mut Progress,
    inside: impl FnOnce(&PairEntry, &mut u64) -> Outcome,
) -> Outcome {
    let Some(pair) = remote.pair() else {
        return Outcome::Done(RetryExceeded);
    };
    if remote.peer.is_dead() {
        return Outcome::Done(RetryExceeded);
    }
    let Some(visit) = enter(own, remote, pair, &mut progress.visits) else {
        let not_connected = life(remote.incarnation, PAIR_INIT);
        return if pair.life.load(Ordering::Acquire) == not_connected {
            Outcome::NotReady
        } else {
            Outcome::Done(RetryExceeded)
        };
    };
    let outcome = if pair.peer_pair.load(Ordering::Relaxed) == remote.identity {
        inside(pair, &mut progress.taken)
    } else {
        Outcome::Done(RetryExceeded)
    };
    connected_ring::leave(own, visit);
    match outcome {
        // Dropped there, and nobody hears of it.
        Outcome::Done(RemoteAccess) if !remote.reliable => {}
        Outcome::Done(RemoteAccess | RemoteInvalidRequest) => {
            // The responder's queue pair breaks too, and a thread that waits for it is woken.
            let _ = pair.life.compare_exchange(
                life(remote.incarnation, PAIR_READY),
                life(remote.incarnation, PAIR_ERROR),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            remote.peer.kick(pair.receive_queue.load(Ordering::Relaxed));
            remote.peer.kick(pair.send_queue.load(Ordering::Relaxed));
        }
        _ => {}
    }
    outcome
}

/// Begins an operation on the peer's memory; `None` when its queue pair is not ready. When it is
/// only not connected yet, it will wake this side's sends.
fn enter(own: &PairEntry, remote: &Remote, pair: &PairEntry, visits: &mut u64) -> Option<u64> {
    let mut attempt = || {
        let visit = *visits;
        *visits += 1;
        connected_ring::enter(own, visit, pair, remote.incarnation).then_some(visit)
    };
    attempt().or_else(|| {
        connected_ring::announce_waiting(pair);
        attempt()
    })
}

/// The receive to use, or a flag for the owner that it is waited for.
fn receive(pair: &PairEntry, slots: &[SlotEntry], taken: u64) -> Option<Posted> {
    connected_ring::next(pair, slots, taken).or_else(|| {
        connected_ring::announce_waiting(pair);
        connected_ring::next(pair, slots, taken)
    })
}

fn ring<'a>(remote: &'a Remote, pair: &PairEntry) -> Option<&'a [SlotEntry]> {
    remote.peer.mapping.slots(
        pair.ring_at.load(Ordering::Relaxed),
        pair.ring_slots.load(Ordering::Relaxed),
    )
}

/// The memory behind a remote address, if its key and range allow the access. Called between
/// [`connected_ring::enter`] and [`connected_ring::leave`]: until then a deregistration waits.
fn exposed(peer: &Peer, remote: RemoteAddress, bytes: usize) -> Option<*mut u8> {
    if bytes == 0 {
        // Neither the key nor the address is looked at, as on real devices.
        return Some(std::ptr::NonNull::<u8>::dangling().as_ptr());
    }
    let (index, incarnation) = split_remote_key(remote.remote_key);
    let region = peer.mapping.region(index)?;
    if incarnation == 0 || region.incarnation.load(Ordering::Acquire) != incarnation {
        return None;
    }
    let start = region.offset.load(Ordering::Relaxed);
    let end = start.checked_add(region.length.load(Ordering::Relaxed))?;
    let last = remote.address.checked_add(bytes as u64)?;
    if remote.address < start || last > end {
        return None;
    }
    peer.mapping.segment_range(remote.address, bytes)
}

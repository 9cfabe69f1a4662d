//! The send queue of a queue pair: each request is carried out by the thread that posts it, or,
//! when the receiver was not ready, by a later poll.
#![allow(unsafe_code)] // Copies messages between the mappings of two devices.

use super::connected_ring::{self, Completed, Posted};
use super::datagram_ring;
use super::device::{DeviceState, split_remote_key};
use super::layout::{
    HAS_IMMEDIATE, PAIR_ERROR, PAIR_INIT, PAIR_READY, PairEntry, SlotEntry, TOO_LONG,
};
use super::mapping::copy_last_byte_last;
use super::peer::Peer;
use super::queue_pair::ShmAddressHandle;
use super::sync::Ordering;
use crate::capabilities::GRH_BYTES;
use crate::memory::RemoteAddress;
use crate::provider::RawLocal;
use crate::work::{CompletionStatus, InlineBytes, SendOperation};
use std::sync::Arc;

/// The queue pair at the other end of a reliable connection.
pub(super) struct Remote {
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
}

/// A queue pair's number and incarnation in one word.
pub(super) fn identity(number: u32, incarnation: u32) -> u64 {
    u64::from(incarnation) << 32 | u64::from(number)
}

/// A request as far as it still has to be carried out.
pub(super) struct Transfer {
    pub id: u64,
    pub operation: SendOperation,
    pub inline: Option<InlineBytes>,
    pub local: RawLocal,
    pub destination: Option<Arc<dyn crate::provider::ProviderAddressHandle>>,
}

/// What came of trying.
pub(super) enum Outcome {
    Done(CompletionStatus),
    /// The receiver has no receive posted, or is not connected yet.
    NotReady,
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
            None => self.local_memory(device).map(<*mut u8>::cast_const),
        }
    }

    fn local_memory(&self, device: &DeviceState) -> Option<*mut u8> {
        let at = device.local_offset(
            self.local.address,
            self.local.length,
            self.local.local_key,
        )?;
        device.mapping.segment_range(at, self.local.length)
    }

    /// Carries the request out on a reliable connection. `taken` counts the peer's receives that
    /// this side has used.
    pub(super) fn over_connection(
        &self,
        device: &DeviceState,
        remote: &Remote,
        taken: &mut u64,
    ) -> Outcome {
        use CompletionStatus::{LocalProtection, RetryExceeded};
        let Some(source) = self.source(device) else {
            return Outcome::Done(LocalProtection);
        };
        let Some(pair) = remote.pair() else {
            return Outcome::Done(RetryExceeded);
        };
        if remote.peer.is_dead() || pair.incarnation.load(Ordering::Acquire) != remote.incarnation
        {
            return Outcome::Done(RetryExceeded);
        }
        if !connected_ring::enter(pair) {
            return match pair.state.load(Ordering::Acquire) {
                PAIR_INIT => {
                    connected_ring::announce_waiting(pair);
                    Outcome::NotReady
                }
                _ => Outcome::Done(RetryExceeded),
            };
        }
        let outcome = self.inside(device, remote, pair, taken, source);
        connected_ring::leave(pair);
        if let Outcome::Done(CompletionStatus::Success) = outcome {
            if !matches!(
                self.operation,
                SendOperation::Write(_) | SendOperation::Read(_)
            ) {
                remote
                    .peer
                    .kick(pair.receive_queue.load(Ordering::Relaxed));
            }
        } else if let Outcome::Done(
            CompletionStatus::RemoteAccess | CompletionStatus::RemoteInvalidRequest,
        ) = outcome
        {
            // The responder's queue pair breaks too, and whoever waits for it is told.
            let _ = pair.state.compare_exchange(
                PAIR_READY,
                PAIR_ERROR,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            remote
                .peer
                .kick(pair.receive_queue.load(Ordering::Relaxed));
        }
        outcome
    }

    fn inside(
        &self,
        device: &DeviceState,
        remote: &Remote,
        pair: &PairEntry,
        taken: &mut u64,
        source: *const u8,
    ) -> Outcome {
        use CompletionStatus::{
            LocalProtection, RemoteAccess, RemoteInvalidRequest, RetryExceeded, Success,
        };
        if pair.peer_pair.load(Ordering::Relaxed) != remote.identity
            || pair.incarnation.load(Ordering::Relaxed) != remote.incarnation
        {
            return Outcome::Done(RetryExceeded);
        }
        let bytes = self.bytes();
        match self.operation {
            SendOperation::Read(from) => {
                let (Some(from), Some(to)) = (
                    exposed(&remote.peer, from, bytes),
                    self.local_memory(device),
                ) else {
                    return Outcome::Done(if self.local_memory(device).is_none() {
                        LocalProtection
                    } else {
                        RemoteAccess
                    });
                };
                // SAFETY: both ranges were checked against their mappings; two different
                // allocations, so they do not overlap. `copy` because a loopback could name the
                // same range on both ends.
                unsafe { std::ptr::copy(from, to, bytes) };
                Outcome::Done(Success)
            }
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
                if bytes > 0 {
                    let Some(to) = exposed(&remote.peer, to, bytes) else {
                        return Outcome::Done(RemoteAccess);
                    };
                    // SAFETY: as for WRITE.
                    unsafe { copy_last_byte_last(source, to, bytes) };
                }
                let completed = Completed {
                    bytes: bytes as u32,
                    immediate,
                    flags: HAS_IMMEDIATE,
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
                    // `posted.length` ≥ `bytes` long, and is ours to fill until `complete`.
                    unsafe { std::ptr::copy(source, to, bytes) };
                }
                connected_ring::complete(pair, slots, *taken, completed);
                *taken += 1;
                Outcome::Done(status)
            }
        }
    }

    /// Carries a datagram out. What cannot be delivered is dropped, which is a success.
    pub(super) fn as_datagram(&self, device: &DeviceState, source_pair: u32) -> CompletionStatus {
        use CompletionStatus::{LocalProtection, Success};
        let Some(source) = self.source(device) else {
            return LocalProtection;
        };
        let handle = self.destination.as_ref().and_then(|handle| {
            let any: &dyn std::any::Any = &**handle;
            any.downcast_ref::<ShmAddressHandle>()
        });
        let Some(handle) = handle else {
            return LocalProtection;
        };
        let peer = &handle.peer;
        let Some(pair) = peer.mapping.pair(handle.number as usize) else {
            return Success;
        };
        let ready = || {
            pair.state.load(Ordering::SeqCst) == PAIR_READY
                && pair.incarnation.load(Ordering::Acquire) == handle.incarnation
                && pair.queue_key.load(Ordering::Relaxed) == handle.queue_key
        };
        if peer.is_dead() || !ready() {
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
                // ours to fill until `complete`; the source was checked and does not overlap it.
                unsafe {
                    std::ptr::write_bytes(to, 0, GRH_BYTES);
                    std::ptr::copy_nonoverlapping(source, to.add(GRH_BYTES), bytes);
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

/// The memory behind a remote address, if its key and range allow the access.
fn exposed(peer: &Peer, remote: RemoteAddress, bytes: usize) -> Option<*mut u8> {
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

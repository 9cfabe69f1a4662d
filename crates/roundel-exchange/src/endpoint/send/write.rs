//! MQ/WR at the source (section 5.5): messages are written into buffers of the receiver, which names
//! those that are free in a queue of this end's, `FreeArr`.

use super::super::ring::{RemoteRing, Ring, RingAddress};
use super::super::seal::{seal, sealed_length};
use super::state::CONTROL;
use crate::design::Notification;
use crate::error::{ExchangeError, Result};
use crate::options::ExchangeOptions;
use roundel_verbs::work::InlineBytes;
use roundel_verbs::{Arena, Payload, RemoteAddress, SendOperation, SendRequest};
use std::collections::VecDeque;

/// One destination that is written to.
pub(super) struct Writing {
    notification: Notification,
    /// `FreeArr`.
    pub(super) free: Ring,
    /// Where the receiver is told, or asks for the bell.
    pub(super) told: Option<RemoteRing>,
    /// The receiver's buffers that are free.
    slots: VecDeque<Slot>,
    /// Messages written.
    sent: u64,
}

/// A buffer of the receiver.
struct Slot {
    at: RemoteAddress,
    bytes: u32,
    number: u32,
}

impl Writing {
    pub(super) fn open(
        notification: Notification,
        arena: &Arena,
        options: &ExchangeOptions,
        offered: Option<RingAddress>,
        peer: &str,
    ) -> Result<Self> {
        let told = match (notification, offered) {
            (Notification::CompletionQueue, _) => None,
            (_, Some(address)) => Some(RemoteRing::new(address, peer)?),
            (_, None) => {
                return Err(ExchangeError::Protocol {
                    peer: peer.into(),
                    reason: "it offers no queue to tell it of messages".into(),
                });
            }
        };
        Ok(Self {
            notification,
            free: Ring::open(arena, options.window_max())?,
            told,
            slots: VecDeque::new(),
            sent: 0,
        })
    }

    /// Messages that may be written now, given the credit that is left.
    pub(super) fn left(&self, credit: u32) -> u32 {
        let slots = self.slots.len() as u32;
        match self.notification {
            Notification::CompletionQueue => slots.min(credit),
            _ => slots,
        }
    }

    /// Takes the receiver's buffers that have become free.
    pub(super) fn take_free(&mut self) {
        while let Some([address, key_and_bytes, number]) = self.free.take() {
            self.slots.push_back(Slot {
                at: RemoteAddress {
                    address,
                    remote_key: key_and_bytes as u32,
                },
                bytes: (key_and_bytes >> 32) as u32,
                number: number as u32,
            });
        }
    }

    /// The requests that carry a message of `length` bytes to the receiver. A payload in a buffer
    /// has its seal behind it already, where there is to be one.
    pub(super) fn requests(
        &mut self,
        id: u64,
        payload: Payload,
        length: usize,
        peer: &str,
    ) -> Result<Vec<SendRequest>> {
        let broke_protocol = |reason: &str| ExchangeError::Protocol {
            peer: peer.into(),
            reason: reason.into(),
        };
        let Some(slot) = self.slots.pop_front() else {
            return Err(broke_protocol("a message without a buffer for it"));
        };
        let payload = match self.notification {
            Notification::Buffers => with_seal(payload, length),
            _ => payload,
        };
        let Some(behind) = (slot.bytes as usize).checked_sub(payload.len()) else {
            return Err(broke_protocol("its buffers are smaller than messages"));
        };
        self.sent += 1;
        let operation = match self.notification {
            Notification::CompletionQueue => {
                SendOperation::WriteWithImmediate(slot.at, slot.number)
            }
            Notification::MessageQueue => SendOperation::Write(slot.at),
            Notification::Buffers => SendOperation::Write(slot.at.offset(behind)),
        };
        let mut requests = vec![SendRequest {
            id,
            operation,
            payload,
            destination: None,
        }];
        if let (Notification::MessageQueue, Some(told)) = (self.notification, &mut self.told) {
            let entry = [slot.number.into(), length as u64, 0];
            requests.push(told.put(CONTROL, entry));
        }
        Ok(requests)
    }

    /// What this end has sent, as the receiver counts it when it asks for the bell.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }
}

/// A payload with the seal of a message of `length` bytes.
fn with_seal(payload: Payload, length: usize) -> Payload {
    let sealed = sealed_length(length);
    match payload {
        Payload::Owned { buffer, .. } => Payload::Owned {
            buffer,
            length: sealed,
        },
        Payload::Shared { buffer, .. } => Payload::Shared {
            buffer,
            length: sealed,
        },
        Payload::Inline(bytes) => {
            let mut message = bytes.as_slice().to_vec();
            let seal = seal(length);
            message.resize(sealed - seal.len(), 0);
            message.extend_from_slice(&seal);
            InlineBytes::new(&message).map_or(Payload::Empty, Payload::Inline)
        }
        Payload::Empty => Payload::Empty,
    }
}

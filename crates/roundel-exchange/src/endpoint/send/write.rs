//! MQ/WR at the source (section 5.5): messages are written into buffers of the receiver, which names
//! those that are free in a queue of this end's, `FreeArr`.

use super::super::slot::Slot;
use super::posting::CONTROL;
use crate::design::Notification;
use crate::error::{ExchangeError, Result};
use crate::link::queue::{Queue, QueueAddress, RemoteQueue};
use crate::options::ExchangeOptions;
use roundel_verbs::{Arena, Payload, RemoteAddress, SendRequest};
use std::collections::VecDeque;

/// One destination that is written to.
pub(super) struct Writing {
    notification: Notification,
    /// `FreeArr`.
    pub(super) free: Queue,
    /// Where the receiver is told, or asks for the bell.
    pub(super) told: Option<RemoteQueue>,
    /// The receiver's buffers that are free.
    slots: VecDeque<Slot>,
    /// Messages written.
    sent: u64,
}

impl Writing {
    pub(super) fn open(
        notification: Notification,
        arena: &Arena,
        options: &ExchangeOptions,
        offered: Option<QueueAddress>,
        peer: &str,
    ) -> Result<Self> {
        let told = match (notification, offered) {
            (Notification::CompletionQueue, _) => None,
            (_, Some(address)) => Some(RemoteQueue::new(address, peer)?),
            (_, None) => {
                return Err(ExchangeError::Protocol {
                    peer: peer.into(),
                    reason: "it offers no queue to tell it of messages".into(),
                });
            }
        };
        Ok(Self {
            notification,
            free: Queue::open(arena, options.window_max())?,
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
                bytes: (key_and_bytes >> 32) as usize,
                number: number as u32,
            });
        }
    }

    /// The requests that carry a message to the receiver. A payload in a buffer has its seal behind it
    /// already, where there is to be one.
    pub(super) fn requests(
        &mut self,
        id: u64,
        payload: Payload,
        peer: &str,
    ) -> Result<Vec<SendRequest>> {
        let broke_protocol = |reason: &str| ExchangeError::Protocol {
            peer: peer.into(),
            reason: reason.into(),
        };
        let Some(slot) = self.slots.pop_front() else {
            return Err(broke_protocol("a message without a buffer for it"));
        };
        let written = slot.write(
            self.notification,
            self.told.as_mut(),
            payload,
            [id, CONTROL],
        );
        self.sent += 1;
        written.map_err(broke_protocol)
    }

    /// What this end has sent, as the receiver counts it when it asks for the bell.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }
}

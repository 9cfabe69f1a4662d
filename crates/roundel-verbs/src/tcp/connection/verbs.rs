//! The verbs of a connected queue pair, which the object model calls.
#![allow(unsafe_code)] // Implements the provider's unsafe post verbs.

use super::breaking::Break;
use super::requests::Request;
use super::{ERROR, INIT, READY, Stage, StreamPair};
use crate::address::QueuePairAddress;
use crate::counters::Counters;
use crate::error::{Result, VerbsError};
use crate::memory::Buffer;
use crate::multicast::MulticastGroup;
use crate::provider::{ProviderQueuePair, RawReceiveRequest, RawSendRequest};
use crate::queue_pair::QueuePairState;
use crate::tcp::socket;
use crate::tcp::state::{longer_than, no_multicast};
use crate::work::CompletionStatus;
use std::sync::atomic::Ordering;

impl ProviderQueuePair for StreamPair {
    fn address(&self) -> QueuePairAddress {
        QueuePairAddress {
            device: self.device.address.encode(),
            number: self.number,
            incarnation: self.incarnation,
            queue_key: 0,
        }
    }

    fn state(&self) -> QueuePairState {
        self.current_state()
    }

    fn connect(&self, remote: Option<&QueuePairAddress>) -> Result<()> {
        let remote = remote.ok_or_else(|| {
            VerbsError::InvalidRequest("connecting a connected queue pair to nobody".into())
        })?;
        self.meet(remote)
    }

    fn modify_to_error(&self) {
        self.break_off(Break::OWN);
    }

    unsafe fn post_send(&self, requests: &[RawSendRequest]) -> Result<usize> {
        if self.is(INIT) {
            return Err(VerbsError::InvalidState {
                verb: "posting to the send queue",
                state: QueuePairState::Init,
            });
        }
        longer_than(self.device.capabilities.rc_message_bytes_max, requests)?;
        let mut send = self.send.lock();
        let new = requests
            .iter()
            .map(|raw| Request::new(raw, self.device.memory.local(&raw.local)));
        if send.broken {
            let mut flushed = new
                .map(|request| self.completion(&request, CompletionStatus::Flushed))
                .collect();
            self.send_queue.push(&mut flushed);
            return Ok(requests.len());
        }
        send.requests.extend(new);
        let cause = if send.peer_gone && !self.reliable {
            self.drop_posted(&mut send);
            drop(send);
            None
        } else if send.peer_gone && !requests.is_empty() {
            drop(send);
            Some(Break::request(CompletionStatus::RetryExceeded))
        } else if self.push_on(send) {
            None
        } else {
            self.lost(&mut self.receiving.lock());
            None
        };
        match cause {
            Some(cause) => self.break_off(cause),
            None => self.check_next(),
        }
        Ok(requests.len())
    }

    unsafe fn post_receive(&self, requests: &[RawReceiveRequest]) -> Result<usize> {
        let mut posted = self.posted.lock();
        if posted.broken {
            let mut flushed = requests
                .iter()
                .map(|request| self.failed_receive(request.id, CompletionStatus::Flushed))
                .collect();
            self.receive_queue.push(&mut flushed);
            return Ok(requests.len());
        }
        let room = self.receive_depth - posted.requests.len().min(self.receive_depth);
        let count = room.min(requests.len());
        posted.requests.extend(
            requests
                .iter()
                .take(count)
                .map(|request| RawReceiveRequest {
                    id: request.id,
                    local: request.local,
                }),
        );
        let all = self.credit.posted.fetch_add(count as u64, Ordering::AcqRel) + count as u64;
        // The peer knows of some of them; it is told of more when those get few.
        let available = all - posted.taken;
        let known = self
            .credit
            .advertised
            .load(Ordering::Acquire)
            .saturating_sub(posted.taken);
        drop(posted);
        if count > 0 && self.reliable && known <= available / 2 && self.is(READY) {
            let mut send = self.send.lock();
            if send.socket.is_some() && !send.told_gone {
                send.advertise();
                if !self.push_on(send) {
                    self.lost(&mut self.receiving.lock());
                }
            }
        }
        Ok(count)
    }

    fn join_multicast(&self, _group: &MulticastGroup) -> Result<()> {
        Err(no_multicast(&self.device))
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn destroy(&self, posted: Vec<Buffer>) {
        {
            let mut receiving = self.receiving.lock();
            self.state.store(ERROR, Ordering::Release);
            {
                // From here on nobody is or comes inside the memory of a receive.
                let mut waiting = self.posted.lock();
                waiting.broken = true;
                waiting.requests.clear();
                receiving.reader.abandon();
            }
            for call in std::mem::take(&mut receiving.early) {
                self.device.turn_away(&call.socket, call.token);
            }
            let mut send = self.send.lock();
            send.broken = true;
            let (requests, unusable) = send.take_requests();
            let stays = match receiving.stage {
                Stage::Open => !send.peer_gone,
                Stage::Calling(_) => true,
                _ => false,
            };
            drop((send, requests));
            if let Some(socket) = unusable {
                socket::shut(&socket);
            }
            if stays {
                self.depart(&mut receiving);
            } else {
                self.close(&mut receiving);
            }
        }
        self.send_queue.detach(self.number);
        self.receive_queue.detach(self.number);
        self.device.forget_stream(self.number, &self.counters);
        drop(posted);
    }
}

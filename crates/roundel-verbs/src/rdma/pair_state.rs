//! What is known of a queue pair by its queues, the event thread and itself: whether it is broken,
//! and what it has done.
#![allow(unsafe_code)] // Calls the library.

use super::bindings::*;
use super::library::{Verbs, check};
use super::link::Link;
use crate::counters::{Counters, Opcode};
use crate::error::Result;
use crate::provider::RawCompletion;
use crate::queue_pair::{QueuePairState, Transport};
use crate::work::CompletionStatus;
use parking_lot::Mutex;
use std::ffi::CStr;
use std::mem::zeroed;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const INIT: u8 = 0;
const READY: u8 = 1;
const ERROR: u8 = 2;

/// Receives of a shared receive queue whose queue pair was destroyed before their completions were
/// polled.
pub(super) type Abandoned = Mutex<Vec<u64>>;

pub(super) struct PairState {
    pub counters: Counters,
    verbs: &'static Verbs,
    transport: Transport,
    number: u32,
    /// Where its abandoned receives are noted; `None` if it has a receive queue of its own.
    abandoned: Option<Arc<Abandoned>>,
    /// Its connection on iWARP; else none.
    pub link: Option<Link>,
    known: AtomicU8,
    /// The queue pair, until it is destroyed: for what is not the data path.
    raw: Mutex<Option<Raw>>,
}

#[derive(Clone, Copy)]
struct Raw(*mut ibv_qp);

// SAFETY: the library's calls on a queue pair are thread safe.
unsafe impl Send for Raw {}

impl PairState {
    pub(super) fn new(
        verbs: &'static Verbs,
        transport: Transport,
        raw: *mut ibv_qp,
        abandoned: Option<Arc<Abandoned>>,
        link: Option<Link>,
    ) -> Self {
        Self {
            counters: Counters::default(),
            verbs,
            transport,
            // SAFETY: the queue pair was created just now.
            number: unsafe { (*raw).qp_num },
            abandoned,
            link,
            known: AtomicU8::new(INIT),
            raw: Mutex::new(Some(Raw(raw))),
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The state as far as it is known without asking the device.
    pub(super) fn known(&self) -> QueuePairState {
        match self.known.load(Ordering::Acquire) {
            INIT => QueuePairState::Init,
            READY => QueuePairState::ReadyToSend,
            _ => QueuePairState::Error,
        }
    }

    /// The state now.
    pub(super) fn now(&self) -> QueuePairState {
        if self.known() == QueuePairState::ReadyToSend
            && let Some(raw) = *self.raw.lock()
        {
            // SAFETY: the queue pair is not destroyed, for the lock is held; the structs hold
            // numbers and pointers that are not followed.
            let (code, state) = unsafe {
                let mut attributes: ibv_qp_attr = zeroed();
                let mut initial: ibv_qp_init_attr = zeroed();
                let code =
                    (self.verbs.ibv_query_qp)(raw.0, &mut attributes, IBV_QP_STATE, &mut initial);
                (code, attributes.qp_state)
            };
            if code == 0 && state == IBV_QPS_ERR {
                self.mark_broken();
            }
        }
        self.known()
    }

    /// Changes attributes of the queue pair.
    pub(super) fn modify(&self, attributes: &mut ibv_qp_attr, mask: i32) -> Result<()> {
        let raw = self.raw.lock();
        let Some(raw) = *raw else { return Ok(()) };
        // SAFETY: the queue pair is not destroyed, for the lock is held.
        let code = unsafe { (self.verbs.ibv_modify_qp)(raw.0, attributes, mask) };
        check("ibv_modify_qp", code)
    }

    pub(super) fn mark_ready(&self) {
        // Not when it has broken meanwhile.
        let _ = self
            .known
            .compare_exchange(INIT, READY, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(super) fn mark_broken(&self) {
        self.known.store(ERROR, Ordering::Release);
    }

    /// Moves it to the error state, which flushes what is posted; also what was posted since an
    /// earlier move: Soft-RoCE flushes a late receive only then.
    pub(super) fn break_off(&self) {
        self.mark_broken();
        // SAFETY: the struct holds numbers only.
        let mut attributes: ibv_qp_attr = unsafe { zeroed() };
        attributes.qp_state = IBV_QPS_ERR;
        match (self.modify(&mut attributes, IBV_QP_STATE), &self.link) {
            (Ok(()), Some(link)) => link.close(),
            (Ok(()), None) => {}
            // The device may still use what is posted.
            (Err(error), _) => {
                tracing::warn!(%error, queue_pair = self.number, "a queue pair could not be broken off");
            }
        }
    }

    /// Breaks it off because it could not be connected: what waits for that ends with this status.
    pub(super) fn fail(&self, status: CompletionStatus) {
        if let Some(link) = &self.link {
            link.fails_with(status);
        }
        self.break_off();
    }

    /// Takes note of a completion.
    pub(super) fn completed(&self, completion: &RawCompletion, entry: &ibv_wc) {
        match completion.status {
            CompletionStatus::Success => self.counters.add(completion.opcode, completion.bytes),
            CompletionStatus::Flushed => self.mark_broken(),
            _ => {
                // SAFETY: the library returns a constant text for any number.
                let status =
                    unsafe { CStr::from_ptr((self.verbs.ibv_wc_status_str)(entry.status)) };
                tracing::debug!(
                    queue_pair = self.number,
                    status = %status.to_string_lossy(),
                    vendor_error = entry.vendor_err,
                    "a work request failed"
                );
                if self.transport == Transport::ReliableConnection {
                    self.mark_broken();
                } else {
                    // The device stops the send queue only; here a broken queue pair is broken.
                    self.break_off();
                }
            }
        }
    }

    /// A completion that nobody polled before the queue pair was destroyed. The shared receive
    /// queue would wait for it.
    pub(super) fn abandoned(&self, completion: &RawCompletion) {
        if let Some(abandoned) = &self.abandoned
            && completion.opcode == Opcode::Receive
        {
            abandoned.lock().push(completion.id);
        }
    }

    /// Destroys the queue pair: then the device is done with everything posted. Returns whether
    /// that worked.
    pub(super) fn destroy(&self) -> bool {
        self.mark_broken();
        if let Some(link) = &self.link {
            link.retire();
        }
        // Not under the lock: the call waits until the event thread has acknowledged the queue
        // pair's events, and that thread may be about to take the lock.
        let Some(raw) = self.raw.lock().take() else {
            return true;
        };
        // SAFETY: whoever used it held the lock, and nobody finds it any more.
        let code = unsafe { (self.verbs.ibv_destroy_qp)(raw.0) };
        if code != 0 {
            tracing::error!(
                code,
                queue_pair = self.number,
                "a queue pair could not be destroyed: its receives stay posted"
            );
        }
        code == 0
    }
}

//! Work requests and completions in the device's terms.
//!
//! A completion that failed names its request by `wr_id` alone, so that number carries what this
//! crate wants to know of it: opcode, slot and bytes.
#![allow(unsafe_code)] // Fills structs that name memory by address.

use super::address_handle::RdmaAddressHandle;
use super::bindings::*;
use crate::counters::Opcode;
use crate::error::{Result, VerbsError};
use crate::provider::{RawCompletion, RawLocal, RawReceiveRequest, RawSendRequest};
use crate::work::CompletionStatus;
use crate::work::SendOperation;
use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;

/// Requests handed to the device with one call.
const BATCH: usize = 32;

/// Slots that a request's number has room for.
const SLOTS: u64 = 1 << 24;

/// Opcode in the top byte, then 24 bits of slot and 32 of bytes.
fn mark(opcode: Opcode, slot: u64, bytes: usize) -> Result<u64> {
    let bytes = u32::try_from(bytes)
        .map_err(|_| VerbsError::InvalidRequest(format!("a message of {bytes} bytes")))?;
    if slot >= SLOTS {
        return Err(VerbsError::InvalidRequest(format!(
            "more than {SLOTS} requests in flight"
        )));
    }
    Ok((opcode as u64) << 56 | slot << 32 | u64::from(bytes))
}

fn unmark(mark: u64) -> (Opcode, u64, usize) {
    let opcode = usize::from((mark >> 56) as u8);
    let opcode = Opcode::ALL.get(opcode).copied().unwrap_or(Opcode::Receive);
    (opcode, mark >> 32 & (SLOTS - 1), mark as u32 as usize)
}

/// A completion in the provider's terms.
pub(super) fn completion(entry: &ibv_wc) -> RawCompletion {
    let (opcode, id, bytes) = unmark(entry.wr_id);
    let status = status(entry.status);
    let succeeded = status == CompletionStatus::Success;
    let receive = opcode == Opcode::Receive;
    RawCompletion {
        id,
        queue_pair: entry.qp_num,
        status,
        opcode,
        // Only completions of receives say how many bytes came; the others have as many as they asked for.
        bytes: match (succeeded, receive) {
            (false, _) => 0,
            (true, true) => entry.byte_len as usize,
            (true, false) => bytes,
        },
        written: succeeded && receive && entry.opcode == IBV_WC_RECV_RDMA_WITH_IMM,
        immediate: (succeeded && receive && entry.wc_flags & IBV_WC_WITH_IMM != 0)
            .then(|| u32::from_be(entry.imm_data)),
        source_queue_pair: if succeeded && receive {
            entry.src_qp
        } else {
            0
        },
    }
}

fn status(status: u32) -> CompletionStatus {
    match status {
        IBV_WC_SUCCESS => CompletionStatus::Success,
        IBV_WC_LOC_LEN_ERR => CompletionStatus::LocalLength,
        IBV_WC_LOC_PROT_ERR => CompletionStatus::LocalProtection,
        IBV_WC_LOC_QP_OP_ERR => CompletionStatus::LocalOperation,
        IBV_WC_WR_FLUSH_ERR => CompletionStatus::Flushed,
        IBV_WC_REM_INV_REQ_ERR => CompletionStatus::RemoteInvalidRequest,
        IBV_WC_REM_ACCESS_ERR => CompletionStatus::RemoteAccess,
        IBV_WC_REM_OP_ERR => CompletionStatus::RemoteOperation,
        IBV_WC_RNR_RETRY_EXC_ERR => CompletionStatus::ReceiverNotReady,
        IBV_WC_RETRY_EXC_ERR => CompletionStatus::RetryExceeded,
        _ => CompletionStatus::Failed,
    }
}

/// Room for the structs of one call. Filling all of it with zeros would take as long as posting a
/// single request.
fn uninit<T>() -> [MaybeUninit<T>; BATCH] {
    [const { MaybeUninit::uninit() }; BATCH]
}

fn entry_of(local: &RawLocal) -> ibv_sge {
    ibv_sge {
        addr: local.address,
        // `mark` has checked that it fits.
        length: local.length as u32,
        lkey: local.local_key,
    }
}

/// Posts sends in batches; returns how many fitted.
///
/// # Safety
/// As for [`ProviderQueuePair::post_send`](crate::provider::ProviderQueuePair::post_send), on a
/// queue pair that is not destroyed.
pub(super) unsafe fn post_sends(
    context: *mut ibv_context,
    pair: *mut ibv_qp,
    requests: &[RawSendRequest],
) -> Result<usize> {
    // SAFETY: the operations table of an open context does not change.
    let Some(post) = (unsafe { (*context).ops.post_send }) else {
        return Err(VerbsError::InvalidRequest(
            "the device cannot send".to_owned(),
        ));
    };
    let mut posted = 0;
    for batch in requests.chunks(BATCH) {
        let (mut entries, mut work) = (uninit::<ibv_sge>(), uninit::<ibv_send_wr>());
        for (index, request) in batch.iter().enumerate() {
            let entry = entries[index].write(entry_of(&request.local));
            // SAFETY: the struct holds numbers and pointers, for which zero is valid.
            fill_send(work[index].write(unsafe { zeroed() }), entry, request)?;
        }
        let first: *mut ibv_send_wr = work.as_mut_ptr().cast();
        for index in 0..batch.len() {
            // SAFETY: both indices are of elements that were written above.
            unsafe {
                let work = &mut *first.add(index);
                if work.num_sge > 0 {
                    work.sg_list = entries.as_mut_ptr().add(index).cast();
                }
                if index + 1 < batch.len() {
                    work.next = first.add(index + 1);
                }
            }
        }
        let mut refused = null_mut();
        // SAFETY: the chain and its entries live until the call returns, the memory they name
        // until the completions, as the caller promises; inline bytes are copied by the call.
        let code = unsafe { post(pair, first, &mut refused) };
        if code == 0 {
            posted += batch.len();
            continue;
        }
        let offset = (refused.addr() - first.addr()) / size_of::<ibv_send_wr>();
        return outcome("ibv_post_send", code, posted + offset.min(batch.len()));
    }
    Ok(posted)
}

fn fill_send(work: &mut ibv_send_wr, entry: &mut ibv_sge, request: &RawSendRequest) -> Result<()> {
    let opcode = request.operation.opcode();
    match &request.inline {
        Some(inline) => {
            let bytes = inline.as_slice();
            work.wr_id = mark(opcode, request.id, bytes.len())?;
            *entry = ibv_sge {
                addr: bytes.as_ptr() as u64,
                length: bytes.len() as u32,
                lkey: 0,
            };
            work.send_flags = IBV_SEND_INLINE;
            work.num_sge = i32::from(!bytes.is_empty());
        }
        None => {
            work.wr_id = mark(opcode, request.id, request.local.length)?;
            work.num_sge = i32::from(request.local.length > 0);
        }
    }
    match request.operation {
        SendOperation::Send => work.opcode = IBV_WR_SEND,
        SendOperation::SendWithImmediate(immediate) => {
            work.opcode = IBV_WR_SEND_WITH_IMM;
            work.imm_data = immediate.to_be();
        }
        SendOperation::Write(at)
        | SendOperation::WriteWithImmediate(at, _)
        | SendOperation::Read(at) => {
            work.opcode = match request.operation {
                SendOperation::Read(_) => IBV_WR_RDMA_READ,
                SendOperation::WriteWithImmediate(_, immediate) => {
                    work.imm_data = immediate.to_be();
                    IBV_WR_RDMA_WRITE_WITH_IMM
                }
                _ => IBV_WR_RDMA_WRITE,
            };
            work.wr.rdma = ibv_wr_rdma {
                remote_addr: at.address,
                rkey: at.remote_key,
            };
        }
        SendOperation::CompareAndSwap { at, compare, swap } => {
            work.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
            work.wr.atomic = ibv_wr_atomic {
                remote_addr: at.address,
                compare_add: compare,
                swap,
                rkey: at.remote_key,
            };
        }
        SendOperation::FetchAndAdd { at, add } => {
            work.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
            work.wr.atomic = ibv_wr_atomic {
                remote_addr: at.address,
                compare_add: add,
                swap: 0,
                rkey: at.remote_key,
            };
        }
    }
    if let Some(destination) = &request.destination {
        let any: &dyn std::any::Any = &**destination;
        let handle = any.downcast_ref::<RdmaAddressHandle>().ok_or_else(|| {
            VerbsError::InvalidRequest("an address handle of another provider".to_owned())
        })?;
        work.wr.ud = ibv_wr_ud {
            ah: handle.path.raw,
            remote_qpn: handle.number,
            remote_qkey: handle.queue_key,
        };
    }
    Ok(())
}

/// Posts receives in batches with `post`; returns how many fitted. Those without memory have `least_entries` entries, which
/// name nothing: Soft-iWARP refuses receives that have none.
///
/// # Safety
/// As for [`ProviderQueuePair::post_receive`](crate::provider::ProviderQueuePair::post_receive);
/// `post` hands the chain to a queue that is not destroyed.
pub(super) unsafe fn post_receives(
    requests: &[RawReceiveRequest],
    least_entries: i32,
    mut post: impl FnMut(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
) -> Result<usize> {
    let mut posted = 0;
    for batch in requests.chunks(BATCH) {
        let (mut entries, mut work) = (uninit::<ibv_sge>(), uninit::<ibv_recv_wr>());
        for (index, request) in batch.iter().enumerate() {
            let id = mark(Opcode::Receive, request.id, request.local.length)?;
            entries[index].write(entry_of(&request.local));
            // SAFETY: the struct holds numbers and pointers, for which zero is valid.
            let work = work[index].write(unsafe { zeroed() });
            work.wr_id = id;
            work.num_sge = i32::from(request.local.length > 0).max(least_entries);
        }
        let first: *mut ibv_recv_wr = work.as_mut_ptr().cast();
        for index in 0..batch.len() {
            // SAFETY: both indices are of elements that were written above.
            unsafe {
                let work = &mut *first.add(index);
                if work.num_sge > 0 {
                    work.sg_list = entries.as_mut_ptr().add(index).cast();
                }
                if index + 1 < batch.len() {
                    work.next = first.add(index + 1);
                }
            }
        }
        let mut refused = null_mut();
        let code = post(first, &mut refused);
        if code == 0 {
            posted += batch.len();
            continue;
        }
        let offset = (refused.addr() - first.addr()) / size_of::<ibv_recv_wr>();
        return outcome("ibv_post_recv", code, posted + offset.min(batch.len()));
    }
    Ok(posted)
}

/// A full queue is back-pressure; anything else is an error, unless part of the work was taken.
fn outcome(call: &'static str, code: i32, posted: usize) -> Result<usize> {
    let full = code.abs() == rustix::io::Errno::NOMEM.raw_os_error();
    if full || posted > 0 {
        return Ok(posted);
    }
    super::library::check(call, code).map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::link::CONTROL_SLOT;

    #[test]
    fn a_number_carries_opcode_slot_and_bytes() {
        for opcode in Opcode::ALL {
            for (slot, bytes) in [(0, 0), (CONTROL_SLOT, u32::MAX as usize), (77, 4096)] {
                let mark = mark(opcode, slot, bytes).unwrap();
                assert_eq!(unmark(mark), (opcode, slot, bytes));
            }
        }
        assert!(mark(Opcode::Send, CONTROL_SLOT + 1, 0).is_err());
        assert!(mark(Opcode::Send, 0, 1 << 32).is_err());
    }

    #[test]
    fn a_failed_completion_has_no_more_than_its_number() {
        // SAFETY: the struct holds numbers only.
        let mut entry: ibv_wc = unsafe { zeroed() };
        entry.wr_id = mark(Opcode::Receive, 5, 100).unwrap();
        entry.status = IBV_WC_WR_FLUSH_ERR;
        (entry.byte_len, entry.opcode) = (u32::MAX, u32::MAX);
        entry.wc_flags = u32::MAX;
        let ended = completion(&entry);
        assert_eq!((ended.id, ended.opcode), (5, Opcode::Receive));
        assert_eq!(ended.status, CompletionStatus::Flushed);
        assert_eq!(
            (ended.bytes, ended.immediate, ended.written),
            (0, None, false)
        );
    }
}

//! `librdmacm.so.1`, opened when the first iWARP device is: hosts without one do not need it.
#![allow(unsafe_code)] // Looks functions up by name; their types are the header's.

use super::bindings::*;
use crate::error::{Result, VerbsError};
use crate::rdma::library::functions;
use libc::sockaddr;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The name under which the library is looked for.
const LIBRARY: &str = "librdmacm.so.1";

functions! {
    Manager of LIBRARY:
    rdma_create_event_channel() -> *mut rdma_event_channel;
    rdma_destroy_event_channel(*mut rdma_event_channel);
    rdma_create_id(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_uint) -> c_int;
    rdma_destroy_id(*mut rdma_cm_id) -> c_int;
    rdma_bind_addr(*mut rdma_cm_id, *mut sockaddr) -> c_int;
    rdma_resolve_addr(*mut rdma_cm_id, *mut sockaddr, *mut sockaddr, c_int) -> c_int;
    rdma_resolve_route(*mut rdma_cm_id, c_int) -> c_int;
    rdma_connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    rdma_listen(*mut rdma_cm_id, c_int) -> c_int;
    rdma_accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    rdma_reject(*mut rdma_cm_id, *const c_void, u8) -> c_int;
    rdma_get_src_port(*mut rdma_cm_id) -> u16;
    rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
    rdma_ack_cm_event(*mut rdma_cm_event) -> c_int;
    rdma_event_str(c_uint) -> *const c_char;
}

/// The library, opened at the first call.
pub(super) fn manager() -> Result<&'static Manager> {
    static MANAGER: OnceLock<Result<Manager, String>> = OnceLock::new();
    MANAGER
        .get_or_init(Manager::load)
        .as_ref()
        .map_err(|reason| VerbsError::NoLibrary {
            library: LIBRARY,
            reason: reason.clone(),
        })
}

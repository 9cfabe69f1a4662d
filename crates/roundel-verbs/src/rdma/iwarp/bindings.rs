//! The part of `rdma/rdma_cma.h` that is used here, kept by hand as that of libibverbs is.
#![allow(non_camel_case_types, missing_docs)]

use crate::rdma::bindings::{ibv_context, ibv_qp};
use crate::rdma::layout::{constants, structs};
use std::ffi::{c_int, c_uint, c_void};

structs! {
    pub struct rdma_event_channel {
        fd: c_int,
    }

    pub struct rdma_cm_id {
        verbs: *mut ibv_context,
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        qp: *mut ibv_qp,
    }

    pub struct rdma_conn_param {
        private_data: *const c_void,
        private_data_len: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        srq: u8,
        qp_num: u32,
    }

    pub struct rdma_cm_event {
        id: *mut rdma_cm_id,
        listen_id: *mut rdma_cm_id,
        event: c_uint,
        status: c_int,
        param: rdma_conn_param,
    }
}

constants! {
    RDMA_PS_TCP: c_uint = 0x0106;
    RDMA_CM_EVENT_ADDR_RESOLVED: c_uint = 0;
    RDMA_CM_EVENT_ADDR_ERROR: c_uint = 1;
    RDMA_CM_EVENT_ROUTE_RESOLVED: c_uint = 2;
    RDMA_CM_EVENT_ROUTE_ERROR: c_uint = 3;
    RDMA_CM_EVENT_CONNECT_REQUEST: c_uint = 4;
    RDMA_CM_EVENT_CONNECT_ERROR: c_uint = 6;
    RDMA_CM_EVENT_UNREACHABLE: c_uint = 7;
    RDMA_CM_EVENT_REJECTED: c_uint = 8;
    RDMA_CM_EVENT_ESTABLISHED: c_uint = 9;
    RDMA_CM_EVENT_DISCONNECTED: c_uint = 10;
    RDMA_CM_EVENT_DEVICE_REMOVAL: c_uint = 11;
}

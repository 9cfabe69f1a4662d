//! `libibverbs.so.1`, opened at run time: where it is absent nothing breaks but this provider. The macro that opens a
//! library in this way is here too.
#![allow(unsafe_code)] // Looks functions up by name; their types are the header's.

use super::bindings::*;
use crate::error::{Result, VerbsError};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The name under which the library is looked for.
pub const LIBRARY: &str = "libibverbs.so.1";

macro_rules! functions {
    ($library:ident of $file:ident: $($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions in use. They stay valid for as long as the process lives: the library is
        /// never closed.
        pub(in crate::rdma) struct $library {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            _library: libloading::Library,
        }

        impl $library {
            fn load() -> std::result::Result<Self, String> {
                use $crate::rdma::library::reason;
                // SAFETY: the library's initialisers read its configuration and nothing of ours.
                let library = unsafe { libloading::Library::new($file) }.map_err(reason)?;
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the type is that of the function of this name in the library's header.
                        *unsafe { library.get(name) }.map_err(reason)?
                    },)*
                    _library: library,
                })
            }
        }
    };
}
pub(super) use functions;

functions! {
    Verbs of LIBRARY:
    ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
    ibv_free_device_list(*mut *mut ibv_device);
    ibv_open_device(*mut ibv_device) -> *mut ibv_context;
    ibv_close_device(*mut ibv_context) -> c_int;
    ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd(*mut ibv_pd) -> c_int;
    ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    ibv_dereg_mr(*mut ibv_mr) -> c_int;
    ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
    ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
    ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    ibv_resize_cq(*mut ibv_cq, c_int) -> c_int;
    ibv_destroy_cq(*mut ibv_cq) -> c_int;
    ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events(*mut ibv_cq, c_uint);
    ibv_create_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    ibv_query_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
    ibv_destroy_qp(*mut ibv_qp) -> c_int;
    ibv_create_srq(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    ibv_destroy_srq(*mut ibv_srq) -> c_int;
    ibv_create_ah(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    ibv_destroy_ah(*mut ibv_ah) -> c_int;
    ibv_attach_mcast(*mut ibv_qp, *const ibv_gid, u16) -> c_int;
    ibv_detach_mcast(*mut ibv_qp, *const ibv_gid, u16) -> c_int;
    ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ibv_ack_async_event(*mut ibv_async_event);
    ibv_event_type_str(c_uint) -> *const c_char;
    ibv_wc_status_str(c_uint) -> *const c_char;
}

/// What the loader says; the error itself says only which call failed.
pub(super) fn reason(error: libloading::Error) -> String {
    use std::error::Error;
    match error.source() {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

/// The library, opened at the first call.
pub(super) fn verbs() -> Result<&'static Verbs> {
    static VERBS: OnceLock<Result<Verbs, String>> = OnceLock::new();
    VERBS
        .get_or_init(Verbs::load)
        .as_ref()
        .map_err(|reason| VerbsError::NoLibrary {
            library: LIBRARY,
            reason: reason.clone(),
        })
}

/// The error of the last call, for a call of the library that returns a null pointer.
pub(super) fn last_error(call: &'static str) -> VerbsError {
    VerbsError::System {
        call,
        source: std::io::Error::last_os_error(),
    }
}

/// The outcome of a call that returns an error number.
pub(super) fn check(call: &'static str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        // Some providers return -1 and set errno.
        -1 => Err(last_error(call)),
        errno => Err(VerbsError::System {
            call,
            source: std::io::Error::from_raw_os_error(errno.abs()),
        }),
    }
}

//! An open device of the library, and the list of those there are.
#![allow(unsafe_code)] // Calls the library.

use super::bindings::*;
use super::library::{Verbs, check, last_error, verbs};
use super::sysfs;
use crate::error::{Result, VerbsError};
use std::ffi::CStr;
use std::mem::zeroed;

/// An open device; closed when dropped, which must come after everything created from it.
pub(super) struct Context {
    pub verbs: &'static Verbs,
    pub raw: *mut ibv_context,
    /// Whether it is InfiniBand or RoCE, and not iWARP or another transport.
    pub infiniband_transport: bool,
    /// Whether it is iWARP.
    pub iwarp: bool,
}

// SAFETY: the library's calls on a context are thread safe (ibv_open_device's documentation).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// The library's list of devices, freed when dropped.
struct List {
    verbs: &'static Verbs,
    raw: *mut *mut ibv_device,
    count: usize,
}

impl List {
    fn get() -> Result<Self> {
        let verbs = verbs()?;
        let mut count = 0;
        // SAFETY: `count` is a valid place for the result.
        let raw = unsafe { (verbs.ibv_get_device_list)(&mut count) };
        if raw.is_null() {
            let error = std::io::Error::last_os_error();
            // ENOSYS: the kernel has no RDMA subsystem, so there is no device.
            if error.raw_os_error() == Some(rustix::io::Errno::NOSYS.raw_os_error()) {
                return Ok(Self {
                    verbs,
                    raw,
                    count: 0,
                });
            }
            return Err(VerbsError::System {
                call: "ibv_get_device_list",
                source: error,
            });
        }
        Ok(Self {
            verbs,
            raw,
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    fn devices(&self) -> impl Iterator<Item = *mut ibv_device> {
        // SAFETY: the list has `count` entries.
        (0..self.count).map(|index| unsafe { *self.raw.add(index) })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the list came from ibv_get_device_list and is not used any more.
            unsafe { (self.verbs.ibv_free_device_list)(self.raw) };
        }
    }
}

fn name_of(device: *mut ibv_device) -> String {
    // SAFETY: devices of the list are valid, and their names end with a zero byte.
    unsafe { CStr::from_ptr((*device).name.as_ptr()) }
        .to_string_lossy()
        .into_owned()
}

/// Names of the devices that the library can open, sorted.
pub(super) fn names() -> Result<Vec<String>> {
    let list = List::get()?;
    let mut names: Vec<String> = list.devices().map(name_of).collect();
    names.sort();
    Ok(names)
}

impl Context {
    /// Opens the device of this name.
    pub(super) fn open(name: &str) -> Result<Self> {
        let list = List::get()?;
        let device = list
            .devices()
            .find(|device| name_of(*device) == name)
            .ok_or_else(|| VerbsError::NoDevice(format!("there is no RDMA device {name}")))?;
        // SAFETY: the device is valid while the list is.
        let transport = unsafe { (*device).transport_type };
        // SAFETY: as above.
        let raw = unsafe { (list.verbs.ibv_open_device)(device) };
        if raw.is_null() {
            return Err(open_failed(name, &std::io::Error::last_os_error()));
        }
        Ok(Self {
            verbs: list.verbs,
            raw,
            infiniband_transport: transport == IBV_TRANSPORT_IB,
            iwarp: transport == IBV_TRANSPORT_IWARP,
        })
    }

    pub(super) fn device_attributes(&self) -> Result<ibv_device_attr> {
        // SAFETY: the struct holds numbers only; the call fills it.
        unsafe {
            let mut attributes: ibv_device_attr = zeroed();
            check(
                "ibv_query_device",
                (self.verbs.ibv_query_device)(self.raw, &mut attributes),
            )?;
            Ok(attributes)
        }
    }

    pub(super) fn port_attributes(&self, port: u8) -> Result<ibv_port_attr> {
        // SAFETY: as above. Older libraries fill all but the last field, which stays 0.
        unsafe {
            let mut attributes: ibv_port_attr = zeroed();
            check(
                "ibv_query_port",
                (self.verbs.ibv_query_port)(self.raw, port, &mut attributes),
            )?;
            Ok(attributes)
        }
    }

    pub(super) fn allocate_protection_domain(&self) -> Result<*mut ibv_pd> {
        // SAFETY: the context is open.
        let domain = unsafe { (self.verbs.ibv_alloc_pd)(self.raw) };
        if domain.is_null() {
            return Err(last_error("ibv_alloc_pd"));
        }
        Ok(domain)
    }

    /// The name of the device.
    pub(super) fn name(&self) -> String {
        // SAFETY: an open context keeps its device.
        name_of(unsafe { (*self.raw).device })
    }

    /// The family of protocols that the device speaks.
    pub(super) fn transport_type(&self) -> i32 {
        // SAFETY: an open context keeps its device.
        unsafe { (*(*self.raw).device).transport_type }
    }
}

fn open_failed(name: &str, error: &std::io::Error) -> VerbsError {
    // The library says "not found" also when it may not open the file that is there.
    let file = sysfs::character_device(name).filter(|file| file.exists());
    VerbsError::NoDevice(match (error.kind(), file) {
        (std::io::ErrorKind::PermissionDenied, _) | (std::io::ErrorKind::NotFound, Some(_)) => {
            format!(
                "RDMA device {name} may not be opened by this user: /dev/infiniband/uverbs* need \
                 to be readable and writable (rdma-core's udev rules make them so)"
            )
        }
        (std::io::ErrorKind::NotFound, None) => {
            format!("RDMA device {name} has no file in /dev/infiniband: load the module ib_uverbs")
        }
        _ => format!("RDMA device {name} cannot be opened: {error}"),
    })
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is open; its owner drops it after what was created from it. A
        // failure leaves nothing to do.
        unsafe { (self.verbs.ibv_close_device)(self.raw) };
    }
}

/// What the state of a port is called.
pub(super) fn port_state_name(state: u32) -> &'static str {
    match state {
        IBV_PORT_DOWN => "down",
        IBV_PORT_INIT => "initialising",
        IBV_PORT_ARMED => "armed",
        IBV_PORT_ACTIVE => "active",
        _ => "in an unknown state",
    }
}

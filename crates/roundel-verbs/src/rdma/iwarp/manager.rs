//! The connection manager's channels, ids and events, freed when dropped.
#![allow(unsafe_code)] // Calls the library.

use super::bindings::*;
use super::library::Manager;
use crate::error::Result;
use crate::rdma::bindings::ibv_context;
use crate::rdma::library::{check, last_error};
use std::ffi::{CStr, c_int};
use std::io::Error;
use std::mem::zeroed;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::ptr::{null_mut, without_provenance_mut};

/// Requests that may wait to be looked at.
const BACKLOG: c_int = 256;
/// How long the network is asked for an address or a route.
const RESOLVE_MS: c_int = 2000;

/// Where the events of ids come from. It outlives its ids.
pub(super) struct Channel {
    manager: &'static Manager,
    raw: *mut rdma_event_channel,
}

// SAFETY: the library's calls on a channel are thread safe.
unsafe impl Send for Channel {}

impl Channel {
    pub(super) fn open(manager: &'static Manager) -> Result<Self> {
        // SAFETY: takes nothing of ours.
        let raw = unsafe { (manager.rdma_create_event_channel)() };
        if raw.is_null() {
            return Err(last_error("rdma_create_event_channel"));
        }
        let channel = Self { manager, raw };
        let flags = rustix::fs::fcntl_getfl(channel.fd());
        flags
            .and_then(|flags| {
                rustix::fs::fcntl_setfl(channel.fd(), flags | rustix::fs::OFlags::NONBLOCK)
            })
            .map_err(crate::VerbsError::system("fcntl"))?;
        Ok(channel)
    }

    /// Readable when there is an event.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open until the channel is destroyed, which is when `self` is dropped.
        unsafe { BorrowedFd::borrow_raw((*self.raw).fd) }
    }

    /// A new id, whose events carry this key.
    pub(super) fn id(&self, key: usize) -> Result<Id> {
        let mut raw = null_mut();
        // SAFETY: `raw` is a valid place for the result; the key is a number, never followed.
        let code = unsafe {
            (self.manager.rdma_create_id)(
                self.raw,
                &mut raw,
                without_provenance_mut(key),
                RDMA_PS_TCP,
            )
        };
        check("rdma_create_id", code)?;
        Ok(Id {
            manager: self.manager,
            raw,
        })
    }

    /// The next event; none when there is none now.
    pub(super) fn event(&self) -> Option<Event> {
        let mut raw = null_mut();
        // SAFETY: the channel is alive; `raw` is a valid place for the result.
        if unsafe { (self.manager.rdma_get_cm_event)(self.raw, &mut raw) } != 0 {
            return None;
        }
        // SAFETY: the event is valid until it is acknowledged, which is after all of it was copied. Only requests,
        // connections and rejections have private data, as long as they say.
        unsafe {
            let event = &*raw;
            let has_data = [
                RDMA_CM_EVENT_CONNECT_REQUEST,
                RDMA_CM_EVENT_ESTABLISHED,
                RDMA_CM_EVENT_REJECTED,
            ]
            .contains(&event.event);
            let data: *const u8 = event.param.private_data.cast();
            let data = if has_data && !data.is_null() {
                let length = usize::from(event.param.private_data_len);
                std::slice::from_raw_parts(data, length).to_vec()
            } else {
                Vec::new()
            };
            let name = CStr::from_ptr((self.manager.rdma_event_str)(event.event));
            let requests = event.event == RDMA_CM_EVENT_CONNECT_REQUEST;
            let copy = Event {
                kind: event.event,
                name: name.to_string_lossy().into_owned(),
                status: event.status,
                key: (*event.id).context.addr(),
                request: requests.then(|| Id {
                    manager: self.manager,
                    raw: event.id,
                }),
                data,
            };
            (self.manager.rdma_ack_cm_event)(raw);
            Some(copy)
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: its ids are gone, for its owner drops them first.
        unsafe { (self.manager.rdma_destroy_event_channel)(self.raw) };
    }
}

/// What happened to an id.
pub(super) struct Event {
    /// `RDMA_CM_EVENT_*`.
    pub kind: u32,
    pub name: String,
    status: c_int,
    /// The id's.
    pub key: usize,
    /// The new id of a connection that is asked for.
    pub request: Option<Id>,
    /// What the peer has said.
    pub data: Vec<u8>,
}

impl Event {
    /// What it says of a failure.
    pub(super) fn reason(&self) -> String {
        match self.status {
            0 => self.name.clone(),
            // Negative when the kernel says so, positive when the peer does.
            status => format!("{}, {}", self.name, Error::from_raw_os_error(status.abs())),
        }
    }
}

/// One end of a connection, or a listener.
pub(super) struct Id {
    manager: &'static Manager,
    raw: *mut rdma_cm_id,
}

// SAFETY: the library's calls on an id are thread safe.
unsafe impl Send for Id {}

impl Id {
    /// Gives it the key of its events.
    pub(super) fn set_key(&self, key: usize) {
        // SAFETY: the id is alive; the field is its user's.
        unsafe { (*self.raw).context = without_provenance_mut(key) };
    }

    /// Listens on an address of this host; returns the port that the kernel has chosen.
    pub(super) fn listen(&self, address: Ipv6Addr) -> Result<u16> {
        let mut address = Socket::new(SocketAddr::new(address.to_canonical(), 0));
        // SAFETY: the id is alive, and the calls copy the address.
        unsafe {
            check(
                "rdma_bind_addr",
                (self.manager.rdma_bind_addr)(self.raw, address.raw()),
            )?;
            check("rdma_listen", (self.manager.rdma_listen)(self.raw, BACKLOG))?;
            Ok(u16::from_be((self.manager.rdma_get_src_port)(self.raw)))
        }
    }

    /// The name of the device that the manager has chosen; none before it has one.
    pub(super) fn device(&self) -> Option<String> {
        // SAFETY: an id that has a context keeps it, and an open context its device.
        unsafe {
            let context: *mut ibv_context = (*self.raw).verbs;
            (!context.is_null()).then(|| {
                CStr::from_ptr((*(*context).device).name.as_ptr())
                    .to_string_lossy()
                    .into_owned()
            })
        }
    }

    /// Asks for the way to a peer.
    pub(super) fn resolve_address(&self, from: Ipv6Addr, to: SocketAddr) -> Result<()> {
        let mut from = Socket::new(SocketAddr::new(from.to_canonical(), 0));
        let mut to = Socket::new(to);
        // SAFETY: the id is alive, and the call copies the addresses.
        let code =
            unsafe { (self.manager.rdma_resolve_addr)(self.raw, from.raw(), to.raw(), RESOLVE_MS) };
        check("rdma_resolve_addr", code)
    }

    pub(super) fn resolve_route(&self) -> Result<()> {
        // SAFETY: the id is alive.
        let code = unsafe { (self.manager.rdma_resolve_route)(self.raw, RESOLVE_MS) };
        check("rdma_resolve_route", code)
    }

    /// Asks the peer for a connection of this queue pair.
    pub(super) fn connect(&self, pair: u32, reads: Reads, says: &[u8]) -> Result<()> {
        // SAFETY: the id is alive, and the call copies what the parameters name.
        let code = unsafe { (self.manager.rdma_connect)(self.raw, &mut reads.with(pair, says)) };
        check("rdma_connect", code)
    }

    /// Takes the connection that the peer has asked for, for this queue pair.
    pub(super) fn accept(&self, pair: u32, reads: Reads, says: &[u8]) -> Result<()> {
        // SAFETY: as above.
        let code = unsafe { (self.manager.rdma_accept)(self.raw, &mut reads.with(pair, says)) };
        check("rdma_accept", code)
    }

    pub(super) fn reject(&self) {
        // SAFETY: the id is alive. A peer that is gone need not be told.
        unsafe { (self.manager.rdma_reject)(self.raw, std::ptr::null(), 0) };
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: its events are acknowledged as they are taken, and nobody uses it any more.
        let code = unsafe { (self.manager.rdma_destroy_id)(self.raw) };
        if code != 0 {
            tracing::warn!(error = %Error::last_os_error(), "a connection's id could not be destroyed");
        }
    }
}

/// READs outstanding.
#[derive(Clone, Copy)]
pub(super) struct Reads {
    /// That this end asks for, and answers.
    pub asked: u8,
    pub answered: u8,
}

impl Reads {
    fn with(self, pair: u32, says: &[u8]) -> rdma_conn_param {
        // SAFETY: the struct holds numbers and a pointer, for which zero is valid.
        let mut parameters: rdma_conn_param = unsafe { zeroed() };
        parameters.private_data = says.as_ptr().cast();
        parameters.private_data_len = says.len() as u8;
        parameters.initiator_depth = self.asked;
        parameters.responder_resources = self.answered;
        parameters.qp_num = pair;
        parameters
    }
}

/// An address in the system's terms.
struct Socket(libc::sockaddr_storage);

impl Socket {
    fn new(address: SocketAddr) -> Self {
        // SAFETY: the structs hold numbers only; each family's fits into that of any, and is aligned as it is.
        unsafe {
            let mut any: libc::sockaddr_storage = zeroed();
            match address {
                SocketAddr::V4(address) => {
                    let one = &mut *(&raw mut any).cast::<libc::sockaddr_in>();
                    one.sin_family = libc::AF_INET as libc::sa_family_t;
                    one.sin_port = address.port().to_be();
                    one.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
                }
                SocketAddr::V6(address) => {
                    let one = &mut *(&raw mut any).cast::<libc::sockaddr_in6>();
                    one.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                    one.sin6_port = address.port().to_be();
                    one.sin6_addr.s6_addr = address.ip().octets();
                }
            }
            Self(any)
        }
    }

    fn raw(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.0).cast()
    }
}

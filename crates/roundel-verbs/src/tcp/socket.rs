//! The system calls on sockets: how they are opened and set up, and vectored reads and writes of
//! registered memory. Knows nothing of frames.
#![allow(unsafe_code)] // Vectored calls on memory that peers may write, of which there is no slice.

use crate::error::{Result, VerbsError};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// A connection without traffic is probed after this time, and again as often.
const PROBE: Duration = Duration::from_secs(1);
/// So many probes without an answer end it.
const PROBES: u32 = 3;
/// A peer that owes acknowledgements and has not sent any for as long is gone.
const SILENCE: Duration = Duration::from_secs(3);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// Bytes of datagrams that wait to be read: as many as the system grants.
const DATAGRAM_BUFFER: usize = 8 << 20;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    }
}

/// A listener on a port of the system's choice, and where it is.
pub(super) fn listen(ip: IpAddr) -> Result<(OwnedFd, SocketAddr)> {
    let socket = rustix::net::socket_with(family(ip), SocketType::STREAM, FLAGS, None)
        .map_err(VerbsError::system("opening a listener"))?;
    rustix::net::bind(&socket, &SocketAddr::new(ip, 0)).map_err(VerbsError::system(
        "binding a listener to the device's address",
    ))?;
    rustix::net::listen(&socket, BACKLOG).map_err(VerbsError::system("listening"))?;
    let at = local_address(&socket)?;
    Ok((socket, at))
}

/// A datagram socket on a port of the system's choice, and where it is.
pub(super) fn datagrams(ip: IpAddr) -> Result<(OwnedFd, SocketAddr)> {
    let socket = rustix::net::socket_with(family(ip), SocketType::DGRAM, FLAGS, None)
        .map_err(VerbsError::system("opening a datagram socket"))?;
    for set in [
        sockopt::set_socket_recv_buffer_size_force,
        sockopt::set_socket_recv_buffer_size,
    ] {
        if set(&socket, DATAGRAM_BUFFER).is_ok() {
            break;
        }
    }
    rustix::net::bind(&socket, &SocketAddr::new(ip, 0))
        .map_err(VerbsError::system("binding a datagram socket"))?;
    let at = local_address(&socket)?;
    Ok((socket, at))
}

fn local_address(socket: &OwnedFd) -> Result<SocketAddr> {
    let at = rustix::net::getsockname(socket).map_err(VerbsError::system("getsockname"))?;
    SocketAddr::try_from(at).map_err(|_| {
        VerbsError::InvalidAddress("the system gave a socket an address of another family".into())
    })
}

/// The next connection of a listener.
pub(super) fn accept(listener: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let socket = rustix::net::accept_with(listener, FLAGS)?;
    set_up(&socket);
    Ok(socket)
}

/// Begins to connect from an address of this host to a peer's listener.
pub(super) fn dial(from: IpAddr, to: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(family(to.ip()), SocketType::STREAM, FLAGS, None)?;
    set_up(&socket);
    // Out of the device's own interface, where the peer is of its kind.
    if family(from) == family(to.ip()) {
        bind_without_port(&socket);
        rustix::net::bind(&socket, &SocketAddr::new(from, 0))?;
    }
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// Lets the system choose the port when the socket connects: then many connections to different
/// peers share one. Best effort.
fn bind_without_port(socket: &OwnedFd) {
    let yes: libc::c_int = 1;
    // SAFETY: the option takes an integer, which is read before the call returns.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const yes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

/// Two ends of a connection inside this process.
pub(super) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)
}

/// Best effort: each of these makes a connection better, none of them makes it work.
fn set_up(socket: &OwnedFd) {
    let done = [
        sockopt::set_tcp_nodelay(socket, true),
        sockopt::set_socket_keepalive(socket, true),
        sockopt::set_tcp_keepidle(socket, PROBE),
        sockopt::set_tcp_keepintvl(socket, PROBE),
        sockopt::set_tcp_keepcnt(socket, PROBES),
    ];
    if let Some(errno) = done.into_iter().find_map(std::result::Result::err) {
        tracing::debug!(%errno, "an option of a socket was not set");
    }
}

/// Whether the peer owes acknowledgements and has been silent for longer than the living are.
///
/// The system's own timeout of sent data is not used: it also ends connections to a process that is
/// alive but stopped, whose host answers.
pub(super) fn is_silent(socket: &OwnedFd) -> bool {
    // SAFETY: all zeroes is a value of this struct of integers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the system writes at most `length` bytes to the struct, which has as many.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    let unanswered = (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0) || info.tcpi_probes > 0;
    got == 0 && unanswered && info.tcpi_last_ack_recv as u128 >= SILENCE.as_millis()
}

/// Ends both directions; whoever reads or writes notices.
pub(super) fn shut(socket: &OwnedFd) {
    // It may be closed by the peer already.
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// Whether the peer of a connection that carries nothing more has closed it.
pub(super) fn has_ended(socket: &OwnedFd) -> bool {
    !matches!(
        rustix::io::read(socket, &mut [0u8; 1]),
        Err(Errno::AGAIN | Errno::INTR)
    )
}

/// The error that an attempt to connect ended with.
pub(super) fn take_error(socket: &OwnedFd) -> rustix::io::Result<()> {
    sockopt::socket_error(socket)?
}

/// A range of memory as the system takes it.
pub(super) fn range(base: *const u8, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: base.cast_mut().cast(),
        iov_len: length,
    }
}

fn message(ranges: &[libc::iovec]) -> libc::msghdr {
    // SAFETY: all zeroes is a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = ranges.as_ptr().cast_mut();
    message.msg_iovlen = ranges.len();
    message
}

fn result(count: isize) -> rustix::io::Result<usize> {
    usize::try_from(count).map_err(|_| {
        let code = std::io::Error::last_os_error().raw_os_error();
        Errno::from_raw_os_error(code.unwrap_or(libc::EIO))
    })
}

/// Where a datagram goes, as the system takes it.
#[derive(Clone, Copy)]
pub(super) enum Destination {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl From<SocketAddr> for Destination {
    fn from(to: SocketAddr) -> Self {
        match to {
            SocketAddr::V4(to) => Self::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: to.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(to.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(to) => Self::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: to.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: to.ip().octets(),
                },
                sin6_scope_id: to.scope_id(),
            }),
        }
    }
}

/// Sends a datagram.
///
/// # Safety
/// The ranges are readable.
pub(super) unsafe fn send_to(
    socket: &impl AsFd,
    ranges: &[libc::iovec],
    to: &Destination,
) -> rustix::io::Result<usize> {
    let mut message = message(ranges);
    let (name, length) = match to {
        Destination::V4(to) => (std::ptr::from_ref(to).cast(), size_of_val(to)),
        Destination::V6(to) => (std::ptr::from_ref(to).cast(), size_of_val(to)),
    };
    let name: *const libc::c_void = name;
    message.msg_name = name.cast_mut();
    message.msg_namelen = length as libc::socklen_t;
    // SAFETY: as the caller says; the destination outlives the call.
    unsafe { send_message(socket, &message) }
}

/// Writes what fits; an error when nothing does.
///
/// # Safety
/// The ranges are readable.
pub(super) unsafe fn send(socket: &impl AsFd, ranges: &[libc::iovec]) -> rustix::io::Result<usize> {
    // SAFETY: as the caller says.
    unsafe { send_message(socket, &message(ranges)) }
}

/// Sends a message without waiting.
///
/// # Safety
/// What the message names is readable.
unsafe fn send_message(socket: &impl AsFd, message: &libc::msghdr) -> rustix::io::Result<usize> {
    loop {
        // SAFETY: the caller vouches for what the message names.
        let count = unsafe {
            libc::sendmsg(
                socket.as_fd().as_raw_fd(),
                message,
                libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
            )
        };
        match result(count) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Reads what is there, 0 at the end of the connection; an error when nothing is there.
///
/// # Safety
/// The ranges are writable.
pub(super) unsafe fn receive(
    socket: &impl AsFd,
    ranges: &[libc::iovec],
) -> rustix::io::Result<usize> {
    let mut message = message(ranges);
    loop {
        // SAFETY: the message names the ranges, which the caller vouches for.
        let count = unsafe {
            libc::recvmsg(
                socket.as_fd().as_raw_fd(),
                &raw mut message,
                libc::MSG_DONTWAIT,
            )
        };
        match result(count) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

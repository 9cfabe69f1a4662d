//! How two devices meet: over an abstract socket each sends a hello with its memfd and eventfds.
//! The socket stays open; its end tells of the peer's death.

use super::layout::{CHANNELS_MAX, VERSION};
use super::peer::DeviceId;
use crate::address::DeviceAddress;
use crate::error::{Result, VerbsError};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

const FDS: usize = 1 + CHANNELS_MAX;
const HELLO_BYTES: usize = 64;
const HELLO_MAGIC: [u8; 8] = *b"rndl-shm";

/// How long a peer may take to answer the hello.
pub(super) const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// A device's address: who, the secret that lets the bearer connect, and on which host.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ShmAddress {
    pub id: DeviceId,
    pub secret: [u8; 16],
    pub host: [u8; 16],
    pub process: u32,
}

impl ShmAddress {
    pub(super) fn encode(&self) -> DeviceAddress {
        let mut bytes = Vec::with_capacity(55);
        bytes.extend_from_slice(b"shm");
        bytes.extend_from_slice(&self.id);
        bytes.extend_from_slice(&self.secret);
        bytes.extend_from_slice(&self.host);
        bytes.extend_from_slice(&self.process.to_le_bytes());
        DeviceAddress::new(&bytes).expect("55 bytes are within the limit")
    }

    pub(super) fn decode(address: &DeviceAddress) -> Result<Self> {
        let bytes = address.as_bytes();
        if bytes.len() != 55 || &bytes[..3] != b"shm" {
            return Err(VerbsError::InvalidAddress(
                "not an address of a shared-memory device".into(),
            ));
        }
        let array = |at: usize| -> [u8; 16] {
            let mut array = [0; 16];
            array.copy_from_slice(&bytes[at..at + 16]);
            array
        };
        Ok(Self {
            id: array(3),
            secret: array(19),
            host: array(35),
            process: u32::from_le_bytes([bytes[51], bytes[52], bytes[53], bytes[54]]),
        })
    }

    fn socket(&self) -> Result<SocketAddrUnix> {
        socket_address(&self.id)
    }

    pub(super) fn name(&self) -> String {
        format!("process {}", self.process)
    }
}

/// The abstract socket of a device. It vanishes with its process.
pub(super) fn socket_address(id: &DeviceId) -> Result<SocketAddrUnix> {
    let mut name = String::from("roundel-");
    for byte in id {
        name.push_str(&format!("{byte:02x}"));
    }
    SocketAddrUnix::new_abstract_name(name.as_bytes())
        .map_err(VerbsError::system("naming the device's socket"))
}

/// Identifies the host and its network namespace's kernel: peers must share both.
pub(super) fn host_id() -> Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|source| {
        VerbsError::System {
            call: "reading the boot id",
            source,
        }
    })?;
    let digits: Vec<u8> = text
        .bytes()
        .filter_map(|byte| (byte as char).to_digit(16).map(|digit| digit as u8))
        .collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Ok(id)
}

/// What one device tells the other.
pub(super) struct Hello {
    pub id: DeviceId,
    /// The secret of the device that is spoken to.
    pub secret: [u8; 16],
    /// Who the other device is in this one's datagram rings.
    pub token: u32,
    pub process: u32,
}

impl Hello {
    fn emit(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&HELLO_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.id);
        bytes[28..44].copy_from_slice(&self.secret);
        bytes[44..48].copy_from_slice(&self.token.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.process.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8; HELLO_BYTES], peer: &str) -> Result<Self> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let array = |at: usize| -> [u8; 16] {
            let mut array = [0; 16];
            array.copy_from_slice(&bytes[at..at + 16]);
            array
        };
        if bytes[..8] != HELLO_MAGIC {
            return Err(VerbsError::InvalidAddress("not a hello of a device".into()));
        }
        if word(8) != VERSION {
            return Err(VerbsError::VersionMismatch {
                peer: peer.into(),
                protocol: "shared-memory device",
                theirs: word(8),
                ours: VERSION,
            });
        }
        Ok(Self {
            id: array(12),
            secret: array(28),
            token: word(44),
            process: word(48),
        })
    }
}

/// The descriptors that go with a hello.
pub(super) struct Descriptors {
    pub memory: OwnedFd,
    pub eventfds: [OwnedFd; CHANNELS_MAX],
}

/// The listening socket of a device.
pub(super) fn listen(id: &DeviceId) -> Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .map_err(VerbsError::system("socket"))?;
    rustix::net::bind(&socket, &socket_address(id)?).map_err(VerbsError::system("bind"))?;
    rustix::net::listen(&socket, 128).map_err(VerbsError::system("listen"))?;
    Ok(socket)
}

/// Connects to a peer's device, for the exchange of hellos.
pub(super) fn connect(address: &ShmAddress) -> Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(VerbsError::system("socket"))?;
    set_timeouts(&socket, HELLO_TIMEOUT)?;
    let target = address.socket()?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &target)).map_err(|errno| {
        VerbsError::PeerUnreachable {
            peer: address.name(),
            reason: match errno {
                rustix::io::Errno::CONNREFUSED => {
                    "its process has ended, or it runs in another network namespace".into()
                }
                other => other.to_string(),
            },
        }
    })?;
    // The name of a dead process's socket is free for anyone to take.
    if !same_user(&socket) {
        return Err(VerbsError::PeerUnreachable {
            peer: address.name(),
            reason: "another user's process listens in its place".into(),
        });
    }
    Ok(socket)
}

/// Bounds how long a hello may take on this socket.
fn set_timeouts(socket: &OwnedFd, limit: Duration) -> Result<()> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    for timeout in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(socket, timeout, Some(limit))
            .map_err(VerbsError::system("setting a socket's timeout"))?;
    }
    Ok(())
}

/// Whether the process at the other end belongs to this user.
pub(super) fn same_user(socket: &OwnedFd) -> bool {
    rustix::net::sockopt::socket_peercred(socket)
        .is_ok_and(|credentials| credentials.uid == rustix::process::geteuid())
}

/// Sends a hello with the device's descriptors.
pub(super) fn send(
    socket: &OwnedFd,
    hello: &Hello,
    memory: &OwnedFd,
    eventfds: &[OwnedFd; CHANNELS_MAX],
) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let mut fds = vec![memory.as_fd()];
    fds.extend(eventfds.iter().map(AsFd::as_fd));
    let pushed = control.push(SendAncillaryMessage::ScmRights(&fds));
    assert!(pushed, "the buffer has room for {FDS} descriptors");
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(
            socket,
            &[IoSlice::new(&hello.emit())],
            &mut control,
            SendFlags::NOSIGNAL,
        )
    })
    .map_err(VerbsError::system("sending the hello"))?;
    Ok(())
}

/// Receives a hello and its descriptors.
pub(super) fn receive(socket: &OwnedFd, peer: &str) -> Result<(Hello, Descriptors)> {
    let mut bytes = [0; HELLO_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })
    .map_err(|errno| VerbsError::PeerUnreachable {
        peer: peer.into(),
        reason: format!("no hello: {errno}"),
    })?;
    let fds: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    if received.bytes != HELLO_BYTES {
        return Err(VerbsError::PeerUnreachable {
            peer: peer.into(),
            reason: "it closed the connection or sent no hello".into(),
        });
    }
    let hello = Hello::parse(&bytes, peer)?;
    let mut fds = fds.into_iter();
    let memory = fds.next();
    let eventfds: Vec<OwnedFd> = fds.collect();
    match (memory, <[OwnedFd; CHANNELS_MAX]>::try_from(eventfds)) {
        (Some(memory), Ok(eventfds)) => Ok((hello, Descriptors { memory, eventfds })),
        _ => Err(VerbsError::InvalidAddress(
            "a hello without the device's descriptors".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_round_trip_and_refusal() {
        let address = ShmAddress {
            id: [1; 16],
            secret: [2; 16],
            host: [3; 16],
            process: 77,
        };
        assert!(ShmAddress::decode(&address.encode()).unwrap() == address);
        let other = DeviceAddress::new(b"tcp whatever").unwrap();
        assert!(ShmAddress::decode(&other).is_err());
    }

    #[test]
    fn hello_round_trip_and_refusal() {
        let hello = Hello {
            id: [1; 16],
            secret: [2; 16],
            token: 3,
            process: 4,
        };
        let mut bytes = hello.emit();
        let parsed = Hello::parse(&bytes, "peer").unwrap();
        assert_eq!(
            (parsed.id, parsed.secret, parsed.token),
            ([1; 16], [2; 16], 3)
        );
        bytes[8] ^= 1;
        assert!(matches!(
            Hello::parse(&bytes, "peer"),
            Err(VerbsError::VersionMismatch { .. })
        ));
        bytes[0] ^= 1;
        assert!(Hello::parse(&bytes, "peer").is_err());
    }

    /// A datagram queue pair of a new device, with what must stay for it to work.
    fn datagram_queue_pair() -> (crate::Device, crate::QueuePair) {
        let device = crate::shm::open(crate::shm::ShmOptions::default()).unwrap();
        let queue = device.create_completion_queue(16, None).unwrap();
        let options = crate::QueuePairOptions {
            transport: crate::Transport::UnreliableDatagram,
            send_depth: 4,
            receive_depth: 4,
            rnr_retry: 7,
            queue_key: 5,
        };
        let pair = device.create_queue_pair(&options, &queue, &queue).unwrap();
        pair.activate().unwrap();
        (device, pair)
    }

    #[test]
    fn garbage_at_the_socket_changes_nothing() {
        use rustix::fs::{MemfdFlags, memfd_create};
        let (_device, pair) = datagram_queue_pair();
        let address = ShmAddress::decode(&pair.address().device).unwrap();
        let file = |name: &str| memfd_create(name, MemfdFlags::CLOEXEC).unwrap();
        let eventfds = || std::array::from_fn(|index| file(&format!("no eventfd {index}")));
        let hello = |secret| Hello {
            id: [9; 16],
            secret,
            token: u32::MAX,
            process: 1,
        };
        let mut held = Vec::new();
        // Bytes of any length.
        for length in [0, 1, HELLO_BYTES - 1, HELLO_BYTES, HELLO_BYTES + 1, 4096] {
            let socket = connect(&address).unwrap();
            let bytes: Vec<u8> = (0..length).map(|at| (at * 37) as u8).collect();
            // The device may hang up before it has read everything.
            let _ = rustix::net::send(&socket, &bytes, SendFlags::NOSIGNAL);
            held.push(socket);
        }
        // A good hello without descriptors; one with a wrong secret; and one whose memory is an
        // empty file and whose eventfds are none.
        let socket = connect(&address).unwrap();
        let _ = rustix::net::send(&socket, &hello(address.secret).emit(), SendFlags::NOSIGNAL);
        held.push(socket);
        for secret in [[0; 16], address.secret] {
            let socket = connect(&address).unwrap();
            send(&socket, &hello(secret), &file("no device"), &eventfds()).unwrap();
            assert!(receive(&socket, "the device").is_err() || secret == address.secret);
            held.push(socket);
        }
        // Strangers that say nothing.
        held.extend((0..32).map(|_| connect(&address).unwrap()));

        let (other, _pair) = datagram_queue_pair();
        other.create_address_handle(pair.address()).unwrap();
    }
}

//! Under which address the other processes of a cluster reach this one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use url::Url;

/// The address of a process that listens on `listen`: when that is every address of the host, the
/// one that leads to other networks.
pub(crate) fn reachable_at(listen: IpAddr) -> IpAddr {
    if !listen.is_unspecified() {
        return listen;
    }
    // Of a block that is kept for documents: nothing is sent there, only a route is looked up.
    towards(SocketAddr::from(([192, 0, 2, 1], 9))).unwrap_or(Ipv4Addr::LOCALHOST.into())
}

/// The address of this process on its way to the workers; loopback when they are not known yet,
/// since it is about to start them.
pub(crate) fn own_address(workers: &[Url]) -> IpAddr {
    let first = workers.first().and_then(|url| {
        let address = (url.host_str()?.trim_matches(['[', ']']), url.port()?);
        let mut addresses = address.to_socket_addrs().ok()?;
        towards(addresses.next()?)
    });
    first.unwrap_or(Ipv4Addr::LOCALHOST.into())
}

/// The address of this host that packets to `target` carry.
fn towards(target: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = match target {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_reaches_loopback() {
        for (worker, own) in [
            ("http://127.0.0.1:7070", "127.0.0.1"),
            ("http://[::1]:7070", "::1"),
        ] {
            let worker = Url::parse(worker).unwrap();
            assert_eq!(own_address(&[worker]), own.parse::<IpAddr>().unwrap());
        }
        assert!(own_address(&[]).is_loopback());
    }

    #[test]
    fn an_address_that_is_listened_on_is_taken() {
        let one: IpAddr = "10.1.2.3".parse().unwrap();
        assert_eq!(reachable_at(one), one);
        assert!(!reachable_at(Ipv4Addr::UNSPECIFIED.into()).is_unspecified());
    }
}

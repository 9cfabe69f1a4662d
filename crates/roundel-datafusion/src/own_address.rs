//! Under which address other processes reach this one, and whether they are on the same host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use url::Url;

/// The address at which others reach a process that listens on `listen`: when that is every address of the host, the
/// one that leads to other networks.
pub fn reachable_at(listen: IpAddr) -> IpAddr {
    if !listen.is_unspecified() {
        return listen;
    }
    // Of a block that is kept for documents: nothing is sent there, only a route is looked up.
    towards(SocketAddr::from(([192, 0, 2, 1], 9))).unwrap_or(Ipv4Addr::LOCALHOST.into())
}

/// The address of this process on its way to the workers; loopback when they are not known yet,
/// since it is about to start them.
pub fn own_address(workers: &[Url]) -> IpAddr {
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

/// Whether all of these workers are on this host.
pub(crate) fn all_here(workers: &[Url]) -> bool {
    workers.iter().all(|url| {
        let address = url.socket_addrs(|| None).ok();
        let address = address.and_then(|addresses| addresses.first().copied());
        // Only a host's own addresses can be listened on.
        address.is_some_and(|one| UdpSocket::bind((one.ip(), 0)).is_ok())
    })
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
    fn workers_are_here_where_all_of_them_are() {
        let here = ["http://127.0.0.1:1", "http://localhost:2"];
        let here = here.map(|url| Url::parse(url).unwrap());
        assert!(all_here(&here));
        let there = Url::parse("http://192.0.2.1:4").unwrap();
        assert!(!all_here(&[here[0].clone(), there]));
    }

    #[test]
    fn an_address_that_is_listened_on_is_taken() {
        let one: IpAddr = "10.1.2.3".parse().unwrap();
        assert_eq!(reachable_at(one), one);
        assert!(!reachable_at(Ipv4Addr::UNSPECIFIED.into()).is_unspecified());
    }
}

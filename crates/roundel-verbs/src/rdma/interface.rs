//! The network interface behind an iWARP device, and its address.
#![allow(unsafe_code)] // Walks the list of addresses that the system makes.

use std::ffi::CStr;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::null_mut;

/// The interface with this GID: on iWARP that begins with the interface's hardware address.
pub(super) fn of_gid(gid: Ipv6Addr) -> Option<String> {
    let wanted: Vec<String> = gid.octets()[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let wanted = wanted.join(":");
    let interfaces = fs::read_dir("/sys/class/net").ok()?.filter_map(Result::ok);
    let mut names: Vec<String> = interfaces
        .filter(|one| {
            fs::read_to_string(one.path().join("address")).is_ok_and(|text| text.trim() == wanted)
        })
        .filter_map(|one| one.file_name().into_string().ok())
        .collect();
    // A VLAN has the hardware address of the interface below it, and a longer name.
    names.sort_by_key(String::len);
    names.into_iter().next()
}

/// The address of an interface by which peers reach it: of version 4 if there is one, mapped; of version 6 else, unless
/// it means nothing to other hosts.
pub(super) fn address_of(interface: &str) -> Option<Ipv6Addr> {
    let mut list: *mut libc::ifaddrs = null_mut();
    // SAFETY: `list` is a valid place for the result.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return None;
    }
    let (mut version_4, mut version_6) = (None, None);
    let mut entry = list;
    while !entry.is_null() {
        // SAFETY: entries of the list are valid until it is freed; names end with a zero byte; an address has the size
        // of its family's struct.
        unsafe {
            let one = &*entry;
            if !one.ifa_addr.is_null() && CStr::from_ptr(one.ifa_name).to_str() == Ok(interface) {
                match i32::from((*one.ifa_addr).sa_family) {
                    libc::AF_INET => {
                        let address = &*one.ifa_addr.cast::<libc::sockaddr_in>();
                        let octets = address.sin_addr.s_addr.to_ne_bytes();
                        version_4 = version_4.or(Some(Ipv4Addr::from(octets).to_ipv6_mapped()));
                    }
                    libc::AF_INET6 => {
                        let address = &*one.ifa_addr.cast::<libc::sockaddr_in6>();
                        let address = Ipv6Addr::from(address.sin6_addr.s6_addr);
                        let usable = (!address.is_unicast_link_local()).then_some(address);
                        version_6 = version_6.or(usable);
                    }
                    _ => {}
                }
            }
            entry = one.ifa_next;
        }
    }
    // SAFETY: the list came from getifaddrs, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    version_4.or(version_6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address() {
        assert_eq!(address_of("lo"), Some(Ipv4Addr::LOCALHOST.to_ipv6_mapped()));
        assert_eq!(address_of("no such interface"), None);
        // Its hardware address is none, which no device has.
        assert_eq!(of_gid(Ipv6Addr::UNSPECIFIED).as_deref(), Some("lo"));
    }
}

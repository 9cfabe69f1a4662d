//! Values of flags that several programs have, and what is refused.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

use bytesize::ByteSize;

/// Bytes.
pub fn size(text: &str) -> Result<u64, String> {
    match text.parse::<ByteSize>() {
        Ok(size) if size.as_u64() > 0 => Ok(size.as_u64()),
        _ => {
            Err("a size is a number of bytes above 0 with a unit, such as 64MiB or 1GB".to_owned())
        }
    }
}

/// Where a process listens: `HOST:PORT`, or a port on loopback.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let mut addresses = text
        .to_socket_addrs()
        .map_err(|e| format!("an address is HOST:PORT or a port ({e})"))?;
    addresses
        .next()
        .ok_or_else(|| format!("{text:?} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("1GB"), Ok(1_000_000_000));
        assert_eq!(size("4096"), Ok(4096));
        for wrong in ["0", "", "MiB", "-1MiB", "1XB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_bare_port_listens_on_loopback() {
        assert_eq!(
            listen_address("7070").unwrap().to_string(),
            "127.0.0.1:7070"
        );
        assert_eq!(
            listen_address(":7070").unwrap().to_string(),
            "127.0.0.1:7070"
        );
        assert_eq!(listen_address("[::1]:1").unwrap().to_string(), "[::1]:1");
        assert!(listen_address("7070000").is_err());
    }
}

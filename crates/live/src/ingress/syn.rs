//! What a client's first packet was marked with. The kernel keeps the SYN's headers for a listener that asks for them
//! (tcp(7) `TCP_SAVE_SYN`, Linux 4.2); marks of later packets are not looked at.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::config::Dscp;

/// Asks the kernel to keep the SYNs of this listener's clients; to be called before it listens.
///
/// # Errors
/// When the kernel cannot.
pub fn keep(listener: &impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is borrowed and open, and the kernel reads an int from a place that holds one.
    let outcome = unsafe {
        libc::setsockopt(
            listener.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_SAVE_SYN,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    nix::errno::Errno::result(outcome).map(drop).map_err(io::Error::from)
}

/// The mark of an accepted client's SYN, and the kernel forgets the SYN. `None` if it was not kept, as under SYN
/// cookies.
pub fn dscp(client: &impl AsFd) -> Option<Dscp> {
    let mut headers = [0u8; LONGEST];
    let mut length = headers.len() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed and open, and the kernel writes at most `length` bytes to a place of that size.
    let outcome = unsafe {
        libc::getsockopt(
            client.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_SAVED_SYN,
            headers.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    nix::errno::Errno::result(outcome).ok()?;
    parse(headers.get(..length as usize)?)
}

/// The mark of a packet that begins with an IPv4 or IPv6 header (RFC 791 §3.1, RFC 8200 §3); `None` of anything else.
pub fn parse(packet: &[u8]) -> Option<Dscp> {
    match *packet {
        [first, service, ..] if first >> 4 == 4 && packet.len() >= 20 => Some(Dscp::of_byte(service)),
        [first, second, ..] if first >> 4 == 6 && packet.len() >= 40 => {
            Some(Dscp::of_byte(first << 4 | second >> 4))
        }
        _ => None,
    }
}

/// IPv4 and TCP headers take 120 bytes at most, IPv6 and TCP 100; extension headers of a SYN come on top.
const LONGEST: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_are_read_from_both_headers() {
        let mut v4 = [0; 60];
        v4[..2].copy_from_slice(&[0x45, 46 << 2 | 1]);
        assert_eq!(parse(&v4), "ef".parse().ok());
        let mut v6 = [0; 80];
        // Traffic class 0x22: CS1 and a congestion bit; then a flow label.
        v6[..4].copy_from_slice(&[0x62, 0x2f, 0xff, 0xff]);
        assert_eq!(parse(&v6), "cs1".parse().ok());
        assert_eq!(parse(&v4[..19]), None);
        assert_eq!(parse(&v6[..39]), None);
        assert_eq!(parse(&[]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_mark_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(dscp) = parse(&bytes) {
                prop_assert!(dscp.to_byte() & 3 == 0 && (bytes[0] >> 4 == 4 || bytes[0] >> 4 == 6));
            }
        }
    }
}

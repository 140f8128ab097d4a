//! What a client's first packet was marked with, and which TCP options it offers. The kernel keeps the SYN's headers for
//! a listener that asks for them (tcp(7) `TCP_SAVE_SYN`, Linux 4.2); marks of later packets are not looked at.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use skyhaul_pep::exceptions::Options;

use crate::config::Dscp;

/// A client's first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syn {
    /// Its mark.
    pub dscp: Dscp,
    /// What it offers; unknown where something stands between the IP and the TCP header.
    pub offers: Option<Options>,
}

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

/// An accepted client's SYN, and the kernel forgets it. `None` if it was not kept, as under SYN cookies.
pub fn read(client: &impl AsFd) -> Option<Syn> {
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

/// Reads a packet that begins with an IPv4 or IPv6 header (RFC 791 §3.1, RFC 8200 §3); `None` of anything else.
pub fn parse(packet: &[u8]) -> Option<Syn> {
    match *packet {
        [first, service, ..] if first >> 4 == 4 && packet.len() >= 20 => {
            let tcp = packet.get(usize::from(first & 15) * 4..).filter(|_| packet[9] == TCP);
            Some(Syn { dscp: Dscp::of_byte(service), offers: tcp.and_then(offers) })
        }
        [first, second, ..] if first >> 4 == 6 && packet.len() >= 40 => {
            let tcp = packet.get(40..).filter(|_| packet[6] == TCP);
            Some(Syn { dscp: Dscp::of_byte(first << 4 | second >> 4), offers: tcp.and_then(offers) })
        }
        _ => None,
    }
}

/// Options of a TCP header (RFC 9293 §3.1).
fn offers(tcp: &[u8]) -> Option<Options> {
    let length = usize::from(tcp.get(12)? >> 4) * 4;
    let mut rest = tcp.get(20..length)?;
    let mut found = Options { window_scaling: false, sack: false, timestamps: false };
    while let [kind, after @ ..] = rest {
        match *kind {
            END => break,
            NOTHING => {
                rest = after;
                continue;
            }
            WINDOW_SCALING => found.window_scaling = true,
            SACK_PERMITTED => found.sack = true,
            TIMESTAMPS => found.timestamps = true,
            _ => {}
        }
        let length = usize::from(*after.first()?);
        rest = rest.get(length..).filter(|_| length >= 2)?;
    }
    Some(found)
}

/// IANA's protocol number.
const TCP: u8 = 6;
/// Kinds of options: RFC 9293 §3.2, RFC 7323 §2 and §3, RFC 2018 §2.
const END: u8 = 0;
const NOTHING: u8 = 1;
const WINDOW_SCALING: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const TIMESTAMPS: u8 = 8;

/// IPv4 and TCP headers take 120 bytes at most, IPv6 and TCP 100; extension headers of a SYN come on top.
const LONGEST: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mark(packet: &[u8]) -> Option<Dscp> {
        parse(packet).map(|syn| syn.dscp)
    }

    #[test]
    fn marks_are_read_from_both_headers() {
        let mut v4 = [0; 60];
        v4[..2].copy_from_slice(&[0x45, 46 << 2 | 1]);
        assert_eq!(mark(&v4), "ef".parse().ok());
        let mut v6 = [0; 80];
        // Traffic class 0x22: CS1 and a congestion bit; then a flow label.
        v6[..4].copy_from_slice(&[0x62, 0x2f, 0xff, 0xff]);
        assert_eq!(mark(&v6), "cs1".parse().ok());
        assert_eq!(mark(&v4[..19]), None);
        assert_eq!(mark(&v6[..39]), None);
        assert_eq!(mark(&[]), None);
    }

    /// An IPv4 or IPv6 packet with a TCP header that has these options.
    fn packet(v6: bool, options: &[u8]) -> Vec<u8> {
        let mut packet = if v6 { vec![0; 40] } else { vec![0; 20] };
        (packet[0], packet[if v6 { 6 } else { 9 }]) = (if v6 { 0x60 } else { 0x45 }, TCP);
        let mut tcp = [0; 20];
        tcp[12] = ((20 + options.len()) / 4) as u8 * 16;
        packet.extend_from_slice(&tcp);
        packet.extend_from_slice(options);
        packet
    }

    #[test]
    fn what_a_client_offers_is_read_and_what_it_does_not_is_missed() {
        // Linux: MSS, SACK permitted, timestamps, nothing, window scaling by 7.
        let all = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
        let none = Options { window_scaling: false, sack: false, timestamps: false };
        for v6 in [false, true] {
            assert_eq!(parse(&packet(v6, &all)).unwrap().offers, Some(Options::ALL));
            assert_eq!(parse(&packet(v6, &[2, 4, 5, 0xb4])).unwrap().offers, Some(none));
            let sack = packet(v6, &[1, 1, 4, 2, 0, 3, 3, 7]);
            assert_eq!(parse(&sack).unwrap().offers, Some(Options { sack: true, ..none }));
            // An option without length, and one longer than the header.
            assert_eq!(parse(&packet(v6, &[4, 0, 0, 0])).unwrap().offers, None);
            assert_eq!(parse(&packet(v6, &[4, 9, 0, 0])).unwrap().offers, None);
        }
    }

    #[test]
    fn the_kernel_keeps_what_a_client_offers() {
        let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        keep(&listener).unwrap();
        listener.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(1).unwrap();
        let listener = std::net::TcpListener::from(listener);
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(read(&server).unwrap().offers, Some(crate::tcp::info::offered_here()));
        assert_eq!(read(&server), None, "it is forgotten");
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_mark_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(Syn { dscp, .. }) = parse(&bytes) {
                prop_assert!(dscp.to_byte() & 3 == 0 && (bytes[0] >> 4 == 4 || bytes[0] >> 4 == 6));
            }
        }
    }
}

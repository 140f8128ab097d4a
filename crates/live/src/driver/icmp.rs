//! Hears of peers whose process is gone: their kernel answers with ICMP port unreachable (RFC 1122
//! §4.1.3.1). Silence alone proves nothing on a link with outages of minutes.

use nix::sys::socket::{recvmsg, setsockopt, sockopt, ControlMessageOwned, MsgFlags, SockaddrStorage};
use skyhaul_cc::{Duration, Time};
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;

/// ICMP destination unreachable, port (RFC 792) and ICMPv6 destination unreachable, port (RFC 4443 §3.1).
const PORT_UNREACHABLE: [(u8, u8, u8); 2] = [(2, 3, 3), (3, 1, 4)];

/// One message may be forged or belong to a moment of restart; two this far apart, with nothing heard in
/// between, do not.
const CONFIRM: Duration = Duration::from_millis(300);

/// Asks the kernel to queue ICMP errors for this socket.
pub(super) fn enable(socket: &UdpSocket) -> std::io::Result<()> {
    if socket.local_addr()?.is_ipv6() {
        setsockopt(socket, sockopt::Ipv6RecvErr, &true)?;
    }
    setsockopt(socket, sockopt::Ipv4RecvErr, &true).or_else(|error| {
        // An IPv6-only socket has no IPv4 options.
        if socket.local_addr().is_ok_and(|address| address.is_ipv6()) {
            Ok(())
        } else {
            Err(error.into())
        }
    })
}

/// Destinations whose port turned out to be closed.
pub(super) fn unreachable_ports(socket: &impl AsRawFd) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    let mut payload = [0u8; 64];
    // Beside the error come whatever other messages the socket asked for: ECN, destination address.
    let mut control = vec![0; 512];
    loop {
        let mut parts = [IoSliceMut::new(&mut payload)];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let Ok(message) =
            recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)
        else {
            return found;
        };
        let closed = message.cmsgs().is_ok_and(|mut all| {
            all.any(|one| match one {
                ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _) => {
                    PORT_UNREACHABLE.contains(&(error.ee_origin, error.ee_type, error.ee_code))
                }
                _ => false,
            })
        });
        if let (true, Some(address)) = (closed, message.address.as_ref().and_then(address_of)) {
            found.push(address);
        }
    }
}

pub(super) fn address_of(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddr::new(IpAddr::V4(v4.ip()), v4.port()));
    }
    let v6 = storage.as_sockaddr_in6()?;
    Some(SocketAddr::V6(SocketAddrV6::new(v6.ip(), v6.port(), 0, 0)))
}

/// The same address in one form, whichever socket saw it.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4),
        v4 => v4,
    };
    SocketAddr::new(ip, address.port())
}

/// An address as a socket bound to `own` sends to it: one of both families shows IPv4 as mapped addresses.
pub(super) fn as_seen_by(own: SocketAddr, remote: SocketAddr) -> SocketAddr {
    match (own, remote) {
        (SocketAddr::V6(_), SocketAddr::V4(v4)) => SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port())),
        _ => remote,
    }
}

/// Decides when closed ports mean that a peer is gone.
#[derive(Debug, Default)]
pub(super) struct Departures {
    suspects: BTreeMap<SocketAddr, Time>,
}

impl Departures {
    /// A datagram came from there.
    pub(super) fn heard_from(&mut self, address: SocketAddr) {
        if !self.suspects.is_empty() {
            self.suspects.remove(&canonical(address));
        }
    }

    /// ICMP said that nobody listens there; true if that is now believed.
    pub(super) fn closed(&mut self, address: SocketAddr, now: Time) -> bool {
        let first = *self.suspects.entry(canonical(address)).or_insert(now);
        now >= first + CONFIRM
    }

    /// The peer there was given up.
    pub(super) fn forget(&mut self, address: SocketAddr) {
        self.suspects.remove(&canonical(address));
    }
}

/// The unspecified address of a socket that reaches `remote`.
pub(super) fn any_address_for(remote: SocketAddr) -> SocketAddr {
    match remote {
        SocketAddr::V4(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_messages_apart_with_silence_between_mean_departure() {
        let peer: SocketAddr = "192.0.2.1:4433".parse().unwrap();
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:4433".parse().unwrap();
        let mut departures = Departures::default();
        assert!(!departures.closed(peer, Time::from_millis(0)));
        assert!(!departures.closed(peer, Time::from_millis(200)));
        departures.heard_from(mapped);
        assert!(!departures.closed(peer, Time::from_millis(400)));
        assert!(departures.closed(mapped, Time::from_millis(800)));
    }

    #[test]
    fn a_closed_port_on_this_machine_is_noticed() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        enable(&socket).unwrap();
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        socket.send_to(b"x", closed).unwrap();
        let mut seen = Vec::new();
        for _ in 0..200 {
            seen = unreachable_ports(&socket);
            if !seen.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(seen, vec![closed]);
    }
}

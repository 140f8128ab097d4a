//! Which interface leads to a peer.

use nix::ifaddrs::getifaddrs;
use skyhaul_pep::memory::Interface;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The interface over which packets to `remote` leave now, by the routing table; the one without a name if the
/// system does not say.
pub fn interface_towards(remote: SocketAddr) -> Interface {
    own_address_towards(remote).and_then(interface_with).unwrap_or_default()
}

/// Connecting a UDP socket sends nothing and chooses the source address.
fn own_address_towards(remote: SocketAddr) -> Option<IpAddr> {
    let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
    let any = match remote {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(remote).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn interface_with(own: IpAddr) -> Option<Interface> {
    let mut all = getifaddrs().ok()?;
    let found = all.find(|entry| {
        let address = entry.address.as_ref();
        let v4 = address.and_then(|a| a.as_sockaddr_in()).map(|a| IpAddr::V4(a.ip()));
        let v6 = address.and_then(|a| a.as_sockaddr_in6()).map(|a| IpAddr::V6(a.ip()));
        v4.or(v6) == Some(own)
    });
    Interface::new(&found?.interface_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_reached_over_the_loopback_interface() {
        assert_eq!(interface_towards("127.0.0.1:4433".parse().unwrap()).name(), "lo");
        assert_eq!(interface_towards("[::ffff:127.0.0.1]:4433".parse().unwrap()).name(), "lo");
    }
}

//! The standard lab: four hosts in a row with the emulated link in the middle.

use super::{EmulateError, Emulator, DEVICE, MTU};
use crate::netns::{Namespace, NetnsError};
use skyhaul_sim::scenario::Scenario;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Four hosts as network namespaces: `client - terminal - [link] - gateway - server`.
///
/// | host     | device | IPv4         | IPv6         |
/// |----------|--------|--------------|--------------|
/// | client   | lan    | 10.77.1.2/24 | fd77:1::2/64 |
/// | terminal | lan    | 10.77.1.1/24 | fd77:1::1/64 |
/// | terminal | sat    | 10.77.0.1/30 | fd77::1/64   |
/// | gateway  | sat    | 10.77.0.2/30 | fd77::2/64   |
/// | gateway  | lan    | 10.77.2.1/24 | fd77:2::1/64 |
/// | server   | lan    | 10.77.2.2/24 | fd77:2::2/64 |
///
/// Terminal and gateway forward, the MTU is 1500 everywhere, reverse path filters are off and TCP keeps no
/// memory of earlier connections. `sat` exists while [`Hosts::link`] does.
pub struct Hosts {
    /// Behind the terminal.
    pub client: Namespace,
    /// The near end of the link.
    pub terminal: Namespace,
    /// The far end of the link.
    pub gateway: Namespace,
    /// Behind the gateway.
    pub server: Namespace,
}

/// The client's addresses.
pub const CLIENT: (Ipv4Addr, Ipv6Addr) = address(1, 2);
/// The terminal's addresses on the link.
pub const TERMINAL: (Ipv4Addr, Ipv6Addr) = address(0, 1);
/// The gateway's addresses on the link.
pub const GATEWAY: (Ipv4Addr, Ipv6Addr) = address(0, 2);
/// The server's addresses.
pub const SERVER: (Ipv4Addr, Ipv6Addr) = address(2, 2);

/// The addresses of one host on one of the three networks; 0 is the link.
const fn address(network: u8, host: u8) -> (Ipv4Addr, Ipv6Addr) {
    (Ipv4Addr::new(10, 77, network, host), Ipv6Addr::new(0xfd77, network as u16, 0, 0, 0, 0, 0, host as u16))
}

/// Every namespace's settings. IPv6 addresses are used at once (no duplicate address detection), and nobody
/// sends router solicitations: a link should be quiet until the experiment speaks.
const SETTINGS: [(&str, &str); 9] = [
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv6.conf.all.forwarding", "1"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
    ("net.ipv4.tcp_no_metrics_save", "1"),
    ("net.ipv6.conf.all.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
    ("net.ipv6.conf.default.router_solicitations", "0"),
];

impl Hosts {
    /// Makes the hosts and the cables on both sides; the link is still missing.
    pub fn new() -> Result<Hosts, NetnsError> {
        let hosts = Hosts {
            client: Namespace::new("client")?,
            terminal: Namespace::new("terminal")?,
            gateway: Namespace::new("gateway")?,
            server: Namespace::new("server")?,
        };
        for namespace in [&hosts.client, &hosts.terminal, &hosts.gateway, &hosts.server] {
            for (key, value) in SETTINGS {
                namespace.sysctl(key, value)?;
            }
        }
        for (end, router, network) in
            [(&hosts.client, &hosts.terminal, 1), (&hosts.server, &hosts.gateway, 2)]
        {
            Namespace::veth(end, "lan", router, "lan")?;
            settle(router, "lan", address(network, 1), 24)?;
            settle(end, "lan", address(network, 2), 24)?;
            let (via4, via6) = address(network, 1);
            end.ip(&format!("route add default via {via4}"))?;
            end.ip(&format!("-6 route add default via {via6}"))?;
        }
        Ok(hosts)
    }

    /// Puts the emulated link between terminal and gateway, with addresses and routes.
    pub fn link(&self, scenario: &Scenario, seed: u64) -> Result<Emulator, EmulateError> {
        let emulator = Emulator::start(&self.terminal, &self.gateway, scenario, seed)?;
        for (namespace, own, peer, beyond) in
            [(&self.terminal, TERMINAL, GATEWAY, 2), (&self.gateway, GATEWAY, TERMINAL, 1)]
        {
            settle(namespace, DEVICE, own, 30)?;
            namespace.ip(&format!("route add 10.77.{beyond}.0/24 via {}", peer.0))?;
            namespace.ip(&format!("-6 route add fd77:{beyond}::/64 via {}", peer.1))?;
        }
        Ok(emulator)
    }
}

/// Gives a device its addresses and takes it up.
fn settle(
    namespace: &Namespace,
    device: &str,
    (v4, v6): (Ipv4Addr, Ipv6Addr),
    prefix: u8,
) -> Result<(), NetnsError> {
    namespace.ip(&format!("link set {device} mtu {MTU} up"))?;
    namespace.ip(&format!("address add {v4}/{prefix} dev {device}"))?;
    namespace.ip(&format!("-6 address add {v6}/64 nodad dev {device}"))
}

//! The firewall rules as text for nft. Pure.

use std::fmt;

use crate::config::{Config, Intercept, Ports, Prefix, Role};
use crate::ingress::TransparentPorts;

/// What nft and ip are to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Which end: two ends can share a network namespace if their marks differ.
    pub role: Role,
    /// Number of the firewall mark, the routing table and the routing rule.
    pub mark: u32,
    /// New connections to take, and the listeners to lead them to; without it only the packets of connections that
    /// we made under other hosts' addresses come to us.
    pub arrivals: Option<(Intercept, TransparentPorts)>,
}

impl Rules {
    /// The rules of a config. A gateway that names no destinations takes those in its peers' networks.
    pub fn new(config: &Config, ports: TransparentPorts) -> Rules {
        let arrivals = config.intercept.clone().map(|mut intercept| {
            if intercept.only.is_empty() {
                intercept.only = config.peers.iter().flat_map(|peer| peer.networks.clone()).collect();
            }
            (intercept, ports)
        });
        Rules { role: config.role(), mark: config.limits.route_mark, arrivals }
    }

    /// Name of the nft table, in family inet.
    pub fn table(&self) -> String {
        format!("skyhaul_{}_{}", self.role, self.mark)
    }
}

/// All on one line, which nft puts in force as a whole or not at all.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table();
        let mark = self.mark;
        write!(f, "add table inet {table} {{ flags owner ; }}")?;
        write!(f, "; add chain inet {table} arrivals")?;
        write!(
            f,
            "; add chain inet {table} prerouting {{ type filter hook prerouting priority mangle ; policy accept ; }}"
        )?;
        // Packets for sockets that use other hosts' addresses are for this host, whatever their destination.
        write!(
            f,
            "; add rule inet {table} prerouting meta l4proto tcp socket transparent 1 meta mark set {mark} accept"
        )?;
        let Some((intercept, ports)) = &self.arrivals else { return Ok(()) };
        // Only the first packet: connections older than this rule keep their way.
        write!(
            f,
            "; add rule inet {table} prerouting iifname {} tcp flags & (fin|syn|rst|ack) == syn jump arrivals",
            set(intercept.interfaces.iter().map(|name| format!("\"{name}\"")))
        )?;
        let mut rule = |text: String| write!(f, "; add rule inet {table} arrivals {text}");
        rule("fib daddr type { local, broadcast, anycast, multicast } return".to_owned())?;
        for block in disjoint(&intercept.exclude) {
            let family = family(block);
            rule(format!("{family} saddr {block} return"))?;
            rule(format!("{family} daddr {block} return"))?;
        }
        if !intercept.ports.is_empty() {
            rule(format!("tcp dport != {} return", set(merged(&intercept.ports).iter())))?;
        }
        for (is_ipv4, nfproto, target) in [
            (true, "ipv4", ports.v4.map(|port| format!("ip to 127.0.0.1:{port}"))),
            (false, "ipv6", ports.v6.map(|port| format!("ip6 to [::1]:{port}"))),
        ] {
            let blocks: Vec<_> =
                disjoint(&intercept.only).into_iter().filter(|block| block.is_ipv4() == is_ipv4).collect();
            let of_family = match blocks.first() {
                Some(&block) => format!("{} daddr {}", family(block), set(blocks.iter())),
                None if intercept.only.is_empty() => format!("meta nfproto {nfproto}"),
                None => continue,
            };
            let Some(target) = target else { continue };
            rule(format!("{of_family} meta l4proto tcp tproxy {target} meta mark set {mark} accept"))?;
        }
        Ok(())
    }
}

fn family(block: Prefix) -> &'static str {
    if block.is_ipv4() {
        "ip"
    } else {
        "ip6"
    }
}

fn set(items: impl Iterator<Item = impl fmt::Display>) -> String {
    let items: Vec<_> = items.map(|item| item.to_string()).collect();
    format!("{{ {} }}", items.join(", "))
}

/// The blocks that lie in no other block: nft refuses sets whose members overlap.
fn disjoint(blocks: &[Prefix]) -> Vec<Prefix> {
    let mut sorted = blocks.to_vec();
    sorted.sort();
    sorted.dedup();
    let inside = |block: &Prefix, other: &Prefix| block != other && other.holds(block);
    sorted.iter().filter(|block| !sorted.iter().any(|other| inside(block, other))).copied().collect()
}

/// The same ports in ranges that do not touch.
fn merged(ports: &[Ports]) -> Vec<Ports> {
    let mut sorted = ports.to_vec();
    sorted.sort();
    let mut merged: Vec<Ports> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.first <= last.last.saturating_add(1) => last.last = last.last.max(range.last),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn intercept() -> Intercept {
        Intercept {
            interfaces: vec!["lan".to_owned(), "eth0.5".to_owned()],
            preserve_source: true,
            ports: Vec::new(),
            only: Vec::new(),
            exclude: Vec::new(),
        }
    }

    fn text(intercept: Intercept) -> String {
        let ports = TransparentPorts { v4: Some(4001), v6: Some(4002) };
        Rules { role: Role::Terminal, mark: 77, arrivals: Some((intercept, ports)) }.to_string()
    }

    #[test]
    fn new_connections_of_both_families_are_led_to_the_listeners() {
        let text = text(intercept());
        assert!(text.contains("meta nfproto ipv4 meta l4proto tcp tproxy ip to 127.0.0.1:4001"), "{text}");
        assert!(text.contains("meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [::1]:4002"), "{text}");
        assert!(text.contains("iifname { \"lan\", \"eth0.5\" } tcp flags"), "{text}");
        assert!(!text.contains('\n'), "one line is one transaction");
    }

    #[test]
    fn destinations_of_one_family_leave_the_other_alone() {
        let only = vec!["10.77.1.0/24".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        let text = text(Intercept { only, ..intercept() });
        assert!(text.contains("ip daddr { 10.0.0.0/8 } meta l4proto tcp tproxy ip to"), "{text}");
        assert!(!text.contains("tproxy ip6"), "{text}");
    }

    #[test]
    fn without_interception_only_our_own_connections_come_back_to_us() {
        let text = Rules { role: Role::Gateway, mark: 77, arrivals: None }.to_string();
        assert!(text.contains("socket transparent 1 meta mark set 77"), "{text}");
        assert!(!text.contains("tproxy"), "{text}");
    }

    #[test]
    fn ports_and_exclusions_come_before_the_redirection() {
        let ports = vec!["443".parse().unwrap(), "80".parse().unwrap(), "80-90".parse().unwrap()];
        let exclude = vec!["10.9.0.0/16".parse().unwrap(), "fd00::1".parse().unwrap()];
        let text = text(Intercept { ports, exclude, ..intercept() });
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} not in {text}"));
        assert!(at("tcp dport != { 80-90, 443 } return") < at("tproxy"));
        assert!(at("ip daddr 10.9.0.0/16 return") < at("tproxy"));
        assert!(at("ip6 saddr fd00::1/128 return") < at("tproxy"));
    }

    proptest! {
        #[test]
        fn merged_ports_hold_the_same_ports_and_never_touch(
            ranges in proptest::collection::vec((1u16.., 0u16..50), 0..20),
            port: u16,
        ) {
            let ranges: Vec<Ports> = ranges
                .into_iter()
                .map(|(first, more)| Ports { first, last: first.saturating_add(more) })
                .collect();
            let merged = merged(&ranges);
            let holds = |ranges: &[Ports]| ranges.iter().any(|r| (r.first..=r.last).contains(&port));
            prop_assert_eq!(holds(&ranges), holds(&merged));
            prop_assert!(merged.windows(2).all(|pair| pair[0].last + 1 < pair[1].first), "{:?}", merged);
        }

        #[test]
        fn disjoint_blocks_hold_the_same_addresses_and_never_overlap(
            blocks in proptest::collection::vec((0u32..256, 0u8..=32), 0..12),
            address in 0u32..256,
        ) {
            let blocks: Vec<Prefix> = blocks
                .into_iter()
                .filter_map(|(bits, length)| Prefix::new(std::net::Ipv4Addr::from_bits(bits).into(), length))
                .collect();
            let kept = disjoint(&blocks);
            let address = std::net::Ipv4Addr::from_bits(address).into();
            let count = |blocks: &[Prefix]| blocks.iter().filter(|block| block.contains(address)).count();
            prop_assert_eq!(count(&blocks) > 0, count(&kept) == 1, "{:?} became {:?}", blocks, kept);
        }
    }
}

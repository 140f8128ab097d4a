//! The firewall rules as text for nft. Pure.

use std::fmt;

use crate::config::{Config, Destination, Intercept, Ports, Preference, Prefix, Role};
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
    /// Connections that these send past the channel are left alone, where this host forwards.
    pub destinations: Vec<Destination>,
    /// What this host does with packets that are left alone.
    pub forwarding: Forwarding,
}

/// Whether a host passes packets on that are for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// IPv4 (`net.ipv4.ip_forward`).
    pub v4: bool,
    /// IPv6 (`net.ipv6.conf.all.forwarding`).
    pub v6: bool,
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
        Rules {
            role: config.role(),
            mark: config.limits.route_mark,
            arrivals,
            destinations: config.destinations.0.clone(),
            forwarding: Forwarding::default(),
        }
    }

    /// The same on a host that forwards so.
    pub fn on(self, forwarding: Forwarding) -> Rules {
        Rules { forwarding, ..self }
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
        write!(f, "; add chain inet {table} arrivals; add chain inet {table} taken")?;
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
        let mut rule = |chain: &str, text: String| write!(f, "; add rule inet {table} {chain} {text}");
        let arrivals = "arrivals";
        rule(arrivals, "fib daddr type { local, broadcast, anycast, multicast } return".to_owned())?;
        for block in disjoint(&intercept.exclude) {
            let family = family(block);
            rule(arrivals, format!("{family} saddr {block} return"))?;
            rule(arrivals, format!("{family} daddr {block} return"))?;
        }
        if !intercept.ports.is_empty() {
            rule(arrivals, format!("tcp dport != {} return", set(merged(&intercept.ports).iter())))?;
        }
        for (verdict, destination) in self.left_alone() {
            for (is_ipv4, forwards, nfproto) in
                [(true, self.forwarding.v4, "ipv4"), (false, self.forwarding.v6, "ipv6")]
            {
                let Some(matches) = of_family(destination, is_ipv4, nfproto).filter(|_| forwards) else {
                    continue;
                };
                rule(arrivals, format!("{matches} {verdict}"))?;
            }
        }
        rule(arrivals, "goto taken".to_owned())?;
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
            rule(
                "taken",
                format!("{of_family} meta l4proto tcp tproxy {target} meta mark set {mark} accept"),
            )?;
        }
        Ok(())
    }
}

impl Rules {
    /// What the destinations say to intercepted connections, in their order, up to the last that sends any past the
    /// channel: nothing needs to be told apart after that.
    fn left_alone(&self) -> impl Iterator<Item = (&'static str, &Destination)> {
        let is_never = |one: &Destination| one.channel == Preference::Never;
        let last = self.destinations.iter().rposition(is_never).map_or(0, |last| last + 1);
        let verdict = move |one| if is_never(one) { "return" } else { "goto taken" };
        self.destinations[..last].iter().map(move |one| (verdict(one), one))
    }
}

/// What a packet of one family must be like to fit a destination; `None` if none can.
fn of_family(destination: &Destination, is_ipv4: bool, nfproto: &str) -> Option<String> {
    let blocks = disjoint(&destination.blocks()?);
    let own: Vec<_> = blocks.iter().filter(|block| block.is_ipv4() == is_ipv4).collect();
    let place = match own.first() {
        Some(&&block) => format!("{} daddr {}", family(block), set(own.iter())),
        None if blocks.is_empty() => format!("meta nfproto {nfproto}"),
        None => return None,
    };
    if destination.ports.is_empty() {
        return Some(place);
    }
    Some(format!("{place} tcp dport {}", set(merged(&destination.ports).iter())))
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
    use crate::config::Place;
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
        rules(intercept, ports, &[]).to_string()
    }

    fn rules(intercept: Intercept, ports: TransparentPorts, destinations: &[Destination]) -> Rules {
        Rules {
            role: Role::Terminal,
            mark: 77,
            arrivals: Some((intercept, ports)),
            destinations: destinations.to_vec(),
            forwarding: Forwarding::default(),
        }
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
        let rules =
            Rules { arrivals: None, role: Role::Gateway, ..rules(intercept(), Default::default(), &[]) };
        let text = rules.to_string();
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

    #[test]
    fn what_never_uses_the_channel_is_left_alone_where_this_host_forwards() {
        let place = |block: &str| Place::Block(block.parse().unwrap());
        let one = |to: &[Place], ports: &[&str], channel| Destination {
            to: to.to_vec(),
            ports: ports.iter().map(|range| range.parse().unwrap()).collect(),
            channel,
        };
        let destinations = [
            one(&[place("10.9.1.0/24")], &[], Preference::Require),
            one(&[place("10.9.0.0/16"), place("fd09::/16")], &["25", "80"], Preference::Never),
            one(&[Place::Domain("example.net".to_owned())], &[], Preference::Never),
            one(&[], &["6000-6063"], Preference::Never),
            one(&[place("10.8.0.0/16")], &[], Preference::Prefer),
        ];
        let ports = TransparentPorts { v4: Some(4001), v6: Some(4002) };
        let rules = rules(intercept(), ports, &destinations);
        let text = rules.clone().on(Forwarding { v4: true, v6: false }).to_string();
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} not in {text}"));
        let first = at("arrivals ip daddr { 10.9.1.0/24 } goto taken");
        let second = at("arrivals ip daddr { 10.9.0.0/16 } tcp dport { 25, 80 } return");
        let third = at("arrivals meta nfproto ipv4 tcp dport { 6000-6063 } return");
        assert!(first < second && second < third && third < at("arrivals goto taken"), "{text}");
        assert!(!text.contains("fd09") && !text.contains("nfproto ipv6 tcp"), "IPv6 would be lost: {text}");
        assert!(!text.contains("10.8.0.0"), "nothing to tell apart after the last: {text}");
        assert!(rules
            .clone()
            .on(Forwarding { v4: true, v6: true })
            .to_string()
            .contains("fd09::/16 } tcp dport"));
        assert!(!rules.to_string().contains("10.9."), "nothing is left alone that would be lost");
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

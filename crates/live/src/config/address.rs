//! Addresses as people write them: `host:port`, `10.0.0.0/8`, `5000-6000`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A host, by name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// A name or an address without brackets.
    pub host: String,
    /// Not zero.
    pub port: u16,
}

/// A block of addresses: `10.77.1.0/24`, `fd77:1::/64`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

/// A port or a range of ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ports {
    /// The lowest, not zero.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

/// A text that is not an address, block or range of the wanted form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAddress;

impl HostPort {
    /// The address, when the host is one.
    pub fn literal(&self) -> Option<SocketAddr> {
        self.host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, self.port))
    }
}

impl FromStr for HostPort {
    type Err = BadAddress;
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (host, port) = text.trim().rsplit_once(':').ok_or(BadAddress)?;
        let port = port.parse().ok().filter(|&port| port != 0).ok_or(BadAddress)?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) => {
                inner.parse::<Ipv6Addr>().map_err(|_| BadAddress)?;
                inner
            }
            None => host,
        };
        let name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        let fits = !host.is_empty() && host.len() <= LONGEST_NAME;
        if !fits || !(name || host.parse::<Ipv6Addr>().is_ok() && text.trim().starts_with('[')) {
            return Err(BadAddress);
        }
        Ok(HostPort { host: host.to_owned(), port })
    }
}

impl Prefix {
    /// The block of all addresses whose first `bits` bits equal those of `address`; the rest is ignored.
    /// `None` if `bits` is more than the address has.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) if bits <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
            }
            IpAddr::V6(v6) if bits <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
            _ => return None,
        };
        Some(Prefix { address, bits })
    }

    /// Whether the address lies in the block. An IPv4 address inside IPv6 (::ffff:a.b.c.d) counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        Prefix::new(address.to_canonical(), self.bits).is_some_and(|block| block.address == self.address)
    }

    /// Whether all addresses of `other` lie in this block.
    pub fn holds(&self, other: &Prefix) -> bool {
        self.is_ipv4() == other.is_ipv4() && self.bits <= other.bits && self.contains(other.address)
    }

    /// How many leading bits are fixed: of two blocks that hold an address, the longer one knows it better.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether this is a block of IPv4 addresses.
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }
}

impl FromStr for Prefix {
    type Err = BadAddress;
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (address, bits) = match text.trim().split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse().map_err(|_| BadAddress)?;
        let bits = match bits {
            Some(bits) => bits.parse().map_err(|_| BadAddress)?,
            None if address.is_ipv4() => 32,
            None => 128,
        };
        let block = Prefix::new(address, bits).ok_or(BadAddress)?;
        // 10.1.2.3/8 is more likely a slip than a wish for all of 10/8.
        if block.address == address {
            Ok(block)
        } else {
            Err(BadAddress)
        }
    }
}

impl Ports {
    /// Whether the port is in the range.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl FromStr for Ports {
    type Err = BadAddress;
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let first = first.trim().parse().map_err(|_| BadAddress)?;
        let last = last.trim().parse().map_err(|_| BadAddress)?;
        if first == 0 || last < first {
            return Err(BadAddress);
        }
        Ok(Ports { first, last })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}
impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// RFC 1035 §2.3.4, as text without the final dot.
const LONGEST_NAME: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hosts_are_read_as_name_ipv4_or_bracketed_ipv6() {
        for (text, host, port) in [
            ("gw.example.net:4433", "gw.example.net", 4433),
            ("10.77.0.2:4433", "10.77.0.2", 4433),
            ("[fd77::2]:22", "fd77::2", 22),
        ] {
            let read: HostPort = text.parse().unwrap();
            assert_eq!((read.host.as_str(), read.port), (host, port), "{text}");
            assert_eq!(read.to_string(), text);
        }
        for bad in
            ["", "host", "host:", ":1", "host:0", "host:99999", "fd77::2:22", "[host]:1", "a b:1", "a;b:1"]
        {
            assert_eq!(bad.parse::<HostPort>(), Err(BadAddress), "{bad}");
        }
    }

    #[test]
    fn a_block_holds_its_addresses_and_no_others() {
        let block: Prefix = "10.77.1.0/24".parse().unwrap();
        assert!(block.contains("10.77.1.2".parse().unwrap()));
        assert!(block.contains("::ffff:10.77.1.2".parse().unwrap()), "IPv4 dressed as IPv6");
        assert!(!block.contains("10.77.2.2".parse().unwrap()));
        assert!(!block.contains("fd77:1::2".parse().unwrap()));
        let everything: Prefix = "::/0".parse().unwrap();
        assert!(everything.contains("fd77:1::2".parse().unwrap()));
        assert!(!everything.contains("10.0.0.1".parse().unwrap()));
        assert_eq!("10.0.0.1".parse::<Prefix>().unwrap().to_string(), "10.0.0.1/32");
        for bad in ["10.0.0.1/8", "10.0.0.0/33", "fd77::/129", "ten", "10.0.0.0/", "/8"] {
            assert_eq!(bad.parse::<Prefix>(), Err(BadAddress), "{bad}");
        }
    }

    #[test]
    fn ports_are_single_or_a_range() {
        assert_eq!("80".parse(), Ok(Ports { first: 80, last: 80 }));
        assert_eq!("5000-6000".parse(), Ok(Ports { first: 5000, last: 6000 }));
        for bad in ["0", "6000-5000", "65536", "", "-", "http"] {
            assert_eq!(bad.parse::<Ports>(), Err(BadAddress), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_block_survives_its_text_and_holds_its_own_address(address: IpAddr, bits in 0u8..=128) {
            if let Some(block) = Prefix::new(address, bits) {
                prop_assert_eq!(block.to_string().parse::<Prefix>(), Ok(block));
                // ::ffff:0:0/96 addresses are looked up as IPv4 addresses.
                if address == address.to_canonical() {
                    prop_assert!(block.contains(address));
                }
            }
        }

        #[test]
        fn no_text_makes_an_address_reader_panic(text: String) {
            let _ = text.parse::<HostPort>();
            let _ = text.parse::<Prefix>();
            let _ = text.parse::<Ports>();
        }
    }
}

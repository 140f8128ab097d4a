//! Which class a connection belongs to: what `[[priority]]` says, or else what its own packets are marked with.

use std::fmt;
use std::str::FromStr;

use skyhaul_pep::frame::Class;

use super::{BadAddress, Ports};

/// The mark of a packet in its IP header (RFC 2474): 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dscp(u8);

/// A `[[priority]]` section: connections that it fits, and their class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priority {
    /// The class they get.
    pub class: Class,
    /// Destination ports; empty means all.
    pub ports: Vec<Ports>,
    /// Marks of the client's SYN; empty means all, known or not. Not empty where `ports` is.
    pub dscp: Vec<Dscp>,
}

impl Dscp {
    /// The mark in the second byte of an IPv4 header, or in the traffic class of IPv6: its upper six bits.
    pub fn of_byte(byte: u8) -> Self {
        Dscp(byte >> 2)
    }

    /// The byte of the header with this mark, congestion bits zero.
    pub fn to_byte(self) -> u8 {
        self.0 << 2
    }

    /// The class of connections marked so, when the config does not say: the service classes of RFC 4594 §4 in our
    /// four groups. Signalling, telephony, calls, control and low-latency data are interactive; high-throughput data
    /// is bulk; lower effort (RFC 3662, RFC 8622) is background.
    pub fn class(self) -> Class {
        const INTERACTIVE: [&str; 12] =
            ["cs4", "cs5", "cs6", "cs7", "ef", "va", "af41", "af42", "af43", "af21", "af22", "af23"];
        const BULK: [&str; 3] = ["af11", "af12", "af13"];
        const BACKGROUND: [&str; 2] = ["le", "cs1"];
        let is_among = |names: &[&str]| names.iter().any(|name| name.parse() == Ok(self));
        if is_among(&INTERACTIVE) {
            Class::Interactive
        } else if is_among(&BULK) {
            Class::Bulk
        } else if is_among(&BACKGROUND) {
            Class::Background
        } else {
            Class::Normal
        }
    }

    /// The mark that tells other networks of a class: low-latency data, default, high-throughput data, lower effort.
    pub fn for_class(class: Class) -> Self {
        match class {
            Class::Interactive => Dscp(18),
            Class::Normal => Dscp(0),
            Class::Bulk => Dscp(10),
            Class::Background => Dscp(1),
        }
    }
}

/// RFC 2474 and 4594, with `va` of RFC 5865 and `le` of RFC 8622.
const NAMES: [(&str, u8); 26] = [
    ("df", 0),
    ("be", 0),
    ("le", 1),
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("va", 44),
    ("voice-admit", 44),
    ("ef", 46),
];

impl FromStr for Dscp {
    type Err = BadAddress;
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let text = text.trim();
        if let Some((_, value)) = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            return Ok(Dscp(*value));
        }
        text.parse().ok().filter(|&value| value < 64).map(Dscp).ok_or(BadAddress)
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, value)| *value == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Priority {
    fn fits(&self, port: u16, dscp: Option<Dscp>) -> bool {
        (self.ports.is_empty() || self.ports.iter().any(|ports| ports.contains(port)))
            && (self.dscp.is_empty() || dscp.is_some_and(|dscp| self.dscp.contains(&dscp)))
    }
}

/// All `[[priority]]` sections, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Priorities(pub Vec<Priority>);

impl Priorities {
    /// The class of a connection to this port whose SYN had this mark, if that is known: of the first section that
    /// fits, or else what the mark usually means.
    pub fn class(&self, port: u16, dscp: Option<Dscp>) -> Class {
        let rule = self.0.iter().find(|rule| rule.fits(port, dscp));
        rule.map_or_else(|| dscp.unwrap_or_default().class(), |rule| rule.class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_survives_its_text() {
        for value in 0..64 {
            assert_eq!(Dscp(value).to_string().parse(), Ok(Dscp(value)));
            assert_eq!(value.to_string().parse(), Ok(Dscp(value)));
            assert_eq!(Dscp::of_byte(Dscp(value).to_byte() | 3), Dscp(value));
        }
        for bad in ["64", "-1", "", "af14", "0x2e", "ef cs1"] {
            assert_eq!(bad.parse::<Dscp>(), Err(BadAddress), "{bad:?}");
        }
    }

    #[test]
    fn marks_mean_what_rfc_4594_says() {
        for (names, class) in [
            ("ef va cs4 cs5 cs6 cs7 af41 af42 af43 af21 af22 af23", Class::Interactive),
            ("df be cs0 cs2 cs3 af31 af32 af33 2 63", Class::Normal),
            ("af11 af12 af13", Class::Bulk),
            ("le cs1", Class::Background),
        ] {
            for name in names.split(' ') {
                assert_eq!(name.parse::<Dscp>().unwrap().class(), class, "{name}");
            }
        }
        for class in Class::ALL {
            assert_eq!(Dscp::for_class(class).class(), class);
        }
    }
}

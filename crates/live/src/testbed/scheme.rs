//! What carries the bytes in a run: the kernel's TCP end to end, or a pair of Skyhaul proxies.

use std::fmt;
use std::str::FromStr;

use skyhaul_cc::registry::{self, Contender, StartMode};
use skyhaul_cc::units::Bytes;
use skyhaul_sim::scenario::PAYLOAD_PER_PACKET;

/// One contender of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// TCP of the kernel from client to server, nothing in between.
    Direct(Kernel),
    /// Terminal and gateway with this congestion controller at both ends, started in this way.
    Skyhaul(Contender),
}

/// Kernel TCP as the client and the server host use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// CUBIC, tuned buffers.
    Cubic,
    /// NewReno, tuned buffers.
    Reno,
    /// BBR (version 1 in mainline kernels), tuned buffers.
    Bbr,
    /// CUBIC with the buffers a fresh kernel has.
    Default,
}

/// Smallest, initial and greatest buffer of a socket in bytes, as `tcp_rmem` and `tcp_wmem` want them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// For `net.ipv4.tcp_rmem`.
    pub receive: &'static str,
    /// For `net.ipv4.tcp_wmem`.
    pub send: &'static str,
    /// For tables.
    pub text: &'static str,
}

impl Kernel {
    /// In the order of listings.
    pub const ALL: [Kernel; 4] = [Kernel::Cubic, Kernel::Reno, Kernel::Bbr, Kernel::Default];

    /// The name after `direct:`.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Cubic => "cubic",
            Kernel::Reno => "reno",
            Kernel::Bbr => "bbr",
            Kernel::Default => "default",
        }
    }

    /// What `net.ipv4.tcp_congestion_control` is set to.
    pub fn algorithm(self) -> &'static str {
        match self {
            Kernel::Default => "cubic",
            tuned => tuned.name(),
        }
    }

    /// The buffers of both hosts.
    pub fn buffers(self) -> Buffers {
        match self {
            Kernel::Default => DEFAULT,
            _ => TUNED,
        }
    }
}

impl Scheme {
    /// The congestion control algorithm that decides about the satellite link.
    pub fn algorithm(&self) -> &str {
        match self {
            Scheme::Direct(kernel) => kernel.algorithm(),
            Scheme::Skyhaul(contender) => &contender.controller,
        }
    }

    /// Socket buffers of client and server host, for tables.
    pub fn buffers(&self) -> &'static str {
        match self {
            Scheme::Direct(kernel) => kernel.buffers().text,
            Scheme::Skyhaul(_) => DEFAULT.text,
        }
    }

    /// Payload bytes of a full 1500-byte IP packet on the link. TCP: 20 bytes IPv4, 20 bytes TCP, 12 bytes time
    /// stamps. Skyhaul: 28 bytes IPv4 and UDP, 13 bytes QUIC header, 16 bytes tag, 10 bytes stream frame.
    pub fn payload_of_1500(&self) -> Bytes {
        match self {
            Scheme::Direct(_) => Bytes(1448),
            Scheme::Skyhaul(_) => PAYLOAD_PER_PACKET,
        }
    }

    /// Every scheme there is: the kernel's, then one for each registered controller and each start that makes a
    /// difference to it here. A warm start of others than `skyhaul` would need what no connection leaves them.
    pub fn all() -> Vec<Scheme> {
        let direct = Kernel::ALL.into_iter().map(Scheme::Direct);
        let ours = registry::names().flat_map(|name| {
            let starts = if name == OURS { registry::starts(name) } else { &[StartMode::Cold] };
            starts.iter().map(move |&start| Scheme::Skyhaul(Contender { controller: name.to_owned(), start }))
        });
        direct.chain(ours).collect()
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheme::Direct(kernel) => write!(f, "direct:{}", kernel.name()),
            Scheme::Skyhaul(contender) => write!(f, "skyhaul:{contender}"),
        }
    }
}

impl FromStr for Scheme {
    type Err = UnknownScheme;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Scheme::all()
            .into_iter()
            .find(|scheme| scheme.to_string() == text.trim())
            .ok_or_else(|| UnknownScheme { found: text.to_owned() })
    }
}

/// A scheme that does not exist; the message lists those that do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownScheme {
    found: String,
}

impl fmt::Display for UnknownScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<String> = Scheme::all().iter().map(Scheme::to_string).collect();
        write!(f, "scheme \"{}\" is unknown; known are {}", self.found, known.join(", "))
    }
}
impl std::error::Error for UnknownScheme {}

/// The controller that starts in three ways.
const OURS: &str = "skyhaul";

/// "Tuned" in every table of this project: room for two bandwidth-delay products of 500 Mbit/s and a second.
const TUNED: Buffers =
    Buffers { receive: "4096 131072 134217728", send: "4096 16384 134217728", text: "128 MiB" };

/// What Linux chooses on a machine with a few gigabytes of memory (`Documentation/networking/ip-sysctl.rst`).
const DEFAULT: Buffers =
    Buffers { receive: "4096 131072 6291456", send: "4096 16384 4194304", text: "default" };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_is_read_back_from_its_own_name() {
        for scheme in Scheme::all() {
            assert_eq!(scheme.to_string().parse(), Ok(scheme));
        }
    }

    #[test]
    fn an_unknown_scheme_is_named_together_with_the_known_ones() {
        for text in ["direct:vegas", "", "cubic", "skyhaul:"] {
            let error = text.parse::<Scheme>().unwrap_err().to_string();
            assert!(error.contains("is unknown") && error.contains("direct:cubic, direct:reno"), "{error}");
        }
    }

    #[test]
    fn default_differs_from_cubic_only_in_its_buffers() {
        assert_eq!(Kernel::Default.algorithm(), Kernel::Cubic.algorithm());
        assert_ne!(Kernel::Default.buffers(), Kernel::Cubic.buffers());
    }
}

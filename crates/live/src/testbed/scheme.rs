//! What carries the bytes in a run: the five schemes of paper 001, plain TCP to compare them with, and split TCP.
//!
//! | scheme | in paper 001 | what is changed |
//! |---|---|---|
//! | `direct:NAME` | - | nothing but the buffers; a fresh kernel with `direct:default` |
//! | `tuned` | 1 | parameters of sockets and routes at both ends, the kernel's CUBIC |
//! | `kernel-both:NAME` | 2 | congestion control of both ends |
//! | `kernel-one:NAME`, `kernel-one:feedback` | 3 | one end's kernel: the sender's control, or the receiver's ACKs |
//! | `fec-tunnel:REPAIR` | 4 | nothing at the hosts; a UDP tunnel with error correction between the routers |
//! | `skyhaul:CONTROLLER` | 5 | nothing at the hosts; terminal and gateway with a QUIC channel |
//! | `pep-split:NAME` | - | nothing at the hosts; TCP split at the router next to the sender |

use std::fmt;
use std::str::FromStr;

use skyhaul_cc::registry::{self, Contender, StartMode};
use skyhaul_cc::units::{Bytes, Share};
use skyhaul_pep::fec::{Adaptive, Redundancy};
use skyhaul_sim::scenario::PAYLOAD_PER_PACKET;

pub use control::Control;

mod control;

/// One contender of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// TCP of the kernel from client to server, nothing in between.
    Direct(Kernel),
    /// The paper's scheme 1: parameters of both ends.
    Tuned,
    /// The paper's scheme 2: this control at both ends, tuned buffers.
    KernelBoth(Control),
    /// The paper's scheme 3 with the ground as sender: this control at the sender only. The far end has CUBIC, and
    /// buffers as said.
    KernelOne(Control, Far),
    /// The paper's scheme 3 with the ground as receiver: its ACK feedback is changed, the sender is a fresh host with
    /// room to send.
    KernelFeedback,
    /// The paper's scheme 4: end-to-end CUBIC in a UDP tunnel with error correction.
    FecTunnel(Repair),
    /// Split TCP without QUIC, this control on the link.
    PepSplit(Control, Boxes),
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

/// Buffers of the host at the far end of a one-sided scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Far {
    /// Room for the whole window: a parameter, its kernel is not touched.
    Roomy,
    /// Those of a fresh kernel, which bound the window whatever the sender does.
    Stock,
}

/// Which routers split TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Boxes {
    /// The one next to the sender; the host at the far end has buffers as said.
    Sender(Far),
    /// Terminal and gateway; both hosts are fresh.
    Both,
}

/// Redundancy of the tunnel of scheme 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repair {
    /// Follows the loss.
    Adaptive,
    /// None: what the paper's figure suggests.
    None,
    /// So many thousandths of the packets, 1 to 1000.
    Fixed(u16),
}

impl Repair {
    /// What the tunnel's encoder is told.
    pub fn redundancy(self) -> Redundancy {
        match self {
            Repair::Adaptive => Redundancy::Adaptive(Adaptive::default()),
            Repair::None => Redundancy::Off,
            Repair::Fixed(thousandths) => {
                Redundancy::Fixed(Share::new(f64::from(thousandths) / 1000.0).unwrap_or(Share::ZERO))
            }
        }
    }
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Repair::Adaptive => f.write_str("adaptive"),
            Repair::None => f.write_str("none"),
            Repair::Fixed(thousandths) => write!(f, "{}%", f64::from(*thousandths) / 10.0),
        }
    }
}

impl FromStr for Repair {
    type Err = BadRepair;
    fn from_str(text: &str) -> Result<Self, BadRepair> {
        let share = |text: &str| text.trim().strip_suffix('%')?.trim_end().parse::<f64>().ok();
        match text.trim() {
            "adaptive" => Ok(Repair::Adaptive),
            "none" => Ok(Repair::None),
            text => match share(text).map(|percent| (percent * 10.0).round()) {
                Some(thousandths) if (1.0..=1000.0).contains(&thousandths) => {
                    Ok(Repair::Fixed(thousandths as u16))
                }
                _ => Err(BadRepair { found: text.to_owned() }),
            },
        }
    }
}

/// A redundancy of another form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRepair {
    found: String,
}

impl fmt::Display for BadRepair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "found \"{}\", expected \"adaptive\", \"none\" or repairs per packet such as \"20%\", 0.1% to 100%",
            self.found
        )
    }
}
impl std::error::Error for BadRepair {}

impl Scheme {
    /// The congestion control algorithm that decides about the satellite link.
    pub fn algorithm(&self) -> &str {
        match self {
            Scheme::Direct(kernel) => kernel.algorithm(),
            Scheme::KernelBoth(control) | Scheme::KernelOne(control, _) | Scheme::PepSplit(control, _) => {
                control.name()
            }
            Scheme::Tuned | Scheme::KernelFeedback | Scheme::FecTunnel(_) => Control::CUBIC.name(),
            Scheme::Skyhaul(contender) => &contender.controller,
        }
    }

    /// The control of the kernel's TCP on the link, where that is what decides.
    pub fn control(&self) -> Option<Control> {
        match self {
            Scheme::Skyhaul(_) => None,
            other => Control::named(other.algorithm()),
        }
    }

    /// Greatest socket buffers of client and server host, for tables.
    pub fn buffers(&self) -> &'static str {
        match self {
            Scheme::Direct(kernel) => kernel.buffers().text,
            Scheme::Tuned
            | Scheme::KernelBoth(_)
            | Scheme::KernelOne(_, Far::Roomy)
            | Scheme::KernelFeedback
            | Scheme::FecTunnel(_) => TUNED.text,
            Scheme::KernelOne(_, Far::Stock) => "128 MiB, far default",
            Scheme::PepSplit(_, Boxes::Sender(Far::Roomy)) => "default, far 128 MiB",
            Scheme::PepSplit(_, Boxes::Sender(Far::Stock) | Boxes::Both) | Scheme::Skyhaul(_) => DEFAULT.text,
        }
    }

    /// Payload bytes of a full 1500-byte IP packet on the link. TCP: 20 bytes IPv4, 20 bytes TCP, 12 bytes time
    /// stamps. In the FEC tunnel also 28 bytes IPv4 and UDP, and 10 bytes header and length of a repair. Skyhaul: 28
    /// bytes IPv4 and UDP, 13 bytes QUIC header, 16 bytes tag, 10 bytes stream frame.
    pub fn payload_of_1500(&self) -> Bytes {
        match self {
            Scheme::FecTunnel(_) => Bytes(1410),
            Scheme::Skyhaul(_) => PAYLOAD_PER_PACKET,
            _ => Bytes(1448),
        }
    }

    /// Number of the scheme in paper 001; 0 is TCP as it was before, `None` what the paper does not have.
    pub fn in_paper(&self) -> Option<u8> {
        match self {
            Scheme::Direct(_) => Some(0),
            Scheme::Tuned => Some(1),
            Scheme::KernelBoth(_) => Some(2),
            Scheme::KernelOne(..) | Scheme::KernelFeedback => Some(3),
            Scheme::FecTunnel(_) => Some(4),
            Scheme::Skyhaul(_) => Some(5),
            Scheme::PepSplit(..) => None,
        }
    }

    /// What `--scheme all` runs: each scheme with the controllers that stand for it.
    pub fn representative() -> Vec<Scheme> {
        let names = [
            "direct:default",
            "direct:cubic",
            "direct:bbr",
            "tuned",
            "kernel-both:bbr",
            "kernel-both:boost",
            "kernel-one:hybla",
            "kernel-one:enhanced",
            "kernel-one:hswa",
            "kernel-one:hybic",
            "kernel-one:boost",
            "kernel-one:skyhaul",
            "kernel-one:skyhaul/stock",
            "kernel-one:feedback",
            "fec-tunnel:none",
            "fec-tunnel:adaptive",
            "pep-split:bbr",
            "pep-split:boost",
            "pep-split:skyhaul/both",
            "skyhaul:bbr",
            "skyhaul:skyhaul",
            "skyhaul:skyhaul/known",
        ];
        names.iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// Schemes for listings: a name, or a pattern with NAME for any of [`Control::all`], and what it is.
    pub fn families() -> Vec<(String, String)> {
        let fixed = Scheme::all().into_iter().filter_map(|scheme| {
            let meaning = match &scheme {
                Scheme::Direct(kernel) => {
                    format!(
                        "TCP of the kernel end to end: {}, {} buffers",
                        kernel.algorithm(),
                        scheme.buffers()
                    )
                }
                Scheme::Skyhaul(contender) => format!("terminal and gateway, controller {contender}"),
                _ => return None,
            };
            Some((scheme.to_string(), meaning))
        });
        let patterns = [
            ("tuned", "parameters of sockets and routes at both ends, CUBIC (paper 001, scheme 1)"),
            ("kernel-both:NAME", "this congestion control at both ends, tuned buffers (scheme 2)"),
            ("kernel-one:NAME", "at the sender only; the far end stock CUBIC with tuned buffers (scheme 3)"),
            ("kernel-one:NAME/stock", "the same, and the far end's buffers are those of a fresh kernel"),
            ("kernel-one:feedback", "at the receiver only: quick ACKs, every SACK, large window (scheme 3)"),
            (
                "fec-tunnel:adaptive",
                "CUBIC inside a UDP tunnel with error correction that follows the loss (scheme 4)",
            ),
            ("fec-tunnel:none", "the same without repairs"),
            ("fec-tunnel:20%", "the same with so many repairs per packet, any share"),
            ("pep-split:NAME", "TCP split at the router next to the sender, this control on the link"),
            ("pep-split:NAME/stock", "the same, and the far end's buffers are those of a fresh kernel"),
            ("pep-split:NAME/both", "TCP split at terminal and gateway, both hosts as fresh"),
        ];
        let patterns = patterns.map(|(name, meaning)| (name.to_owned(), meaning.to_owned()));
        let (direct, ours): (Vec<_>, Vec<_>) = fixed.partition(|(name, _)| name.starts_with("direct:"));
        direct.into_iter().chain(patterns).chain(ours).collect()
    }

    /// Every scheme there is: the kernel's, those of the paper, then one for each registered controller and each start
    /// that makes a difference to it here. A warm start of others than `skyhaul` would need what no connection leaves
    /// them. Of fixed redundancies it has one.
    pub fn all() -> Vec<Scheme> {
        let direct = Kernel::ALL.into_iter().map(Scheme::Direct);
        let mut paper = vec![Scheme::Tuned];
        paper.extend(Control::all().into_iter().map(Scheme::KernelBoth));
        for far in [Far::Roomy, Far::Stock] {
            paper.extend(Control::all().into_iter().map(|control| Scheme::KernelOne(control, far)));
        }
        paper.push(Scheme::KernelFeedback);
        paper.extend([Repair::Adaptive, Repair::None, Repair::Fixed(200)].map(Scheme::FecTunnel));
        for boxes in [Boxes::Sender(Far::Roomy), Boxes::Sender(Far::Stock), Boxes::Both] {
            paper.extend(Control::all().into_iter().map(|control| Scheme::PepSplit(control, boxes)));
        }
        let ours = registry::names().flat_map(|name| {
            let starts = if name == OURS { registry::starts(name) } else { &[StartMode::Cold] };
            starts.iter().map(move |&start| Scheme::Skyhaul(Contender { controller: name.to_owned(), start }))
        });
        direct.chain(paper).chain(ours).collect()
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheme::Direct(kernel) => write!(f, "direct:{}", kernel.name()),
            Scheme::Tuned => f.write_str("tuned"),
            Scheme::KernelBoth(control) => write!(f, "kernel-both:{control}"),
            Scheme::KernelOne(control, Far::Roomy) => write!(f, "kernel-one:{control}"),
            Scheme::KernelOne(control, Far::Stock) => write!(f, "kernel-one:{control}/stock"),
            Scheme::KernelFeedback => f.write_str("kernel-one:feedback"),
            Scheme::FecTunnel(repair) => write!(f, "fec-tunnel:{repair}"),
            Scheme::PepSplit(control, Boxes::Sender(Far::Roomy)) => write!(f, "pep-split:{control}"),
            Scheme::PepSplit(control, Boxes::Sender(Far::Stock)) => write!(f, "pep-split:{control}/stock"),
            Scheme::PepSplit(control, Boxes::Both) => write!(f, "pep-split:{control}/both"),
            Scheme::Skyhaul(contender) => write!(f, "skyhaul:{contender}"),
        }
    }
}

impl FromStr for Scheme {
    type Err = UnknownScheme;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fixed = || text.trim().strip_prefix("fec-tunnel:")?.parse().ok().map(Scheme::FecTunnel);
        Scheme::all()
            .into_iter()
            .find(|scheme| scheme.to_string() == text.trim())
            .or_else(fixed)
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
        let known: Vec<String> = Scheme::families().into_iter().map(|(name, _)| name).collect();
        write!(
            f,
            "scheme \"{}\" is unknown; known are {}; NAME is one of {}",
            self.found,
            known.join(", "),
            Control::names()
        )
    }
}
impl std::error::Error for UnknownScheme {}

/// The controller that starts in three ways.
const OURS: &str = "skyhaul";

/// "Tuned" in every table of this project: room for two bandwidth-delay products of 500 Mbit/s and a second.
pub(super) const TUNED: Buffers =
    Buffers { receive: "4096 131072 134217728", send: "4096 16384 134217728", text: "128 MiB" };

/// What Linux chooses on a machine with a few gigabytes of memory (`Documentation/networking/ip-sysctl.rst`).
pub(super) const DEFAULT: Buffers =
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
        let unknown = [
            "direct:vegas",
            "",
            "cubic",
            "skyhaul:",
            "kernel-one:",
            "kernel-both:vegas",
            "kernel-both:bbr/stock",
            "fec-tunnel:0%",
            "fec-tunnel:101%",
            "fec-tunnel:nan%",
            "fec-tunnel:20",
            "pep-split:feedback",
        ];
        for text in unknown {
            let error = text.parse::<Scheme>().unwrap_err().to_string();
            assert!(error.contains("is unknown") && error.contains("direct:cubic, direct:reno"), "{error}");
            assert!(error.contains("kernel-one:NAME") && error.contains("boost"), "{error}");
        }
    }

    #[test]
    fn any_share_of_repairs_can_be_asked_for() {
        let scheme: Scheme = "fec-tunnel:12.5%".parse().unwrap();
        assert_eq!(scheme, Scheme::FecTunnel(Repair::Fixed(125)));
        assert_eq!(scheme.to_string(), "fec-tunnel:12.5%");
        assert_eq!(Repair::Fixed(125).redundancy(), Redundancy::Fixed(Share::new(0.125).unwrap()));
    }

    #[test]
    fn all_of_the_command_line_has_every_scheme_of_the_paper_and_fits_a_screen() {
        let all = Scheme::representative();
        assert!((15..=22).contains(&all.len()), "{}", all.len());
        for number in 0..=5 {
            assert!(all.iter().any(|scheme| scheme.in_paper() == Some(number)), "scheme {number}");
        }
        assert!(all.iter().any(|scheme| scheme.in_paper().is_none()), "split TCP");
    }

    #[test]
    fn every_scheme_belongs_to_a_family_that_is_listed() {
        let families = Scheme::families();
        for scheme in Scheme::all() {
            let name = scheme.to_string();
            let pattern = match scheme.control() {
                Some(control) if !matches!(scheme, Scheme::Direct(_)) => {
                    name.replace(&format!(":{control}"), ":NAME")
                }
                _ => name.clone(),
            };
            assert!(families.iter().any(|(known, _)| *known == pattern), "{name}: {pattern}");
        }
    }

    #[test]
    fn default_differs_from_cubic_only_in_its_buffers() {
        assert_eq!(Kernel::Default.algorithm(), Kernel::Cubic.algorithm());
        assert_ne!(Kernel::Default.buffers(), Kernel::Cubic.buffers());
    }
}

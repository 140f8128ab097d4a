//! Everything that is wrong around an end, in one place: by name, counted, and said once for each peer with what is
//! done about it and what the operator can do (the exception handler of paper 000, section 3.4).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use skyhaul_pep::exceptions::Fault;
use skyhaul_pep::Trouble;
use tracing::{debug, warn};

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exception {
    /// A TCP peer on this side, or a device between it and us.
    Peer(Fault),
    /// The channel's path clears or rewrites congestion marks (RFC 9000 §13.4.2).
    EcnLost,
    /// The channel's datagrams do not get through as they should.
    Channel(Trouble),
    /// The other end's address has changed.
    Moved,
}

impl Exception {
    /// What is done about it, and what the operator can do.
    pub fn remedy(self) -> &'static str {
        match self {
            Exception::Peer(Fault::NoWindowScaling) => {
                "its connections get buffers of 64 KiB, all that it can use; to be faster it needs window scaling, or \
                 the firewall that removes the option has to let it pass"
            }
            Exception::Peer(Fault::SackStripped) => {
                "each loss between here and there costs a round trip; switch SACK on there, or let the firewall that \
                 removes the option pass it"
            }
            Exception::Peer(Fault::TimestampsRemoved) => {
                "round trips are taken from packets that were sent once; nothing needs to be done"
            }
            Exception::Peer(Fault::StretchedAcks) => "acknowledged bytes are counted; nothing needs to be done",
            // Never noted here: the kernel tells a smoothed round trip, in which packets held on the way look like any
            // queue or like delayed ACKs. Only a traffic monitor that times each packet can tell.
            Exception::Peer(fault @ Fault::HeldByInspection) => fault.remedy(),
            Exception::EcnLost => {
                "packets leave without congestion marks from now on; a router on the way clears or rewrites the ECN \
                 bits"
            }
            Exception::Channel(Trouble::MtuBlackHole) => "set [link] mtu at both ends to what the path carries",
            Exception::Channel(Trouble::Unreachable | Trouble::OneWay | Trouble::Silent) => {
                "see whether a firewall on the way stops UDP to the gateway's port, or an answer to it"
            }
            Exception::Channel(Trouble::Refused) => "start the other end's program",
            Exception::Channel(Trouble::Degraded) => "see whether the network polices UDP",
            Exception::Channel(Trouble::CarriageLost) => "see whether the gateway's TCP port is open",
            Exception::Channel(Trouble::Healthy) => "nothing needs to be done",
            Exception::Moved => "the channel has followed; nothing needs to be done",
        }
    }

    /// Whether somebody should do something about it; what is not so is said where `debug` is logged.
    fn matters(self) -> bool {
        match self {
            Exception::Peer(fault) => !matches!(fault, Fault::TimestampsRemoved | Fault::StretchedAcks),
            Exception::EcnLost => true,
            // Those who notice say it themselves, with what happens next.
            Exception::Channel(_) | Exception::Moved => false,
        }
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exception::Peer(fault) => fault.fmt(f),
            Exception::EcnLost => f.write_str("ECN marks lost"),
            Exception::Channel(trouble) => trouble.fmt(f),
            Exception::Moved => f.write_str("address changed"),
        }
    }
}

/// The exceptions of one end so far; cheap to clone, for tasks of one thread.
#[derive(Clone, Debug, Default)]
pub struct Exceptions(Rc<RefCell<BTreeMap<Exception, Tally>>>);

/// How often, and at whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Times it was found: once for each connection, or for each change of a channel.
    pub count: u64,
    /// At whom, the first of them.
    pub peers: BTreeSet<String>,
}

impl Exceptions {
    /// Something was found at somebody.
    pub fn note(&self, exception: Exception, peer: &str) {
        let mut all = self.0.borrow_mut();
        let tally = all.entry(exception).or_default();
        tally.count += 1;
        if tally.peers.len() >= PEERS || !tally.peers.insert(peer.to_owned()) {
            return;
        }
        let remedy = exception.remedy();
        if exception.matters() {
            warn!("{peer}: {exception}; {remedy}");
        } else {
            debug!("{peer}: {exception}; {remedy}");
        }
    }

    /// Everything so far, in a fixed order.
    pub fn all(&self) -> BTreeMap<Exception, Tally> {
        self.0.borrow().clone()
    }

    /// How often something was found.
    pub fn count(&self, exception: Exception) -> u64 {
        self.0.borrow().get(&exception).map_or(0, |tally| tally.count)
    }

    /// One line for each.
    pub fn lines(&self) -> Vec<String> {
        let line = |(exception, tally): (&Exception, &Tally)| {
            let shown: Vec<&str> = tally.peers.iter().take(SHOWN).map(String::as_str).collect();
            let more = if tally.peers.len() > shown.len() { ", ..." } else { "" };
            format!("{exception}: {} times ({}{more}); {}", tally.count, shown.join(", "), exception.remedy())
        };
        self.0.borrow().iter().map(line).collect()
    }
}

/// Peers that are remembered for one exception; of more only the number is known.
const PEERS: usize = 256;
/// Peers that are shown.
const SHOWN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_counted_and_named_with_a_remedy() {
        let exceptions = Exceptions::default();
        let scaling = Exception::Peer(Fault::NoWindowScaling);
        for n in 0..1000 {
            exceptions.note(scaling, &format!("client 10.0.{}.{}", n % 500 / 250, n % 250));
        }
        exceptions.note(Exception::EcnLost, "gateway");
        assert_eq!((exceptions.count(scaling), exceptions.count(Exception::Moved)), (1000, 0));
        assert_eq!(exceptions.all()[&scaling].peers.len(), PEERS);
        let lines = exceptions.lines();
        assert!(lines[0].starts_with("no window scaling: 1000 times (client 10.0.0.0, "), "{lines:?}");
        assert!(
            lines[1].starts_with("ECN marks lost: 1 times (gateway); packets leave without"),
            "{lines:?}"
        );
        for trouble in Trouble::ALL {
            assert!(!Exception::Channel(trouble).remedy().is_empty());
        }
    }
}

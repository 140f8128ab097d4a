//! The faults.

use std::time::Duration;

use nix::sys::signal::Signal;
use skyhaul_cc::units::{Bytes, Rate, Share};
use skyhaul_sim::scenario::Dir;

use crate::emulate::Disturbance;
use crate::testbed::pair::Which;

/// Something that breaks in the middle of a transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// For tables and `--only`.
    pub name: &'static str,
    /// In words.
    pub what: &'static str,
    /// Which way the file goes; forward is from client to server.
    pub way: Dir,
    /// How long it lasts; none for one that stays.
    pub lasts: Option<Duration>,
    /// What is done.
    pub kind: Kind,
    /// Whether the file can still arrive. Where it cannot, the client has to hear of it.
    pub survivable: bool,
    /// Whether the server can be reached at all while the fault lasts.
    pub reachable: bool,
    /// Within this time of its end the transfer has to be back at its rate: three round trips and a second.
    pub back_within: Option<Duration>,
}

/// What is done to link, hosts or ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Packets from terminal to gateway and from gateway to terminal suffer.
    Link {
        /// From terminal to gateway.
        forward: Disturbance,
        /// From gateway to terminal.
        back: Disturbance,
    },
    /// An end gets a signal; after SIGSTOP it gets SIGCONT when the fault ends, after any other it is started anew.
    Signal(Which, Signal),
    /// The gateway's host answers the channel's datagrams with "port unreachable".
    Refused,
    /// The terminal's host gets another address on the link and loses the one it had.
    NewAddress,
    /// A NAT in front of the terminal begins to use another port.
    NewPort,
}

/// All faults, in the order of tables.
pub fn matrix() -> Vec<Fault> {
    use Dir::{Back, Forward};
    let quiet = Disturbance::NONE;
    let both = |what: Disturbance| Kind::Link { forward: what, back: what };
    let share = |value: f64| Share::new(value).expect("the shares below are between 0 and 1");
    let seconds = Duration::from_secs;
    let no_udp = Disturbance { no_udp: true, ..quiet };
    let cut = both(Disturbance { cut: true, ..quiet });
    let small = both(Disturbance { largest: Some(Bytes(1200)), ..quiet });
    let stays = |name, what, way, kind| Fault {
        name,
        what,
        way,
        lasts: None,
        kind,
        survivable: true,
        reachable: true,
        back_within: None,
    };
    let ends = |name, what, way, time, kind| Fault { lasts: Some(time), ..stays(name, what, way, kind) };
    let deadly = |fault: Fault| Fault { survivable: false, ..fault };
    let dark = |fault: Fault| Fault { reachable: false, back_within: Some(BACK), ..fault };
    let kill = |which| Kind::Signal(which, Signal::SIGKILL);
    vec![
        deadly(stays("kill-terminal-up", "terminal killed", Forward, kill(Which::Terminal))),
        deadly(stays("kill-terminal-down", "terminal killed", Back, kill(Which::Terminal))),
        deadly(stays("kill-gateway-up", "gateway killed", Forward, kill(Which::Gateway))),
        deadly(stays("kill-gateway-down", "gateway killed", Back, kill(Which::Gateway))),
        deadly(ends(
            "restart-gateway",
            "gateway killed, started 2 s later",
            Forward,
            seconds(2),
            kill(Which::Gateway),
        )),
        ends(
            "freeze-gateway",
            "gateway stands still",
            Forward,
            seconds(8),
            Kind::Signal(Which::Gateway, Signal::SIGSTOP),
        ),
        stays("udp-dropped-up", "UDP filtered for good", Forward, both(no_udp)),
        stays("udp-dropped-down", "UDP filtered for good", Back, both(no_udp)),
        ends("udp-dropped-15s", "UDP filtered", Back, seconds(15), both(no_udp)),
        stays(
            "udp-forward-blocked",
            "UDP filtered from terminal to gateway",
            Forward,
            Kind::Link { forward: no_udp, back: quiet },
        ),
        stays(
            "udp-back-blocked",
            "UDP filtered from gateway to terminal",
            Back,
            Kind::Link { forward: quiet, back: no_udp },
        ),
        stays("udp-refused", "UDP answered by ICMP port unreachable", Forward, Kind::Refused),
        dark(ends("cut-5s-up", "link cut", Forward, seconds(5), cut)),
        dark(ends("cut-5s-down", "link cut", Back, seconds(5), cut)),
        dark(ends("cut-60s-up", "link cut", Forward, seconds(60), cut)),
        dark(ends("cut-60s-down", "link cut", Back, seconds(60), cut)),
        dark(ends("cut-10min", "link cut", Forward, seconds(600), cut)),
        stays("new-address", "terminal gets another address", Forward, Kind::NewAddress),
        stays("new-port", "NAT changes the terminal's port", Back, Kind::NewPort),
        stays("mtu-1200-up", "packets above 1200 bytes vanish", Forward, small),
        stays("mtu-1200-down", "packets above 1200 bytes vanish", Back, small),
        stays(
            "reordered",
            "5 % of the packets 20 ms late",
            Forward,
            both(Disturbance { reordered: share(0.05), reordered_by: Duration::from_millis(20), ..quiet }),
        ),
        stays(
            "duplicated",
            "5 % of the packets twice",
            Forward,
            both(Disturbance { duplicated: share(0.05), ..quiet }),
        ),
        stays(
            "corrupted",
            "2 % of the datagrams changed, checksum right",
            Forward,
            both(Disturbance { corrupted: share(0.02), ..quiet }),
        ),
        stays(
            "udp-policed",
            "UDP held to 1 Mbit/s",
            Forward,
            both(Disturbance { udp_rate: Some(Rate::mbit(1)), ..quiet }),
        ),
    ]
}

/// Three round trips of the lab's link and a second.
const BACK: Duration = Duration::from_millis(3 * 540 + 1000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_name_of_its_own_and_there_are_twenty_or_more() {
        let names: std::collections::BTreeSet<&str> = matrix().iter().map(|fault| fault.name).collect();
        assert_eq!(names.len(), matrix().len());
        assert!(names.len() >= 20);
    }

    #[test]
    fn only_faults_that_end_have_a_time_to_be_back_in() {
        for fault in matrix() {
            assert!(fault.back_within.is_none() || fault.lasts.is_some(), "{}", fault.name);
        }
    }
}

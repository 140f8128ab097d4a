//! The ends of a FEC tunnel, and splitters.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use skyhaul_cc::units::{Bytes, Duration, Rate};
use skyhaul_sim::scenario::{Dir, Direction, Scenario};

use super::{ip_rate, End, Pair, START};
use crate::emulate::{Hosts, DEVICE, GATEWAY, TERMINAL};
use crate::fec_tunnel::{block_time, hold, DEFAULT_BLOCK};
use crate::netns::Namespace;
use crate::testbed::scheme::{Boxes, Control, Repair};
use crate::testbed::LabError;

impl Pair {
    /// A FEC tunnel between terminal and gateway that knows the rate of the link and leaves it its queue.
    ///
    /// # Errors
    /// When an end does not start.
    pub fn fec_tunnel(
        hosts: &Hosts,
        scenario: &Scenario,
        repair: Repair,
        dir: &Path,
    ) -> Result<Pair, LabError> {
        let start = |place: &Place<'_>| -> Result<End, LabError> {
            let Place { host, own, peer, beyond, sends, receives, log } = place;
            let mut args = vec!["fec-tunnel".to_owned()];
            let mut add = |name: &str, value: String| args.extend([format!("--{name}"), value]);
            add("listen", format!("{own}:{PORT}"));
            add("peer", format!("{peer}:{PORT}"));
            add("network", format!("10.77.{beyond}.0/24"));
            add("network", format!("fd77:{beyond}::/64"));
            add("redundancy", repair.to_string());
            let rate = ip_rate(sends);
            add("rate", rate_text(rate));
            add("block-time", time_text(block_time(Some(rate), DEFAULT_BLOCK)));
            add("hold", time_text(hold(block_time(Some(ip_rate(receives)), DEFAULT_BLOCK))));
            // The queue that the link would have stands in front of the tunnel.
            add("queue", (sends.queue.0 / FULL_PACKET.0).clamp(100, 1_000_000).to_string());
            let mut end = End::start("skyhaul fec-tunnel", host, &args, log)?;
            end.wait_for(" ready: ", START)?;
            Ok(end)
        };
        let [terminal, gateway] = places(hosts, scenario, dir)?;
        let gateway = start(&gateway)?;
        Ok(Pair { terminal: Some(start(&terminal)?), gateway: Some(gateway) })
    }

    /// One or two splitters with this control on the link.
    ///
    /// # Errors
    /// When one does not start.
    pub fn splitters(
        hosts: &Hosts,
        control: Control,
        boxes: Boxes,
        data: Dir,
        dir: &Path,
    ) -> Result<Pair, LabError> {
        std::fs::create_dir_all(dir).map_err(|error| LabError::io("make the folder", dir, error))?;
        let start = |host: &Namespace, network: u8, log: &str| -> Result<End, LabError> {
            let mut args = vec!["split".to_owned()];
            let mut add = |name: &str, value: String| args.extend([format!("--{name}"), value]);
            add("interface", "lan".to_owned());
            // FTP's data connections in active mode come from beyond.
            add("interface", DEVICE.to_owned());
            add("network", format!("10.77.{network}.0/24"));
            add("network", format!("fd77:{network}::/64"));
            add("control", control.algorithm().to_owned());
            let mut end = End::start("skyhaul split", host, &args, &dir.join(log))?;
            end.wait_for(" ready: ", START)?;
            Ok(end)
        };
        let wanted = |side: Dir| boxes == Boxes::Both || side == data;
        let terminal = wanted(Dir::Forward).then(|| start(&hosts.terminal, 1, "terminal.log")).transpose()?;
        let gateway = wanted(Dir::Back).then(|| start(&hosts.gateway, 2, "gateway.log")).transpose()?;
        Ok(Pair { terminal, gateway })
    }
}

/// One end of the link and what it needs to know.
struct Place<'a> {
    host: &'a Namespace,
    own: Ipv4Addr,
    peer: Ipv4Addr,
    /// Number of the network behind the peer.
    beyond: u8,
    sends: &'a Direction,
    receives: &'a Direction,
    log: PathBuf,
}

fn places<'a>(hosts: &'a Hosts, scenario: &'a Scenario, dir: &Path) -> Result<[Place<'a>; 2], LabError> {
    std::fs::create_dir_all(dir).map_err(|error| LabError::io("make the folder", dir, error))?;
    Ok([
        Place {
            host: &hosts.terminal,
            own: TERMINAL.0,
            peer: GATEWAY.0,
            beyond: 2,
            sends: &scenario.forward,
            receives: &scenario.back,
            log: dir.join("terminal.log"),
        },
        Place {
            host: &hosts.gateway,
            own: GATEWAY.0,
            peer: TERMINAL.0,
            beyond: 1,
            sends: &scenario.back,
            receives: &scenario.forward,
            log: dir.join("gateway.log"),
        },
    ])
}

/// As the command line reads it.
fn rate_text(rate: Rate) -> String {
    format!("{} bit/s", rate.as_bit())
}

fn time_text(time: Duration) -> String {
    format!("{} us", time.as_micros())
}

/// UDP port of both ends.
const PORT: u16 = 4434;
const FULL_PACKET: Bytes = Bytes(1500);

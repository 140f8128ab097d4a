//! The client and server programs of the lab over a plain cable between two namespaces.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use skyhaul_cc::units::Bytes;
use skyhaul_live::netns::Namespace;
use skyhaul_live::testbed::files::Source;
use skyhaul_live::testbed::servers::Shop;
use skyhaul_live::testbed::transfer::{Ending, Outcome};
use skyhaul_live::testbed::workload::FtpMode;
use skyhaul_live::testbed::{ftp, http, iperf, Ends, LabError};
use skyhaul_sim::scenario::Dir;

const SIZE: Bytes = Bytes(3_000_003);
const LIMIT: Duration = Duration::from_secs(60);

struct Cable {
    client: Namespace,
    server: Namespace,
    shop: Shop,
    source: Source,
    _dir: tempfile::TempDir,
}

impl Cable {
    /// `None`, with a message, without the rights to make namespaces.
    fn new() -> Option<Cable> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        let client = Namespace::new("client").unwrap();
        let server = Namespace::new("server").unwrap();
        Namespace::veth(&client, "eth", &server, "eth").unwrap();
        for (host, address) in [(&client, "10.9.0.1"), (&server, "10.9.0.2")] {
            host.ip(&format!("addr add {address}/24 dev eth")).unwrap();
            host.ip("link set eth up").unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        let shop = Shop::new(dir.path()).unwrap();
        let source = Source::create(shop.root.join("source.bin"), SIZE, 5).unwrap();
        Some(Cable { client, server, shop, source, _dir: dir })
    }

    fn ends(&self) -> Ends<'_> {
        Ends { client: &self.client, server: &self.server, address: IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)) }
    }
}

/// The value, or `None` with a message if a program is not installed.
fn installed<T>(result: Result<T, LabError>) -> Option<T> {
    match result {
        Err(LabError::Missing { program, .. }) => {
            eprintln!("skipped: {program} is not installed");
            None
        }
        other => Some(other.unwrap()),
    }
}

fn assert_complete(outcome: &Outcome) {
    assert_eq!(outcome.ending, Ending::Complete, "{outcome:?}");
    assert_eq!(outcome.received, SIZE, "{outcome:?}");
    let opened = outcome.opened.unwrap();
    assert!(opened <= outcome.last_byte && outcome.last_byte <= outcome.command, "{outcome:?}");
}

#[test]
fn needs_namespaces_ftp_moves_a_file_both_ways_in_both_modes() {
    let Some(cable) = Cable::new() else { return };
    for mode in [FtpMode::Passive, FtpMode::Active] {
        let up = ftp::upload(&cable.ends(), &cable.shop, &cable.source, mode, LIMIT, &mut |_| ());
        let Some((outcome, received)) = installed(up) else { return };
        assert_complete(&outcome);
        assert!(cable.source.matches(&received, true).unwrap());

        let down = ftp::download(&cable.ends(), &cable.shop, &cable.source, mode, LIMIT, &mut |_| ());
        let (outcome, received) = down.unwrap();
        assert_complete(&outcome);
        assert!(cable.source.matches(&received, true).unwrap());
    }
}

#[test]
fn needs_namespaces_http_fetches_a_file_and_objects() {
    let Some(cable) = Cable::new() else { return };
    let down = http::download(&cable.ends(), &cable.shop, &cable.source, LIMIT, &mut |_| ());
    let Some((outcome, received)) = installed(down) else { return };
    assert_complete(&outcome);
    assert!(cable.source.matches(&received, true).unwrap());

    let objects = http::objects(&cable.ends(), &cable.shop, 1, LIMIT, &mut |_| ()).unwrap();
    assert_eq!(objects.iter().map(|object| object.bytes).collect::<Vec<_>>(), http::OBJECTS);
    for object in objects {
        assert!(object.intact && object.error.is_none() && object.fetched == 5, "{object:?}");
        assert!(object.first_byte <= object.total && object.total <= object.command, "{object:?}");
    }
}

#[test]
fn needs_namespaces_a_file_that_is_not_there_is_a_failure_with_a_reason() {
    let Some(cable) = Cable::new() else { return };
    let gone = Source { path: cable.shop.root.join("gone.bin"), ..cable.source.clone() };
    for (down, code) in [
        (http::download(&cable.ends(), &cable.shop, &gone, LIMIT, &mut |_| ()), "(22)"),
        (ftp::download(&cable.ends(), &cable.shop, &gone, FtpMode::Passive, LIMIT, &mut |_| ()), "(78)"),
    ] {
        let Some((outcome, _)) = installed(down) else { return };
        let Ending::Failed(reason) = &outcome.ending else { panic!("{outcome:?}") };
        assert!(reason.contains(code), "{reason}");
    }
}

#[test]
fn needs_namespaces_iperf3_sends_both_ways() {
    let Some(cable) = Cable::new() else { return };
    for way in Dir::ALL {
        let stream = iperf::stream(&cable.ends(), &cable.shop, way, Duration::from_secs(1), &mut |_| ());
        let Some(stream) = installed(stream) else { return };
        assert!(stream.error.is_none() && stream.received > Bytes::mib(1), "{stream:?}");
    }
}

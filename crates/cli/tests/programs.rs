//! `skyhaul fec-tunnel` and `skyhaul split` between real hosts: both families, both directions, and what is left when
//! they are gone. These tests need root and say so when they skip.

mod ends;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;

use ends::{connect, privileged, rules_and_routes, say, shouter, until, Process, Site, PATIENCE};
use nix::sys::signal::Signal;
use skyhaul_live::netns::Namespace;

/// Loses so much that a megabyte is sure to need repairs.
const LOSSY: &str =
    "format = 1\nid = \"test.lossy\"\ntitle = \"100 Mbit/s, 5 ms each way\"\nsource = \"our own\"\n\
    [forward]\nrate = \"100 Mbit/s\"\none_way = \"5 ms\"\nqueue = \"1 MB\"\nloss = \"3 %\"\n\
    [back]\nrate = \"100 Mbit/s\"\none_way = \"5 ms\"\nqueue = \"1 MB\"\nloss = \"3 %\"\n\
    [workload]\nkind = \"ftp-download\"\nbytes = \"1 MiB\"\n";

/// The way of packets to the networks of the far side.
fn routes(host: &Namespace) -> String {
    let print = |family: &str| {
        let output = host.command("ip").args([family, "route"]).output().expect("ip is there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    print("-4") + &print("-6")
}

#[test]
fn needs_namespaces_a_fec_tunnel_repairs_for_both_families_and_leaves_the_old_routes() {
    if !privileged() {
        return;
    }
    let site = Site::on(LOSSY);
    site.forward();
    let (terminal, gateway) = (&site.hosts.terminal, &site.hosts.gateway);
    let before = [terminal, gateway].map(routes);
    let start = |host, name, own, peer, network: u8| {
        let (v4, v6) = (format!("10.77.{network}.0/24"), format!("fd77:{network}::/64"));
        let args = ["fec-tunnel", "--listen", own, "--peer", peer, "--network", &v4, "--network", &v6];
        let rate = ["--rate", "100 Mbit/s", "--redundancy", "100%"];
        Process::run(host, name, &[&args[..], &rate].concat(), site.folder.path())
    };
    let near = start(terminal, "near", "10.77.0.1:4434", "10.77.0.2:4434", 2);
    let far = start(gateway, "far", "10.77.0.2:4434", "10.77.0.1:4434", 1);
    for tunnel in [&near, &far] {
        tunnel.until_it_says("fec-tunnel ready");
    }
    let words: Vec<u8> = (0..1_000_000u32).map(|n| b'a' + (n % 23) as u8).collect();
    for (client, server, ip) in site.crossings() {
        let (address, served) = shouter(server, ip);
        let mut stream = connect(client, address).expect("the tunnel leads there");
        let mut writer = stream.try_clone().expect("a second handle");
        let sent = words.clone();
        let writing = std::thread::spawn(move || {
            writer.write_all(&sent).and_then(|()| writer.shutdown(std::net::Shutdown::Write))
        });
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).expect("an answer");
        writing.join().expect("no panic").expect("sent");
        assert!(heard == words.to_ascii_uppercase(), "{ip}: {} bytes came back", heard.len());
        served.join().expect("no panic");
    }
    // "... received N packets, M repaired, ..." of the end at the gateway, which has heard at least a thousand packets.
    let said = far.finish();
    let repaired = said.rsplit_once(" packets, ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    assert!(repaired.is_some_and(|repaired: u64| repaired > 10), "{said}");
    near.end(Signal::SIGKILL);
    until(|| ([terminal, gateway].map(routes) == before).then_some(()), || format!("{before:?}"));
    let (client, server, ip) = site.crossings().remove(0);
    let (address, served) = shouter(server, ip);
    let mut stream = connect(client, address).expect("the old way");
    assert_eq!(say(&mut stream, b"still there").expect("an answer"), b"STILL THERE");
    served.join().expect("no panic");
}

#[test]
fn needs_namespaces_a_splitter_carries_both_ways_under_the_clients_address_and_leaves_nothing() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    site.forward();
    let host = &site.hosts.terminal;
    let clean = rules_and_routes(host);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let args = [
            "split",
            "--interface",
            "lan",
            "--interface",
            "sat",
            "--network",
            "10.77.1.0/24",
            "--network",
            "fd77:1::/64",
            "--control",
            "cubic",
        ];
        let splitter = Process::run(host, "split", &args, site.folder.path());
        splitter.until_it_says("split ready");
        let mut open = Vec::new();
        for (client, server, ip) in site.crossings() {
            let (address, served) = shouter(server, ip);
            let mut stream = connect(client, address).expect("taken at once");
            let own = stream.local_addr().expect("connected");
            assert_eq!(say(&mut stream, b"hello").expect("an answer"), b"HELLO", "{ip}");
            assert_eq!(served.join().expect("no panic").ip(), own.ip(), "{ip}");
            // A host itself would refuse the connection; behind a splitter it is there and then reset.
            let nobody = connect(client, (ip, 9).into()).and_then(|mut stream| stream.read(&mut [0]));
            assert_eq!(nobody.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset), "{ip}");
            let listener = server.run(|| TcpListener::bind((ip, 0))).expect("a free port");
            let mut near = connect(client, listener.local_addr().expect("bound")).expect("taken at once");
            near.write_all(b"x").expect("sent");
            let (mut far, _) = listener.accept().expect("the splitter connects");
            far.set_read_timeout(Some(PATIENCE)).expect("set");
            far.read_exact(&mut [0]).expect("the byte arrives");
            open.extend([near, far]);
        }
        assert_eq!(splitter.end(signal), signal == Signal::SIGTERM, "{signal}");
        for mut stream in open {
            let ended = stream.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(ended, Err(ErrorKind::ConnectionReset), "{signal}");
        }
        until(|| (rules_and_routes(host) == clean).then_some(()), || rules_and_routes(host));
    }
}

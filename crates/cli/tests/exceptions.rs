//! What is wrong around two real ends and how they live with it: addresses that change, marks that are cleared, TCP
//! peers without options, crowds. These tests need root and say so when they skip.

mod ends;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;

use ends::{connect, privileged, say, shouter, until, Process, Site, CLIENT, PATIENCE, SERVER};
use nix::sys::signal::Signal;
use skyhaul_live::netns::Namespace;

/// Loads firewall rules.
fn nft(host: &Namespace, rules: &str) {
    let mut command = host.command("nft");
    let mut child = command.args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("nft is installed");
    child.stdin.take().expect("piped").write_all(rules.as_bytes()).expect("nft reads");
    assert!(child.wait().expect("it is our child").success(), "{rules}");
}

/// The UDP port of the only end in a namespace.
fn udp_port(host: &Namespace) -> u16 {
    let table = host.run(|| std::fs::read_to_string("/proc/thread-self/net/udp")).expect("proc(5) has it");
    let local = table.lines().nth(1).and_then(|line| line.split_whitespace().nth(1)).expect("one socket");
    u16::from_str_radix(local.rsplit(':').next().expect("a port"), 16).expect("a port in hexadecimal")
}

/// Byte `n` of a stream that repeats at a prime.
fn byte(n: usize) -> u8 {
    let n = n % 65_521;
    (n.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// A server that sends so much to whoever connects.
fn source(host: &Namespace, ip: &str, length: usize) -> SocketAddr {
    let ip: IpAddr = ip.parse().expect("an address");
    let listener = host.run(|| TcpListener::bind((ip, 0))).expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let content: Vec<u8> = (0..length).map(byte).collect();
                let _ = stream.write_all(&content);
            });
        }
    });
    address
}

/// Reads up to a place in the stream and checks every byte.
fn read_to(stream: &mut TcpStream, at: &mut usize, end: usize) {
    let mut buffer = vec![0; 64 * 1024];
    while *at < end {
        let most = buffer.len().min(end - *at);
        let n = stream.read(&mut buffer[..most]).expect("the stream goes on");
        assert!(n > 0, "the stream ends after {at} bytes");
        for (i, found) in buffer[..n].iter().enumerate() {
            assert_eq!(*found, byte(*at + i), "byte {}", *at + i);
        }
        *at += n;
    }
}

#[test]
fn needs_namespaces_a_transfer_goes_on_while_a_nat_changes_the_terminals_port_and_address() {
    if !privileged() {
        return;
    }
    const LENGTH: usize = 24 << 20;
    let site = Site::new();
    let (terminal, gateway) = site.both();
    site.hosts.gateway.ip("route add 10.77.9.9/32 dev sat").expect("root may");
    let port = udp_port(&site.hosts.terminal);
    let from = source(&site.hosts.server, SERVER[0], LENGTH);
    let mut stream = connect(&site.hosts.client, from).expect("accepted");
    let mut at = 0;
    let places = ["10.77.0.1:40001", "10.77.0.1:40002", "10.77.9.9:40002"]
        .map(|p| p.parse::<SocketAddr>().expect("one"));
    for (n, place) in places.iter().enumerate() {
        read_to(&mut stream, &mut at, LENGTH / 4 * (n + 1));
        let (ip, nat) = (place.ip(), place.port());
        // Stateless, and the old place is dead at once, as after a restart of a NAT.
        nft(
            &site.hosts.terminal,
            &format!(
                "table ip nat_of_test\ndelete table ip nat_of_test\ntable ip nat_of_test {{\n\
                 chain out {{ type filter hook postrouting priority 300; \
                 udp dport 4433 udp sport set {nat} ip saddr set {ip}; }}\n\
                 chain in {{ type filter hook prerouting priority -400; \
                 udp sport 4433 udp dport != {nat} drop; \
                 udp sport 4433 udp dport set {port} ip daddr set 10.77.0.1; }}\n}}\n"
            ),
        );
    }
    read_to(&mut stream, &mut at, LENGTH);
    assert_eq!(stream.read(&mut [0]).expect("a clean end"), 0);
    let moves = |said: &str| said.lines().filter(|line| line.contains("ship has moved from")).count();
    let said = gateway.until_it_says("to 10.77.9.9:40002; its channel goes on");
    assert_eq!(moves(&said), places.len(), "{said}");
    let said = terminal.until_it_says("to 10.77.9.9:40002; the channel goes on");
    assert_eq!(said.lines().filter(|line| line.contains("has changed from")).count(), places.len(), "{said}");
    // Nobody took the channel down, and new connections find it.
    assert!(!gateway.said().contains("is down") && !terminal.said().contains("is down"), "{said}");
    let (address, server) = shouter(&site.hosts.server, SERVER[0].parse().expect("an address"));
    let mut stream = connect(&site.hosts.client, address).expect("accepted");
    assert_eq!(say(&mut stream, b"still there").expect("an answer"), b"STILL THERE");
    server.join().expect("no panic");
}

#[test]
fn needs_namespaces_marks_that_a_router_clears_are_missed_and_the_channel_goes_on_without() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    nft(
        &site.hosts.gateway,
        "table ip bleach {\nchain in {\ntype filter hook prerouting priority -400\nudp dport 4433 ip ecn set not-ect\n}\n}\n",
    );
    let (terminal, _gateway) = site.both();
    let (address, server) = shouter(&site.hosts.server, SERVER[0].parse().expect("an address"));
    let mut stream = connect(&site.hosts.client, address).expect("accepted");
    assert_eq!(say(&mut stream, b"no marks").expect("an answer"), b"NO MARKS");
    server.join().expect("no panic");
    terminal.until_it_says("channel to gateway: ECN marks lost; packets leave without congestion marks");
    terminal.send(Signal::SIGUSR1);
    let said = terminal.until_it_says("ECN marks lost: 1 times (channel to gateway)");
    assert!(said.contains("ECN off"), "{said}");
}

#[test]
fn needs_namespaces_tcp_peers_without_options_are_named_once_and_served() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    for (host, key) in [
        (&site.hosts.client, "net.ipv4.tcp_window_scaling"),
        (&site.hosts.client, "net.ipv4.tcp_timestamps"),
        (&site.hosts.server, "net.ipv4.tcp_sack"),
    ] {
        host.sysctl(key, "0").expect("root may");
    }
    let (terminal, gateway) = site.both();
    for _ in 0..3 {
        let from = source(&site.hosts.server, SERVER[0], 1 << 20);
        let mut stream = connect(&site.hosts.client, from).expect("accepted");
        read_to(&mut stream, &mut 0, 1 << 20);
    }
    let said =
        terminal.until_it_says("client 10.77.1.2: no window scaling; its connections get buffers of 64 KiB");
    assert_eq!(said.matches("no window scaling").count(), 1, "{said}");
    let said = gateway.until_it_says("server 10.77.2.2: SACK stripped; each loss");
    assert_eq!(said.matches("SACK stripped").count(), 1, "{said}");
    assert!(!said.contains("window scaling"), "the gateway is the server's only peer: {said}");
    terminal.send(Signal::SIGUSR1);
    let said = terminal.until_it_says("no window scaling: 3 times (client 10.77.1.2)");
    assert!(said.contains("timestamps removed: 3 times (client 10.77.1.2)"), "{said}");
    assert!(
        said.contains("memory: 256 MiB for data") && said.contains("channel to gateway at 10.77.0.2"),
        "{said}"
    );
}

/// Bytes a process has in memory now.
fn resident(process: &Process) -> u64 {
    process.memory("VmRSS:")
}

#[test]
fn needs_namespaces_a_thousand_idle_connections_cost_some_kilobytes_each() {
    if !privileged() {
        return;
    }
    const CROWD: usize = 1000;
    let site = Site::new();
    let (terminal, gateway) = site.both();
    let ip: IpAddr = SERVER[0].parse().expect("an address");
    let listener = site.hosts.server.run(|| TcpListener::bind((ip, 0))).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let held = thread::spawn(move || {
        let mut held = Vec::new();
        while held.len() < CROWD {
            let (mut stream, _) = listener.accept().expect("a client comes");
            stream.read_exact(&mut [0; 100]).expect("a word");
            stream.write_all(&[7; 100]).expect("an answer");
            held.push(stream);
        }
        held
    });
    let before = [&terminal, &gateway].map(resident);
    let mut clients = Vec::new();
    for _ in 0..CROWD {
        let mut stream = connect(&site.hosts.client, address).expect("accepted");
        stream.write_all(&[3; 100]).expect("it is taken");
        clients.push(stream);
    }
    for stream in &mut clients {
        stream.read_exact(&mut [0; 100]).expect("an answer");
    }
    let _held = held.join().expect("no panic");
    for (name, process, before) in [("terminal", &terminal, before[0]), ("gateway", &gateway, before[1])] {
        let (now, peak) = (resident(process), process.peak_memory());
        let each = now.saturating_sub(before) / CROWD as u64;
        println!(
            "{name}: {before} bytes before, {now} with {CROWD} idle connections ({each} each), peak {peak}"
        );
        assert!(each < 40 * 1024, "{name}: {each} bytes for each");
    }
    terminal.send(Signal::SIGUSR1);
    until(
        || terminal.said().contains(&format!("connections: {CROWD} of 4096")).then_some(()),
        || terminal.said(),
    );
}

#[test]
fn needs_namespaces_two_hundred_busy_connections_stay_within_the_budget() {
    if !privileged() {
        return;
    }
    const CROWD: usize = 200;
    let site = Site::new();
    let (terminal, gateway) = site.both();
    let down = source(&site.hosts.server, SERVER[0], 4 << 20);
    let up = source(&site.hosts.client, CLIENT[0], 4 << 20);
    let readers: Vec<_> = (0..CROWD)
        .map(|n| {
            let (host, address) =
                if n % 2 == 0 { (&site.hosts.client, down) } else { (&site.hosts.server, up) };
            let mut stream = connect(host, address).expect("accepted");
            stream.set_read_timeout(Some(PATIENCE * 4)).expect("set");
            thread::spawn(move || read_to(&mut stream, &mut 0, 1 << 20))
        })
        .collect();
    for reader in readers {
        reader.join().expect("every byte arrives");
    }
    for (name, process) in [("terminal", &terminal), ("gateway", &gateway)] {
        let peak = process.peak_memory();
        println!("{name}: peak {peak} bytes with {CROWD} busy connections");
        // The budget is 256 MiB; the link's bandwidth-delay product is 125 kB.
        assert!(peak < 200_000_000, "{name}: {peak} bytes\n{}", process.said());
    }
}

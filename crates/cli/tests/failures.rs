//! What clients and operators see when something is wrong: destinations that refuse, keys that do not match, ends that
//! die. These tests need root and say so when they skip.

mod ends;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use ends::{
    connect, plan, privileged, rules_and_routes, say, shouter, until, Site, HTTP_CONNECT, PATIENCE, SOCKS5,
};
use nix::sys::signal::Signal;
use skyhaul_live::keys::Replace;
use skyhaul_live::netns::Namespace;

/// What becomes of a client that only listens. The reset can be there before connect() has returned.
fn fate(client: &Namespace, to: SocketAddr) -> Result<usize, ErrorKind> {
    connect(client, to).and_then(|mut stream| stream.read(&mut [0])).map_err(|error| error.kind())
}

#[test]
fn needs_namespaces_a_refused_destination_is_a_reset_or_the_proxys_own_error() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    let (_terminal, _gateway) = site.both();
    for (client, _, ip) in site.crossings() {
        assert_eq!(
            fate(client, (ip, 9).into()),
            Err(ErrorKind::ConnectionReset),
            "{ip}: nobody listens there"
        );
    }
    // 10.77.2.9 does not exist: its neighbours ask in vain who has it, and the gateway says so.
    let client = &site.hosts.client;
    let socks5 = |host: [u8; 4], port: u8| {
        let request = [&[5, 1, 0, 5, 1, 0, 1][..], &host, &[0, port]].concat();
        let mut stream = connect(client, SOCKS5.parse().expect("an address")).expect("the proxy listens");
        say(&mut stream, &request).expect("an answer")[3]
    };
    assert_eq!(socks5([10, 77, 2, 2], 9), 5, "connection refused");
    assert_eq!(socks5([127, 0, 0, 1], 22), 2, "not allowed: the gateway itself");
    assert_eq!(socks5([10, 77, 2, 9], 9), 3, "unreachable");
    let http = |to: &str| {
        let mut stream =
            connect(client, HTTP_CONNECT.parse().expect("an address")).expect("the proxy listens");
        let answer =
            say(&mut stream, format!("CONNECT {to} HTTP/1.1\r\n\r\n").as_bytes()).expect("an answer");
        String::from_utf8_lossy(&answer)[..12].to_owned()
    };
    assert_eq!(http("10.77.2.2:9"), "HTTP/1.1 502");
    assert_eq!(http("[fd77:2::2]:9"), "HTTP/1.1 502");
    assert_eq!(http("127.0.0.1:22"), "HTTP/1.1 403");
    assert_eq!(http("no-such-name.invalid:80"), "HTTP/1.1 502");
}

#[test]
fn needs_namespaces_curl_reaches_a_server_through_both_proxies() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    let (_terminal, _gateway) = site.both();
    for proxy in [format!("socks5h://{SOCKS5}"), format!("http://{HTTP_CONNECT}")] {
        for ip in ends::SERVER {
            let ip: std::net::IpAddr = ip.parse().expect("an address");
            let listener = site.hosts.server.run(|| TcpListener::bind((ip, 0))).expect("a free port");
            let address = listener.local_addr().expect("bound");
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut request = [0; 4];
                stream.read_exact(&mut request).expect("a request");
                stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello").expect("sent");
                // Until the client hangs up: closing with bytes unread would be a reset.
                let _ = stream.read_to_end(&mut Vec::new());
            });
            let mut curl = site.hosts.client.command("curl");
            curl.args(["-sS", "--max-time", "30", "--proxytunnel", "--proxy", &proxy]);
            let output = curl.arg(format!("http://{address}/")).output().expect("curl is installed");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.stdout, b"hello", "{proxy} to {address}: {errors}");
            server.join().expect("no panic");
        }
    }
}

#[test]
fn needs_namespaces_without_a_channel_and_without_roll_back_clients_are_refused_at_once() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    site.configure(|text| text.replace("#enabled = true", "enabled = false"), |text| text);
    let terminal = site.terminal();
    terminal.until_it_says("terminal ready");
    let client = &site.hosts.client;
    let transparent = "10.77.2.2:80".parse().expect("an address");
    assert_eq!(fate(client, transparent), Err(ErrorKind::ConnectionReset), "no channel");
    let mut stream = connect(client, SOCKS5.parse().expect("an address")).expect("the proxy listens");
    let request = [5, 1, 0, 5, 1, 0, 1, 10, 77, 2, 2, 0, 80];
    assert_eq!(say(&mut stream, &request).expect("an answer")[3], 3, "unreachable");
}

#[test]
fn needs_namespaces_a_key_that_does_not_match_gets_a_clear_line_at_both_ends() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    let other = tempfile::tempdir().expect("a folder");
    let other = plan().write(other.path(), Replace::Never).expect("the plan is correct");
    // A terminal that the gateway does not know.
    let secret = std::fs::read_to_string(&other.terminal_key).expect("a key");
    std::fs::remove_file(&site.pair.terminal_key).expect("it was there");
    std::fs::copy(&other.terminal_key, &site.pair.terminal_key).expect("copied");
    let unknown = skyhaul_pep::auth::SecretKey::from_pem(&secret).expect("a key").public();
    let gateway = site.gateway();
    let terminal = site.terminal();
    gateway.until_it_says(&format!("refused a peer with unknown key {unknown}"));
    terminal.until_it_says("keys do not match");
    drop(terminal);
    drop(gateway);

    // A gateway that the terminal does not expect.
    let site = Site::new();
    let text = std::fs::read_to_string(&site.pair.terminal).expect("a config");
    let wrong = std::fs::read_to_string(&other.terminal).expect("a config");
    let key = |text: &str| text.lines().find(|line| line.starts_with("peer = ")).expect("a line").to_owned();
    std::fs::write(&site.pair.terminal, text.replace(&key(&text), &key(&wrong))).expect("written");
    let gateway = site.gateway();
    let terminal = site.terminal();
    terminal.until_it_says("keys do not match");
    gateway.until_it_says("is down");
}

#[test]
fn needs_namespaces_killing_either_end_resets_open_connections_and_leaves_nothing_behind() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    let clean = [&site.hosts.terminal, &site.hosts.gateway].map(rules_and_routes);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        for victim in ["terminal", "gateway"] {
            let (terminal, gateway) = site.both();
            // One open connection from each side, all four TCP ends in our hands.
            let mut open = Vec::new();
            for (client, server, ip) in site.crossings() {
                let listener = server.run(|| TcpListener::bind((ip, 0))).expect("a free port");
                let mut near =
                    connect(client, listener.local_addr().expect("bound")).expect("accepted at once");
                near.write_all(b"x").expect("sent");
                let (mut far, _) = listener.accept().expect("the far end connects");
                far.set_read_timeout(Some(PATIENCE)).expect("set");
                far.read_exact(&mut [0]).expect("the byte arrives");
                open.push((format!("client of {ip}"), near));
                open.push((format!("server at {ip}"), far));
            }
            let (killed, survivor) = match victim {
                "terminal" => (terminal, gateway),
                _ => (gateway, terminal),
            };
            assert_eq!(killed.end(signal), signal == Signal::SIGTERM, "{victim} by {signal}");
            for (who, mut stream) in open {
                let ended = stream.read(&mut [0]);
                let kind = ended.as_ref().map_err(std::io::Error::kind);
                assert_eq!(kind, Err(ErrorKind::ConnectionReset), "{who} when {victim} got {signal}");
            }
            let (host, clean) = match victim {
                "terminal" => (&site.hosts.terminal, &clean[0]),
                _ => (&site.hosts.gateway, &clean[1]),
            };
            until(|| (rules_and_routes(host) == *clean).then_some(()), || rules_and_routes(host));
            assert!(survivor.end(Signal::SIGTERM), "the other end carries on");
        }
    }
    let left = std::fs::read_dir(site.folder.path()).expect("the home of both").filter_map(Result::ok);
    let strange: Vec<_> = left
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| ![".toml", ".key", ".log"].iter().any(|known| name.ends_with(known)))
        .collect();
    assert!(strange.is_empty(), "left behind in the home directory: {strange:?}");
    // After all that a fresh pair works.
    let (_terminal, _gateway) = site.both();
    let (address, answer) = shouter(&site.hosts.server, "10.77.2.2".parse().expect("an address"));
    let mut stream = connect(&site.hosts.client, address).expect("accepted at once");
    assert_eq!(say(&mut stream, b"again").expect("an answer"), b"AGAIN");
    answer.join().expect("no panic");
}

#[test]
fn needs_namespaces_a_killed_end_can_be_started_again_at_once() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    let (mut terminal, mut gateway) = site.both();
    for round in 0..3 {
        if round % 2 == 0 {
            terminal.end(Signal::SIGKILL);
            terminal = site.terminal();
        } else {
            gateway.end(Signal::SIGKILL);
            gateway = site.gateway();
        }
        terminal.until_it_says("terminal ready");
        gateway.until_it_says("gateway ready");
        let exchange = || {
            let (address, _answer) = shouter(&site.hosts.server, "10.77.2.2".parse().expect("an address"));
            let mut stream = connect(&site.hosts.client, address).ok()?;
            say(&mut stream, b"again").ok().filter(|heard| heard == b"AGAIN")
        };
        until(exchange, || format!("round {round}\n{}\n{}", terminal.said(), gateway.said()));
    }
}

#[test]
fn mistakes_in_config_and_keys_end_with_status_2_and_a_line_that_helps() {
    let folder = tempfile::tempdir().expect("a folder");
    let pair = plan().write(folder.path(), Replace::Never).expect("the plan is correct");
    let check = |role: &str, file: &std::path::Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skyhaul"));
        let output = command.args([role, "--check", "--config"]).arg(file).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(check("terminal", &pair.terminal), (Some(0), String::new()));
    assert_eq!(check("gateway", &pair.gateway), (Some(0), String::new()));

    let (status, said) = check("gateway", &pair.terminal);
    assert_eq!(status, Some(2));
    assert!(
        said.contains("terminal.toml: line ") && said.contains("channel.listen: found nothing"),
        "{said}"
    );

    let text = std::fs::read_to_string(&pair.gateway).expect("a config");
    std::fs::write(&pair.gateway, text.replace("rtt = \"20 ms\"", "rtt = \"20\"")).expect("written");
    let (status, said) = check("gateway", &pair.gateway);
    assert_eq!(status, Some(2));
    assert!(said.contains("link.rtt: found \"20\", expected a time with its unit"), "{said}");

    std::fs::remove_file(&pair.terminal_key).expect("it was there");
    let (status, said) = check("terminal", &pair.terminal);
    assert_eq!(status, Some(2));
    assert!(said.contains("terminal.key: ") && said.contains("skyhaul pair"), "{said}");

    let (status, said) = check("terminal", &folder.path().join("nowhere.toml"));
    assert_eq!(status, Some(2));
    assert!(said.contains("nowhere.toml: found No such file"), "{said}");
}

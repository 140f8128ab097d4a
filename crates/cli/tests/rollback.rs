//! New connections get out of the way of a broken channel: plain TCP when there is none, the channel again when it is
//! back, and each destination as `[[destination]]` says. These tests need root and say so when they skip.

mod ends;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Instant;

use ends::{
    connect, forward, plan, privileged, say, shouter, until, Site, CLIENT, HTTP_CONNECT, PATIENCE, SERVER,
    SOCKS5,
};
use nix::sys::signal::Signal;
use skyhaul_live::keys::Replace;
use skyhaul_live::netns::Namespace;

/// What becomes of a client that only listens. The reset can be there before connect() has returned.
fn fate(client: &Namespace, to: SocketAddr) -> Result<usize, ErrorKind> {
    connect(client, to).and_then(|mut stream| stream.read(&mut [0])).map_err(|error| error.kind())
}

/// The request and the two answers of a SOCKS5 connection, and all that comes back.
fn by_socks5(client: &Namespace, to: SocketAddr, words: &[u8]) -> Vec<u8> {
    let address = match to {
        SocketAddr::V4(v4) => [&[1][..], &v4.ip().octets()].concat(),
        SocketAddr::V6(v6) => [&[4][..], &v6.ip().octets()].concat(),
    };
    let request = [&[5, 1, 0, 5, 1, 0], &address[..], &to.port().to_be_bytes(), words].concat();
    let mut stream = connect(client, SOCKS5.parse().expect("an address")).expect("the proxy listens");
    say(&mut stream, &request).expect("an answer")
}

fn by_http(client: &Namespace, to: &str, words: &[u8]) -> String {
    let request = [format!("CONNECT {to} HTTP/1.1\r\n\r\n").as_bytes(), words].concat();
    let mut stream = connect(client, HTTP_CONNECT.parse().expect("an address")).expect("the proxy listens");
    String::from_utf8_lossy(&say(&mut stream, &request).expect("an answer")).into_owned()
}

/// One exchange with a server that is made for it; where the server saw the client, or what went wrong.
fn exchange(client: &Namespace, server: &Namespace, ip: &str) -> Result<(SocketAddr, SocketAddr), ErrorKind> {
    let (address, answer) = shouter(server, ip.parse().expect("an address"));
    let talk = || {
        let mut stream = connect(client, address)?;
        let own = stream.local_addr()?;
        let heard = say(&mut stream, b"hello")?;
        assert_eq!(heard, b"HELLO");
        Ok::<_, std::io::Error>(own)
    };
    let own = talk().map_err(|error| error.kind())?;
    Ok((own, answer.join().expect("no panic")))
}

/// The numbers of the line that an end ends with: by channel, by channel inside TCP, direct, refused.
fn counts(said: &str) -> [u64; 4] {
    let line =
        said.lines().rfind(|line| line.contains(" stopped; ")).unwrap_or_else(|| panic!("no end in\n{said}"));
    let (_, counts) = line.split_once(" stopped; ").expect("just seen");
    let numbers: Vec<u64> =
        counts.split(", ").filter_map(|part| part.split(' ').next()?.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("four numbers in {line}"))
}

fn nft(host: &Namespace, line: &str) {
    let status = host.command("nft").arg(line).stdin(Stdio::null()).status().expect("nft is installed");
    assert!(status.success(), "nft {line}");
}

/// Keeps UDP to the gateway from arriving.
fn block_udp(site: &Site) {
    nft(
        &site.hosts.gateway,
        "add table inet block; add chain inet block input { type filter hook input priority 0; }",
    );
    nft(&site.hosts.gateway, "add rule inet block input iifname sat meta l4proto udp drop");
}

#[test]
fn needs_namespaces_without_a_gateway_connections_are_made_by_plain_tcp() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    site.configure(
        |text| {
            text + "\n[[destination]]\nto = [\"10.77.2.9\"]\nchannel = \"require\"\n\
                    [[destination]]\nports = [7]\nchannel = \"require\"\n"
        },
        |text| text,
    );
    // The terminal does not forward: what crosses it has been made by it. The gateway's host is a router only.
    forward(&site.hosts.gateway, "1");
    let terminal = site.terminal();
    terminal.until_it_says("terminal ready");
    assert!(terminal.said().contains("sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"));
    let (client, server) = (&site.hosts.client, &site.hosts.server);
    for ip in SERVER {
        let (own, seen) = exchange(client, server, ip).expect("by plain TCP");
        assert_eq!(own, seen, "the client's own address and port");
        let (address, _answer) = shouter(server, ip.parse().expect("an address"));
        assert!(by_socks5(client, address, b"early").ends_with(b"EARLY"), "{ip} by SOCKS5");
        let (address, _answer) = shouter(server, ip.parse().expect("an address"));
        let heard = by_http(client, &address.to_string(), b"early");
        assert!(heard.starts_with("HTTP/1.1 200") && heard.ends_with("EARLY"), "{ip} by HTTP: {heard}");
    }
    // Bad news of the destination is bad news still.
    assert_eq!(
        by_socks5(client, "10.77.2.2:9".parse().expect("an address"), b"")[3],
        5,
        "connection refused"
    );
    assert!(
        by_http(client, "127.0.0.1:9", b"").starts_with("HTTP/1.1 403"),
        "the terminal itself is out of reach"
    );
    // Whoever needs the channel is told that there is none.
    assert_eq!(
        by_socks5(client, "10.77.2.9:80".parse().expect("an address"), b"")[3],
        3,
        "network unreachable"
    );
    let answer = by_http(client, "10.77.2.2:7", b"");
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("the channel is down"), "{answer}");
    assert_eq!(fate(client, "10.77.2.2:7".parse().expect("an address")), Err(ErrorKind::ConnectionReset));
    let said = terminal.finish();
    assert!(said.contains("the channel to gateway is down: new connections take plain TCP"), "{said}");
    assert_eq!(said.matches("by plain TCP, the channel is down").count(), 6, "{said}");
    assert_eq!(counts(&said), [0, 0, 6, 3], "{said}");
}

#[test]
fn needs_namespaces_without_a_terminal_the_gateways_side_connects_by_plain_tcp() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    forward(&site.hosts.terminal, "1");
    let gateway = site.gateway();
    gateway.until_it_says("gateway ready");
    for ip in CLIENT {
        let (own, seen) = exchange(&site.hosts.server, &site.hosts.client, ip).expect("by plain TCP");
        assert_eq!(own, seen, "the server's own address and port");
    }
    let said = gateway.finish();
    assert_eq!(counts(&said), [0, 0, 2, 0], "{said}");
}

#[test]
fn needs_namespaces_a_refused_key_and_an_unknown_gateway_do_not_stop_plain_tcp() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    site.forward();
    let other = tempfile::tempdir().expect("a folder");
    let other = plan().write(other.path(), Replace::Never).expect("the plan is correct");
    std::fs::copy(&other.terminal_key, &site.pair.terminal_key).expect("copied");
    let gateway = site.gateway();
    gateway.until_it_says("gateway ready");
    let terminal = site.terminal();
    terminal.until_it_says("keys do not match");
    exchange(&site.hosts.client, &site.hosts.server, SERVER[0]).expect("by plain TCP");
    assert_eq!(counts(&terminal.finish()), [0, 0, 1, 0]);
    drop(gateway);

    site.configure(|text| text.replace("10.77.0.2:4433", "no-such-name.invalid:4433"), |text| text);
    let terminal = site.terminal();
    terminal.until_it_says("terminal ready");
    exchange(&site.hosts.client, &site.hosts.server, SERVER[1]).expect("by plain TCP");
    let said = terminal.finish();
    assert!(said.contains("no-such-name.invalid") && counts(&said) == [0, 0, 1, 0], "{said}");
}

#[test]
fn needs_namespaces_udp_that_never_passes_leaves_plain_tcp() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    site.configure(|text| text.replace("#carriage = true", "carriage = false"), |text| text);
    site.forward();
    block_udp(&site);
    let gateway = site.gateway();
    gateway.until_it_says("gateway ready");
    let terminal = site.terminal();
    terminal.until_it_says("terminal ready");
    for ip in SERVER {
        exchange(&site.hosts.client, &site.hosts.server, ip).expect("by plain TCP");
    }
    assert_eq!(counts(&terminal.finish()), [0, 0, 2, 0]);
}

#[test]
fn needs_namespaces_a_killed_gateway_resets_what_runs_and_new_connections_go_past_it_until_it_is_back() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    site.forward();
    let (terminal, gateway) = site.both();
    let (client, server) = (&site.hosts.client, &site.hosts.server);
    let listener = server.run(|| TcpListener::bind((SERVER[0], 0))).expect("a free port");
    let mut running = connect(client, listener.local_addr().expect("bound")).expect("accepted at once");
    running.write_all(b"x").expect("sent");
    let (mut far, _) = listener.accept().expect("the gateway connects");
    far.read_exact(&mut [0]).expect("the byte arrives");

    let killed = Instant::now();
    gateway.end(Signal::SIGKILL);
    let error = running.read(&mut [0]).expect_err("the client is told");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    eprintln!("the running client was told after {:?}", killed.elapsed());
    until(
        || exchange(client, server, SERVER[0]).ok().filter(|_| terminal.said().contains("by plain TCP")),
        || format!("a connection by plain TCP\n{}", terminal.said()),
    );
    eprintln!("a new connection got through after {:?}", killed.elapsed());
    exchange(client, server, SERVER[1]).expect("by plain TCP");

    let gateway = site.gateway();
    gateway.until_it_says("is up");
    terminal.until_it_says("is up: new connections take it");
    let direct = terminal.said().matches("by plain TCP, ").count() as u64;
    assert!(direct >= 2, "{}", terminal.said());
    for ip in SERVER {
        exchange(client, server, ip).expect("by the channel");
    }
    let said = terminal.finish();
    let [channel, carriage, by_tcp, refused] = counts(&said);
    assert!(channel >= 3 && (carriage, by_tcp, refused) == (0, direct, 0), "{said}");
}

#[test]
fn needs_namespaces_udp_that_stops_leaves_new_connections_plain_tcp_and_has_them_back_when_it_passes() {
    if !privileged() {
        return;
    }
    for carriage in [true, false] {
        let site = Site::new();
        site.forward();
        let quick = |text: String| {
            text.replace("#detect = \"3 s\"", "detect = \"1 s\"")
                .replace("#hold = \"10 s\"", "hold = \"1 s\"")
                .replace("#carriage = true", &format!("carriage = {carriage}"))
        };
        site.configure(
            |text| quick(text) + "\n[[destination]]\nports = [80]\nchannel = \"require\"\n",
            quick,
        );
        let (terminal, _gateway) = site.both();
        let (client, server) = (&site.hosts.client, &site.hosts.server);
        let (mut near, mut far) = open(client, server, SERVER[0]);

        block_udp(&site);
        let blocked = Instant::now();
        // A proxy's client that waits for its destination need not wait for the channel.
        let (address, _answer) = shouter(server, SERVER[1].parse().expect("an address"));
        assert!(by_socks5(client, address, b"early").ends_with(b"EARLY"), "{}", terminal.said());
        terminal.until_it_says("new connections take plain TCP");
        eprintln!("carriage {carriage}: another way after {:?}", blocked.elapsed());
        for ip in SERVER {
            let (own, seen) = exchange(client, server, ip).expect("by plain TCP");
            assert_eq!(own, seen, "the client's own address and port");
        }
        let listener = server.run(|| TcpListener::bind((SERVER[0], 80))).expect("a free port");
        let required = listener.local_addr().expect("bound");
        if carriage {
            let mut required = connect(client, required).expect("accepted at once");
            required.write_all(b"x").expect("sent");
            let (mut required_far, _) = listener.accept().expect("inside TCP");
            required_far.read_exact(&mut [0]).expect("inside TCP");
            near.write_all(b"y").expect("sent");
            far.read_exact(&mut [0]).expect("the running connection goes on inside TCP");
        } else {
            assert_eq!(fate(client, required), Err(ErrorKind::ConnectionReset));
        }
        let before = terminal.said();

        nft(&site.hosts.gateway, "delete table inet block");
        terminal.until_it_says("is up: new connections take it");
        near.write_all(b"z").expect("sent");
        far.read_exact(&mut [0]).expect("the running connection goes on");
        for ip in SERVER {
            exchange(client, server, ip).expect("by the channel");
        }
        let said = terminal.finish();
        let [channel, inside_tcp, direct, refused] = counts(&said);
        assert_eq!(before.matches("by plain TCP, ").count() as u64, direct, "none after the return\n{said}");
        assert!(direct >= 2 && channel >= 3, "{said}");
        assert_eq!((inside_tcp, refused), if carriage { (1, 0) } else { (0, 1) }, "{said}");
    }
}

/// An open connection whose two ends are in our hands.
fn open(client: &Namespace, server: &Namespace, ip: &str) -> (TcpStream, TcpStream) {
    let listener = server.run(|| TcpListener::bind((ip, 0))).expect("a free port");
    let mut near = connect(client, listener.local_addr().expect("bound")).expect("connected");
    near.write_all(b"x").expect("sent");
    let (mut far, _) = listener.accept().expect("the far end connects");
    far.set_read_timeout(Some(PATIENCE)).expect("set");
    far.read_exact(&mut [0]).expect("the byte arrives");
    (near, far)
}

#[test]
fn needs_namespaces_a_killed_end_leaves_its_clients_their_usual_way() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    site.forward();
    for victim in ["terminal", "gateway"] {
        let (terminal, gateway) = site.both();
        let (client, server, ips) = match victim {
            "terminal" => (&site.hosts.client, &site.hosts.server, SERVER),
            _ => (&site.hosts.server, &site.hosts.client, CLIENT),
        };
        let running: Vec<_> = ips.iter().map(|ip| open(client, server, ip)).collect();
        let (killed, survivor) = if victim == "terminal" { (terminal, gateway) } else { (gateway, terminal) };
        killed.end(Signal::SIGKILL);
        let at = Instant::now();
        for (mut near, _far) in running {
            let error = near.read(&mut [0]).expect_err("the client is told");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{victim}");
        }
        for ip in ips {
            let through = || exchange(client, server, ip).ok();
            let (own, seen) = until(through, || format!("the usual way from the {victim}'s side to {ip}"));
            assert_eq!(own, seen, "end to end");
        }
        eprintln!("{victim} killed: clients told and through again within {:?}", at.elapsed());
        drop(survivor);
    }
}

#[test]
fn needs_namespaces_what_shall_never_use_the_channel_is_not_touched() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    site.forward();
    let rules = "\n[[destination]]\nto = [\"10.77.2.2\"]\nports = [80]\nchannel = \"prefer\"\n\
                 [[destination]]\nto = [\"10.77.2.0/24\", \"fd77:2::/64\"]\nchannel = \"never\"\n";
    site.configure(|text| text + rules, |text| text);
    let (terminal, _gateway) = site.both();
    let (client, server) = (&site.hosts.client, &site.hosts.server);
    let untouched: Vec<_> = SERVER.iter().map(|ip| open(client, server, ip)).collect();
    // Through a proxy it cannot be left alone, so the terminal makes it.
    let (address, _answer) = shouter(server, SERVER[0].parse().expect("an address"));
    assert!(by_socks5(client, address, b"early").ends_with(b"EARLY"));
    // Port 80 comes first in the file and has the channel.
    let listener = server.run(|| TcpListener::bind((SERVER[0], 80))).expect("a free port");
    let mut carried = connect(client, listener.local_addr().expect("bound")).expect("accepted at once");
    carried.write_all(b"x").expect("sent");
    let _far = listener.accept().expect("the gateway connects");
    let said = terminal.finish();
    assert_eq!(counts(&said), [1, 0, 1, 0], "{said}");
    assert_eq!(carried.read(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    for (mut near, mut far) in untouched {
        far.write_all(b"y").expect("still open");
        near.read_exact(&mut [0]).expect("the end of the terminal is nothing to it");
    }
}

#[test]
fn needs_namespaces_a_host_that_does_not_forward_makes_untouchable_connections_itself() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    forward(&site.hosts.gateway, "1");
    site.configure(|text| text + "\n[[destination]]\nchannel = \"never\"\n", |text| text);
    let (terminal, _gateway) = site.both();
    for ip in SERVER {
        let (own, seen) = exchange(&site.hosts.client, &site.hosts.server, ip).expect("by plain TCP");
        assert_eq!(own, seen, "the client's own address and port");
    }
    assert_eq!(counts(&terminal.finish()), [0, 0, 2, 0]);
}

#[test]
fn needs_namespaces_traffic_that_would_come_back_is_refused() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    forward(&site.hosts.gateway, "1");
    // A destination that is a door of the terminal.
    let (terminal, gateway) = site.both();
    let client = &site.hosts.client;
    assert_eq!(by_socks5(client, SOCKS5.parse().expect("an address"), b"")[3], 2, "not allowed");
    let answer = by_http(client, SOCKS5, b"");
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("proxy_loop_detected"), "{answer}");
    assert_eq!(counts(&terminal.finish()), [0, 0, 0, 2]);
    drop(gateway);

    // A gateway that takes in what the terminal sends past the channel.
    let never = |text: String| text + "\n[[destination]]\nchannel = \"never\"\n";
    let both_devices = |text: String| {
        let text = text.replace("interfaces = [\"lan\"]", "interfaces = [\"lan\", \"sat\"]");
        text.replace("networks = [", "#networks = [")
    };
    site.configure(never, both_devices);
    let (terminal, gateway) = site.both();
    // In the client's own name: the terminal notices that the gateway asks it to be its own client.
    let fate = exchange(client, &site.hosts.server, SERVER[0]).expect_err("this would go round for ever");
    assert_eq!(fate, ErrorKind::ConnectionReset);
    terminal.until_it_says("it comes from a client of this side");
    // In the terminal's name: the gateway knows where that is and passes it on.
    let (address, _answer) = shouter(&site.hosts.server, SERVER[0].parse().expect("an address"));
    assert!(by_socks5(client, address, b"early").ends_with(b"EARLY"));
    assert_eq!(counts(&terminal.finish())[2], 2);
    assert_eq!(counts(&gateway.finish()), [1, 0, 1, 0]);
}

#[test]
fn needs_namespaces_interception_of_the_way_to_the_gateway_is_refused_at_the_start() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    let start = |edit: &dyn Fn(String) -> String| {
        site.configure(edit, |text| text);
        let mut command = site.hosts.terminal.command(env!("CARGO_BIN_EXE_skyhaul"));
        command.args(["terminal", "--config"]).arg(&site.pair.terminal).env("HOME", site.folder.path());
        let output = command.stdin(Stdio::null()).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, said) =
        start(&|text| text.replace("interfaces = [\"lan\"]", "interfaces = [\"lan\", \"sat\"]"));
    assert_eq!(status, Some(2), "{said}");
    let wanted = "terminal.toml: intercept.interfaces: found \"sat\", which leads to the gateway 10.77.0.2:4433, expected";
    assert!(said.contains(wanted) && said.lines().count() == 1, "{said}");
    let (status, said) = start(&|text| {
        text.replace("interfaces = [\"lan\", \"sat\"]", "interfaces = [\"lan\"]")
            .replace("10.77.1.1:1080", "0.0.0.0:1080")
            + "\n[[forward]]\nlisten = \"127.0.0.1:2222\"\nto = \"10.77.1.1:1080\"\n"
    });
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("forward.to: found \"10.77.1.1:1080\", where this end itself listens"), "{said}");
}

#[test]
fn a_config_that_shows_its_own_loop_is_refused_with_status_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let pair = plan().write(folder.path(), Replace::Never).expect("the plan is correct");
    let text = std::fs::read_to_string(&pair.terminal).expect("a config");
    let text = text + "\n[[forward]]\nlisten = \"127.0.0.1:2222\"\nto = \"10.77.1.1:1080\"\n";
    std::fs::write(&pair.terminal, text).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_skyhaul"));
    let output =
        command.args(["terminal", "--check", "--config"]).arg(&pair.terminal).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("forward: found a forward to 10.77.1.1:1080, where this end itself listens"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

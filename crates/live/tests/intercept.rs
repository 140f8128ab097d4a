//! Interception on the real kernel: client - proxy - server in three namespaces, the proxy's way in joined to its way
//! out. These tests need root and say so when they skip.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::time::Duration;

use skyhaul_live::config::{Config, Role};
use skyhaul_live::egress::Exit;
use skyhaul_live::ingress::Ingress;
use skyhaul_live::intercept::{Interception, Rules};
use skyhaul_live::netns::Namespace;
use skyhaul_live::tcp;
use tokio::io::copy_bidirectional;

fn privileged() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: network namespaces need root");
    }
    root
}

struct Hosts {
    client: Namespace,
    proxy: Namespace,
    server: Namespace,
}

/// client .2 - .1 proxy .1 - .2 server, in 10.77.1 and 10.77.2, fd77:1 and fd77:2.
fn hosts() -> Hosts {
    let hosts = Hosts {
        client: Namespace::new("client").unwrap(),
        proxy: Namespace::new("proxy").unwrap(),
        server: Namespace::new("server").unwrap(),
    };
    for (net, device, host) in [(1, "lan", &hosts.client), (2, "wan", &hosts.server)] {
        Namespace::veth(&hosts.proxy, device, host, "eth").unwrap();
        for (namespace, device, last) in [(&hosts.proxy, device, 1), (host, "eth", 2)] {
            namespace.ip(&format!("address add 10.77.{net}.{last}/24 dev {device}")).unwrap();
            namespace.ip(&format!("address add fd77:{net}::{last}/64 dev {device} nodad")).unwrap();
            namespace.ip(&format!("link set {device} up")).unwrap();
        }
        host.ip(&format!("route add default via 10.77.{net}.1")).unwrap();
        host.ip(&format!("-6 route add default via fd77:{net}::1")).unwrap();
    }
    hosts.proxy.sysctl("net.ipv4.ip_forward", "1").unwrap();
    hosts.proxy.sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
    hosts
}

fn config(more: &str) -> Config {
    let key = "skyhaul-ed25519:Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";
    let text = format!(
        "[channel]\ngateway = \"a:1\"\n[keys]\nsecret_file = \"k\"\npeer = \"{key}\"\n\
         [egress]\npreserve_source = true\n[intercept]\ninterfaces = [\"lan\"]\npreserve_source = true\n{more}"
    );
    Config::parse(&text, Path::new("t.toml"), Role::Terminal).unwrap()
}

/// Runs a proxy in its namespace while `test` runs outside; returns how many connections the proxy carried.
fn with_proxy(hosts: &Hosts, config: &Config, test: impl FnOnce() + Send) -> usize {
    let (ready, is_ready) = channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    std::thread::scope(|scope| {
        let proxy = scope.spawn(move || {
            hosts.proxy.run(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let local = tokio::task::LocalSet::new();
                local.block_on(&runtime, async {
                    let ingress = Ingress::bind(config).unwrap();
                    let rules = Rules::new(config, ingress.transparent_ports());
                    let interception = Interception::start(&rules).unwrap();
                    let count = Rc::new(RefCell::new(0));
                    let counter = Rc::clone(&count);
                    let exit = Rc::new(Exit::new(config));
                    let serve = ingress.serve(move |mut arrival| {
                        *counter.borrow_mut() += 1;
                        let exit = Rc::clone(&exit);
                        async move {
                            match exit.connect(&arrival.open, &[]).await {
                                Ok(mut server) => {
                                    if copy_bidirectional(&mut arrival.client, &mut server).await.is_ok() {
                                        tcp::close(arrival.client);
                                        tcp::close(server);
                                    }
                                }
                                Err(why) => arrival.dialect.refuse(arrival.client, why).await,
                            }
                        }
                    });
                    ready.send(()).unwrap();
                    tokio::select! {
                        () = serve => {}
                        _ = stopped => {}
                    }
                    drop(interception);
                    let count = *count.borrow();
                    count
                })
            })
        });
        is_ready.recv().expect("the proxy starts");
        test();
        stop.send(()).unwrap();
        proxy.join().unwrap()
    })
}

/// What a server at `listen` hears and answers: the address it sees the client under.
fn serve_once(server: &Namespace, listen: &str) -> (SocketAddr, std::thread::JoinHandle<SocketAddr>) {
    let listener = server.run(|| TcpListener::bind(listen)).unwrap();
    let address = listener.local_addr().unwrap();
    let answer = std::thread::spawn(move || {
        let (mut stream, from) = listener.accept().unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).unwrap();
        stream.write_all(heard.to_uppercase().as_bytes()).unwrap();
        from
    });
    (address, answer)
}

fn ask(client: &Namespace, to: SocketAddr) -> (SocketAddr, String) {
    client.run(|| {
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).unwrap();
        (stream.local_addr().unwrap(), heard)
    })
}

/// Firewall, rules and local routes as text.
fn left_behind(namespace: &Namespace) -> String {
    let print = |line: &str| {
        let mut words = line.split(' ');
        let output =
            namespace.command(words.next().unwrap()).args(words).stderr(Stdio::null()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    [
        "nft list ruleset",
        "ip -4 rule",
        "ip -6 rule",
        "ip -4 route show table 21320",
        "ip -6 route show table 21320",
    ]
    .map(print)
    .concat()
}

#[test]
fn needs_namespaces_connections_are_taken_from_the_wire_under_both_addresses() {
    if !privileged() {
        return;
    }
    let hosts = hosts();
    let before = left_behind(&hosts.proxy);
    let carried = with_proxy(&hosts, &config(""), || {
        for listen in ["10.77.2.2:0", "[fd77:2::2]:0"] {
            let (address, answer) = serve_once(&hosts.server, listen);
            let (client, heard) = ask(&hosts.client, address);
            assert_eq!(heard, "HELLO");
            assert_eq!(answer.join().unwrap(), client, "the server sees the client's own address and port");
        }
        // Nobody listens: accepted by the proxy, then reset.
        let refused = hosts.client.run(|| {
            let mut stream = TcpStream::connect("10.77.2.2:9")?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.read(&mut [0])
        });
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
        // The proxy's own address is not taken.
        let own = hosts.client.run(|| TcpStream::connect("10.77.2.1:9"));
        assert_eq!(own.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
        assert!(left_behind(&hosts.proxy).contains("tproxy"));
    });
    assert_eq!(carried, 3);
    assert_eq!(left_behind(&hosts.proxy), before);
}

#[test]
fn needs_namespaces_excluded_destinations_and_other_ports_take_their_usual_way() {
    if !privileged() {
        return;
    }
    let hosts = hosts();
    let config = config("exclude = [\"fd77:2::/64\"]\nports = [\"1-1023\"]");
    let carried = with_proxy(&hosts, &config, || {
        for listen in ["10.77.2.2:80", "10.77.2.2:8080", "[fd77:2::2]:80"] {
            let (address, answer) = serve_once(&hosts.server, listen);
            let (client, heard) = ask(&hosts.client, address);
            assert_eq!((heard.as_str(), answer.join().unwrap()), ("HELLO", client));
        }
    });
    assert_eq!(carried, 1, "only 10.77.2.2:80");
}

#[test]
fn needs_namespaces_an_old_connection_survives_the_start_and_the_end_of_interception() {
    if !privileged() {
        return;
    }
    let hosts = hosts();
    let listener = hosts.server.run(|| TcpListener::bind("10.77.2.2:0")).unwrap();
    let to = listener.local_addr().unwrap();
    let mut old = hosts.client.run(|| TcpStream::connect(to)).unwrap();
    let (mut other_end, _) = listener.accept().unwrap();
    let mut exchange = |word: &[u8]| {
        old.write_all(word).unwrap();
        let mut heard = vec![0; word.len()];
        other_end.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        other_end.read_exact(&mut heard).unwrap();
        assert_eq!(heard, word);
    };
    exchange(b"before");
    with_proxy(&hosts, &config(""), || exchange(b"during"));
    exchange(b"after");
}

#[test]
fn needs_namespaces_what_a_killed_predecessor_left_behind_is_cleaned_up() {
    if !privileged() {
        return;
    }
    let hosts = hosts();
    let before = left_behind(&hosts.proxy);
    // Its guard died with it, so the routes stay.
    for family in ["-4", "-6"] {
        hosts.proxy.ip(&format!("{family} route add local default dev lo table 21320")).unwrap();
        hosts.proxy.ip(&format!("{family} rule add pref 21320 fwmark 21320 lookup 21320")).unwrap();
    }
    with_proxy(&hosts, &config(""), || {
        let (address, answer) = serve_once(&hosts.server, "10.77.2.2:0");
        assert_eq!(ask(&hosts.client, address).1, "HELLO");
        answer.join().unwrap();
    });
    assert_eq!(left_behind(&hosts.proxy), before);
}

#[test]
fn needs_namespaces_a_second_interception_with_the_same_mark_is_refused() {
    if !privileged() {
        return;
    }
    let hosts = hosts();
    with_proxy(&hosts, &config(""), || {
        let config = config("");
        let rules = Rules::new(&config, Default::default());
        let error = hosts.proxy.run(|| Interception::start(&rules)).unwrap_err().to_string();
        assert!(error.contains("another skyhaul uses route mark 21320"), "{error}");
    });
}

#[test]
fn needs_namespaces_what_nft_does_not_understand_is_told_and_leaves_nothing() {
    if !privileged() {
        return;
    }
    let hosts = hosts();
    let before = left_behind(&hosts.proxy);
    let mut config = config("");
    config.intercept.as_mut().unwrap().interfaces = vec!["a\" b".to_owned()];
    let rules = Rules::new(&config, Default::default());
    let error = hosts.proxy.run(|| Interception::start(&rules)).unwrap_err().to_string();
    assert!(error.contains("nft says: Error"), "{error}");
    assert_eq!(left_behind(&hosts.proxy), before);
}

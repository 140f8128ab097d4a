//! Real TCP connections through two real drivers over loopback UDP.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::{registry, Bytes, Duration, Rate, Setup};
use skyhaul_live::driver::{Driver, Role, TunnelHandle};
use skyhaul_live::tcp;
use skyhaul_pep::auth::SecretKey;
use skyhaul_pep::frame::{Class, Open, Target};
use skyhaul_pep::{Config, Tuning};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{spawn_local, JoinHandle};

mod shared;
use shared::{block_on, echo_server, forward, key, pattern, seed, serve};

fn config(secret: &SecretKey, peer: &SecretKey, rate: Rate) -> Config {
    let setup =
        Setup { link_rate: Some(rate), initial_rtt: Duration::from_millis(20), ..Setup::new(Bytes(1500)) };
    Config {
        secret: secret.clone(),
        peers: vec![peer.public()],
        controller: Arc::new(move |_| registry::build("rate", &setup).unwrap()),
        tuning: Tuning { initial_rtt: Duration::from_millis(20), ..Tuning::default() },
        memory: Bytes::mib(32),
        seed: seed(),
    }
}

struct Ends {
    terminal: TunnelHandle,
    gateway: TunnelHandle,
    gateway_address: SocketAddr,
    gateway_task: JoinHandle<std::io::Result<()>>,
    gateway_config: Config,
}

async fn ends() -> Ends {
    ends_at(Rate::mbit(2000)).await
}

async fn ends_at(rate: Rate) -> Ends {
    let (a, b) = (key(), key());
    let listen = Role::Listen("127.0.0.1:0".parse().unwrap());
    let gateway_config = config(&b, &a, rate);
    let (driver, gateway) = Driver::start(listen, gateway_config.clone(), BTreeMap::new()).await.unwrap();
    let gateway_address = driver.local_addr().unwrap();
    let gateway_task = spawn_local(driver.run());
    let connect = Role::Connect { gateway: gateway_address.to_string(), bind: None };
    let (driver, terminal) = Driver::start(connect, config(&a, &b, rate), BTreeMap::new()).await.unwrap();
    spawn_local(driver.run());
    terminal.any_peer().await;
    gateway.any_peer().await;
    serve(gateway.clone());
    serve(terminal.clone());
    Ends { terminal, gateway, gateway_address, gateway_task, gateway_config }
}

/// A connection through the tunnel, opened there, and its other end in our hands. A byte is on its way.
async fn held(tunnel: &TunnelHandle) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let way_in = forward(tunnel, listener.local_addr().unwrap(), None).await;
    let mut client = TcpStream::connect(way_in).await.unwrap();
    client.write_all(b"x").await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (client, server)
}

/// Bytes that the kernel holds for whoever was accepted at a port of 127.0.0.1.
fn kernel_holds(port: u16) -> u64 {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let local = format!("0100007F:{port:04X}");
    let queues = table.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (at, _, state, queues) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let waiting = u64::from_str_radix(queues.split_once(':')?.1, 16).ok()?;
        (at == local && state == "01").then_some(waiting)
    });
    queues.sum()
}

#[test]
fn bytes_come_back_unharmed_and_half_close_is_carried() {
    block_on(async {
        let ends = ends().await;
        let server = echo_server().await;
        for tunnel in [&ends.terminal, &ends.gateway] {
            let way_in = forward(tunnel, server, None).await;
            for length in [0, 1, 1_000, 300_000, 20_000_000] {
                let mut stream = TcpStream::connect(way_in).await.unwrap();
                let sent = pattern(length, 7);
                let (mut read, mut write) = stream.split();
                let mut received = Vec::new();
                let write_all = async {
                    write.write_all(&sent).await.unwrap();
                    // The echo server ends only when it sees this end.
                    write.shutdown().await.unwrap();
                };
                let (_, n) = tokio::join!(write_all, read.read_to_end(&mut received));
                assert_eq!(n.unwrap(), length);
                assert!(received == sent, "{length} bytes came back changed");
            }
        }
    });
}

#[test]
fn two_hundred_connections_at_once_each_get_their_own_bytes() {
    block_on(async {
        let ends = ends().await;
        let way_in = forward(&ends.terminal, echo_server().await, None).await;
        let tasks: Vec<_> = (0..200usize)
            .map(|n| {
                spawn_local(async move {
                    let sent = pattern(n * 997, n);
                    let mut stream = TcpStream::connect(way_in).await.unwrap();
                    let (mut read, mut write) = stream.split();
                    let mut received = Vec::new();
                    let write_all = async {
                        write.write_all(&sent).await.unwrap();
                        write.shutdown().await.unwrap();
                    };
                    let (_, result) = tokio::join!(write_all, read.read_to_end(&mut received));
                    result.unwrap();
                    assert!(received == sent, "connection {n}");
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn a_refused_destination_is_a_reset_or_the_greeting_that_never_comes() {
    block_on(async {
        let ends = ends().await;
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let silent = forward(&ends.terminal, closed, None).await;
        let mut stream = TcpStream::connect(silent).await.unwrap();
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        let polite = forward(&ends.terminal, closed, Some(b"hello")).await;
        let mut said = String::new();
        TcpStream::connect(polite).await.unwrap().read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "refused");
    });
}

#[test]
fn a_reset_by_the_client_reaches_the_server_and_the_other_way_round() {
    block_on(async {
        let ends = ends().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let way_in = forward(&ends.terminal, listener.local_addr().unwrap(), None).await;
        for client_resets in [true, false] {
            let mut client = TcpStream::connect(way_in).await.unwrap();
            client.write_all(b"x").await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            assert_eq!(server.read_u8().await.unwrap(), b'x');
            let (resetting, mut witness) = if client_resets { (client, server) } else { (server, client) };
            tcp::reset(resetting);
            let error = witness.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    });
}

#[test]
fn a_gateway_that_stops_resets_open_connections_at_the_terminal() {
    block_on(async {
        let ends = ends().await;
        let (mut client, _server) = held(&ends.terminal).await;
        ends.gateway.shut_down().await;
        let error = client.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_gateway_that_dies_without_a_word_is_noticed_and_found_again() {
    block_on(async {
        let ends = ends().await;
        let (mut client, _server) = held(&ends.terminal).await;
        // The task owns the socket: aborted, its port is closed and ICMP says so.
        ends.gateway_task.abort();
        let error = client.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        // A new one at the same place is connected to by itself.
        let listen = Role::Listen(ends.gateway_address);
        let (driver, _gateway) = Driver::start(listen, ends.gateway_config, BTreeMap::new()).await.unwrap();
        spawn_local(driver.run());
        ends.terminal.any_peer().await;
    });
}

#[test]
fn a_reader_that_stops_holds_back_its_writer_and_nobody_else() {
    block_on(async {
        let ends = ends().await;
        let (mut client, _stopped) = held(&ends.terminal).await;
        let piece = vec![0; 1 << 20];
        let mut written = 0u64;
        // Each megabyte the chain does not take within a second is one too many.
        while let Ok(result) = tokio::time::timeout(Duration::from_secs(1), client.write_all(&piece)).await {
            result.unwrap();
            written += 1 << 20;
            assert!(written < 200 << 20, "no back-pressure");
        }
        let echo = forward(&ends.terminal, echo_server().await, None).await;
        let mut other = TcpStream::connect(echo).await.unwrap();
        other.write_all(b"still here").await.unwrap();
        let mut answer = [0; 10];
        other.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"still here");
    });
}

/// Waits until what an end has received and cannot pass on has not changed for two seconds; how much that is.
async fn stuck(tunnel: &TunnelHandle) -> Bytes {
    let (mut last, mut same) = (Bytes::ZERO, 0);
    while same < 40 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = tunnel.holdings().received;
        same = if now == last && now > Bytes::ZERO { same + 1 } else { 0 };
        last = now;
    }
    last
}

#[test]
fn a_reader_that_stops_for_seconds_harms_nobody_gets_every_byte_and_gives_its_memory_back() {
    block_on(async {
        let ends = ends().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let way_in = forward(&ends.terminal, listener.local_addr().unwrap(), None).await;
        let echo = forward(&ends.terminal, echo_server().await, None).await;
        let memory = ends.gateway.holdings().memory;
        let mut held = Vec::new();
        // The second finds what the first has given back.
        for n in 0..2 {
            let sent = pattern(24 << 20, n);
            let upload = sent.clone();
            let mut client = TcpStream::connect(way_in).await.unwrap();
            let writer = spawn_local(async move {
                client.write_all(&upload).await.unwrap();
                client.shutdown().await.unwrap();
                client.read_to_end(&mut Vec::new()).await.unwrap()
            });
            let (mut server, _) = listener.accept().await.unwrap();
            held.push(stuck(&ends.gateway).await);
            for other in 0..20 {
                let words = pattern(100_000, other);
                let mut stream = TcpStream::connect(echo).await.unwrap();
                let (mut read, mut write) = stream.split();
                let mut back = Vec::new();
                let say = async {
                    write.write_all(&words).await.unwrap();
                    write.shutdown().await.unwrap();
                };
                let (_, read) = tokio::join!(say, read.read_to_end(&mut back));
                read.unwrap();
                assert!(back == words, "{other}: {} of {} bytes, or others", back.len(), words.len());
            }
            let holdings = ends.gateway.holdings();
            // A quarter of the budget at most, and what is on its way to the others.
            assert!(holdings.received <= memory / 4 + Bytes::mib(1), "{holdings:?}");
            let mut got = Vec::new();
            server.read_to_end(&mut got).await.unwrap();
            assert!(got == sent, "{} of {} bytes, or others", got.len(), sent.len());
            drop(server);
            writer.await.unwrap();
            loop {
                let (near, far) = (ends.terminal.holdings(), ends.gateway.holdings());
                if (near.flows, far.flows) == (0, 0) && near.outstanding + far.received == Bytes::ZERO {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        println!("held for the reader that stopped: {held:?} of {memory}");
        assert!(held[1] * 2 > held[0], "{held:?}");
    });
}

#[test]
fn one_gateway_serves_two_terminals_and_reaches_each_by_its_key() {
    block_on(async {
        let (first, second, own) = (key(), key(), key());
        let mut gateway_config = config(&own, &first, Rate::mbit(2000));
        gateway_config.peers.push(second.public());
        let listen = Role::Listen("127.0.0.1:0".parse().unwrap());
        let (driver, gateway) = Driver::start(listen, gateway_config, BTreeMap::new()).await.unwrap();
        let address = driver.local_addr().unwrap().to_string();
        spawn_local(driver.run());
        serve(gateway.clone());
        let server = echo_server().await;
        for terminal_key in [&first, &second] {
            let connect = Role::Connect { gateway: address.clone(), bind: None };
            let terminal_config = config(terminal_key, &own, Rate::mbit(2000));
            let (driver, terminal) = Driver::start(connect, terminal_config, BTreeMap::new()).await.unwrap();
            spawn_local(driver.run());
            serve(terminal.clone());
            terminal.any_peer().await;
            let mut stream = TcpStream::connect(forward(&terminal, server, None).await).await.unwrap();
            stream.write_all(b"up").await.unwrap();
            let mut answer = [0; 2];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"up");
        }
        let peers = gateway.peers();
        let mut keys: Vec<_> = peers.iter().map(|peer| peer.key).collect();
        keys.sort();
        let mut known = vec![first.public(), second.public()];
        known.sort();
        assert_eq!(keys, known);
        for peer in peers {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let way_in = listener.local_addr().unwrap();
            let client = tokio::spawn(async move { TcpStream::connect(way_in).await.unwrap() });
            let (accepted, _) = listener.accept().await.unwrap();
            tcp::prepare(&accepted).unwrap();
            let (tunnel, open) = (
                gateway.clone(),
                Open { destination: Target::Address(server), source: None, class: Class::Normal },
            );
            spawn_local(
                async move { tunnel.carry(peer.id, &open, accepted, None).await.map_err(|(_, why)| why) },
            );
            let mut client = client.await.unwrap();
            client.write_all(b"down").await.unwrap();
            let mut answer = [0; 4];
            client.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"down");
        }
    });
}

#[test]
fn the_kernel_hoards_no_megabytes_of_a_fast_client_before_a_slow_channel() {
    block_on(async {
        let ends = ends_at(Rate::mbit(20)).await;
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = server.local_addr().unwrap();
        // A host tuned for satellites gives every connection large buffers from the start.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let large = 8 << 20;
        let forced = nix::sys::socket::setsockopt(&listener, nix::sys::socket::sockopt::RcvBufForce, &large);
        if forced.is_err() {
            socket2::SockRef::from(&listener).set_recv_buffer_size(large).unwrap();
        }
        let way_in = listener.local_addr().unwrap();
        let tunnel = ends.terminal.clone();
        spawn_local(async move {
            let (client, _) = listener.accept().await.unwrap();
            tcp::prepare(&client).unwrap();
            let open = Open { destination: Target::Address(to), source: None, class: Class::Normal };
            let peer = tunnel.any_peer().await;
            let _ = tunnel.carry(peer.id, &open, client, None).await;
        });
        let mut client = TcpStream::connect(way_in).await.unwrap();
        let (mut stream, _) = server.accept().await.unwrap();
        spawn_local(async move { while client.write_all(&[7; 100_000]).await.is_ok() {} });
        let mut received = 0u64;
        let mut buffer = vec![0; 1 << 20];
        // Once the buffer follows the channel, little waits, and data still come.
        let (mut little, mut most) = (0, 0);
        while little < 40 {
            received += stream.read(&mut buffer).await.unwrap() as u64;
            tokio::time::sleep(Duration::from_millis(20)).await;
            let waiting = kernel_holds(way_in.port());
            most = waiting.max(most);
            little = if received > 1 << 20 && waiting <= 128 << 10 { little + 1 } else { 0 };
        }
        let queued = ends.terminal.holdings().queued;
        assert!(queued <= Bytes::kib(256), "{queued}");
        println!(
            "the kernel held at most {most} bytes, {} now; {queued} queued",
            kernel_holds(way_in.port())
        );
    });
}

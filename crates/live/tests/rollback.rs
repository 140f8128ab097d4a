//! Running transfers through two real drivers while a network between them lets no UDP through, or nothing at all.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::{registry, Bytes, Duration, Rate, Setup};
use skyhaul_live::driver::{Driver, Role, TunnelHandle};
use skyhaul_live::tcp;
use skyhaul_pep::auth::SecretKey;
use skyhaul_pep::{Config, Standing, Tuning};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::{spawn_local, JoinHandle};

mod shared;
use shared::{block_on, echo_server, forward, key, pattern, seed, serve};

fn config(secret: &SecretKey, peer: &SecretKey) -> Config {
    let setup = Setup {
        link_rate: Some(Rate::mbit(200)),
        initial_rtt: Duration::from_millis(20),
        ..Setup::new(Bytes(1500))
    };
    let mut tuning = Tuning { initial_rtt: Duration::from_millis(20), ..Tuning::default() };
    // Ten times faster than in life.
    tuning.rollback.detect = Duration::from_millis(1_500);
    tuning.rollback.hold = Duration::from_secs(1);
    Config {
        secret: secret.clone(),
        peers: vec![peer.public()],
        controller: Arc::new(move |_| registry::build("rate", &setup).unwrap()),
        tuning,
        memory: Bytes::mib(8),
        seed: seed(),
    }
}

/// What stands between the two ends.
#[derive(Default)]
struct Network {
    /// Largest UDP payload that gets through, from and to the terminal.
    up: Cell<Option<usize>>,
    down: Cell<Option<usize>>,
    tcp_seen: Cell<u64>,
}

impl Network {
    fn set(&self, up: Option<usize>, down: Option<usize>) {
        self.up.set(up);
        self.down.set(down);
    }

    /// Leads to `gateway`, UDP and TCP at one port.
    async fn start(self: Rc<Self>, gateway: SocketAddr) -> SocketAddr {
        let (outside, listener) = free_for_both().await;
        let (outside, address) = (Rc::new(outside), listener.local_addr().unwrap());
        let inside = Rc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        inside.connect(gateway).await.unwrap();
        let terminal = Rc::new(Cell::new(None));
        let passes = |size: usize, most: Option<usize>| most.is_none_or(|most| size <= most);
        let (network, from, to, who) = (self.clone(), outside.clone(), inside.clone(), terminal.clone());
        spawn_local(async move {
            let mut buffer = [0; 2_000];
            loop {
                let Ok((n, sender)) = from.recv_from(&mut buffer).await else { continue };
                who.set(Some(sender));
                if passes(n, network.up.get()) {
                    let _ = to.send(&buffer[..n]).await;
                }
            }
        });
        let (network, from, to) = (self.clone(), inside, outside);
        spawn_local(async move {
            let mut buffer = [0; 2_000];
            loop {
                let Ok(n) = from.recv(&mut buffer).await else { continue };
                if let Some(terminal) = terminal.get().filter(|_| passes(n, network.down.get())) {
                    let _ = to.send_to(&buffer[..n], terminal).await;
                }
            }
        });
        spawn_local(async move {
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                self.tcp_seen.set(self.tcp_seen.get() + 1);
                spawn_local(async move {
                    let Ok(mut far) = TcpStream::connect(gateway).await else { return tcp::reset(near) };
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        address
    }
}

/// A port that nobody has, neither of UDP nor of TCP.
async fn free_for_both() -> (UdpSocket, TcpListener) {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()).await {
            return (socket, listener);
        }
    }
}

struct Ends {
    terminal: TunnelHandle,
    gateway: TunnelHandle,
    gateway_task: JoinHandle<std::io::Result<()>>,
    gateway_address: SocketAddr,
    network: Rc<Network>,
}

async fn ends() -> Ends {
    let (a, b) = (key(), key());
    let listen = Role::Listen("127.0.0.1:0".parse().unwrap());
    let (driver, gateway) = Driver::start(listen, config(&b, &a), BTreeMap::new()).await.unwrap();
    let gateway_address = driver.local_addr().unwrap();
    let gateway_task = spawn_local(driver.run());
    let network = Rc::new(Network::default());
    let way = network.clone().start(gateway_address).await;
    let connect = Role::Connect { gateway: way.to_string(), bind: None };
    let (driver, terminal) = Driver::start(connect, config(&a, &b), BTreeMap::new()).await.unwrap();
    spawn_local(driver.run());
    terminal.any_peer().await;
    gateway.any_peer().await;
    serve(gateway.clone());
    Ends { terminal, gateway, gateway_task, gateway_address, network }
}

/// Waits until the channel stands so at that end.
async fn until(tunnel: &TunnelHandle, standing: Standing) {
    loop {
        let peer = tunnel.any_peer().await;
        if tunnel.standing(peer.id) == Some(standing) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

const PIECE: usize = 16 * 1024;

/// SHA-256 of what was sent and of what came back.
type Sums = (Vec<u8>, Vec<u8>);

/// Sends through the echo and back until told to stop; the bytes that came back, compared with what was sent.
fn transfer(way_in: SocketAddr) -> (Rc<Cell<bool>>, Rc<Cell<u64>>, JoinHandle<Sums>) {
    let (stop, back) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0u64)));
    let (stopped, counted) = (stop.clone(), back.clone());
    let task = spawn_local(async move {
        let mut stream = TcpStream::connect(way_in).await.unwrap();
        let (mut read, mut write) = stream.split();
        let hash = |bytes: &ring::digest::Context| bytes.clone().finish().as_ref().to_vec();
        let send = async {
            let (mut sum, mut n) = (ring::digest::Context::new(&ring::digest::SHA256), 0usize);
            while !stopped.get() {
                let piece = pattern(PIECE, n);
                n += PIECE;
                sum.update(&piece);
                write.write_all(&piece).await.unwrap();
                // About 80 Mbit/s: a debugger's machine shall keep up.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            write.shutdown().await.unwrap();
            hash(&sum)
        };
        let receive = async {
            let (mut sum, mut piece) = (ring::digest::Context::new(&ring::digest::SHA256), vec![0; PIECE]);
            loop {
                let n = read.read(&mut piece).await.unwrap();
                if n == 0 {
                    return hash(&sum);
                }
                sum.update(&piece[..n]);
                counted.set(counted.get() + n as u64);
            }
        };
        tokio::join!(send, receive)
    });
    (stop, back, task)
}

/// Waits until so much more has come back.
async fn moved(back: &Cell<u64>, more: u64) {
    let goal = back.get() + more;
    while back.get() < goal {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_running_transfer_goes_on_inside_tcp_and_returns_to_udp_byte_exact() {
    block_on(async {
        let ends = ends().await;
        let way_in = forward(&ends.terminal, echo_server().await, None).await;
        // Both directions, one of them, full datagrams only.
        for (up, down) in [(Some(0), Some(0)), (None, Some(0)), (Some(1_200), Some(1_200))] {
            let (stop, back, task) = transfer(way_in);
            moved(&back, 500_000).await;
            ends.network.set(up, down);
            let since = std::time::Instant::now();
            until(&ends.terminal, Standing::Carried).await;
            println!("{up:?} {down:?}: carried after {:?}", since.elapsed());
            until(&ends.gateway, Standing::Carried).await;
            moved(&back, 1_000_000).await;
            println!("first MB of it after {:?}", since.elapsed());
            ends.network.set(None, None);
            let since = std::time::Instant::now();
            until(&ends.terminal, Standing::Up).await;
            until(&ends.gateway, Standing::Up).await;
            println!("back after {:?}", since.elapsed());
            moved(&back, 1_000_000).await;
            stop.set(true);
            let (sent, received) = task.await.unwrap();
            assert!(sent == received, "{up:?} {down:?}: bytes came back changed");
        }
        let peer = ends.terminal.any_peer().await.id;
        let stats = ends.terminal.stats(peer).unwrap();
        assert_eq!((stats.rollback.carried, stats.rollback.returned), (3, 3), "{:?}", stats.rollback);
        assert_eq!(stats.loss_disagreements, 0);
    });
}

#[test]
fn a_gateway_that_dies_while_it_is_reached_by_tcp_is_noticed_and_its_flows_are_reset() {
    block_on(async {
        let ends = ends().await;
        let way_in = forward(&ends.terminal, echo_server().await, None).await;
        let mut client = TcpStream::connect(way_in).await.unwrap();
        client.write_all(b"x").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'x');
        ends.network.set(Some(0), Some(0));
        until(&ends.terminal, Standing::Carried).await;
        client.write_all(b"y").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'y');
        let since = std::time::Instant::now();
        ends.gateway_task.abort();
        let error = client.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        println!("reset after {:?}", since.elapsed());
    });
}

#[test]
fn garbage_on_the_tcp_port_is_hung_up_on_and_harms_nobody() {
    block_on(async {
        let ends = ends().await;
        let way_in = forward(&ends.terminal, echo_server().await, None).await;
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 48, 0x20], &[0xff; 5_000], &[0; 4]] {
            let mut stranger = TcpStream::connect(ends.gateway_address).await.unwrap();
            stranger.write_all(garbage).await.unwrap();
            if garbage.len() > 3 {
                let mut answer = Vec::new();
                // Reset or closed, and not a byte said.
                let _ = stranger.read_to_end(&mut answer).await;
                assert!(answer.is_empty(), "{answer:?}");
            }
        }
        let mut silent = Vec::new();
        for _ in 0..100 {
            // From some number on they are reset at once.
            silent.push(TcpStream::connect(ends.gateway_address).await.ok());
        }
        let mut client = TcpStream::connect(way_in).await.unwrap();
        client.write_all(b"x").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'x');
        drop(silent);
        let peer = ends.terminal.any_peer().await;
        assert_eq!(ends.terminal.standing(peer.id), Some(Standing::Up));
    });
}

//! What the tests with real drivers have in common.

use skyhaul_live::driver::TunnelHandle;
use skyhaul_live::tcp;
use skyhaul_pep::auth::SecretKey;
use skyhaul_pep::frame::{Class, Open, Refusal, Target};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{spawn_local, LocalSet};

pub fn key() -> SecretKey {
    SecretKey::generate(&ring::rand::SystemRandom::new()).unwrap()
}

/// What an end draws its chance from.
pub fn seed() -> [u8; 32] {
    skyhaul_live::keys::by_chance().unwrap()
}

/// Connects what the other end opens.
pub fn serve(tunnel: TunnelHandle) {
    spawn_local(async move {
        loop {
            let incoming = tunnel.next_incoming().await;
            spawn_local(async move {
                let Target::Address(to) = incoming.open.destination else {
                    return incoming.refuse(Refusal::NoSuchName);
                };
                match TcpStream::connect(to).await {
                    Ok(server) => {
                        tcp::prepare(&server).unwrap();
                        incoming.accept(server).await;
                    }
                    Err(_) => incoming.refuse(Refusal::Refused),
                }
            });
        }
    });
}

/// A local port whose connections lead to `to` at the other end.
pub async fn forward(tunnel: &TunnelHandle, to: SocketAddr, greeting: Option<&'static [u8]>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tunnel = tunnel.clone();
    spawn_local(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            tcp::prepare(&client).unwrap();
            let tunnel = tunnel.clone();
            spawn_local(async move {
                let open = Open { destination: Target::Address(to), source: None, class: Class::Normal };
                let peer = tunnel.any_peer().await;
                if let Err((client, _)) = tunnel.carry(peer.id, &open, client, greeting).await {
                    tcp::farewell(client, b"refused").await;
                }
            });
        }
    });
    address
}

/// A server that says what it hears, until nobody listens.
pub async fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    spawn_local(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            spawn_local(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
    address
}

/// `length` bytes that are others with another salt.
pub fn pattern(length: usize, salt: usize) -> Vec<u8> {
    (0..length).map(|i| ((i + salt).wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

/// Runs a test, which fails if it takes longer than a slow machine would.
pub fn block_on<F: std::future::Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(async move {
        tokio::time::timeout(Duration::from_secs(300), future).await.expect("a test moves on within 300 s")
    }))
}

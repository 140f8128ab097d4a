//! What the tests with real drivers have in common.

use skyhaul_live::driver::TunnelHandle;
use skyhaul_live::tcp;
use skyhaul_pep::auth::SecretKey;
use skyhaul_pep::frame::{Refusal, Target};
use tokio::net::TcpStream;
use tokio::task::spawn_local;

pub fn key() -> SecretKey {
    SecretKey::generate(&ring::rand::SystemRandom::new()).unwrap()
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

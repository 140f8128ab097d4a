//! A connection by plain TCP between a client and its destination, both ends of it in our hands.
//!
//! It ends as a carried one does: an end of one direction is passed on alone, both in good order close both
//! connections, and anything else, the death of this process included, resets both.

use std::collections::VecDeque;
use std::future::Future;

use bytes::Bytes;
use skyhaul_pep::frame::Refusal;
use tokio::net::TcpStream;

use crate::relay::{error_on, write_all};
use crate::room::Place;
use crate::tcp;

/// Waits for `connect` to reach the destination, says `greeting` to the client, and carries until both directions have
/// ended, in `place`. `connected` is called when the destination is there.
///
/// # Errors
/// Hands the client back, to whom nothing was said yet, when the destination cannot be reached.
pub(crate) async fn carry(
    client: TcpStream,
    greeting: &'static [u8],
    connect: impl Future<Output = Result<TcpStream, Refusal>>,
    place: Place,
    connected: impl FnOnce(),
) -> Result<(), (TcpStream, Refusal)> {
    let outcome = tokio::select! {
        outcome = connect => outcome,
        _ = error_on(&client) => return Ok(()),
    };
    let server = match outcome {
        Ok(server) => server,
        Err(why) => return Err((client, why)),
    };
    connected();
    if !greeting.is_empty() {
        let mut word = VecDeque::from([Bytes::from_static(greeting)]);
        if write_all(&client, &mut word).await.is_err() {
            return Ok(());
        }
    }
    pump(client, server, place).await;
    Ok(())
}

/// Carries both directions until both have ended.
pub(crate) async fn pump(client: TcpStream, server: TcpStream, place: Place) {
    let carried = async { tokio::try_join!(place.carry(&client, &server), place.carry(&server, &client)) };
    let clean = tokio::select! {
        carried = carried => carried.is_ok(),
        _ = error_on(&client) => false,
        _ = error_on(&server) => false,
    };
    if clean {
        tcp::close(client);
        tcp::close(server);
    }
    // A dropped socket of ours resets, see `tcp::prepare`.
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::Rooms;
    use crate::tcp::tests::connected;
    use skyhaul_cc::Bytes as Memory;
    use std::io;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::{spawn_local, LocalSet};

    fn place() -> Place {
        Rooms::own(Memory::mib(1), 1).enter().unwrap()
    }

    /// A client and a server with a pump between them.
    async fn pumped() -> (TcpStream, TcpStream, tokio::task::JoinHandle<()>) {
        let ((client, near), (server, far)) = (connected().await, connected().await);
        (client, server, spawn_local(pump(near, far, place())))
    }

    #[tokio::test]
    async fn every_byte_passes_in_order_and_the_end_of_one_direction_leaves_the_other_open() {
        let test = async {
            let (mut client, mut server, pump) = pumped().await;
            let sent: Vec<u8> =
                (0..3_000_000u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
            let words = sent.clone();
            let talk = tokio::spawn(async move {
                client.write_all(&words).await.unwrap();
                client.shutdown().await.unwrap();
                let mut answer = Vec::new();
                client.read_to_end(&mut answer).await.unwrap();
                answer
            });
            let mut heard = Vec::new();
            server.read_to_end(&mut heard).await.unwrap();
            assert!(heard == sent, "{} of {} bytes, or others", heard.len(), sent.len());
            server.write_all(b"after the client's end").await.unwrap();
            drop(server);
            assert_eq!(talk.await.unwrap(), b"after the client's end");
            pump.await.unwrap();
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn a_reset_of_one_side_resets_the_other_although_nothing_is_sent() {
        let test = async {
            for of_client in [true, false] {
                let (client, server, pump) = pumped().await;
                let (gone, mut other) = if of_client { (client, server) } else { (server, client) };
                tcp::reset(gone);
                let error = other.read(&mut [0]).await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "of client: {of_client}");
                pump.await.unwrap();
            }
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn a_reset_after_the_end_of_its_direction_is_a_reset_still() {
        let test = async {
            let (mut client, mut server, pump) = pumped().await;
            client.write_all(b"x").await.unwrap();
            client.shutdown().await.unwrap();
            let mut heard = Vec::new();
            server.read_to_end(&mut heard).await.unwrap();
            tcp::reset(client);
            pump.await.unwrap();
            // The client's direction had ended in good order; writing shows that nobody listens any more.
            server.write_all(b"too late").await.unwrap_err();
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_stops_the_writer() {
        let test = async {
            let (client, server, pump) = pumped().await;
            let mut written = 0;
            let block = [0; 65536];
            // Kernel buffers of four sockets hold some megabytes and no more.
            while written < 256 << 20 {
                let ready =
                    tokio::time::timeout(std::time::Duration::from_millis(300), client.writable()).await;
                let Ok(ready) = ready else { break };
                ready.unwrap();
                written += client.try_write(&block).unwrap_or(0);
            }
            assert!(written < 256 << 20, "{written} bytes went somewhere");
            drop((client, server));
            pump.await.unwrap();
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn a_destination_that_is_not_there_gives_the_client_back() {
        let (client, near) = connected().await;
        let outcome =
            carry(near, b"hello", async { Err(Refusal::TimedOut) }, place(), || unreachable!()).await;
        let (near, why) = outcome.unwrap_err();
        assert_eq!(why, Refusal::TimedOut);
        assert_eq!(near.peer_addr().unwrap(), client.local_addr().unwrap());
    }
}

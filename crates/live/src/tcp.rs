//! What every TCP socket of ours has in common, and its two ways to end.
//!
//! A socket is made so that closing it resets the connection: should this process die, the kernel resets what it
//! held, and no client takes half a file for a whole one. Only [`close`] ends a connection in good order.

pub mod info;
pub mod watch;

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sets a connection up for carrying: no Nagle (the bytes come from a link that is slow enough), keep-alive, and
/// reset when dropped.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_RETRIES),
    )?;
    // What the receiver has no window for stays with us, where it is counted, and not in the kernel.
    let _ = socket.set_tcp_notsent_lowat(UNSENT);
    socket.set_linger(Some(Duration::ZERO))
}

/// Ends a connection whose bytes have all been delivered: what is still in its send buffer goes out, then a FIN.
pub fn close(stream: TcpStream) {
    // Should this fail, the connection is gone already.
    let _ = SockRef::from(&stream).set_linger(None);
}

/// Resets a connection: the peer's next read or write fails.
pub fn reset(stream: TcpStream) {
    let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
}

/// Says a last word, such as a proxy's error, and ends the connection so that the word arrives: what the client still
/// sends is read and thrown away for a moment, since unread bytes would turn the FIN into a reset.
pub async fn farewell(mut stream: TcpStream, word: &[u8]) {
    let talk = async {
        stream.write_all(word).await?;
        stream.shutdown().await?;
        let mut waste = [0; 4096];
        for _ in 0..FAREWELL_READS {
            if stream.read(&mut waste).await? == 0 {
                break;
            }
        }
        io::Result::Ok(())
    };
    if let Ok(Ok(())) = tokio::time::timeout(FAREWELL_TIME, talk).await {
        close(stream);
    }
}

/// Bytes that may wait in the kernel to be sent (tcp(7) `TCP_NOTSENT_LOWAT`): a millisecond of 1 Gbit/s.
const UNSENT: u32 = 128 * 1024;
/// Idle time before the first probe. Shorter than the 5 minutes after which common firewalls forget a connection.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// A host that vanished is noticed after 120 + 4 x 30 s.
const KEEPALIVE_RETRIES: u32 = 4;
/// A client that has not hung up by then gets a reset.
const FAREWELL_TIME: Duration = Duration::from_secs(2);
/// 64 KiB at 4 KiB each: more than a request that crossed our answer.
const FAREWELL_READS: usize = 16;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Both ends of a connection over loopback; the second is prepared as those are that we accept.
    pub(crate) async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        prepare(&server).unwrap();
        (client, server)
    }

    #[tokio::test]
    async fn a_dropped_connection_is_reset_even_when_all_was_sent() {
        let (mut client, mut server) = connected().await;
        server.write_all(b"half a file").await.unwrap();
        let mut got = [0; 11];
        client.read_exact(&mut got).await.unwrap();
        drop(server);
        let error = client.read(&mut got).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn a_closed_connection_delivers_everything_and_then_ends() {
        let (mut client, mut server) = connected().await;
        let sent = vec![7; 100_000];
        server.write_all(&sent).await.unwrap();
        close(server);
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, sent);
    }

    #[tokio::test]
    async fn a_last_word_arrives_although_the_client_is_still_talking() {
        let (mut client, server) = connected().await;
        client.write_all(&[1; 10_000]).await.unwrap();
        let parting = tokio::spawn(async move { farewell(server, b"502").await });
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"502");
        drop(client);
        parting.await.unwrap();
    }
}

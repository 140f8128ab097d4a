//! Talks a proxy protocol with a client up to its request, and takes not one byte of what follows.

use std::io;

use skyhaul_pep::frame::Target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{http_connect, socks5, Dialect};

/// What a parser makes of the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<T> {
    /// They may become something; more is needed.
    Unfinished,
    /// A whole message in the first `used` bytes.
    Done {
        /// Length of the message.
        used: usize,
        /// Its meaning.
        value: T,
    },
    /// They will never be a message. The answer for the client, possibly empty.
    Rejected(Vec<u8>),
}

/// Why there is no request.
#[derive(Debug)]
pub enum Ended {
    /// The client said something wrong; this is to be answered.
    Rejected(Vec<u8>),
    /// The connection broke.
    Broken(io::Error),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Ended::Broken(error)
    }
}

/// Leads the dialogue of one of the two proxy dialects and returns where the client wants to go.
pub async fn run(client: &mut TcpStream, dialect: Dialect) -> Result<Target, Ended> {
    match dialect {
        Dialect::HttpConnect => message(client, http_connect::parse).await,
        Dialect::Socks5 | Dialect::Silent => {
            message(client, socks5::parse_greeting).await?;
            client.write_all(&socks5::NO_PASSWORD).await?;
            message(client, socks5::parse_request).await
        }
    }
}

/// Reads one message. Bytes are looked at before they are taken, so what follows the message stays in the socket.
/// The parsers bound the length: they never ask for more than their longest message.
async fn message<T>(client: &mut TcpStream, parse: impl Fn(&[u8]) -> Parsed<T>) -> Result<T, Ended> {
    let mut taken = Vec::new();
    let mut peeked = [0; 1024];
    loop {
        let available = client.peek(&mut peeked).await?;
        if available == 0 {
            return Err(Ended::Broken(io::ErrorKind::UnexpectedEof.into()));
        }
        let before = taken.len();
        taken.extend_from_slice(&peeked[..available]);
        match parse(&taken) {
            Parsed::Unfinished => client.read_exact(&mut peeked[..available]).await?,
            Parsed::Done { used, value } => {
                client.read_exact(&mut peeked[..used - before]).await?;
                return Ok(value);
            }
            Parsed::Rejected(answer) => return Err(Ended::Rejected(answer)),
        };
    }
}

//! What the kernel knows of a TCP connection (tcp(7), `TCP_INFO`).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use skyhaul_cc::{Bytes, Duration};
use skyhaul_pep::exceptions::Options;

/// Figures of one connection; what an old kernel does not tell is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    bits: u8,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Largest segment that was received, or 536 before any was.
    pub segment: Bytes,
    /// Packets that came, with and without data.
    pub segments_in: u64,
    /// Packets that the other side has acknowledged, in order or not.
    pub delivered: u64,
    /// The window that the other side offers.
    pub send_window: Bytes,
    /// For how long that window has kept us from sending.
    pub window_limited: Duration,
}

impl Info {
    /// Asks the kernel.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn of(socket: &impl AsFd) -> io::Result<Info> {
        let mut bytes = [0u8; SIZE];
        let mut length = bytes.len() as libc::socklen_t;
        // SAFETY: the descriptor is borrowed and open, and the kernel writes at most `length` bytes to a place of that
        // size.
        let outcome = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        nix::errno::Errno::result(outcome)?;
        Ok(Info::read(&bytes))
    }

    /// The options that both sides agreed on.
    pub fn options(&self) -> Options {
        Options {
            window_scaling: self.bits & WINDOW_SCALING != 0,
            sack: self.bits & SACK != 0,
            timestamps: self.bits & TIMESTAMPS != 0,
        }
    }

    /// The places are those of `struct tcp_info` in linux/tcp.h, which only ever grows at its end.
    fn read(bytes: &[u8; SIZE]) -> Info {
        let word = |at: usize| {
            let bytes = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
            u64::from(u32::from_ne_bytes(bytes.unwrap_or_default()))
        };
        let long = |at: usize| {
            let bytes = bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok());
            u64::from_ne_bytes(bytes.unwrap_or_default())
        };
        Info {
            bits: bytes[5],
            rtt: Duration::from_micros(word(68)),
            segment: Bytes(word(20)),
            segments_in: word(140),
            delivered: word(192),
            send_window: Bytes(word(228)),
            window_limited: Duration::from_micros(long(176)),
        }
    }
}

/// All that Linux 6.18 tells; older ones tell less.
const SIZE: usize = 256;
/// `TCPI_OPT_TIMESTAMPS`, `TCPI_OPT_SACK`, `TCPI_OPT_WSCALE`.
const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const WINDOW_SCALING: u8 = 4;

/// What this host offers on its own connections (net.ipv4.tcp_*, which hold for IPv6 too).
pub fn offered_here() -> Options {
    let on = |key: &str| {
        let path = format!("/proc/sys/net/ipv4/tcp_{key}");
        std::fs::read_to_string(path).map_or(true, |value| value.trim() != "0")
    };
    Options { window_scaling: on("window_scaling"), sack: on("sack"), timestamps: on("timestamps") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_on_this_host_has_what_the_host_offers_and_counts_what_it_carries() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 5000]).unwrap();
        server.read_exact(&mut [0; 5000]).unwrap();
        server.write_all(b"thanks").unwrap();
        client.read_exact(&mut [0; 6]).unwrap();
        let (near, far) = (Info::of(&client).unwrap(), Info::of(&server).unwrap());
        assert_eq!(near.options(), offered_here());
        assert!(near.delivered >= 1 && near.segments_in >= 2, "{near:?}");
        assert!(far.segment >= Bytes(536) && near.rtt > Duration::ZERO, "{far:?}");
        assert!(near.send_window > Bytes(1000), "{near:?}");
    }
}

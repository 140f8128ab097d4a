//! What controllers tell while somebody watches: a few events per connection and second.

use super::{load, KernelError};
use skyhaul_cc::units::{Bytes, Duration, Rate};
use std::net::{Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;

/// An event as `struct event` of bpf/events.h describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When, in nanoseconds of the clock since boot.
    pub at_ns: u64,
    /// What happened.
    pub kind: Kind,
    /// The registered name of the controller.
    pub law: String,
    /// Number of the network namespace, as in /proc/PID/ns/net.
    pub netns: u32,
    /// This end of the connection.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The window, in segments.
    pub cwnd: u32,
    /// Above it the window grows slowly, in segments; nothing before the first loss.
    pub ssthresh: Option<u32>,
    /// Sent and not yet acknowledged, in segments.
    pub in_flight: u32,
    /// Payload of a full segment.
    pub mss: Bytes,
    /// The rate at which the kernel spaces packets out, headers not counted; nothing if it does not.
    pub pacing: Option<Rate>,
    /// Round trip, smoothed.
    pub srtt: Duration,
    /// Least round trip of the last minutes.
    pub min_rtt: Duration,
    /// Segments delivered since the connection began.
    pub delivered: u64,
    /// Segments lost since the connection began.
    pub lost: u32,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The connection has come to use the controller.
    Start,
    /// A round trip or some time has passed.
    Round,
    /// The window was cut.
    Loss,
    /// The connection is closed or uses another controller.
    End,
}

impl Kind {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Start => "start",
            Kind::Round => "round",
            Kind::Loss => "loss",
            Kind::End => "end",
        }
    }
}

/// The kernel's "no threshold yet" (TCP_INFINITE_SSTHRESH of net/tcp.h).
const NO_THRESHOLD: u32 = 0x7fff_ffff;

impl Event {
    /// Reads a `struct event`. Nothing if it has another size or kind than bpf/events.h says.
    pub(super) fn read(bytes: &[u8]) -> Option<Event> {
        let mut rest = Fields(bytes);
        let (at_ns, pacing, delivered) = (rest.u64()?, rest.u64()?, rest.u64()?);
        let (local, remote): ([u8; 16], [u8; 16]) = (rest.array()?, rest.array()?);
        let law: [u8; 16] = rest.array()?;
        let (local_port, remote_port) = (rest.u16()?, rest.u16()?);
        let kind = match rest.u32()? {
            0 => Kind::Start,
            1 => Kind::Round,
            2 => Kind::Loss,
            3 => Kind::End,
            _ => return None,
        };
        let address = |bytes: [u8; 16], port: u16| (Ipv6Addr::from(bytes).to_canonical(), port).into();
        let law = law.split(|byte| *byte == 0).next().unwrap_or_default();
        let event = Event {
            at_ns,
            kind,
            law: String::from_utf8_lossy(law).into_owned(),
            local: address(local, local_port),
            remote: address(remote, remote_port),
            delivered,
            pacing: (pacing > 0 && pacing < u64::MAX).then(|| Rate::from_bytes_per_second(pacing)),
            cwnd: rest.u32()?,
            ssthresh: rest.u32().map(|segments| (segments < NO_THRESHOLD).then_some(segments))?,
            in_flight: rest.u32()?,
            srtt: Duration::from_micros(u64::from(rest.u32()?)),
            min_rtt: Duration::from_micros(u64::from(rest.u32()?)),
            mss: Bytes(u64::from(rest.u32()?)),
            lost: rest.u32()?,
            netns: rest.u32()?,
        };
        rest.0.is_empty().then_some(event)
    }
}

/// What is left of a struct, field by field.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }
}

/// Hands over events as they come, until `take` breaks. `idle` is asked at least once a second whether to go on.
///
/// # Errors
/// When no controller is installed or the buffer cannot be read.
pub fn watch(
    mut take: impl FnMut(Event) -> ControlFlow<()>,
    mut idle: impl FnMut() -> ControlFlow<()>,
) -> Result<(), KernelError> {
    load::watch(&mut take, &mut idle)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `struct event`, field by field as in bpf/events.h.
    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        for long in [7_000_000_000u64, 1_250_000, 321] {
            bytes.extend(long.to_ne_bytes());
        }
        bytes.extend(std::net::Ipv4Addr::new(10, 77, 1, 2).to_ipv6_mapped().octets());
        bytes.extend("fd77:2::2".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend(b"sky_hybla\0\0\0\0\0\0\0");
        for port in [40_000u16, 443] {
            bytes.extend(port.to_ne_bytes());
        }
        for word in [2u32, 90, 0x7fff_ffff, 80, 541_000, 540_000, 1_448, 12, 4_026_531_840] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn an_event_is_read_as_the_controllers_write_it() {
        // The compiler's padding would show here: the struct is a multiple of eight bytes as it stands.
        assert_eq!(bytes().len(), 112);
        let event = Event::read(&bytes()).unwrap();
        assert_eq!((event.kind, event.law.as_str()), (Kind::Loss, "sky_hybla"));
        assert_eq!(event.local, "10.77.1.2:40000".parse().unwrap());
        assert_eq!(event.remote, "[fd77:2::2]:443".parse().unwrap());
        assert_eq!((event.cwnd, event.ssthresh, event.in_flight, event.lost), (90, None, 80, 12));
        assert_eq!(event.pacing, Some(Rate::mbit(10)));
        assert_eq!(event.min_rtt, Duration::from_millis(540));
        assert_eq!((event.mss, event.delivered, event.netns), (Bytes(1_448), 321, 4_026_531_840));
    }

    #[test]
    fn a_struct_of_another_version_is_no_event() {
        let mut longer = bytes();
        longer.push(0);
        assert_eq!(Event::read(&longer), None);
        assert_eq!(Event::read(&bytes()[..111]), None);
        let mut unknown = bytes();
        unknown[76] = 9;
        assert_eq!(Event::read(&unknown), None);
    }
}

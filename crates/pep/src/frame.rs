//! What Skyhaul writes into QUIC streams.
//!
//! One bidirectional stream carries one TCP connection. The opener's side begins with an [`Open`]
//! header, the other side's answer with one verdict byte; everything behind them is the TCP bytes, as
//! they are. Each end has one unidirectional control stream of [`Control`] frames. Integers are QUIC
//! varints (RFC 9000 §16).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Version of the meaning of these bytes; carried in [`Control::Hello`].
pub const VERSION: u64 = 2;
/// Longest [`Open`] header: a name of 255 bytes, an address, and room to grow.
pub const OPEN_MAX: usize = 512;

/// Where a flow wants to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An address, as intercepted or asked for.
    Address(SocketAddr),
    /// A name for the far end to resolve (SOCKS5 and HTTP CONNECT).
    Name {
        /// Host name, 1 to 255 bytes.
        host: String,
        /// TCP port.
        port: u16,
    },
}

/// How urgent a flow's bytes are, beside those of other flows of the channel. The service classes of
/// RFC 4594 in four groups, as RFC 8325 §4 groups them for the four access categories of Wi-Fi.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Somebody waits for every answer: remote shells, calls, short transactions.
    Interactive,
    /// What nothing else is known of.
    #[default]
    Normal,
    /// Large transfers whose end somebody waits for.
    Bulk,
    /// What may take any time: backups, updates. RFC 8622's lower effort.
    Background,
}

impl Class {
    /// All classes, the most urgent first.
    pub const ALL: [Class; 4] = [Class::Interactive, Class::Normal, Class::Bulk, Class::Background];

    /// The byte on the wire.
    pub fn encode(self) -> u8 {
        match self {
            Class::Normal => 0,
            Class::Interactive => 1,
            Class::Bulk => 2,
            Class::Background => 3,
        }
    }
    /// Reads the byte; classes of later versions count as [`Class::Normal`].
    pub fn decode(byte: u8) -> Self {
        Class::ALL.into_iter().find(|class| class.encode() == byte).unwrap_or_default()
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Interactive => "interactive",
            Class::Normal => "normal",
            Class::Bulk => "bulk",
            Class::Background => "background",
        })
    }
}

/// The header of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Where the far end shall connect to.
    pub destination: Target,
    /// The client's own address, when the far end shall connect from it.
    pub source: Option<SocketAddr>,
    /// How urgent it is, in both directions.
    pub class: Class,
}

/// Why a flow could not be carried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The destination answered with a reset: nobody listens.
    Refused,
    /// No route to the destination, or no channel to the other end.
    Unreachable,
    /// The destination did not answer in time.
    TimedOut,
    /// The name does not resolve.
    NoSuchName,
    /// The far end's rules forbid this destination.
    NotAllowed,
    /// The far end carries as many flows as it may.
    Busy,
    /// Anything else.
    Failed,
}

impl Refusal {
    const ALL: [Refusal; 7] = [
        Refusal::Refused,
        Refusal::Unreachable,
        Refusal::TimedOut,
        Refusal::NoSuchName,
        Refusal::NotAllowed,
        Refusal::Busy,
        Refusal::Failed,
    ];
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Refused => "connection refused",
            Refusal::Unreachable => "unreachable",
            Refusal::TimedOut => "timed out",
            Refusal::NoSuchName => "no such name",
            Refusal::NotAllowed => "not allowed",
            Refusal::Busy => "too many connections",
            Refusal::Failed => "failed",
        })
    }
}

/// The first byte of the answer to an [`Open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Connected.
    Accepted,
    /// Not connected; the stream ends here.
    Refused(Refusal),
}

impl Verdict {
    /// The byte on the wire.
    pub fn encode(self) -> u8 {
        match self {
            Verdict::Accepted => 0,
            Verdict::Refused(why) => {
                1 + Refusal::ALL.iter().position(|&r| r == why).unwrap_or(Refusal::ALL.len() - 1) as u8
            }
        }
    }
    /// Reads the byte; codes of later versions count as [`Refusal::Failed`].
    pub fn decode(byte: u8) -> Self {
        match byte {
            0 => Verdict::Accepted,
            n => Verdict::Refused(Refusal::ALL.get(usize::from(n) - 1).copied().unwrap_or(Refusal::Failed)),
        }
    }
}

/// Bits of [`Control::Hello`]: what an end understands. An end does what both of them understand.
pub mod feature {
    /// Datagrams with a header of [`crate::shim`]; reports about them are wanted.
    pub const SHIM: u64 = 1;
    /// Coded repair of streams and bursts.
    pub const REPAIR: u64 = 2;
    /// Pools that change their size: [`super::Control::Pool`] and [`super::Control::Kept`].
    pub const POOL: u64 = 4;
    /// Where the other end is seen: [`super::Control::Seen`].
    pub const ADDRESS: u64 = 8;
    /// Probes and a TCP carriage of [`crate::rollback`].
    pub const ROLLBACK: u64 = 16;
}

/// A frame of the control stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// First frame: who speaks how.
    Hello {
        /// [`VERSION`] of the sender.
        version: u64,
        /// Bytes that every flow towards the sender of this frame may have waiting there at any time.
        floor: u64,
        /// Bytes that all flows together may have waiting there, floors not counted.
        pool: u64,
        /// What the sender of this frame understands beyond the version's minimum: the bits of
        /// [`feature`]. Unknown bits mean nothing.
        features: u64,
    },
    /// So much of a flow's TCP data has left the far end's memory.
    Consumed {
        /// QUIC stream number of the flow.
        stream: u64,
        /// Absolute count since the flow's first byte.
        total: u64,
    },
    /// Another size for the pool of the hello. A larger one may be used at once; a smaller one is a request, to be
    /// followed as what waits there is passed on.
    Pool {
        /// Counts the offers of one end, from 1.
        sequence: u64,
        /// Bytes that all flows together may have waiting there, floors not counted.
        pool: u64,
    },
    /// Answer to [`Control::Pool`]: no more than this will be used from now on under that offer. Several may follow.
    Kept {
        /// The offer.
        sequence: u64,
        /// Bytes.
        pool: u64,
    },
    /// The address under which the receiver of this frame is seen by its sender: said at the beginning and when it
    /// has changed.
    Seen {
        /// The address.
        address: SocketAddr,
    },
}

/// Bytes that do not follow the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed {}", self.0)
    }
}
impl std::error::Error for Malformed {}

/// Reads from a slice and knows when it ended too early.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

/// Not yet enough bytes.
pub(crate) struct Short;

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Short> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(Short)?;
        self.0 = tail;
        Ok(head)
    }
    pub(crate) fn byte(&mut self) -> Result<u8, Short> {
        Ok(self.take(1)?[0])
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        self.take(N)?.try_into().map_err(|_| Short)
    }
    pub(crate) fn varint(&mut self) -> Result<u64, Short> {
        let first = *self.0.first().ok_or(Short)?;
        let raw = self.take(1 << (first >> 6))?;
        let tail = raw[1..].iter().fold(u64::from(first & 0x3f), |n, &b| n << 8 | u64::from(b));
        Ok(tail)
    }
    fn port(&mut self) -> Result<u16, Short> {
        Ok(u16::from_be_bytes(self.array()?))
    }
    /// Outer: enough bytes; inner: sensible bytes.
    fn address(&mut self, family: u8) -> Result<Option<SocketAddr>, Short> {
        let ip: IpAddr = match family {
            4 => Ipv4Addr::from(self.array::<4>()?).into(),
            6 => Ipv6Addr::from(self.array::<16>()?).into(),
            _ => return Ok(None),
        };
        Ok(Some(SocketAddr::new(ip, self.port()?)))
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, n: u64) {
    let n = n.min((1 << 62) - 1);
    match n {
        0..=0x3f => out.push(n as u8),
        0x40..=0x3fff => out.extend_from_slice(&(n as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => out.extend_from_slice(&(n as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(n | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend_from_slice(&ip.octets());
        }
    }
    out.extend_from_slice(&address.port().to_be_bytes());
}

const NAME: u8 = 3;
const NO_SOURCE: u8 = 0;

impl Open {
    /// Bytes of the header.
    ///
    /// # Errors
    /// When a name is empty or longer than 255 bytes.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut out = Vec::with_capacity(64);
        match &self.destination {
            Target::Address(address) => put_address(&mut out, *address),
            Target::Name { host, port } => {
                let length =
                    u8::try_from(host.len()).map_err(|_| Malformed("host name: longer than 255 bytes"))?;
                if length == 0 {
                    return Err(Malformed("host name: empty"));
                }
                out.extend_from_slice(&[NAME, length]);
                out.extend_from_slice(host.as_bytes());
                out.extend_from_slice(&port.to_be_bytes());
            }
        }
        match self.source {
            Some(address) => put_address(&mut out, address),
            None => out.push(NO_SOURCE),
        }
        out.push(self.class.encode());
        Ok(out)
    }

    /// Reads a header: the header and its length, or `None` while bytes are missing.
    ///
    /// # Errors
    /// When the bytes cannot become a header.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Open, usize)>, Malformed> {
        let mut reader = Reader(bytes);
        match Self::read(&mut reader) {
            Ok(Ok(open)) => Ok(Some((open, bytes.len() - reader.0.len()))),
            Ok(Err(malformed)) => Err(malformed),
            Err(Short) if bytes.len() >= OPEN_MAX => Err(Malformed("flow header: too long")),
            Err(Short) => Ok(None),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Result<Open, Malformed>, Short> {
        let destination = match reader.byte()? {
            NAME => {
                let length = usize::from(reader.byte()?);
                let raw = reader.take(length)?;
                let port = reader.port()?;
                match std::str::from_utf8(raw) {
                    Ok(host) if !host.is_empty() && !host.contains(char::is_control) => {
                        Target::Name { host: host.to_owned(), port }
                    }
                    _ => return Ok(Err(Malformed("host name"))),
                }
            }
            family => match reader.address(family)? {
                Some(address) => Target::Address(address),
                None => return Ok(Err(Malformed("destination family"))),
            },
        };
        let source = match reader.byte()? {
            NO_SOURCE => None,
            family => match reader.address(family)? {
                Some(address) => Some(address),
                None => return Ok(Err(Malformed("source family"))),
            },
        };
        let class = Class::decode(reader.byte()?);
        Ok(Ok(Open { destination, source, class }))
    }
}

const HELLO: u8 = 1;
const CONSUMED: u8 = 2;
const POOL: u8 = 3;
const KEPT: u8 = 4;
const SEEN: u8 = 5;

impl Control {
    /// Appends the frame.
    pub fn encode(self, out: &mut Vec<u8>) {
        match self {
            Control::Hello { version, floor, pool, features } => {
                out.push(HELLO);
                put_varint(out, version);
                put_varint(out, floor);
                put_varint(out, pool);
                if version > 1 {
                    put_varint(out, features);
                }
            }
            Control::Consumed { stream, total } => {
                out.push(CONSUMED);
                put_varint(out, stream);
                put_varint(out, total);
            }
            Control::Pool { sequence, pool } => {
                out.push(POOL);
                put_varint(out, sequence);
                put_varint(out, pool);
            }
            Control::Kept { sequence, pool } => {
                out.push(KEPT);
                put_varint(out, sequence);
                put_varint(out, pool);
            }
            Control::Seen { address } => {
                out.push(SEEN);
                put_address(out, address);
            }
        }
    }

    /// Reads one frame and its length, or `None` while bytes are missing.
    ///
    /// # Errors
    /// When the first byte is no known frame type.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Control, usize)>, Malformed> {
        let mut reader = Reader(bytes);
        let frame = match Self::read(&mut reader) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Err(Malformed("control frame: unknown type")),
            Err(Short) => return Ok(None),
        };
        Ok(Some((frame, bytes.len() - reader.0.len())))
    }

    fn read(reader: &mut Reader<'_>) -> Result<Option<Control>, Short> {
        Ok(Some(match reader.byte()? {
            HELLO => {
                let (version, floor, pool) = (reader.varint()?, reader.varint()?, reader.varint()?);
                // Version 1 had none; whoever speaks it shall be told so and not waited for.
                let features = if version > 1 { reader.varint()? } else { 0 };
                Control::Hello { version, floor, pool, features }
            }
            CONSUMED => Control::Consumed { stream: reader.varint()?, total: reader.varint()? },
            POOL => Control::Pool { sequence: reader.varint()?, pool: reader.varint()? },
            KEPT => Control::Kept { sequence: reader.varint()?, pool: reader.varint()? },
            SEEN => {
                let family = reader.byte()?;
                match reader.address(family)? {
                    Some(address) => Control::Seen { address },
                    None => return Ok(None),
                }
            }
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_address() -> impl Strategy<Value = SocketAddr> {
        (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
    }

    fn any_target() -> impl Strategy<Value = Target> {
        prop_oneof![
            any_address().prop_map(Target::Address),
            ("[a-z0-9.-]{1,255}", any::<u16>()).prop_map(|(host, port)| Target::Name { host, port }),
        ]
    }

    proptest! {
        #[test]
        fn a_header_survives_the_wire_however_it_is_cut(
            destination in any_target(),
            source in proptest::option::of(any_address()),
            class in proptest::sample::select(Class::ALL.as_slice()),
        ) {
            let open = Open { destination, source, class };
            let bytes = open.encode().unwrap();
            prop_assert!(bytes.len() <= OPEN_MAX);
            for cut in 0..bytes.len() {
                prop_assert_eq!(Open::decode(&bytes[..cut]).unwrap(), None);
            }
            prop_assert_eq!(Open::decode(&bytes).unwrap(), Some((open, bytes.len())));
        }

        #[test]
        fn any_bytes_are_read_or_refused_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(Some((_, used))) = Open::decode(&bytes) {
                prop_assert!(used <= bytes.len());
            }
            if let Ok(Some((frame, used))) = Control::decode(&bytes) {
                prop_assert!(used <= bytes.len());
                let mut again = Vec::new();
                frame.encode(&mut again);
                prop_assert_eq!(Control::decode(&again).unwrap(), Some((frame, again.len())));
            }
        }
    }

    #[test]
    fn every_class_has_its_own_byte_and_unknown_ones_are_normal() {
        for class in Class::ALL {
            assert_eq!(Class::decode(class.encode()), class);
        }
        for byte in 4..=u8::MAX {
            assert_eq!(Class::decode(byte), Class::Normal);
        }
    }

    #[test]
    fn every_refusal_has_its_own_byte() {
        for why in Refusal::ALL {
            assert_eq!(Verdict::decode(Verdict::Refused(why).encode()), Verdict::Refused(why));
        }
        assert_eq!(Verdict::decode(Verdict::Accepted.encode()), Verdict::Accepted);
    }
}

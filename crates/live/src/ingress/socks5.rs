//! SOCKS5 (RFC 1928): CONNECT without a password. Pure functions on bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use skyhaul_pep::frame::{Refusal, Target};

pub use super::dialogue::Parsed;
use super::Denial;
use crate::config::HostPort;

/// Our choice of method: none required (RFC 1928 §3).
pub const NO_PASSWORD: [u8; 2] = [VERSION, METHOD_NONE];
/// The reply to a request that succeeded. The address we are bound to, at the far end, is not told: zeros.
pub const ACCEPTED: [u8; 10] = reply(0x00);

/// The client's first message: the methods it knows (RFC 1928 §3). Done if it knows to do without a password.
pub fn parse_greeting(bytes: &[u8]) -> Parsed<()> {
    if bytes.first().is_some_and(|&version| version != VERSION) {
        return Parsed::Rejected(Vec::new());
    }
    let Some((&[_, count], rest)) = bytes.split_first_chunk::<2>() else { return Parsed::Unfinished };
    match rest.get(..usize::from(count)) {
        None => Parsed::Unfinished,
        Some(methods) if methods.contains(&METHOD_NONE) => {
            Parsed::Done { used: 2 + usize::from(count), value: () }
        }
        Some(_) => Parsed::Rejected(vec![VERSION, METHOD_NONE_ACCEPTABLE]),
    }
}

/// The client's request (RFC 1928 §4).
pub fn parse_request(bytes: &[u8]) -> Parsed<Target> {
    if bytes.first().is_some_and(|&version| version != VERSION) {
        return Parsed::Rejected(Vec::new());
    }
    if bytes.get(1).is_some_and(|&command| command != COMMAND_CONNECT) {
        return Parsed::Rejected(reply(0x07).to_vec());
    }
    match bytes.get(3) {
        None => Parsed::Unfinished,
        Some(&ADDRESS_IPV4) => address(bytes, |ip: [u8; 4]| IpAddr::from(Ipv4Addr::from(ip))),
        Some(&ADDRESS_IPV6) => address(bytes, |ip: [u8; 16]| IpAddr::from(Ipv6Addr::from(ip))),
        Some(&ADDRESS_NAME) => name(bytes),
        Some(_) => Parsed::Rejected(reply(0x08).to_vec()),
    }
}

/// The reply to a request that failed (RFC 1928 §6).
pub fn refused(why: impl Into<Denial>) -> [u8; 10] {
    let why = match why.into() {
        Denial::Destination(why) => why,
        // The network is unreachable, as far as this client may use it.
        Denial::NoChannel => Refusal::Unreachable,
        Denial::Loop => Refusal::NotAllowed,
    };
    reply(match why {
        Refusal::Refused => 0x05,
        Refusal::Unreachable => 0x03,
        // There is no code for time that ran out; 6 is for hop counts.
        Refusal::TimedOut | Refusal::NoSuchName => 0x04,
        Refusal::NotAllowed => 0x02,
        Refusal::Busy | Refusal::Failed => 0x01,
    })
}

fn address<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> IpAddr) -> Parsed<Target> {
    let parts =
        bytes[4..].split_first_chunk::<N>().and_then(|(ip, rest)| Some((ip, rest.first_chunk::<2>()?)));
    match parts {
        None => Parsed::Unfinished,
        Some((ip, port)) => {
            let address = SocketAddr::new(read(*ip), u16::from_be_bytes(*port));
            Parsed::Done { used: 4 + N + 2, value: Target::Address(address) }
        }
    }
}

fn name(bytes: &[u8]) -> Parsed<Target> {
    let Some(&length) = bytes.get(4) else { return Parsed::Unfinished };
    let used = 5 + usize::from(length) + 2;
    let Some(field) = bytes.get(5..used) else { return Parsed::Unfinished };
    let (host, port) = field.split_at(usize::from(length));
    let port = u16::from_be_bytes([port[0], port[1]]);
    let host = std::str::from_utf8(host).ok().map(|host| match host.parse::<Ipv6Addr>() {
        Ok(ip) => format!("[{ip}]:{port}"),
        Err(_) => format!("{host}:{port}"),
    });
    match host.and_then(|text| text.parse::<HostPort>().ok()) {
        Some(host) => Parsed::Done { used, value: super::target(&host) },
        None => Parsed::Rejected(refused(Refusal::NoSuchName).to_vec()),
    }
}

const fn reply(code: u8) -> [u8; 10] {
    [VERSION, code, 0, ADDRESS_IPV4, 0, 0, 0, 0, 0, 0]
}

const VERSION: u8 = 5;
const METHOD_NONE: u8 = 0x00;
const METHOD_NONE_ACCEPTABLE: u8 = 0xff;
const COMMAND_CONNECT: u8 = 0x01;
const ADDRESS_IPV4: u8 = 0x01;
const ADDRESS_NAME: u8 = 0x03;
const ADDRESS_IPV6: u8 = 0x04;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn done<T>(used: usize, value: T) -> Parsed<T> {
        Parsed::Done { used, value }
    }

    #[test]
    fn a_client_that_needs_no_password_is_welcome() {
        assert_eq!(parse_greeting(&[5, 1, 0]), done(3, ()));
        assert_eq!(parse_greeting(&[5, 2, 2, 0, 99]), done(4, ()));
        assert_eq!(parse_greeting(&[5, 1, 2]), Parsed::Rejected(vec![5, 0xff]), "password only");
        assert_eq!(parse_greeting(&[4]), Parsed::Rejected(vec![]), "SOCKS4");
        assert_eq!(parse_greeting(b"GET / HTTP/1.1"), Parsed::Rejected(vec![]));
        assert_eq!(parse_greeting(&[5, 2, 2]), Parsed::Unfinished);
    }

    #[test]
    fn requests_name_ipv4_ipv6_or_a_host() {
        let v4 = [5, 1, 0, 1, 10, 77, 2, 2, 0, 21];
        assert_eq!(parse_request(&v4), done(10, Target::Address("10.77.2.2:21".parse().unwrap())));
        let mut v6 = vec![5, 1, 0, 4];
        v6.extend("fd77:2::2".parse::<Ipv6Addr>().unwrap().octets());
        v6.extend([0, 80, b'G']);
        assert_eq!(parse_request(&v6), done(22, Target::Address("[fd77:2::2]:80".parse().unwrap())));
        let host = b"\x05\x01\x00\x03\x04host\x01\xbb";
        assert_eq!(parse_request(host), done(11, Target::Name { host: "host".to_owned(), port: 443 }));
        let literal = b"\x05\x01\x00\x03\x0810.1.2.3\x00\x50";
        assert_eq!(parse_request(literal), done(15, Target::Address("10.1.2.3:80".parse().unwrap())));
    }

    #[test]
    fn what_we_do_not_do_is_answered_with_its_code() {
        let code = |bytes: &[u8]| match parse_request(bytes) {
            Parsed::Rejected(answer) => answer.get(1).copied(),
            other => panic!("{other:?}"),
        };
        assert_eq!(code(&[5, 2, 0, 1]), Some(7), "BIND");
        assert_eq!(code(&[5, 3, 0, 1]), Some(7), "UDP ASSOCIATE");
        assert_eq!(code(&[5, 1, 0, 2]), Some(8), "unknown kind of address");
        assert_eq!(code(b"\x05\x01\x00\x03\x03a b\x00\x50"), Some(4), "not a name");
        assert_eq!(code(&[4, 1, 0, 1]), None, "SOCKS4");
        assert_eq!(refused(Refusal::Refused)[1], 5);
        assert_eq!(refused(Refusal::NotAllowed)[1], 2);
    }

    proptest! {
        #[test]
        fn every_request_is_read_whole_and_never_before_its_last_byte(
            address: SocketAddr,
            trailing in proptest::collection::vec(any::<u8>(), 0..8),
        ) {
            let address = SocketAddr::new(address.ip(), address.port());
            let mut bytes = vec![5, 1, 0];
            match address.ip() {
                IpAddr::V4(ip) => { bytes.push(1); bytes.extend(ip.octets()) }
                IpAddr::V6(ip) => { bytes.push(4); bytes.extend(ip.octets()) }
            }
            bytes.extend(address.port().to_be_bytes());
            let used = bytes.len();
            for end in 0..used {
                prop_assert_eq!(parse_request(&bytes[..end]), Parsed::Unfinished);
            }
            bytes.extend(trailing);
            prop_assert_eq!(parse_request(&bytes), done(used, Target::Address(address)));
        }

        #[test]
        fn any_bytes_are_judged_within_the_longest_message(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Parsed::Done { used, .. } = parse_greeting(&bytes) {
                prop_assert!(used <= bytes.len() && used <= 257);
            } else if bytes.len() >= 257 {
                prop_assert_ne!(parse_greeting(&bytes), Parsed::Unfinished);
            }
            if let Parsed::Done { used, .. } = parse_request(&bytes) {
                prop_assert!(used <= bytes.len() && used <= 262);
            } else if bytes.len() >= 262 {
                prop_assert_ne!(parse_request(&bytes), Parsed::Unfinished);
            }
        }
    }
}

//! HTTP CONNECT (RFC 9110 §9.3.6) over HTTP/1.1 (RFC 9112). Pure functions on bytes.

use skyhaul_pep::frame::{Refusal, Target};

pub use super::dialogue::Parsed;
use super::Denial;
use crate::config::HostPort;

/// The response to a request that succeeded.
pub const ACCEPTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
/// Longest request with all its header fields.
pub const LONGEST: usize = 8192;

/// A request with its header fields, which are not looked at.
pub fn parse(bytes: &[u8]) -> Parsed<Target> {
    // RFC 9112 §2.2: an empty line in front of the request is to be ignored; so is the CR of a line end.
    let start = bytes.iter().take_while(|&&byte| byte == b'\r' || byte == b'\n').count();
    let Some(length) = head_length(&bytes[start..]) else {
        return if bytes.len() >= LONGEST {
            Parsed::Rejected(response("431 Request Header Fields Too Large", None))
        } else if !b"CONNECT ".starts_with(&bytes[start..bytes.len().min(start + 8)]) && bytes.len() > start {
            judge_method(&bytes[start..])
        } else {
            Parsed::Unfinished
        };
    };
    let used = start + length;
    if used > LONGEST {
        return Parsed::Rejected(response("431 Request Header Fields Too Large", None));
    }
    let head = &bytes[start..used];
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let bad = || Parsed::Rejected(response("400 Bad Request", None));
    let Ok(line) = std::str::from_utf8(line) else { return bad() };
    let mut words = line.split(' ');
    let (Some(method), Some(authority), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return bad();
    };
    if method != "CONNECT" {
        return judge_method(head);
    }
    if version != "HTTP/1.1" && version != "HTTP/1.0" {
        return Parsed::Rejected(response("505 HTTP Version Not Supported", None));
    }
    match authority.parse::<HostPort>() {
        Ok(host) => Parsed::Done { used, value: super::target(&host) },
        Err(_) => bad(),
    }
}

/// The response to a request that failed, with the reason as a Proxy-Status field (RFC 9209 §2.3).
pub fn refused(why: impl Into<Denial>) -> Vec<u8> {
    let why = why.into();
    let (status, error) = match why {
        Denial::NoChannel => ("503 Service Unavailable", "destination_unavailable"),
        Denial::Loop => ("502 Bad Gateway", "proxy_loop_detected"),
        Denial::Destination(why) => refused_there(why),
    };
    response(status, Some((error, why)))
}

fn refused_there(why: Refusal) -> (&'static str, &'static str) {
    match why {
        Refusal::Refused => ("502 Bad Gateway", "connection_refused"),
        Refusal::Unreachable => ("502 Bad Gateway", "destination_ip_unroutable"),
        Refusal::TimedOut => ("504 Gateway Timeout", "connection_timeout"),
        Refusal::NoSuchName => ("502 Bad Gateway", "dns_error"),
        Refusal::NotAllowed => ("403 Forbidden", "destination_ip_prohibited"),
        Refusal::Busy => ("503 Service Unavailable", "connection_limit_reached"),
        Refusal::Failed => ("502 Bad Gateway", "proxy_internal_error"),
    }
}

/// Length of the head with the empty line that ends it. RFC 9112 §2.2 allows a bare LF as line end.
fn head_length(bytes: &[u8]) -> Option<usize> {
    let mut line_start = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        if byte == b'\n' {
            if matches!(&bytes[line_start..index], b"" | b"\r") {
                return Some(index + 1);
            }
            line_start = index + 1;
        }
    }
    None
}

/// For a request that is not a CONNECT: an HTTP method we do not do, or no HTTP at all.
fn judge_method(head: &[u8]) -> Parsed<Target> {
    let word: Vec<u8> = head.iter().copied().take_while(|&byte| byte != b' ').take(MAX_METHOD + 1).collect();
    if word.len() <= MAX_METHOD && word.iter().all(u8::is_ascii_uppercase) {
        if word.len() == head.len() {
            return Parsed::Unfinished;
        }
        return Parsed::Rejected(response("405 Method Not Allowed\r\nAllow: CONNECT", None));
    }
    Parsed::Rejected(response("400 Bad Request", None))
}

fn response(status: &str, why: Option<(&str, Denial)>) -> Vec<u8> {
    let body = why.map_or_else(String::new, |(_, why)| format!("{why}\n"));
    let reason =
        why.map_or_else(String::new, |(error, _)| format!("Proxy-Status: skyhaul; error={error}\r\n"));
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{reason}Content-Type: text/plain\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Longest registered method: UPDATEREDIRECTREF has 17 letters.
const MAX_METHOD: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn status(bytes: &[u8]) -> String {
        match parse(bytes) {
            Parsed::Rejected(answer) => String::from_utf8(answer).unwrap()[9..12].to_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_connect_request_ends_with_its_empty_line() {
        let request = b"CONNECT server.example.com:443 HTTP/1.1\r\nHost: server.example.com\r\n\r\nTLS";
        let value = Target::Name { host: "server.example.com".to_owned(), port: 443 };
        assert_eq!(parse(request), Parsed::Done { used: request.len() - 3, value });
        let bare = b"\r\nCONNECT [fd77:2::2]:80 HTTP/1.0\n\n";
        let value = Target::Address("[fd77:2::2]:80".parse().unwrap());
        assert_eq!(parse(bare), Parsed::Done { used: bare.len(), value });
    }

    #[test]
    fn other_requests_get_the_status_that_fits() {
        assert_eq!(status(b"GET http://a/ HTTP/1.1\r\n\r\n"), "405");
        assert_eq!(status(b"GET "), "405", "need not wait for the rest");
        assert_eq!(status(b"CONNECT a HTTP/1.1\r\n\r\n"), "400", "no port");
        assert_eq!(status(b"CONNECT a:1  HTTP/1.1\r\n\r\n"), "400", "two blanks");
        assert_eq!(status(b"CONNECT a:1 HTTP/2\r\n\r\n"), "505");
        assert_eq!(status(b"\x16\x03\x01"), "400", "TLS");
        assert_eq!(status(&[5, 1, 0]), "400", "SOCKS");
        let endless = [b"CONNECT a:1 HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; LONGEST]].concat();
        assert_eq!(status(&endless), "431");
    }

    #[test]
    fn every_refusal_has_a_status_and_a_reason() {
        for (why, wanted) in [
            (Refusal::Refused, "HTTP/1.1 502"),
            (Refusal::Unreachable, "HTTP/1.1 502"),
            (Refusal::TimedOut, "HTTP/1.1 504"),
            (Refusal::NoSuchName, "HTTP/1.1 502"),
            (Refusal::NotAllowed, "HTTP/1.1 403"),
            (Refusal::Busy, "HTTP/1.1 503"),
        ]
        .map(|(why, wanted)| (Denial::from(why), wanted))
        .into_iter()
        .chain([(Denial::NoChannel, "HTTP/1.1 503"), (Denial::Loop, "HTTP/1.1 502")])
        {
            let text = String::from_utf8(refused(why)).unwrap();
            assert!(text.starts_with(wanted) && text.contains("Proxy-Status: skyhaul; error="), "{text}");
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("Content-Length: {}", body.len())), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_request_is_read_whole_and_never_before_its_last_byte(
            port in 1u16..,
            host in "[a-z0-9]([a-z0-9-]{0,20}[a-z])",
            fields in proptest::collection::vec("[A-Za-z-]{1,20}: [ -~]{0,40}", 0..5),
            trailing: Vec<u8>,
        ) {
            let mut bytes = format!("CONNECT {host}:{port} HTTP/1.1\r\n").into_bytes();
            for field in fields {
                bytes.extend(format!("{field}\r\n").bytes());
            }
            bytes.extend(b"\r\n");
            let used = bytes.len();
            for end in 0..used {
                prop_assert_eq!(parse(&bytes[..end]), Parsed::Unfinished);
            }
            bytes.extend(trailing);
            prop_assert_eq!(parse(&bytes), Parsed::Done { used, value: Target::Name { host, port } });
        }

        #[test]
        fn any_bytes_are_judged_within_the_longest_message(
            bytes in proptest::collection::vec(any::<u8>(), 0..2 * LONGEST),
        ) {
            match parse(&bytes) {
                Parsed::Done { used, .. } => prop_assert!(used <= bytes.len() && used <= LONGEST),
                Parsed::Unfinished => prop_assert!(bytes.len() < LONGEST),
                Parsed::Rejected(answer) => prop_assert!(answer.starts_with(b"HTTP/1.1 ")),
            }
        }
    }
}

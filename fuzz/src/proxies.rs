//! What proxy clients say is judged once, within its longest length.

use std::fmt::Debug;

use skyhaul_live::ingress::http_connect;
use skyhaul_live::ingress::socks5::{self, Parsed};

/// One input.
pub fn run(bytes: &[u8]) {
    judged_once(bytes, 257, socks5::parse_greeting);
    judged_once(bytes, 262, socks5::parse_request);
    judged_once(bytes, http_connect::LONGEST, http_connect::parse);
}

/// A message is found as soon as its last byte is there, and more bytes never change it.
fn judged_once<T: PartialEq + Debug>(bytes: &[u8], longest: usize, parse: impl Fn(&[u8]) -> Parsed<T>) {
    match parse(bytes) {
        Parsed::Unfinished => assert!(bytes.len() < longest),
        Parsed::Done { used, value } => {
            assert!(used <= bytes.len() && used <= longest);
            assert_eq!(parse(&bytes[..used]), Parsed::Done { used, value });
            assert_eq!(parse(&bytes[..used - 1]), Parsed::Unfinished);
        }
        Parsed::Rejected(_) => {}
    }
}

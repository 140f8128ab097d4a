//! Any bytes that a kernel might keep of a client's first packet are an IPv4 or IPv6 packet with a mark, or nothing.

use skyhaul_live::config::Priorities;
use skyhaul_live::ingress::syn;

/// One input.
pub fn run(bytes: &[u8]) {
    let heard = syn::parse(bytes);
    let dscp = heard.map(|syn| syn.dscp);
    if let Some(heard) = heard {
        assert_eq!(heard.dscp.to_string().parse(), Ok(heard.dscp));
        let version = bytes[0] >> 4;
        assert!(version == 4 || version == 6);
        let again = syn::parse(&[bytes, bytes].concat()).expect("a whole header is one with more behind it");
        // The mark is in the first two bytes; options may have been cut off before.
        assert_eq!(again.dscp, heard.dscp);
        assert!(heard.offers.is_none() || again.offers == heard.offers);
    }
    let _ = Priorities::default().class(22, dscp);
}

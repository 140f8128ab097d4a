//! Any bytes that a kernel might keep of a client's first packet have a mark or none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use skyhaul_live::config::Priorities;
use skyhaul_live::ingress::syn;

fuzz_target!(|bytes: &[u8]| {
    let dscp = syn::parse(bytes);
    if let Some(dscp) = dscp {
        assert_eq!(dscp.to_string().parse(), Ok(dscp));
        let version = bytes[0] >> 4;
        assert!(version == 4 || version == 6);
        // Only the first two bytes count, as long as a whole header is there.
        assert_eq!(syn::parse(&[bytes, bytes].concat()), Some(dscp));
    }
    let _ = Priorities::default().class(22, dscp);
});

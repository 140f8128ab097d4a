//! Packets in a FEC tunnel: any bytes are left alone or get a smaller segment size within the packet, whose source,
//! length and all else stay; a second pass finds nothing to do.
//!
//! The first two bytes are the tunnel's MTU, the rest is the packet.

use skyhaul_live::fec_tunnel::packet::{clamp_mss, source};

/// One input.
pub fn run(bytes: &[u8]) {
    let Some((&[high, low], packet)) = bytes.split_first_chunk() else { return };
    let mtu = u16::from_be_bytes([high, low]);
    let mut packet = packet.to_vec();
    let before = packet.clone();
    if clamp_mss(&mut packet, mtu) {
        assert_eq!(packet.len(), before.len());
        assert_eq!(source(&packet), source(&before));
        // Two bytes of segment size and two of checksum.
        let changed = packet.iter().zip(&before).filter(|(after, before)| after != before).count();
        assert!((1..=4).contains(&changed), "{changed} bytes");
        let once = packet.clone();
        assert!(!clamp_mss(&mut packet, mtu));
        assert_eq!(packet, once);
    } else {
        assert_eq!(packet, before);
    }
}

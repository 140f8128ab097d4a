//! What the tunnel must know of the IP packets it carries: who sent them, and the segment size that a SYN announces.
//! Pure; the bytes come from outside and may be anything.

use std::net::IpAddr;

/// The source of an IP packet that is as long as its header says; `None` of anything else.
///
/// RFC 791 §3.1, RFC 8200 §3. A jumbogram (RFC 2675) fits no tunnel and counts as something else.
pub fn source(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => {
            let length = usize::from(word(packet, 2)?);
            let header = usize::from(packet[0] & 0xf) << 2;
            let whole = header >= V4_HEADER && length >= header && length == packet.len();
            let address: [u8; 4] = *packet.get(12..16)?.first_chunk()?;
            whole.then(|| IpAddr::from(address))
        }
        6 => {
            let length = usize::from(word(packet, 4)?);
            let address: [u8; 16] = *packet.get(8..24)?.first_chunk()?;
            (length + V6_HEADER == packet.len()).then(|| IpAddr::from(address))
        }
        _ => None,
    }
}

/// Lowers the segment size that a TCP SYN announces to what fits a packet of `mtu` bytes, and mends its checksum (RFC
/// 9293 §3.7.1, RFC 1624). Whether it did. Anything that is no SYN with such an option, or whose option is low enough,
/// stays as it is.
pub fn clamp_mss(packet: &mut [u8], mtu: u16) -> bool {
    let Some((at, header)) = tcp(packet) else { return false };
    let fits = usize::from(mtu).saturating_sub(header + TCP_HEADER);
    let Ok(fits) = u16::try_from(fits) else { return false };
    let Some(segment) = packet.get_mut(at..) else { return false };
    let Some(place) = mss_option(segment) else { return false };
    let Some(found) = word(segment, place).filter(|&found| found > fits) else { return false };
    let Some(sum) = word(segment, CHECKSUM) else { return false };
    // The option may begin at an odd place; then both its bytes stand on the other sides of their words.
    let (old, new) = match place % 2 {
        0 => (found, fits),
        _ => (found.swap_bytes(), fits.swap_bytes()),
    };
    segment[place..place + 2].copy_from_slice(&fits.to_be_bytes());
    segment[CHECKSUM..CHECKSUM + 2].copy_from_slice(&mended(sum, old, new).to_be_bytes());
    true
}

/// Where the TCP header of a SYN begins, and how long the IP header without options is. Only first fragments have one.
fn tcp(packet: &[u8]) -> Option<(usize, usize)> {
    source(packet)?;
    let (at, header) = match packet[0] >> 4 {
        4 => {
            let later_fragment = word(packet, 6)? & 0x1fff != 0;
            let at = usize::from(packet[0] & 0xf) << 2;
            (packet[9] == TCP && !later_fragment).then_some((at, V4_HEADER))?
        }
        // Extension headers in front of a SYN are not met in practice; such a packet keeps its option.
        _ => (packet[6] == TCP).then_some((V6_HEADER, V6_HEADER))?,
    };
    let flags = *packet.get(at + 13)?;
    (flags & SYN != 0).then_some((at, header))
}

/// Where in a TCP header the two bytes of the segment size are.
fn mss_option(segment: &[u8]) -> Option<usize> {
    let end = usize::from(segment.get(12)? >> 4) << 2;
    let mut at = TCP_HEADER;
    while at < end {
        match *segment.get(at)? {
            0 => return None,
            1 => at += 1,
            kind => {
                let length = usize::from(*segment.get(at + 1)?);
                if length < 2 || at + length > end.min(segment.len()) {
                    return None;
                }
                if kind == 2 {
                    return (length == 4).then_some(at + 2);
                }
                at += length;
            }
        }
    }
    None
}

/// A checksum after one word of what it covers has changed (RFC 1624, equation 3).
fn mended(sum: u16, old: u16, new: u16) -> u16 {
    let mut total = u32::from(!sum) + u32::from(!old) + u32::from(new);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.first_chunk().copied().map(u16::from_be_bytes)
}

const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
/// Place of the checksum in a TCP header.
const CHECKSUM: usize = 16;
const TCP: u8 = 6;
const SYN: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A SYN with these options before the segment size, and a right checksum.
    fn syn(v6: bool, before: &[u8], mss: u16) -> Vec<u8> {
        let mut options = before.to_vec();
        options.extend([2, 4]);
        options.extend(mss.to_be_bytes());
        while !options.len().is_multiple_of(4) {
            options.push(1);
        }
        let mut tcp = vec![0; TCP_HEADER];
        tcp[..4].copy_from_slice(&[0x9c, 0x40, 0, 80]);
        tcp[12] = ((TCP_HEADER + options.len()) as u8 / 4) << 4;
        tcp[13] = SYN;
        tcp.extend(&options);
        let mut packet = if v6 {
            let mut header = vec![0; V6_HEADER];
            (header[0], header[6], header[7]) = (0x60, TCP, 64);
            header[5] = tcp.len() as u8;
            header[8..24].copy_from_slice(&[0xfd, 0x77, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            header[24..40].copy_from_slice(&[0xfd, 0x77, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            header
        } else {
            let mut header = vec![0; V4_HEADER];
            (header[0], header[8], header[9]) = (0x45, 64, TCP);
            header[3] = (V4_HEADER + tcp.len()) as u8;
            header[12..20].copy_from_slice(&[10, 77, 1, 2, 10, 77, 2, 2]);
            header
        };
        let at = packet.len();
        packet.extend(tcp);
        let sum = checksum(&packet, at);
        packet[at + CHECKSUM..at + CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// Of the TCP segment at `at` with its pseudo header; zero if the one in it is right.
    fn checksum(packet: &[u8], at: usize) -> u16 {
        let addresses = if at == V4_HEADER { &packet[12..20] } else { &packet[8..40] };
        let segment = &packet[at..];
        let tail = [0, TCP, (segment.len() >> 8) as u8, segment.len() as u8];
        let all: Vec<u8> = addresses.iter().chain(&tail).chain(segment).copied().collect();
        let sum: u32 =
            all.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0))).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        !((sum & 0xffff) + (sum >> 16)) as u16
    }

    fn mss(packet: &[u8]) -> Option<u16> {
        let (at, _) = tcp(packet)?;
        word(&packet[at..], mss_option(&packet[at..])?)
    }

    #[test]
    fn a_syn_announces_what_fits_the_tunnel_and_keeps_a_right_checksum() {
        for (v6, fits) in [(false, 1422), (true, 1402)] {
            // At an even and at an odd place.
            for before in [&[][..], &[1], &[4, 2], &[3, 3, 7], &[3, 3, 7, 1, 1]] {
                let mut packet = syn(v6, before, 1460);
                let at = if v6 { V6_HEADER } else { V4_HEADER };
                assert_eq!(checksum(&packet, at), 0, "the test's own");
                assert!(clamp_mss(&mut packet, 1462), "{before:?}");
                assert_eq!(mss(&packet), Some(fits), "{before:?}");
                assert_eq!(checksum(&packet, at), 0, "{before:?}");
            }
        }
    }

    #[test]
    fn what_fits_already_and_what_is_no_syn_stays_as_it_is() {
        let small = syn(false, &[], 1200);
        let mut data = syn(false, &[], 1460);
        data[V4_HEADER + 13] = 0x10;
        let mut fragment = syn(false, &[], 1460);
        fragment[7] = 5;
        let mut udp = syn(true, &[], 1460);
        udp[6] = 17;
        for packet in [small, data, fragment, udp] {
            let mut after = packet.clone();
            assert!(!clamp_mss(&mut after, 1462));
            assert_eq!(after, packet);
        }
    }

    #[test]
    fn a_packets_source_is_read_and_a_packet_of_another_length_has_none() {
        let (v4, v6) = (syn(false, &[], 1460), syn(true, &[], 1460));
        assert_eq!(source(&v4), Some("10.77.1.2".parse().unwrap()));
        assert_eq!(source(&v6), Some("fd77:1::2".parse().unwrap()));
        for packet in [v4, v6] {
            assert_eq!(source(&packet[..packet.len() - 1]), None);
            assert_eq!(source(&[packet.as_slice(), &[0]].concat()), None);
        }
        assert_eq!(source(&[]), None);
        assert_eq!(source(&[0x45; 20]), None, "longer by its own word");
    }

    proptest! {
        #[test]
        fn any_bytes_are_left_alone_or_lowered_within_the_packet(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..90), mtu in 0u16..2000, like_a_syn: bool,
        ) {
            if like_a_syn && bytes.len() >= 40 {
                let length = bytes.len() as u8;
                (bytes[0], bytes[2], bytes[3]) = (0x45, 0, length);
                (bytes[6], bytes[7], bytes[9], bytes[33]) = (0, 0, TCP, SYN);
            }
            let before = bytes.clone();
            let changed = clamp_mss(&mut bytes, mtu);
            prop_assert_eq!(bytes.len(), before.len());
            if changed {
                prop_assert!(mss(&bytes) < mss(&before));
                prop_assert_eq!(source(&bytes), source(&before));
                // Lowering twice lowers once.
                let mut again = bytes.clone();
                prop_assert!(!clamp_mss(&mut again, mtu));
            } else {
                prop_assert_eq!(bytes, before);
            }
        }
    }
}

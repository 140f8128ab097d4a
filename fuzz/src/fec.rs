//! Any datagrams, made up or mangled, cost at most the packets of their block: nothing is handed on that
//! was not counted, memory stays bounded and the reports of such an end are harmless too.
//!
//! The input is a row of datagrams, each behind its length in one byte; a length of 255 stands for a
//! genuine datagram of the encoder, with one byte changed if the next byte is not 0.

use skyhaul_cc::units::{Duration, Time};
use skyhaul_pep::fec::{DecoderOptions, End, Options, Order};

/// One input.
pub fn run(bytes: &[u8]) {
    for order in [Order::AsTheyCome, Order::Hold(Duration::from_millis(20))] {
        let mut near = End::new(Options::default());
        let mut far = End::new(Options {
            decoder: DecoderOptions { order, ..DecoderOptions::default() },
            ..Options::default()
        });
        let mut rest = bytes;
        let mut now = Time::ZERO;
        let mut got = 0;
        while let Some((&length, behind)) = rest.split_first() {
            now += Duration::from_millis(1);
            let datagram = if length == 255 {
                near.push(now, &[behind.len() as u8; 33]).expect("33 bytes can be carried");
                near.handle_timeout(now);
                let mut genuine = near.poll_transmit().expect("data leaves at once").to_vec();
                let (change, behind) = behind.split_first().unwrap_or((&0, behind));
                let place = usize::from(*change) % genuine.len();
                genuine[place] ^= change;
                rest = behind;
                genuine
            } else {
                let (datagram, behind) = behind.split_at(usize::from(length).min(behind.len()));
                rest = behind;
                datagram.to_vec()
            };
            // A refusal needs nothing done.
            let _ = far.handle_datagram(now, datagram.into());
            far.handle_timeout(now);
            while let Some(report) = far.poll_transmit() {
                near.handle_datagram(now, report).expect("what an end reports is a report");
            }
            while let Some(packet) = far.poll_deliver() {
                assert!(!packet.is_empty());
                got += 1;
            }
        }
        far.handle_timeout(now + Duration::from_secs(1));
        got += std::iter::from_fn(|| far.poll_deliver()).count() as u64;
        assert_eq!(got, far.decoder().stats().delivered);
        assert!(far.decoder().stats().most_kept <= 1024);
        assert!((0.0..=1.0).contains(&near.encoder().stats().loss.value()));
    }
}

//! How much repair a block needs.

/// A block's bytes by what may have become of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Exposed {
    /// Sent once, and nothing heard of them yet.
    pub(crate) once: u64,
    /// Sent so long ago that what was lost of them has been sent again.
    pub(crate) twice: u64,
}

/// How a block's bytes travel, in bytes: stream bytes of a packet, a symbol, symbols per message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Layout {
    pub(crate) packet: u64,
    pub(crate) symbol: u64,
    pub(crate) per_message: u64,
}

/// Standard deviations above the mean that are provided for: one block in 30,000 needs more.
const SIGMAS: f64 = 4.0;
/// And so many packets: the loss of few packets is more skewed than a deviation says, and the measured
/// loss of a young channel is uncertain.
const SPARE_PACKETS: f64 = 2.0;
/// A channel that has lost nothing yet is not free of loss: a tenth of the least that WAN papers speak of.
const LEAST_LOSS: f64 = 1e-4;
/// A block whose only repair is lost more often than this gets another.
const LIKELY: f64 = 0.02;
/// Above this, coding a block costs more than it saves.
const MOST_LOSS: f64 = 0.4;

/// Messages to send first, and in all, for a block of which `exposed` bytes may be missing.
pub(crate) fn datagrams(exposed: Exposed, loss: f64, layout: Layout) -> (u64, u64) {
    let loss = if loss.is_finite() { loss.clamp(LEAST_LOSS, MOST_LOSS) } else { LEAST_LOSS };
    let packets = |bytes: u64| bytes as f64 / layout.packet as f64;
    let lost = packets(exposed.once) * loss + packets(exposed.twice) * loss * loss;
    // A lost packet of a whole packet's bytes touches one symbol more than it fills.
    let touched = 1.0 + layout.packet as f64 / layout.symbol as f64;
    let per_packet = touched / layout.per_message as f64;
    // So many replace the whole block; one more for the loss of one of them, if that is likely at all.
    let bytes = exposed.once + exposed.twice;
    let whole = bytes.div_ceil(layout.symbol).div_ceil(layout.per_message).max(1) as f64;
    let whole = if whole * loss > LIKELY { whole + 1.0 } else { whole };
    let spare = SPARE_PACKETS.min(packets(bytes).ceil());
    let with = |sigmas: f64, spare: f64| {
        let mut messages = 0.0;
        // Repair is lost too: its own share converges in three steps.
        for _ in 0..3 {
            let deviation = (lost * per_packet * per_packet + messages * loss).sqrt();
            messages = (lost + spare) * per_packet + sigmas * deviation + messages * loss;
        }
        messages.min(whole)
    };
    let all = with(SIGMAS, spare).ceil().max(1.0) as u64;
    let first = with(1.0, 0.5).ceil().max(1.0) as u64;
    (first.min(all), all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { packet: 1400, symbol: 172, per_message: 8 };

    #[test]
    fn a_block_at_one_percent_takes_four_percent_more_and_what_was_sent_twice_hardly_any() {
        let once = Exposed { once: 655_360, twice: 0 };
        let (first, all) = datagrams(once, 0.012, LAYOUT);
        assert!((7..12).contains(&first) && (17..23).contains(&all), "{first} {all}");
        let twice = Exposed { once: 0, twice: 655_360 };
        let (first, all) = datagrams(twice, 0.012, LAYOUT);
        assert!((1..3).contains(&first) && (3..6).contains(&all), "{first} {all}");
    }

    #[test]
    fn little_is_repaired_with_little_and_any_measurement_with_something_finite() {
        let exposed = |once| Exposed { once, twice: 0 };
        let one = Layout { symbol: 50, per_message: 1, ..LAYOUT };
        assert_eq!(datagrams(exposed(50), 0.012, one), (1, 1));
        assert_eq!(datagrams(exposed(50), 0.1, one).1, 2);
        for loss in [f64::NAN, -1.0, 0.0, 1e-9, 0.5, 1.0, f64::INFINITY] {
            let (first, all) = datagrams(exposed(655_360), loss, LAYOUT);
            assert!(first >= 1 && first <= all && all <= 477, "{loss}: {first} {all}");
        }
    }
}

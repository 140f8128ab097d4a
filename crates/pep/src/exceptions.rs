//! The exception handler: flaws of peer stacks and of devices on the way, found by what they do and called by name
//! (paper 000, section 3.4).
//!
//! | fault               | how it shows                                                                     |
//! |---------------------|----------------------------------------------------------------------------------|
//! | no window scaling   | offered and not answered, or answered and never a window above 65 535 bytes while full ones are in use |
//! | SACK stripped       | offered and not answered, or answered and ACKs that repeat themselves tell no block |
//! | timestamps removed  | offered and not answered, or answered and missing later                            |
//! | stretched ACKs      | an ACK without a gap covers eight packets or more; RFC 5681 §4.2 has two            |
//! | held by inspection  | round trips make a sawtooth: packets wait and are let go at once                    |
//!
//! What to do about each is said by [`Fault::remedy`]. The last is found only where a traffic monitor times every packet,
//! as in the lab: a kernel tells a smoothed round trip, and in that a hold looks like a queue or like delayed ACKs.

use skyhaul_cc::controllers::boost::Moments;
use skyhaul_cc::{Bytes, Duration};
use std::fmt;

/// TCP options of one side's SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Window scaling (RFC 7323 §2).
    pub window_scaling: bool,
    /// SACK permitted (RFC 2018 §2).
    pub sack: bool,
    /// Timestamps (RFC 7323 §3).
    pub timestamps: bool,
}

impl Options {
    /// What a modern stack offers.
    pub const ALL: Options = Options { window_scaling: true, sack: true, timestamps: true };
}

/// Something is wrong with the peer or with the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Windows above 64 KiB are impossible.
    NoWindowScaling,
    /// Losses are reported one per round trip.
    SackStripped,
    /// Round trips of repeated packets cannot be told.
    TimestampsRemoved,
    /// One ACK stands for many packets.
    StretchedAcks,
    /// A device holds packets and lets them go in bunches.
    HeldByInspection,
}

impl Fault {
    /// What the accelerator does about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Fault::NoWindowScaling => "split the connection close to the peer, where 64 KiB fill the path",
            Fault::SackStripped => "spend repair packets instead of waiting for reports",
            Fault::TimestampsRemoved => "take round trips only from packets that were sent once",
            Fault::StretchedAcks => "count bytes, pace, and allow a bundle above the window",
            Fault::HeldByInspection => "take no wait shorter than the hold for a queue",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::NoWindowScaling => "no window scaling",
            Fault::SackStripped => "SACK stripped",
            Fault::TimestampsRemoved => "timestamps removed",
            Fault::StretchedAcks => "stretched ACKs",
            Fault::HeldByInspection => "held by inspection",
        })
    }
}

/// One acknowledgment as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Packets it newly acknowledges, in order or not.
    pub packets: u64,
    /// It repeats the number of the one before.
    pub repeats: bool,
    /// It carries SACK blocks.
    pub blocks: bool,
    /// It carries a timestamp.
    pub timestamp: bool,
    /// The window it advertises, scaled.
    pub window: Bytes,
    /// What is under way fills that window.
    pub window_full: bool,
}

/// Watches one connection.
#[derive(Clone, Debug)]
pub struct ExceptionHandler {
    offered: Options,
    answered: Options,
    acks: u64,
    /// ACKs while nothing is missing, and the packets they cover: a gap is answered packet by packet.
    plain: u64,
    packets: u64,
    repeats: u64,
    blocks: u64,
    without_timestamp: u64,
    greatest_window: Bytes,
    full: u64,
    held: Option<Duration>,
}

/// ACKs before anything is said of them.
const ENOUGH: u64 = 64;
/// ACKs without a gap before their stretch is judged: stretched ones are few.
const FEW: u64 = 16;
/// Repeated ACKs without a block before SACK is missed: reordering alone makes fewer.
const REPEATS: u64 = 8;
/// Packets per ACK from which ACKs are stretched.
const STRETCHED: u64 = 8;
/// The least hold that inspection is blamed for: shorter ones are interrupts being coalesced.
const HOLDS: Duration = Duration::from_millis(2);
/// Greatest window without scaling (RFC 9293 §3.1).
const UNSCALED: Bytes = Bytes(65_535);

impl ExceptionHandler {
    /// A connection on which one side offered and the other answered these options.
    pub fn new(offered: Options, answered: Options) -> Self {
        ExceptionHandler {
            offered,
            answered,
            acks: 0,
            plain: 0,
            packets: 0,
            repeats: 0,
            blocks: 0,
            without_timestamp: 0,
            greatest_window: Bytes::ZERO,
            full: 0,
            held: None,
        }
    }

    /// An acknowledgment came.
    pub fn on_ack(&mut self, seen: &Seen) {
        self.acks += 1;
        if !seen.blocks && !seen.repeats {
            self.plain += 1;
            self.packets += seen.packets;
        }
        self.repeats += u64::from(seen.repeats);
        self.blocks += u64::from(seen.blocks);
        self.without_timestamp += u64::from(!seen.timestamp);
        self.greatest_window = self.greatest_window.max(seen.window);
        self.full += u64::from(seen.window_full);
    }

    /// What the traffic monitor says of holds on the way.
    pub fn on_hold(&mut self, hold: &Moments) {
        let mean = Duration::try_from_secs_f64(hold.mean()).unwrap_or_default();
        self.held = (mean >= HOLDS && mean.as_secs_f64() > 2.0 * hold.deviation()).then_some(mean);
    }

    /// How long packets are held, where they are.
    pub fn held(&self) -> Option<Duration> {
        self.held
    }

    /// The faults found so far, in a fixed order.
    pub fn faults(&self) -> Vec<Fault> {
        let enough = self.acks >= ENOUGH;
        let Options { window_scaling, sack, timestamps } = self.answered;
        let stuck = enough && self.greatest_window <= UNSCALED && self.full * 2 > self.acks;
        let mute = self.repeats >= REPEATS && self.blocks == 0;
        let checks = [
            (Fault::NoWindowScaling, self.offered.window_scaling && (!window_scaling || stuck)),
            (Fault::SackStripped, self.offered.sack && (!sack || mute)),
            (
                Fault::TimestampsRemoved,
                self.offered.timestamps && (!timestamps || self.without_timestamp >= REPEATS),
            ),
            (Fault::StretchedAcks, self.plain >= FEW && self.packets >= STRETCHED * self.plain),
            (Fault::HeldByInspection, self.held.is_some()),
        ];
        checks.into_iter().filter(|(_, found)| *found).map(|(fault, _)| fault).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Seen = Seen {
        packets: 2,
        repeats: false,
        blocks: false,
        timestamp: true,
        window: Bytes::mib(4),
        window_full: false,
    };

    fn after(options: Options, seen: Seen) -> Vec<Fault> {
        let mut handler = ExceptionHandler::new(Options::ALL, options);
        (0..200).for_each(|_| handler.on_ack(&seen));
        handler.faults()
    }

    #[test]
    fn a_sound_connection_has_no_faults_also_where_packets_are_lost() {
        assert_eq!(after(Options::ALL, GOOD), []);
        assert_eq!(after(Options::ALL, Seen { packets: 1, repeats: true, blocks: true, ..GOOD }), []);
        // A small window that is not in the way.
        assert_eq!(after(Options::ALL, Seen { window: Bytes(65_535), ..GOOD }), []);
    }

    #[test]
    fn what_was_offered_and_not_answered_is_missed_at_once() {
        let none = Options { window_scaling: false, sack: false, timestamps: false };
        let handler = ExceptionHandler::new(Options::ALL, none);
        assert_eq!(handler.faults(), [Fault::NoWindowScaling, Fault::SackStripped, Fault::TimestampsRemoved]);
        assert_eq!(ExceptionHandler::new(none, none).faults(), []);
    }

    #[test]
    fn what_was_answered_and_taken_away_on_the_way_is_found_by_what_it_does() {
        for (seen, fault) in [
            (Seen { window: Bytes(65_535), window_full: true, ..GOOD }, Fault::NoWindowScaling),
            (Seen { packets: 0, repeats: true, ..GOOD }, Fault::SackStripped),
            (Seen { timestamp: false, ..GOOD }, Fault::TimestampsRemoved),
            (Seen { packets: 44, ..GOOD }, Fault::StretchedAcks),
        ] {
            assert_eq!(after(Options::ALL, seen), [fault]);
            assert!(!fault.remedy().is_empty());
        }
    }

    #[test]
    fn no_hold_is_no_fault() {
        let mut handler = ExceptionHandler::new(Options::ALL, Options::ALL);
        handler.on_hold(&Moments::default());
        assert_eq!((handler.faults(), handler.held()), (vec![], None));
    }
}

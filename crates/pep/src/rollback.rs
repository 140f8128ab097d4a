//! Automatic roll back: the channel's datagrams normally travel by UDP; when that fails, inside one TCP
//! connection to the same peer, until UDP has been healthy for a while. QUIC sees no difference and repeats
//! what was not acknowledged, so running flows go on where they were.

mod quality;
mod watch;
pub mod wire;

pub(crate) use quality::Progress;
pub(crate) use watch::{Action, Look, Watch};

use skyhaul_cc::Duration;
use std::fmt;

/// When to leave UDP and when to return to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Watch the path at all. Off: a silent peer is given up after [`crate::Tuning::give_up`] and nothing else
    /// happens.
    pub enabled: bool,
    /// Trouble begins after so long without a sign of life, or after four round trips if that is longer.
    pub detect: Duration,
    /// UDP must have been healthy for so long before the channel returns to it. Doubled after each quick
    /// relapse, up to five minutes.
    pub hold: Duration,
    /// Carry the channel inside TCP while UDP does not work.
    pub carriage: bool,
    /// Nothing has got through for so long, by any way: the channel is given up and its connections are reset. Not
    /// before the channel counts as broken.
    pub give_up: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            enabled: true,
            detect: Duration::from_secs(3),
            hold: Duration::from_secs(10),
            carriage: true,
            give_up: Duration::from_secs(900),
        }
    }
}

/// What carries a channel's datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carriage {
    /// Each by itself.
    #[default]
    Udp,
    /// One after the other in a TCP connection.
    Tcp,
}

/// How a channel that is up fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It works, by UDP.
    Up,
    /// UDP does not work; it is carried inside TCP, at the speed of TCP.
    Carried,
    /// Nothing gets through. Its flows wait.
    Silent,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Standing::Up => "sent by UDP",
            Standing::Carried => "carried inside TCP",
            Standing::Silent => "silent",
        })
    }
}

/// Why a channel's standing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// Nothing was heard of the other end.
    Silent,
    /// The other end is heard and hears nothing.
    OneWay,
    /// Small datagrams arrive and full ones do not.
    MtuBlackHole,
    /// A router says that UDP does not get there.
    Unreachable,
    /// The other end's program is gone.
    Refused,
    /// UDP works, far worse than it did before.
    Degraded,
    /// The TCP connection that carried the channel has failed.
    CarriageLost,
    /// None: it works again.
    Healthy,
}

impl Trouble {
    /// All of them; the place of each is its code on the wire.
    pub const ALL: [Trouble; 8] = [
        Trouble::Silent,
        Trouble::OneWay,
        Trouble::MtuBlackHole,
        Trouble::Unreachable,
        Trouble::Refused,
        Trouble::Degraded,
        Trouble::CarriageLost,
        Trouble::Healthy,
    ];

    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn of(code: u8) -> Self {
        Trouble::ALL.get(usize::from(code)).copied().unwrap_or(Trouble::Silent)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Trouble::Silent => "nothing gets through",
            Trouble::OneWay => "datagrams get through one way only",
            Trouble::MtuBlackHole => "full-sized datagrams do not get through, small ones do",
            Trouble::Unreachable => "UDP is unreachable there",
            Trouble::Refused => "the other end's program has stopped",
            Trouble::Degraded => "UDP is far slower than it was",
            Trouble::CarriageLost => "the TCP connection that carried it has failed",
            Trouble::Healthy => "UDP works",
        })
    }
}

/// What the roll back of a channel has seen and done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RollbackStats {
    /// What carries the channel now.
    pub carriage: Carriage,
    /// Times that trouble was found, of whatever kind.
    pub troubles: u64,
    /// Of these, by kind, in the order of [`Trouble::ALL`].
    pub by_kind: [u64; 8],
    /// Times that the channel moved into TCP.
    pub carried: u64,
    /// Times that it moved back to UDP.
    pub returned: u64,
    /// Times that nothing got through.
    pub silences: u64,
    /// TCP connections begun for it.
    pub dialled: u64,
    /// Words sent outside QUIC: probes and answers.
    pub words_sent: u64,
    /// Words of the other end.
    pub words_heard: u64,
    /// Words that were not the other end's.
    pub words_refused: u64,
    /// How old the newest sign of life was when the last trouble was found.
    pub last_detection: Duration,
    /// How long the last silence was, from its detection.
    pub last_silence: Duration,
}

//! What an end remembers of the paths it has sent over, so that the next connection need not begin from
//! nothing: paper 000's learning state machine, made to last longer than a connection.
//!
//! Each end keeps its own sending direction and tells nobody. A path is the peer's key, the interface towards
//! it and the network it is in ([`PathKey`]); of each there is one [`Record`]. A connection adds one
//! observation to the record that it found, however often it is written down:
//!
//! ```text
//! average   B = (1 - α) B' + α B_C    α = max(1/8, 1/(n+1)) over n earlier connections; half of the rest
//!                                     goes per day: loss, jitter, reordering and variation likewise
//! jump      B = B_C                   where |B_C / B' - 1| > 0.3: a whole connection is no noise
//! drift     B = B_C                   after three connections in a row above, or below, B' by more than γ = 2 %
//! variation V = (1 - α) V' + α max(V_C, |B_C / B' - 1|)
//! trust     1 - 2 V, if seen within ten minutes on this very path; else nothing, and half of the rate is a start
//! ```
//!
//! B' is the remembered rate and B_C that of the connection, as in paper 000; γ and the three falls are its
//! as well, applied to connections instead of round trips.
//!
//! Nothing read back is believed: [`Record::decode`] checks form, checksum and ranges, and whoever sends by a
//! record validates it with its first flight.

mod wire;

#[cfg(test)]
mod tests;

use crate::auth::PublicKey;
use skyhaul_cc::{Duration, PathHistory, Rate, Share};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

pub use wire::Refused;

/// Seconds since 1970, by the clock on the wall, which may be wrong and may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixTime(pub u64);

impl UnixTime {
    /// Time since an earlier moment; nothing if that lies ahead, by more than a clock is corrected by.
    pub fn since(self, earlier: UnixTime) -> Option<Duration> {
        (earlier.0 <= self.0.saturating_add(SET_BACK))
            .then(|| Duration::from_secs(self.0.saturating_sub(earlier.0)))
    }
}

/// The network a peer is in: addresses that most likely share the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Network {
    /// The first 24 bits.
    V4([u8; 3]),
    /// The first 48 bits: a site (RFC 6177).
    V6([u8; 6]),
}

impl Network {
    /// That of an address; IPv4 in the clothes of IPv6 is IPv4.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(ip) => {
                let [a, b, c, _] = ip.octets();
                Network::V4([a, b, c])
            }
            IpAddr::V6(ip) => {
                let [a, b, c, d, e, f, ..] = ip.octets();
                Network::V6([a, b, c, d, e, f])
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Network::V4([a, b, c]) => write!(f, "{a}.{b}.{c}.0/24"),
            Network::V6(bytes) => {
                let mut octets = [0; 16];
                octets[..6].copy_from_slice(bytes);
                write!(f, "{}/48", std::net::Ipv6Addr::from(octets))
            }
        }
    }
}

/// Name of a network interface of this host: at most 15 bytes of printable ASCII (IFNAMSIZ less the final
/// zero); empty where it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interface(String);

impl Interface {
    /// The interface of that name; nothing if no interface can have it.
    pub fn new(name: &str) -> Option<Self> {
        let fits = name.len() <= LONGEST_NAME && name.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Interface(name.to_owned()))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// Which path, seen from this end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathKey {
    /// The other end.
    pub peer: PublicKey,
    /// The interface of this host that leads there.
    pub interface: Interface,
    /// The network the other end is in.
    pub network: Network,
}

impl PathKey {
    /// The path to a peer at `remote` over `interface`.
    pub fn new(peer: PublicKey, interface: Interface, remote: SocketAddr) -> Self {
        PathKey { peer, interface, network: Network::of(remote.ip()) }
    }
}

/// What is remembered of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    rate: u64,
    min_rtt: u64,
    jitter: u64,
    loss: Billionth,
    reordered: Billionth,
    variation: Billionth,
    observations: u32,
    /// Connections in a row above (positive) or below the remembered rate.
    run: i8,
    seen: UnixTime,
}

/// A share as whole billionths, so that no bit pattern is not a number.
type Billionth = u32;

impl Record {
    /// What the first connection leaves; nothing if it cannot be.
    pub fn first(seen: &PathHistory, now: UnixTime) -> Option<Self> {
        let record = Record {
            rate: seen.rate.as_bit(),
            min_rtt: nanos(seen.min_rtt),
            jitter: nanos(seen.jitter),
            loss: billionths(seen.loss),
            reordered: billionths(seen.reordered),
            variation: billionths(seen.rate_variation),
            observations: 1,
            run: 0,
            seen: now,
        };
        record.is_possible().then_some(record)
    }

    /// With what one more connection has seen; the same if that cannot be. `self` is what the connection
    /// found when it began.
    #[must_use]
    pub fn merged(&self, seen: &PathHistory, now: UnixTime) -> Self {
        let Some(new) = Record::first(seen, now) else { return *self };
        let age = now.since(self.seen).unwrap_or(FORGOTTEN);
        let alpha = self.weight(age);
        let change = new.rate as f64 / self.rate as f64 - 1.0;
        let run = match self.run {
            _ if change.abs() <= GAMMA => 0,
            run if change > 0.0 => run.max(0).saturating_add(1),
            run => run.min(0).saturating_sub(1),
        };
        let moved = change.abs() > JUMP || run.unsigned_abs() >= RUN;
        let mean =
            |before: u64, now: u64| ((1.0 - alpha) * before as f64 + alpha * now as f64).round() as u64;
        let share = |before: Billionth, now: Billionth| mean(before.into(), now.into()) as Billionth;
        let strayed = (change.abs().min(1.0) * BILLION).round() as Billionth;
        let near = self.min_rtt.abs_diff(new.min_rtt) as f64 <= SAME_LENGTH * self.min_rtt as f64;
        Record {
            rate: if moved { new.rate } else { mean(self.rate, new.rate) },
            // The least of what is seen of one path; another length is another path.
            min_rtt: if near { self.min_rtt.min(new.min_rtt) } else { new.min_rtt },
            jitter: mean(self.jitter, new.jitter),
            loss: share(self.loss, new.loss),
            reordered: share(self.reordered, new.reordered),
            variation: share(self.variation, new.variation.max(strayed)),
            observations: self.observations.saturating_add(1),
            run: if moved { 0 } else { run },
            seen: now,
        }
    }

    /// α: what one more connection counts.
    fn weight(&self, age: Duration) -> f64 {
        let latest = ALPHA.max(1.0 / (f64::from(self.observations) + 1.0));
        1.0 - (1.0 - latest) * (-age.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
    }

    /// What to begin with now, on this very path or, if not `same_path`, on another one to the same peer.
    pub fn recall(&self, now: UnixTime, same_path: bool) -> PathHistory {
        let fresh = now.since(self.seen).is_some_and(|age| age <= FRESH);
        let trust = 1.0 - 2.0 * f64::from(self.variation) / BILLION;
        let confidence = if fresh && same_path { trust.clamp(0.0, 1.0) } else { 0.0 };
        PathHistory {
            rate: Rate::bit(self.rate),
            min_rtt: Duration::from_nanos(self.min_rtt),
            loss: share(self.loss),
            jitter: Duration::from_nanos(self.jitter),
            reordered: share(self.reordered),
            rate_variation: share(self.variation),
            confidence: Share::new(confidence).unwrap_or_default(),
        }
    }

    /// When a connection last wrote it.
    pub fn seen(&self) -> UnixTime {
        self.seen
    }

    /// How many connections it rests on.
    pub fn observations(&self) -> u32 {
        self.observations
    }

    /// Whether writing `self` in the place of `written` tells the next connection anything.
    pub fn is_news(&self, written: &Record) -> bool {
        let apart = self.rate.abs_diff(written.rate) as f64 > GAMMA * written.rate as f64;
        let later = self.seen.since(written.seen).is_none_or(|age| age >= REFRESH);
        apart || later || self.observations != written.observations
    }

    fn is_possible(&self) -> bool {
        RATES.contains(&self.rate)
            && ROUND_TRIPS.contains(&self.min_rtt)
            && self.jitter <= *ROUND_TRIPS.end()
            && self.loss <= LOSS_MOST
            && [self.reordered, self.variation].iter().all(|&part| f64::from(part) <= BILLION)
            && self.observations > 0
            && self.run.unsigned_abs() < RUN
            && self.seen <= LATEST
    }
}

/// What is known of `path`: its own record, or else the newest of another path to the same peer, with no
/// confidence in it.
pub fn recall<'a>(
    records: impl IntoIterator<Item = (&'a PathKey, &'a Record)>,
    path: &PathKey,
    now: UnixTime,
) -> Option<PathHistory> {
    let of_peer = records.into_iter().filter(|(key, _)| key.peer == path.peer);
    let best = of_peer.max_by_key(|(key, record)| (*key == path, record.seen))?;
    Some(best.1.recall(now, best.0 == path))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn billionths(share: Share) -> Billionth {
    (share.value() * BILLION).round() as Billionth
}

fn share(billionths: Billionth) -> Share {
    Share::new(f64::from(billionths) / BILLION).unwrap_or(Share::ONE)
}

const BILLION: f64 = 1e9;
/// α of paper 000 where it has settled.
const ALPHA: f64 = skyhaul_cc::controllers::boost::ALPHA;
/// γ of paper 000: less is no change.
const GAMMA: f64 = skyhaul_cc::controllers::boost::GAMMA;
/// Changes in a row that count, paper 000.
const RUN: u8 = 3;
/// A change beyond what a controller takes for noise between two trains.
const JUMP: f64 = 0.3;
/// Round trips this close are those of one path.
const SAME_LENGTH: f64 = 0.1;
/// How long a record is believed as it is: weather and others on the link change within minutes.
const FRESH: Duration = Duration::from_secs(600);
/// Old averages lose half of their weight per day.
const HALF_LIFE: Duration = Duration::from_secs(86_400);
/// As old as makes no difference.
const FORGOTTEN: Duration = Duration::from_secs(86_400 * 365);
/// A record that has not changed is written again after this time, so that it stays fresh.
const REFRESH: Duration = Duration::from_secs(60);
/// Records from the future are no worse than this for having been written before a clock was corrected.
const SET_BACK: u64 = 60;
/// 1 kbit/s to 1 Tbit/s.
const RATES: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000_000;
/// A microsecond to a minute, in nanoseconds: Mars is not a channel.
const ROUND_TRIPS: std::ops::RangeInclusive<u64> = 1_000..=60_000_000_000;
/// Nothing that loses half of its packets is learnt from.
const LOSS_MOST: Billionth = 500_000_000;
/// The year 9999.
const LATEST: UnixTime = UnixTime(253_402_300_799);
const LONGEST_NAME: usize = 15;

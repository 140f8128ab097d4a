//! What becomes of connections when the channel is no good: `[rollback]`, and per destination `[[destination]]`.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use skyhaul_cc::units::Duration;
use skyhaul_pep::frame::Target;

use super::reader::{ConfigError, Entry, Section};
use super::sections::{ports, time};
use super::{Ports, Prefix};

/// `[rollback]`: how an end gets out of the way of a broken channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollback {
    /// Off: connections that want the channel get it or nothing.
    pub enabled: bool,
    /// Silence after which a channel counts as broken, or four round trips if those are longer.
    pub detect: Duration,
    /// How long UDP must work again before it is used again.
    pub hold: Duration,
    /// Carries the channel's datagrams by TCP while UDP does not get through.
    pub carriage: bool,
    /// A channel through which nothing has got for so long is given up, and its connections are reset. The shorter time
    /// of both ends counts.
    pub give_up: Duration,
    /// Congestion control of direct connections, a name that this host's kernel knows; `None` is its default.
    pub congestion: Option<String>,
}

/// Whether a connection may, must or must not use the channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// The channel while it works, plain TCP while it does not.
    #[default]
    Prefer,
    /// The channel or nothing.
    Require,
    /// Plain TCP, always.
    Never,
}

/// A `[[destination]]` section: connections that it fits, and their preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Where connections lead; empty means anywhere.
    pub to: Vec<Place>,
    /// Destination ports; empty means all.
    pub ports: Vec<Ports>,
    /// What they do.
    pub channel: Preference,
}

/// Where a connection may lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// To an address in this block.
    Block(Prefix),
    /// To a host of this name, or of a name that ends in a dot and this name. Lower case.
    Domain(String),
}

/// All `[[destination]]` sections in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations(pub Vec<Destination>);

impl Default for Rollback {
    /// On, with everything it can do.
    fn default() -> Self {
        Rollback {
            enabled: true,
            detect: DEFAULT_DETECT,
            hold: DEFAULT_HOLD,
            carriage: true,
            give_up: DEFAULT_GIVE_UP,
            congestion: None,
        }
    }
}

impl Preference {
    /// All of them.
    pub const ALL: [Preference; 3] = [Preference::Prefer, Preference::Require, Preference::Never];

    /// As the config calls it.
    pub fn name(self) -> &'static str {
        match self {
            Preference::Prefer => "prefer",
            Preference::Require => "require",
            Preference::Never => "never",
        }
    }
}

impl Destinations {
    /// What the first section that fits says; by default the channel is preferred.
    pub fn preference(&self, target: &Target) -> Preference {
        self.0
            .iter()
            .find(|section| section.fits(target))
            .map_or(Preference::default(), |found| found.channel)
    }
}

impl Destination {
    fn fits(&self, target: &Target) -> bool {
        let (port, is_place): (u16, bool) = match target {
            Target::Address(address) => (address.port(), self.to.iter().any(|to| to.holds(address.ip()))),
            Target::Name { host, port } => (*port, self.to.iter().any(|to| to.is_around(host))),
        };
        (self.to.is_empty() || is_place)
            && (self.ports.is_empty() || self.ports.iter().any(|range| range.contains(port)))
    }

    /// The blocks of addresses among its places; `None` if addresses are never meant.
    pub fn blocks(&self) -> Option<Vec<Prefix>> {
        let block = |place: &Place| match place {
            Place::Block(block) => Some(*block),
            Place::Domain(_) => None,
        };
        let blocks: Vec<_> = self.to.iter().filter_map(block).collect();
        (self.to.is_empty() || !blocks.is_empty()).then_some(blocks)
    }
}

impl Place {
    fn holds(&self, address: IpAddr) -> bool {
        matches!(self, Place::Block(block) if block.contains(address))
    }

    fn is_around(&self, host: &str) -> bool {
        let Place::Domain(domain) = self else { return false };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        host.strip_suffix(domain.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }
}

/// The section `[rollback]`.
pub(super) fn rollback(mut section: Section<'_, '_>) -> Result<Rollback, ConfigError> {
    let default = Rollback::default();
    let times = SHORTEST..=LONGEST;
    let detect = section.optional("detect", |entry| range(entry, &times, DETECT))?.unwrap_or(default.detect);
    // Nobody is given up before he counts as silent.
    let waits = SHORTEST_WAIT.max(detect * 2)..=LONGEST_WAIT;
    let read = Rollback {
        enabled: section.optional("enabled", Entry::boolean)?.unwrap_or(default.enabled),
        detect,
        hold: section.optional("hold", |entry| range(entry, &times, HOLD))?.unwrap_or(default.hold),
        carriage: section.optional("carriage", Entry::boolean)?.unwrap_or(default.carriage),
        give_up: section
            .optional("give_up", |entry| range(entry, &waits, GIVE_UP))?
            .unwrap_or(default.give_up.max(*waits.start())),
        congestion: section
            .optional("congestion", |entry| entry.text(CONGESTION, congestion))?
            .or(default.congestion),
    };
    section.close()?;
    Ok(read)
}

/// One `[[destination]]`.
pub(super) fn destination(mut section: Section<'_, '_>) -> Result<Destination, ConfigError> {
    let read = Destination {
        to: section
            .optional("to", |entry| {
                let nothing = entry.wants(TO);
                let places = entry.list(|item| item.text(TO, place))?;
                if places.is_empty() {
                    Err(nothing)
                } else {
                    Ok(places)
                }
            })?
            .unwrap_or_default(),
        ports: section.optional("ports", ports)?.unwrap_or_default(),
        channel: section.required("channel", PREFERENCE, |entry| {
            entry.text(PREFERENCE, |text| Preference::ALL.into_iter().find(|one| one.name() == text))
        })?,
    };
    section.close()?;
    Ok(read)
}

fn range(
    entry: Entry<'_, '_>,
    bounds: &RangeInclusive<Duration>,
    expected: &str,
) -> Result<Duration, ConfigError> {
    let wrong = entry.wants(expected);
    time(entry).map_err(|_| wrong.clone()).and_then(|time| {
        if bounds.contains(&time) {
            Ok(time)
        } else {
            Err(wrong)
        }
    })
}

fn place(text: &str) -> Option<Place> {
    if let Ok(block) = text.parse() {
        return Some(Place::Block(block));
    }
    let name = text.trim_end_matches('.').to_ascii_lowercase();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let fits = (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(plain);
    // A block with a slip in it is no name: 10.0.0.1/8 has its slash, 300.1.1.1 ends in a number (RFC 3696 §2).
    let last = name.rsplit('.').next().unwrap_or_default();
    (fits && !name.starts_with('.') && !last.bytes().all(|byte| byte.is_ascii_digit()))
        .then_some(Place::Domain(name))
}

/// A name as the kernel has them in `net.ipv4.tcp_available_congestion_control`.
fn congestion(text: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    // TCP_CA_NAME_MAX is 16 with the final zero.
    ((1..=15).contains(&text.len()) && text.bytes().all(plain)).then(|| text.to_owned())
}

/// The three seconds after which new connections shall be on their way without the channel.
const DEFAULT_DETECT: Duration = Duration::from_secs(3);
/// Many round trips of a satellite link: outages that follow each other closely count as one.
const DEFAULT_HOLD: Duration = Duration::from_secs(10);
/// Less than a LAN's hiccup would be a failure.
const SHORTEST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(600);
/// Longer than an outage that connections shall survive.
const DEFAULT_GIVE_UP: Duration = Duration::from_secs(900);
/// Less than some fades and handovers of satellite links would cost every connection; a day is for ever.
const SHORTEST_WAIT: Duration = Duration::from_secs(5);
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);
/// RFC 1035 §2.3.4, as text without the final dot.
const LONGEST_NAME: usize = 253;

const DETECT: &str = "a time from 200 ms to 600 s, such as \"3 s\"";
const HOLD: &str = "a time from 200 ms to 600 s, such as \"10 s\"";
const GIVE_UP: &str = "a time from 5 s to 24 h, twice detect at least, such as \"15 min\"";
const CONGESTION: &str = "a congestion control of this host's kernel, such as \"bbr\"";
const TO: &str = "a list of blocks of addresses and names, such as [\"10.0.0.0/8\", \"example.net\"]";
const PREFERENCE: &str = "\"prefer\", \"require\" or \"never\"";

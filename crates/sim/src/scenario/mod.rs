//! What a run is about: a link, a workload, and what somebody published about it.
//!
//! Scenarios are TOML files in the folder `scenarios`; `docs/scenarios.md` explains every key. The same
//! file means the same in the simulator and on hosts.

mod catalogue;
mod error;
mod limit;
mod parse;
mod parse_plan;
mod plan;
mod published;
mod reader;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use skyhaul_cc::units::{Ber, Bytes, Duration, Rate, Share};

use crate::link::Link;
use crate::rng;
pub use catalogue::catalogue;
pub use error::ScenarioError;
pub use limit::PAYLOAD_PER_PACKET;
pub use plan::{Cell, FlowPlan, Sweep, TcpPlan, Threshold};
pub use published::{Figure, Published, Relation};

/// A scenario that has been read and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name, such as `p1.down-270`; also the file's.
    pub id: String,
    /// One line for lists.
    pub title: String,
    /// Where it comes from: a paper and section, or the reason it exists.
    pub source: String,
    /// From the terminal's side to the gateway's.
    pub forward: Direction,
    /// From the gateway's side to the terminal's.
    pub back: Direction,
    /// What is transferred.
    pub workload: Workload,
    /// Settings of TCP in the simulator.
    pub tcp: TcpPlan,
    /// Flows that share the link in the simulator; empty for the one of the workload.
    /// [`flow_plans`](Scenario::flow_plans) answers for both.
    pub flows: Vec<FlowPlan>,
    /// Values that vary from cell to cell; the link says what holds without them.
    pub sweep: Sweep,
    /// Controllers to compare, in the order of the source.
    pub controllers: Vec<String>,
    /// When the run is stopped, finished or not.
    pub duration: Option<Duration>,
    /// How often the source repeated each run.
    pub repeats: Option<u32>,
    /// Figures that were published for it.
    pub published: Vec<Published>,
    /// What the source does not state and we chose, with the reason.
    pub assumed: Vec<String>,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// Rate of the serializer, counted in the bytes that `rate_base` names.
    pub rate: Rate,
    /// Which bytes of a packet the rate counts.
    pub rate_base: RateBase,
    /// From the last bit sent to the last bit received.
    pub one_way: Duration,
    /// Probability that a packet is lost by itself.
    pub loss: Share,
    /// Probability that a bit is wrong, or a byte where `ber_unit` says so; one error loses the IP packet.
    pub ber: Ber,
    /// What `ber` counts.
    pub ber_unit: BerUnit,
    /// Losses in bursts.
    pub burst: Option<GilbertElliott>,
    /// Variation of the one-way delay from packet to packet.
    pub jitter: Option<Jitter>,
    /// Whether a packet may overtake another because of jitter or a shorter path.
    pub reorder: bool,
    /// Drop-tail queue in front of the serializer, in IP bytes.
    pub queue: Bytes,
    /// How the queue follows from rate and round trip, where it is given that way.
    pub queue_rule: Option<QueueRule>,
    /// What happens while the clock runs.
    pub changes: Vec<Change>,
}

impl Direction {
    /// A direction that loses nothing, keeps the order and has a queue of 1 GB, which is room for everything; the rate
    /// counts IP bytes.
    pub fn clean(rate: Rate, one_way: Duration) -> Self {
        Direction {
            rate,
            rate_base: RateBase::Ip,
            one_way,
            loss: Share::ZERO,
            ber: Ber::ZERO,
            ber_unit: BerUnit::Bit,
            burst: None,
            jitter: None,
            reorder: false,
            queue: Bytes(1_000_000_000),
            queue_rule: None,
            changes: Vec::new(),
        }
    }
}

/// Which bytes of a packet a rate counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateBase {
    /// The IP packet.
    #[default]
    Ip,
    /// The IP packet and 14 bytes of Ethernet header.
    L2,
    /// What an Ethernet wire is busy with: 38 bytes more than the IP packet (header 14, checksum 4,
    /// preamble 8, gap 12).
    Wire,
}

/// What an error rate counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BerUnit {
    /// Bits.
    #[default]
    Bit,
    /// Bytes, as some simulators' error models do: the same number means an eighth of the losses.
    Byte,
}

/// A queue in bandwidth-delay products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueRule {
    /// Its size in products of the direction's rate and the round trip without queues; above zero.
    pub bdp: f64,
    /// It is never smaller than this.
    pub least: Bytes,
}

/// Losses in bursts: a good and a bad state, a step per packet sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Chance per packet to go from good to bad; p in the literature.
    pub to_bad: Share,
    /// Chance per packet to go from bad to good; r in the literature. One over the mean burst length.
    pub to_good: Share,
    /// Loss while good; 1-k in the literature.
    pub good_loss: Share,
    /// Loss while bad; 1-h in the literature.
    pub bad_loss: Share,
}

/// Variation of the one-way delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter {
    /// Each packet is late or early by up to this much; the mean stays (order kept raises it).
    pub half_range: Duration,
    /// How the range is used.
    pub shape: JitterShape,
}

/// How jitter is spread over its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JitterShape {
    /// Every value is as likely as any other.
    #[default]
    Uniform,
    /// Bell-shaped, standard deviation 0.29 half ranges.
    Normal,
}

/// Something that happens to a direction while the clock runs. A setting stays until changed again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// When, since the start.
    pub at: Duration,
    /// New rate.
    pub rate: Option<Rate>,
    /// New one-way delay.
    pub one_way: Option<Duration>,
    /// New probability of single losses.
    pub loss: Option<Share>,
    /// Everything sent for this long is lost.
    pub outage: Option<Duration>,
    /// It happens again after each such interval.
    pub every: Option<Duration>,
}

/// A direction of the link by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dir {
    /// From the terminal's side to the gateway's.
    Forward,
    /// From the gateway's side to the terminal's.
    Back,
}

/// What is transferred. The client sits behind the terminal, the server behind the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The program that does it.
    pub kind: WorkloadKind,
    /// Size of the transfer; for objects, of each object.
    pub bytes: Bytes,
}

/// Kinds of transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// An FTP client sends a file.
    FtpUpload,
    /// An FTP client fetches a file.
    FtpDownload,
    /// An HTTP client fetches one large file.
    HttpDownload,
    /// An HTTP client fetches small objects one after the other.
    HttpObjects,
    /// iperf3, the client sends.
    Iperf3,
}

impl Scenario {
    /// A scenario of the catalogue by its id, or a file by its path.
    ///
    /// # Errors
    /// When neither exists, or what is found is not a valid scenario.
    pub fn find(id_or_path: &str) -> Result<Scenario, ScenarioError> {
        if let Some(text) = catalogue::text(id_or_path) {
            return Scenario::parse(text, &format!("scenarios/{id_or_path}.toml"));
        }
        let path = Path::new(id_or_path);
        if !path.exists() && !id_or_path.contains('/') && !id_or_path.ends_with(".toml") {
            return Err(ScenarioError::unknown(id_or_path));
        }
        let mut text = String::new();
        // A byte more than allowed is enough to be refused, and /dev/zero has an end.
        File::open(path)
            .and_then(|file| file.take(parse::LARGEST_FILE as u64 + 1).read_to_string(&mut text))
            .map_err(|error| ScenarioError::new(id_or_path, None, "", format!("cannot be read: {error}")))?;
        Scenario::parse(&text, id_or_path)
    }

    /// Reads a scenario from TOML. `origin` names it in error messages.
    ///
    /// # Errors
    /// On the first thing that is wrong, with line, key, what was found and what was expected.
    pub fn parse(text: &str, origin: &str) -> Result<Scenario, ScenarioError> {
        parse::scenario(text, origin)
    }

    /// One direction.
    pub fn direction(&self, dir: Dir) -> &Direction {
        match dir {
            Dir::Forward => &self.forward,
            Dir::Back => &self.back,
        }
    }

    /// One direction in its first moment. Of one seed, each direction gets its own luck.
    pub fn link(&self, dir: Dir, seed: u64) -> Link {
        Link::new(self.direction(dir), rng::derive(seed, dir.name()))
    }

    /// Propagation both ways, without queues, at the start.
    pub fn rtt(&self) -> Duration {
        self.forward.one_way.saturating_add(self.back.one_way)
    }
}

impl Dir {
    /// Both.
    pub const ALL: [Dir; 2] = [Dir::Forward, Dir::Back];

    /// `forward` or `back`, as in scenario files.
    pub fn name(self) -> &'static str {
        match self {
            Dir::Forward => "forward",
            Dir::Back => "back",
        }
    }

    /// The other one.
    pub fn opposite(self) -> Dir {
        match self {
            Dir::Forward => Dir::Back,
            Dir::Back => Dir::Forward,
        }
    }
}

impl RateBase {
    /// Bytes counted per packet besides the IP packet.
    pub fn overhead(self) -> Bytes {
        Bytes(match self {
            RateBase::Ip => 0,
            RateBase::L2 => 14,
            RateBase::Wire => 38,
        })
    }
}

impl Direction {
    /// Share of IP packets of this size that have an error.
    pub fn packet_error(&self, packet: Bytes) -> Share {
        self.ber_unit.packet_error(self.ber, packet)
    }
}

impl BerUnit {
    /// Probability that an error hits a packet of this size, `ber` counting these units.
    pub fn packet_error(self, ber: Ber, packet: Bytes) -> Share {
        match self {
            BerUnit::Bit => ber.packet_error(packet),
            BerUnit::Byte => ber.error_among(packet.0),
        }
    }
}

impl QueueRule {
    /// The queue in IP bytes on a link of `rate`, of which packets of `packet` bytes use `overhead` more.
    pub fn size(&self, rate: Rate, rtt: Duration, packet: Bytes, overhead: Bytes) -> Bytes {
        let ip = packet.as_f64() / (packet + overhead).as_f64().max(1.0);
        Bytes::from_f64(rate.bdp(rtt).as_f64() * self.bdp * ip).max(self.least)
    }
}

impl GilbertElliott {
    /// The simple model with everything lost in the bad state: `mean_burst` packets in a row on average,
    /// and `average` of all packets in the long run. `None` if the bursts are shorter than one packet, the
    /// average is 0 or 1, or the bursts too short for it.
    pub fn from_burst(mean_burst: f64, average: Share) -> Option<Self> {
        if !(mean_burst.is_finite() && mean_burst >= 1.0) || average == Share::ZERO || average == Share::ONE {
            return None;
        }
        // Long run: share of bad = p/(p+r), so p = r*average/(1-average).
        let to_good = Share::new(1.0 / mean_burst)?;
        let to_bad = Share::new(to_good.value() * average.value() / (1.0 - average.value()))?;
        Some(GilbertElliott { to_bad, to_good, good_loss: Share::ZERO, bad_loss: Share::ONE })
    }

    /// Share of packets sent in the bad state in the long run.
    pub fn share_of_bad(&self) -> Share {
        let (p, r) = (self.to_bad.value(), self.to_good.value());
        // Neither state is ever left: it starts good and stays there.
        Share::new(p / (p + r)).unwrap_or(Share::ZERO)
    }

    /// Share of packets lost in the long run.
    pub fn average(&self) -> Share {
        let bad = self.share_of_bad().value();
        let lost = bad * self.bad_loss.value() + (1.0 - bad) * self.good_loss.value();
        Share::new(lost.clamp(0.0, 1.0)).unwrap_or(Share::ZERO)
    }

    /// Mean length of a stay in the bad state, in packets; infinite if it is never left.
    pub fn mean_burst(&self) -> f64 {
        1.0 / self.to_good.value()
    }
}

impl WorkloadKind {
    /// All kinds.
    pub const ALL: [WorkloadKind; 5] = [
        WorkloadKind::FtpUpload,
        WorkloadKind::FtpDownload,
        WorkloadKind::HttpDownload,
        WorkloadKind::HttpObjects,
        WorkloadKind::Iperf3,
    ];

    /// As in scenario files, such as `ftp-upload`.
    pub fn name(self) -> &'static str {
        match self {
            WorkloadKind::FtpUpload => "ftp-upload",
            WorkloadKind::FtpDownload => "ftp-download",
            WorkloadKind::HttpDownload => "http-download",
            WorkloadKind::HttpObjects => "http-objects",
            WorkloadKind::Iperf3 => "iperf3",
        }
    }

    /// Where the data goes.
    pub fn data(self) -> Dir {
        match self {
            WorkloadKind::FtpUpload | WorkloadKind::Iperf3 => Dir::Forward,
            WorkloadKind::FtpDownload | WorkloadKind::HttpDownload | WorkloadKind::HttpObjects => Dir::Back,
        }
    }
}

impl fmt::Display for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

//! Whole files: goodput from the first packet to the last byte, against what the link could do at most.

use skyhaul_cc::registry::Contender;
use skyhaul_cc::units::{Bytes, Duration, Rate, Time};
use skyhaul_cc::StartMode;
use skyhaul_sim::scenario::{RateBase, Scenario};

use super::path::{ms, share, Path, Told};
use super::row::GOODPUT;
use super::{channel, watch, Ask, Cell, Goal, Host, Run};
use crate::experiment::LabError;

/// A link, a file, and what to reach.
#[derive(Clone, Debug)]
struct File {
    id: String,
    path: Path,
    /// The file; nothing for all that [`File::stop`] allows.
    bytes: Option<Bytes>,
    /// The file that the goals are for.
    whole: Bytes,
    /// Goals for the whole file in Mbit/s: from cold, and with a remembered or known rate.
    goals: Goals,
    hosts: &'static [Host],
}

type Goals = [f64; 2];

/// A file that is not there after so many times the least time is stopped.
const PATIENCE: u32 = 20;
/// How long the sender without end sends.
const ENDLESS: Duration = Duration::from_secs(60);
/// A quick look takes a file of this part.
const QUICK: u64 = 4;

/// The cells on hosts as well: link, file in MiB, goals.
const GEO: [(&str, u64, Goals); 4] = [
    ("p1.down-270", 512, [137.0, 139.0]),
    ("p1.down-400", 512, [135.0, 138.5]),
    ("p1.up-270", 64, [9.3, 9.38]),
    ("p1.up-400", 64, [9.3, 9.38]),
];

/// Round trip in ms; goals without loss and with 0.05 %; goals with 0.5 %.
const GIGABIT: [(u64, Goals, Goals); 3] = [
    (20, [932.0, 936.0], [928.0, 932.0]),
    (50, [919.0, 930.0], [914.0, 926.0]),
    (100, [902.0, 920.0], [897.0, 916.0]),
];

pub(super) fn cells(quick: bool) -> Vec<Box<dyn Cell>> {
    let mut files = Vec::new();
    for (rtt, clean, lossy) in GIGABIT {
        for (percent, goals) in [(0.0, clean), (0.05, clean), (0.5, lossy)] {
            let queue = Rate::mbit(1000).bdp(ms(rtt)).max(Bytes(1_500_000));
            let path = Path::alike(Rate::mbit(1000), ms(rtt), percent / 100.0, RateBase::Wire, queue);
            files.push(File::of(format!("gigabit-{rtt}-{percent}"), path, Bytes(500_000_000), goals));
        }
    }
    for (id, mib, goals) in GEO {
        let path = Scenario::find(id).map(Path::of).map_err(LabError::from);
        files.push(
            File::of(id.to_owned(), path, Bytes::mib(mib), goals)
                .map(|file| File { hosts: &[Host::Tcp, Host::Channel], ..file }),
        );
    }
    files.push(
        bit_errors()
            .and_then(|path| File::of("ber-1e-5".to_owned(), Ok(path), Bytes(250_000_000), [84.5, 86.5])),
    );
    if !quick {
        let queue = Rate::mbit(5000).bdp(ms(2287));
        let path = Path::alike(Rate::mbit(5000), ms(2287), 0.0, RateBase::Ip, queue);
        let all = File::of("moon".to_owned(), path, Bytes::ZERO, [4450.0, 4680.0]);
        files.push(all.map(|file| File { bytes: None, ..file }));
    }
    let cut = |file: File| File {
        bytes: file.bytes.map(|bytes| if quick { Bytes(bytes.0 / QUICK) } else { bytes }),
        ..file
    };
    let files = files.into_iter().map(|file| file.expect("the catalogue has these links"));
    files.map(|file| Box::new(cut(file)) as Box<dyn Cell>).collect()
}

/// Packets of 1000 bytes with bits that are wrong by chance.
fn bit_errors() -> Result<Path, LabError> {
    let rate = Rate::mbit(100);
    let queue = rate.bdp(ms(500));
    let (mss, headers) = (Bytes(955), Bytes(45));
    let lost = 1.0 - (1.0f64 - 1e-5).powf((mss + headers).bits() as f64);
    let path = Path::alike(rate, ms(500), lost, RateBase::Ip, queue)?;
    Ok(Path { mss, headers, ..path })
}

impl File {
    fn of(id: String, path: Result<Path, LabError>, whole: Bytes, goals: Goals) -> Result<File, LabError> {
        Ok(File { id, path: path?, bytes: Some(whole), whole, goals, hosts: &[Host::Tcp] })
    }

    /// The least time for so much, as this host cuts it into packets.
    fn least_time(&self, bytes: Bytes) -> f64 {
        bytes.bits() as f64 / self.path.arriving_rate().as_f64() + self.path.forward().one_way.as_secs_f64()
    }

    /// A shorter file may lose as much time against the floor as the whole one.
    fn goal(&self, start: StartMode) -> f64 {
        let goal = self.goals[usize::from(start != StartMode::Cold)] * 1e6;
        let Some(bytes) = self.bytes.filter(|bytes| *bytes != self.whole) else { return goal };
        let lost = self.whole.bits() as f64 / goal - self.least_time(self.whole);
        bytes.bits() as f64 / (self.least_time(bytes) + lost.max(0.0))
    }

    fn stop(&self) -> Time {
        let least = self.bytes.map(|bytes| Duration::from_secs_f64(self.least_time(bytes)));
        Time::ZERO + least.map_or(ENDLESS, |least| (least * PATIENCE).max(Duration::from_secs(60)))
    }

    fn tcp(&self, host: Host, who: &Contender, told: &Told, seed: u64) -> Result<(Run, Told), LabError> {
        let mut world = self.path.world(seed);
        let flow = self.path.flow(host, who, told, self.bytes)?;
        world.add(flow);
        let queues = watch::queues(&mut world, self.stop(), self.path.packet())?;
        let outcome = world.outcomes().pop().ok_or_else(|| LabError::Other("a flow is gone".to_owned()))?;
        let goodput = outcome.goodput(world.now()).as_f64();
        let run = Run {
            goodput,
            queue_p95: watch::p95(&queues),
            drops: world.forward().counters().queue_full.packets,
            values: vec![Some(goodput)],
        };
        let history = world.sender(0).and_then(|sender| sender.controller().history());
        Ok((run, Told { history, ..*told }))
    }
}

impl Cell for File {
    fn id(&self) -> &str {
        &self.id
    }

    fn about(&self) -> String {
        let forward = self.path.forward();
        let loss = share(self.path.loss()).percent();
        let size = self.bytes.map_or(format!("{} s", ENDLESS.as_secs()), |bytes| bytes.to_string());
        format!("{}, {} ms, {loss:.3} % loss, {size}", forward.rate, self.path.rtt().as_millis())
    }

    fn hosts(&self) -> &'static [Host] {
        self.hosts
    }

    fn cost(&self, host: Host) -> f64 {
        let rate = self.path.payload_rate();
        let packets = self.bytes.unwrap_or(rate.bytes_in(ENDLESS)).as_f64() / self.path.mss.as_f64();
        packets * if host == Host::Channel { channel::SECONDS_PER_PACKET } else { SECONDS_PER_PACKET }
    }

    fn floor(&self, _: Host) -> Rate {
        // The channel has the packets of the links on which it runs.
        match self.bytes {
            Some(bytes) => bytes.per(Duration::from_secs_f64(self.least_time(bytes))),
            None => {
                let late = self.path.forward().one_way.as_secs_f64() / ENDLESS.as_secs_f64();
                self.path.arriving_rate().scale(1.0 - late)
            }
        }
    }

    fn asks(&self, contender: &Contender) -> Vec<Ask> {
        vec![Ask::new(GOODPUT, Goal::AtLeast(self.goal(contender.start)))]
    }

    fn run(&self, host: Host, who: &Contender, seed: u64) -> Result<Run, LabError> {
        if host == Host::Channel {
            let bytes = self.bytes.unwrap_or(Bytes::ZERO);
            return channel::file(&self.path, who, bytes, self.stop(), seed);
        }
        if who.start != StartMode::Warm {
            return Ok(self.tcp(host, who, &Told::default(), seed)?.0);
        }
        // Warm is the second transfer of the same file, the first one's luck being another.
        let cold = Contender { start: StartMode::Cold, ..who.clone() };
        let (_, told) = self.tcp(host, &cold, &Told::default(), !seed)?;
        let who = if told.history.is_some() { who } else { &cold };
        Ok(self.tcp(host, who, &told, seed)?.0)
    }
}

/// A packet of the simulator's TCP and its share of an acknowledgment, on a core of 2024.
pub(super) const SECONDS_PER_PACKET: f64 = 1.5e-6;

/// A cell on hosts: id of the scenario, size of the file, and the goal of a start in bit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnHosts {
    /// Id of the scenario.
    pub scenario: &'static str,
    /// Size of the file.
    pub bytes: Bytes,
    goals: Goals,
}

impl OnHosts {
    /// What to reach, for a file of any size.
    ///
    /// # Errors
    /// When the catalogue lacks the scenario.
    pub fn goal(&self, start: StartMode, bytes: Bytes) -> Result<Goal, LabError> {
        let path = Path::of(Scenario::find(self.scenario)?);
        let file = File::of(self.scenario.to_owned(), Ok(path), self.bytes, self.goals)?;
        Ok(Goal::AtLeast(File { bytes: Some(bytes), ..file }.goal(start)))
    }
}

/// The cells of `skyhaul bench limits --on hosts`.
pub fn on_hosts() -> [OnHosts; 4] {
    GEO.map(|(scenario, mib, goals)| OnHosts { scenario, bytes: Bytes::mib(mib), goals })
}

//! Paper 001: five ways to carry TCP over a high-orbit satellite, and its TCP-QUIC proxy.
//!
//! The paper measured programs on machines. Its rates are repeated here in virtual time, as a check of the
//! model: schemes 1 to 4 by simulated TCP, the proxy by our real pair of ends, TLS included, over the same
//! links. What only machines can answer (processor time, fallback) says so.
//!
//! | scheme | in the paper | here |
//! |---|---|---|
//! | 0 | direct TCP | simulated TCP as Linux has it: 10 segments at first, an ACK for every second |
//! | 1 | larger first window, shorter timeout, both sides | 100 segments, 50 ms instead of 200 ms above the round trip |
//! | 2 | other kernels on both sides: CUBIC's C and β, BBR | C = 4, β = 0.9; BBR; BBR with 4 MiB of buffer |
//! | 3 | other kernel on the ground only | from orbit: CUBIC and an ACK for every segment; to orbit: Hybla, BBR |
//! | 4 | end-to-end TCP in a UDP tunnel with error correction | CUBIC in `skyhaul_sim::fec`, with and without repairs; NewReno without |
//! | 5 | TCP-QUIC proxy | `skyhaul_sim::tunnel` with several controllers |
//!
//! Differences: the paper says neither which controllers its direct TCP and its QUIC have nor how much its
//! tunnel repairs; FTP's dialogue is not simulated; the proxies' local TCP sessions are not either.

mod answers;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use skyhaul_cc::controllers::Cubic;
use skyhaul_cc::units::{Bytes, Duration, Share, Time};
use skyhaul_cc::{registry, Controller, Setup};
use skyhaul_sim::fec::{FecTunnel, Options, Order, Redundancy};
use skyhaul_sim::play::setup;
use skyhaul_sim::scenario::{Dir, Scenario, PAYLOAD_PER_PACKET};
use skyhaul_sim::tcp::{AckOptions, TcpOptions};
use skyhaul_sim::tunnel::{Pair, Plan, Transfer};
use skyhaul_sim::world::{Flow, World};

use crate::experiment::{self, Effort, LabError};
use crate::figure::{Axis, Chart, Figure, Point, Series, Spread, Style, Table, Unit, Value};
use crate::{Maker, Paper};

/// The paper.
pub const PAPER: Paper = Paper {
    name: "proxy",
    prefix: "p1",
    title: "TCP-QUIC-Based Data Transmission Approach for High Orbit Satellites",
    published_in: "Preprints 202508.0988",
    values: include_str!("../papers/proxy.csv"),
    makers: &[
        Maker { figures: &["schemes", "proxy"], make: rates },
        Maker { figures: &["machines"], make: answers::machines },
    ],
};

/// The paper's four links: from orbit at 150 Mbit/s and to orbit at 10 Mbit/s, 270 and 400 ms each way.
const LINKS: [&str; 4] = ["p1.down-270", "p1.up-270", "p1.down-400", "p1.up-400"];
/// Those on which all schemes are compared.
const COMPARED: [&str; 2] = ["p1.down-270", "p1.up-270"];
/// Controllers of the proxy, as far as they are registered: those that find the rate, and one that is
/// told it.
const IN_PROXY: [&str; 4] = ["bbr", "boost", "skyhaul", "rate"];
/// The one that answers for the paper's proxy: it needs to be told nothing and is in most QUIC libraries.
const PAPERS_PROXY: &str = "bbr";

/// A way to carry TCP.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Tcp(Tcp),
    /// This controller end to end in a tunnel of error correction.
    Tunnel(&'static str, Redundancy),
    /// The pair of proxies with this controller.
    Proxy(&'static str),
}

/// Settings of end-to-end TCP.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tcp {
    controller: &'static str,
    /// CUBIC's C and β, if they are not those of RFC 9438.
    shape: Option<(f64, f64)>,
    /// Segments.
    first_window: u64,
    /// The retransmission timeout above the smoothed round trip.
    margin: Duration,
    ack_every: u32,
    /// What may be under way at most.
    buffer: Option<Bytes>,
}

impl Tcp {
    fn plain(controller: &'static str) -> Tcp {
        let margin = TcpOptions::default().rto_margin;
        Tcp { controller, shape: None, first_window: 10, margin, ack_every: 2, buffer: None }
    }
}

/// A way with its name.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Contender {
    scheme: u64,
    name: &'static str,
    way: Way,
}

/// The ways that are compared on a link; the ground sends to orbit on `up`.
fn contenders(up: bool) -> Vec<Contender> {
    let tcp = |scheme, name, tcp| Contender { scheme, name, way: Way::Tcp(tcp) };
    let tuned = Tcp { first_window: 100, margin: Duration::from_millis(50), ..Tcp::plain("cubic") };
    let shaped = Tcp { shape: Some((4.0, 0.9)), ..Tcp::plain("cubic") };
    let mut all = vec![
        tcp(0, "direct, NewReno", Tcp::plain("newreno")),
        tcp(0, "direct, CUBIC", Tcp::plain("cubic")),
        tcp(1, "tuned, CUBIC", tuned),
        tcp(2, "both kernels, CUBIC C 4, β 0.9", shaped),
        tcp(2, "both kernels, BBR", Tcp::plain("bbr")),
        tcp(2, "both kernels, BBR, 4 MiB", Tcp { buffer: Some(Bytes::mib(4)), ..Tcp::plain("bbr") }),
    ];
    if up {
        all.push(tcp(3, "ground kernel, Hybla", Tcp::plain("hybla")));
        all.push(tcp(3, "ground kernel, BBR", Tcp::plain("bbr")));
    } else {
        all.push(tcp(3, "ground kernel, every ACK", Tcp { ack_every: 1, ..Tcp::plain("cubic") }));
    }
    let tunnel = |name, controller, redundancy| Contender {
        scheme: 4,
        name,
        way: Way::Tunnel(controller, redundancy),
    };
    let little = Redundancy::Fixed(Share::new(0.05).unwrap_or(Share::ZERO));
    all.push(tunnel("FEC tunnel, no repairs, NewReno", "newreno", Redundancy::Off));
    all.push(tunnel("FEC tunnel, no repairs", "cubic", Redundancy::Off));
    all.push(tunnel("FEC tunnel, 5 % fixed", "cubic", little));
    all.push(tunnel("FEC tunnel, adaptive", "cubic", Redundancy::default()));
    all
}

/// The proxy with each of its controllers.
fn proxies() -> impl Iterator<Item = Contender> {
    let known = IN_PROXY.into_iter().filter(|name| registry::names().any(|known| known == *name));
    known.map(|name| Contender { scheme: 5, name, way: Way::Proxy(name) })
}

/// A file on its way over a link.
#[derive(Clone, Debug)]
struct Job {
    link: &'static str,
    scenario: Scenario,
    contender: Contender,
    bytes: Bytes,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Run {
    /// File over time, or what had arrived when it was stopped, in bit/s.
    goodput: f64,
    complete: bool,
    /// IP packets on the link in the middle of the file, in bit/s.
    link_rate: Option<f64>,
    /// Repairs per packet, and packets lost in spite of them.
    repairs: Option<(f64, f64)>,
}

/// All runs by link, size and name.
type Runs = BTreeMap<(&'static str, Bytes, &'static str), Vec<Run>>;

impl Job {
    /// The greatest goodput of the file, in bit/s.
    fn limit(&self) -> f64 {
        self.scenario.limit_of(self.scenario.data(), self.bytes, PAYLOAD_PER_PACKET).as_f64()
    }

    /// The least time the file takes.
    fn floor(&self) -> Duration {
        Duration::from_secs_f64(self.bytes.bits() as f64 / self.limit())
    }

    /// Slow ways are stopped.
    fn patience(&self) -> Time {
        Time::ZERO + (self.floor() * STOPPED_AFTER).max(Duration::from_secs(60))
    }

    /// Seconds of a core, about.
    fn cost(&self) -> f64 {
        let gibibytes = self.bytes.as_f64() / Bytes::mib(1024).as_f64();
        match self.contender.way {
            Way::Proxy(_) => 10.0 * gibibytes,
            Way::Tunnel(_, Redundancy::Adaptive(_)) => 15.0 * gibibytes,
            Way::Tunnel(..) | Way::Tcp(_) => gibibytes,
        }
    }

    /// Seeds, fewer for costly runs; the paper repeats four times.
    fn seeds(&self, effort: &Effort<'_>) -> usize {
        let most = match self.cost() {
            cost if effort.quick && cost > 2.0 => 1,
            cost if cost > 6.0 || (cost > 2.0 && is_up(self.link)) => 2,
            cost if cost > 2.0 => 4,
            _ => u32::MAX,
        };
        effort.seeds.min(most) as usize
    }

    fn run(&self, seed: u64) -> Result<Run, LabError> {
        match self.contender.way {
            Way::Tcp(tcp) => self.tcp(tcp, None, seed),
            Way::Tunnel(controller, redundancy) => self.tcp(Tcp::plain(controller), Some(redundancy), seed),
            Way::Proxy(controller) => self.proxy(controller, seed),
        }
    }

    fn tcp(&self, tcp: Tcp, tunnel: Option<Redundancy>, seed: u64) -> Result<Run, LabError> {
        let mut options = TcpOptions { rto_margin: tcp.margin, ..TcpOptions::default() };
        let mut world = World::on(&self.scenario, self.scenario.data(), seed);
        if let Some(redundancy) = tunnel {
            options.mss = FecTunnel::mss(&options);
            let mut settings = Options::default();
            settings.encoder.redundancy = redundancy;
            // A full block's time: closed sooner, blocks of a slow link are short and their repairs many.
            let rate = self.scenario.direction(self.scenario.data()).rate;
            let block = rate.time_for(Bytes(FULL_PACKET * settings.encoder.block as u64));
            settings.encoder.time_limit = settings.encoder.time_limit.max(block);
            settings.decoder.order = Order::Hold(settings.encoder.time_limit + Duration::from_millis(50));
            world.carry(Box::new(FecTunnel::new(settings)));
        }
        let contender = tcp.controller.parse()?;
        let setup = Setup {
            mss: options.mss,
            initial_window: Bytes(options.mss.0 * tcp.first_window),
            ..setup(&self.scenario, &contender)
        };
        let controller: Box<dyn Controller> = match tcp.shape {
            Some((scale, kept)) => Box::new(Cubic::new(&setup).with_shape(scale, kept)),
            None => registry::build(tcp.controller, &setup)?,
        };
        let acks = AckOptions { every: tcp.ack_every, window: tcp.buffer, ..AckOptions::default() };
        world.add(Flow { tcp: options, acks, bytes: Some(self.bytes), ..Flow::new(controller) });
        world.run(self.patience())?;
        let outcome = world.outcomes().pop().ok_or_else(|| LabError::Other("a flow is gone".to_owned()))?;
        let repairs = world.carrier::<FecTunnel>().map(|tunnel| {
            let (sent, received) = (tunnel.sent(Dir::Forward), tunnel.received(Dir::Forward));
            let packets = sent.data.max(1) as f64;
            (sent.repairs as f64 / packets, received.lost as f64 / packets)
        });
        Ok(Run {
            goodput: outcome.goodput(world.now()).as_f64(),
            complete: outcome.finished.is_some(),
            link_rate: None,
            repairs,
        })
    }

    fn proxy(&self, controller: &'static str, seed: u64) -> Result<Run, LabError> {
        let data = self.scenario.data();
        let plan = Plan::new(&self.scenario, controller, seed)?;
        let mut pair = Pair::new(&self.scenario, plan, vec![Transfer::new(data, self.bytes.0)])
            .map_err(|error| LabError::Other(format!("{}: {error}", self.link)))?;
        // The hello takes two round trips at most; then the middle of the file is watched.
        let start = Time::ZERO + self.scenario.rtt() * 2;
        let watched = [MIDDLE.start, MIDDLE.end].map(|part| {
            pair.run(start + self.floor().mul_f64(part));
            (pair.now(), pair.counters(data).delivered.bytes)
        });
        pair.run(self.patience());
        let outcome = pair.outcomes()[0];
        if outcome.corrupt || outcome.reset.is_some() {
            return Err(LabError::Other(format!("{}, {controller}, seed {seed}: the file broke", self.link)));
        }
        let [(from, before), (to, after)] = watched;
        let time = outcome.opened.map_or(Duration::ZERO, |opened| pair.now().since(opened));
        let stopped = Bytes(outcome.delivered).per(time.max(Duration::from_nanos(1)));
        Ok(Run {
            goodput: outcome.goodput().unwrap_or(stopped).as_f64(),
            complete: outcome.finished.is_some(),
            link_rate: (to > from).then(|| after.saturating_sub(before).per(to.since(from)).as_f64()),
            repairs: None,
        })
    }
}

/// Sizes of the file on a link: first that with which ways are compared.
fn sizes(up: bool, quick: bool) -> Vec<Bytes> {
    match (up, quick) {
        (false, true) => vec![Bytes::mib(64), Bytes::mib(512)],
        (true, true) => vec![Bytes::mib(32)],
        (false, false) => vec![Bytes::mib(512), Bytes::mib(1024)],
        (true, false) => vec![Bytes::mib(512)],
    }
}

/// The size with which the paper's proxy is answered for: the paper's own, or what a quick look affords.
fn answering(up: bool, quick: bool) -> Bytes {
    if up {
        return sizes(up, quick)[0];
    }
    Bytes::mib(512)
}

fn is_up(link: &str) -> bool {
    link.starts_with("p1.up")
}

/// Runs everything.
fn runs(effort: &Effort<'_>) -> Result<Runs, LabError> {
    let mut jobs = Vec::new();
    for link in LINKS {
        let scenario = Scenario::find(link)?;
        let up = is_up(link);
        for (n, bytes) in sizes(up, effort.quick).into_iter().enumerate() {
            let mut all: Vec<Contender> = proxies().collect();
            if n > 0 && effort.quick {
                all.retain(|proxy| proxy.name == PAPERS_PROXY);
            }
            if n == 0 {
                // Direct TCP is needed everywhere, for the gain over it.
                all.extend(contenders(up).into_iter().filter(|c| COMPARED.contains(&link) || c.scheme == 0));
            }
            let job = |contender| Job { link, scenario: scenario.clone(), contender, bytes };
            jobs.extend(all.into_iter().map(job));
        }
    }
    let seeds = |job: &Job| effort.each_seed().take(job.seeds(effort)).collect::<Vec<_>>();
    let each: Vec<(&Job, u64)> =
        jobs.iter().flat_map(|job| seeds(job).into_iter().map(move |seed| (job, seed))).collect();
    let results = experiment::run(&each, effort, |(job, _)| job.cost(), |(job, seed)| job.run(*seed));
    let mut runs = Runs::new();
    for ((job, _), result) in each.into_iter().zip(results) {
        runs.entry((job.link, job.bytes, job.contender.name)).or_default().push(result?);
    }
    Ok(runs)
}

/// Goodput of each seed.
fn goodputs(runs: &Runs, link: &'static str, bytes: Bytes, name: &'static str) -> Vec<f64> {
    runs.get(&(link, bytes, name)).into_iter().flatten().map(|run| run.goodput).collect()
}

fn rates(effort: &Effort<'_>) -> Result<Vec<Figure>, LabError> {
    let runs = runs(effort)?;
    let mut schemes = schemes(&runs, effort)?;
    let mut proxy = proxy(&runs, effort)?;
    answers::rates(&runs, effort, &mut schemes, &mut proxy)?;
    if effort.quick {
        let note = "A quick look: files of 64 MiB and 32 MiB instead of 512 MiB and 1 GiB, so the start \
                    weighs eight times as much and more; only what answers for the paper's proxy sends 512 MiB, \
                    once.";
        schemes.notes.push(note.to_owned());
        proxy.notes.push(note.to_owned());
    }
    Ok(vec![schemes, proxy])
}

/// The five schemes.
fn schemes(runs: &Runs, effort: &Effort<'_>) -> Result<Figure, LabError> {
    let mut figure = Figure::new("schemes", "Five ways to carry TCP over a geostationary satellite");
    let mut bars = Vec::new();
    let mut names: Vec<&'static str> = Vec::new();
    for link in COMPARED {
        let scenario = Scenario::find(link)?;
        let up = is_up(link);
        let bytes = sizes(up, effort.quick)[0];
        let limit = scenario.limit_of(scenario.data(), bytes, PAYLOAD_PER_PACKET).as_f64();
        let mut table = Table::new(
            format!("{}, file of {bytes}", scenario.title),
            &[
                ("scheme", Unit::None),
                ("way", Unit::None),
                ("goodput", Unit::Rate),
                ("of the limit", Unit::Percent),
                ("repairs per packet", Unit::Percent),
                ("still lost", Unit::Percent),
                ("", Unit::None),
            ],
        );
        let mut points = Vec::new();
        for contender in contenders(up).into_iter().chain(proxies()) {
            let Some(runs) = runs.get(&(link, bytes, contender.name)) else { continue };
            let goodput = Spread::of(&runs.iter().map(|run| run.goodput).collect::<Vec<_>>());
            let mean = |of: fn(&(f64, f64)) -> f64| -> Value {
                let values: Vec<f64> = runs.iter().filter_map(|run| run.repairs.as_ref().map(of)).collect();
                if values.is_empty() {
                    Value::Empty
                } else {
                    Spread::of(&values).mean.into()
                }
            };
            let name = shown(&contender);
            let stopped = if runs.iter().all(|run| run.complete) { "" } else { "stopped" };
            table.row(vec![
                contender.scheme.into(),
                name.clone().into(),
                goodput.into(),
                (goodput.mean / limit).into(),
                mean(|repairs| repairs.0),
                mean(|repairs| repairs.1),
                stopped.into(),
            ]);
            let x = match names.iter().position(|known| *known == contender.name) {
                Some(x) => x,
                None => {
                    names.push(contender.name);
                    names.len() - 1
                }
            };
            let interval =
                (goodput.runs > 1).then(|| (Unit::Rate.shown(goodput.low), Unit::Rate.shown(goodput.high)));
            points.push(Point { x: x as f64, y: Unit::Rate.shown(goodput.mean), interval });
        }
        figure.tables.push(table);
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        bars.push(Series { name: scenario.title.clone(), points, style: Style::Bars });
    }
    figure.charts.push(Chart {
        title: "Goodput of five schemes".to_owned(),
        x: Axis::names("", names.iter().copied()),
        y: Axis::log("goodput, Mbit/s"),
        series: bars,
    });
    figure.notes.push(format!(
        "Slow ways are stopped after {STOPPED_AFTER} times the time the link needs, 60 s at least, and judged by what \
         has arrived."
    ));
    Ok(figure)
}

/// Name in tables.
fn shown(contender: &Contender) -> String {
    match contender.way {
        Way::Proxy("rate") => "proxy, told the rate".to_owned(),
        Way::Proxy(name) => format!("proxy, {name}"),
        _ => contender.name.to_owned(),
    }
}

/// The proxy on the four links.
fn proxy(runs: &Runs, effort: &Effort<'_>) -> Result<Figure, LabError> {
    let mut figure = Figure::new("proxy", "The TCP-QUIC proxy on the paper's four links");
    let mut table = Table::new(
        "Files through the channel, from opening to the last byte",
        &[
            ("link", Unit::None),
            ("file", Unit::Megabytes),
            ("controller", Unit::None),
            ("goodput", Unit::Rate),
            ("of the limit", Unit::Percent),
            ("on the link, midway", Unit::Rate),
            ("over direct CUBIC", Unit::Ratio),
        ],
    );
    for link in LINKS {
        let scenario = Scenario::find(link)?;
        let sizes = sizes(is_up(link), effort.quick);
        let direct = goodputs(runs, link, sizes[0], "direct, CUBIC");
        for bytes in sizes {
            let limit = scenario.limit_of(scenario.data(), bytes, PAYLOAD_PER_PACKET).as_f64();
            for contender in proxies() {
                let Some(runs) = runs.get(&(link, bytes, contender.name)) else { continue };
                let all: Vec<f64> = runs.iter().map(|run| run.goodput).collect();
                let on_link: Vec<f64> = runs.iter().filter_map(|run| run.link_rate).collect();
                let goodput = Spread::of(&all);
                let on_link =
                    if on_link.is_empty() { Value::Empty } else { Spread::of(&on_link).mean.into() };
                table.row(vec![
                    link.into(),
                    bytes.as_f64().into(),
                    contender.name.into(),
                    goodput.into(),
                    (goodput.mean / limit).into(),
                    on_link,
                    Spread::of_ratios(&all, &direct).mean.into(),
                ]);
            }
        }
    }
    figure.tables.push(table);
    figure.notes.push(
        "The goodput is that of the whole file, its start included; the paper's figures are rates on the link while \
         a file is under way. The channel is up before the file begins, as it is when a proxy runs. The limit counts \
         1433 bytes of a file per packet; the channel's shortest headers leave room for a few more."
            .to_owned(),
    );
    Ok(figure)
}

/// IP bytes of a packet of the tunnel.
const FULL_PACKET: u64 = 1500;
/// Slow ways are stopped after so many times the least possible time.
const STOPPED_AFTER: u32 = 4;
/// The part of the least possible time in which the link is watched.
const MIDDLE: std::ops::Range<f64> = 0.6..0.9;

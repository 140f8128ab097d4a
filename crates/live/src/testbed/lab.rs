//! One run: hosts, link, scheme and workload put together, and the row that comes out.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use skyhaul_cc::registry::StartMode;
use skyhaul_cc::units::{Bytes, Rate};
use skyhaul_sim::link::Cause;
use skyhaul_sim::scenario::{Dir, Figure, Scenario};

use super::files::{Scratch, Source};
use super::http::Object;
use super::iperf::Stream;
use super::measure::{processor, Machine, Segments, Usage};
use super::pair::{Pair, PairUsage};
use super::row::Row;
use super::scheme::{Control, Scheme};
use super::servers::{find, Shop};
use super::settings::Settings;
use super::transfer::{Ending, Outcome};
use super::workload::{FtpMode, Job};
use super::{ftp, http, iperf, Ends, LabError, Progress, Watch};
use crate::emulate::{Emulator, Hosts, Report, DEVICE, GATEWAY, SERVER, TERMINAL};
use crate::kernel::Installed;
use crate::netns::Namespace;

/// What lies between terminal and gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The emulated link of the scenario.
    Hosts,
    /// A cable without delay, loss or rate: what the programs themselves cost.
    Cable,
}

impl On {
    /// As given to `--on` and in results.
    pub fn name(self) -> &'static str {
        match self {
            On::Hosts => "hosts",
            On::Cable => "cable",
        }
    }
}

/// What to do in a run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The testbed.
    pub on: On,
    /// The link.
    pub scenario: &'a Scenario,
    /// Who carries the bytes.
    pub scheme: &'a Scheme,
    /// What client and server do.
    pub job: Job,
    /// Size of the file.
    pub bytes: Bytes,
    /// Decides the luck of the packets and the content of the file.
    pub seed: u64,
    /// Counts the repetitions of one command from 1.
    pub repetition: u32,
    /// Transfers are stopped after this time; iperf3 sends for this time.
    pub limit: Duration,
}

/// A place for runs. Every run gets hosts, link, servers and proxies of its own.
#[derive(Debug)]
pub struct Lab {
    source: Option<(Source, u64)>,
    scratch: Scratch,
}

impl Lab {
    /// Prepares for files of up to `bytes`. Call it before threads are started, after
    /// [`crate::netns::ensure_privileged`].
    ///
    /// # Errors
    /// When there is no place for the files.
    pub fn new(bytes: Bytes) -> Result<Lab, LabError> {
        // The source and what arrives of it.
        Ok(Lab { source: None, scratch: Scratch::new(Bytes(bytes.0.saturating_mul(2)))? })
    }

    /// Makes sure that the programs of a job are there.
    ///
    /// # Errors
    /// When one is missing; the message names its package.
    pub fn check(job: Job) -> Result<(), LabError> {
        let needed: &[(&str, &str)] = match job {
            Job::FtpUpload | Job::FtpDownload | Job::FtpUploadActive | Job::FtpDownloadActive => {
                &[("curl", "curl"), ("vsftpd", "vsftpd")]
            }
            Job::HttpDownload | Job::HttpObjects => &[("curl", "curl"), ("nginx", "nginx")],
            Job::Iperf3 | Job::Iperf3Download => &[("iperf3", "iperf3")],
        };
        needed.iter().try_for_each(|(program, package)| find(program, package).map(drop))
    }

    /// Carries out a run; once more if the emulator could not keep up. Objects give one row for each size, all else
    /// gives one.
    ///
    /// # Errors
    /// When the run could not be carried out. A transfer that fails is a row that says so.
    pub fn run(&mut self, run: &Run<'_>, watch: Watch<'_>) -> Result<Vec<Row>, LabError> {
        let rows = self.attempt(run, watch)?;
        match rows.iter().find(|row| !row.valid) {
            None => Ok(rows),
            Some(row) => {
                let reason = row.invalid_reason.as_deref().unwrap_or_default();
                tracing::info!("{}: invalid run ({reason}), repeated once", run.scheme);
                self.attempt(run, watch)
            }
        }
    }

    fn attempt(&mut self, run: &Run<'_>, watch: Watch<'_>) -> Result<Vec<Row>, LabError> {
        watch(Progress::SettingUp);
        // Registered before a route names it, and until the last connection has ended.
        let _laws = register(run.scheme)?;
        let hosts = Hosts::new()?;
        let data = run.job.data();
        let settings = Settings::of(run.scheme, data);
        settings.apply(&hosts)?;
        let dir = self.scratch.path().join("run");
        let _ = std::fs::remove_dir_all(&dir);
        let shop = Shop::new(&dir)?;
        let link = match run.on {
            On::Hosts => Some(hosts.link(run.scenario, run.seed)?),
            On::Cable => {
                lay_cable(&hosts)?;
                None
            }
        };
        let pair_dir = dir.join("pair");
        let pair = match run.scheme {
            Scheme::Skyhaul(contender) => Some(Pair::start(&hosts, run.scenario, contender, &pair_dir)?),
            Scheme::FecTunnel(repair) => Some(Pair::fec_tunnel(&hosts, run.scenario, *repair, &pair_dir)?),
            Scheme::PepSplit(control, boxes) => {
                Some(Pair::splitters(&hosts, *control, *boxes, data, &pair_dir)?)
            }
            Scheme::Direct(_)
            | Scheme::Tuned
            | Scheme::KernelBoth(_)
            | Scheme::KernelOne(..)
            | Scheme::KernelFeedback => None,
        };
        let ends = Ends { client: &hosts.client, server: &hosts.server, address: IpAddr::V4(SERVER.0) };
        if matches!(run.scheme, Scheme::Skyhaul(contender) if contender.start == StartMode::Warm) {
            self.warm_up(run, &ends, &shop)?;
        }
        if let Some(link) = &link {
            link.restart_clock();
        }
        let sender = sender(&hosts, run.scheme, data);
        let gauge = || {
            let usage = pair.as_ref().map(|pair| pair.usage(data)).unwrap_or_default();
            (usage, Machine::now(), Segments::of(sender))
        };
        let before = gauge();
        let done = self.work(run, &ends, &shop, watch)?;
        let after = gauge();
        let report = link.as_ref().map(Emulator::report).unwrap_or_default();
        let used = Used {
            programs: after.0.since(before.0),
            machine: after.1.zip(before.1).map(|(after, before)| after.since(before)),
            segments: after.2.zip(before.2).map(|(after, before)| after.since(before)),
        };
        let death = pair.and_then(Pair::end);
        watch(Progress::Checking);
        let intact = match &done {
            Done::File { outcome, source, received } => {
                Some(source.matches(received, outcome.ending == Ending::Complete)?)
            }
            Done::Objects(_) | Done::Stream(_) => None,
        };
        let _ = std::fs::remove_dir_all(&dir);
        tracing::debug!("{}: the link\n{report}", run.scheme);
        let mut frame = frame(run, &report, &used);
        frame.settings = Some(settings.to_string());
        frame.error = death;
        Ok(rows(run, &frame, done, intact))
    }

    fn work(
        &mut self,
        run: &Run<'_>,
        ends: &Ends<'_>,
        shop: &Shop,
        watch: Watch<'_>,
    ) -> Result<Done, LabError> {
        let limit = run.limit;
        match run.job {
            Job::HttpObjects => Ok(Done::Objects(http::objects(ends, shop, run.seed, limit, watch)?)),
            Job::Iperf3 | Job::Iperf3Download => {
                Ok(Done::Stream(iperf::stream(ends, shop, run.job.data(), limit, watch)?))
            }
            job => {
                let source = self.source(run.bytes, run.seed)?;
                let (outcome, received) = transfer(job, ends, shop, &source, limit, watch)?;
                Ok(Done::File { outcome, source, received })
            }
        }
    }

    /// A file before the one that counts, over the same channel: what the ends then know of the path is what they have
    /// found out themselves.
    fn warm_up(&mut self, run: &Run<'_>, ends: &Ends<'_>, shop: &Shop) -> Result<(), LabError> {
        let bytes = run.bytes.min(WARM_UP);
        let source = Source::create(self.scratch.path().join("before.bin"), bytes, run.seed)?;
        let job = match run.job.data() {
            Dir::Forward => Job::FtpUploadActive,
            Dir::Back => Job::FtpDownloadActive,
        };
        let (outcome, _) = transfer(job, ends, shop, &source, run.limit, &mut |_| {})?;
        match outcome.ending {
            Ending::Complete => Ok(()),
            ending => Err(LabError::WarmUp { what: format!("{ending:?}") }),
        }
    }

    /// The source file, made anew only for another size or seed.
    fn source(&mut self, bytes: Bytes, seed: u64) -> Result<Source, LabError> {
        match &self.source {
            Some((source, of)) if source.bytes == bytes && *of == seed => Ok(source.clone()),
            _ => {
                let source = Source::create(self.scratch.path().join("source.bin"), bytes, seed)?;
                self.source = Some((source.clone(), seed));
                Ok(source)
            }
        }
    }
}

/// What the workload left behind.
enum Done {
    File { outcome: Outcome, source: Source, received: PathBuf },
    Objects(Vec<Object>),
    Stream(Stream),
}

/// One file by FTP or HTTP: what happened, and where it was received.
pub(super) fn transfer(
    job: Job,
    ends: &Ends<'_>,
    shop: &Shop,
    source: &Source,
    limit: Duration,
    watch: Watch<'_>,
) -> Result<(Outcome, PathBuf), LabError> {
    let name = source.path.file_name().unwrap_or_default();
    let shown = Source { path: shop.root.join(name), ..source.clone() };
    std::fs::hard_link(&source.path, &shown.path)
        .map_err(|e| LabError::io("make the link", &shown.path, e))?;
    match job {
        Job::FtpUpload => ftp::upload(ends, shop, &shown, FtpMode::Passive, limit, watch),
        Job::FtpUploadActive => ftp::upload(ends, shop, &shown, FtpMode::Active, limit, watch),
        Job::FtpDownload => ftp::download(ends, shop, &shown, FtpMode::Passive, limit, watch),
        Job::FtpDownloadActive => ftp::download(ends, shop, &shown, FtpMode::Active, limit, watch),
        _ => Ok(http::download(ends, shop, &shown, limit, watch)?),
    }
}

/// Size of the file before the one that counts: at 150 Mbit/s it is some round trips long.
const WARM_UP: Bytes = Bytes::mib(32);
/// Transfers shorter than that have no second half: bytes that waited behind a gap would pass for its rate.
const STEADY_ROUND_TRIPS: u32 = 20;

/// What a run has cost.
struct Used {
    programs: PairUsage,
    machine: Option<Machine>,
    segments: Option<Segments>,
}

impl Used {
    /// Packets that were sent again, and all that were sent; `offered` is what the link got.
    fn repeated(&self, scheme: &Scheme, offered: u64) -> Option<(u64, u64)> {
        let Segments { sent, repeated } = self.segments?;
        match scheme {
            Scheme::Skyhaul(_) => self.programs.lost_of,
            // A splitter's host also sends ACKs to its side of the link, which tell nothing about the link.
            Scheme::PepSplit(..) if offered > 0 => Some((repeated, offered)),
            _ => Some((repeated, sent + repeated)),
        }
    }
}

/// The host whose TCP sends the payload into the link.
fn sender<'a>(hosts: &'a Hosts, scheme: &Scheme, data: Dir) -> &'a Namespace {
    match (matches!(scheme, Scheme::PepSplit(..)), data) {
        (false, Dir::Forward) => &hosts.client,
        (false, Dir::Back) => &hosts.server,
        (true, Dir::Forward) => &hosts.terminal,
        (true, Dir::Back) => &hosts.gateway,
    }
}

/// Registers the control of a scheme with the kernel, if it is one of ours, until the result is dropped.
fn register(scheme: &Scheme) -> Result<Option<Installed>, LabError> {
    let Some(Control::Ours(law)) = scheme.control() else { return Ok(None) };
    let installed = Installed::temporarily(&[law]);
    installed.map(Some).map_err(|why| LabError::NoLaw { algorithm: law.algorithm(), why })
}

/// Joins terminal and gateway as [`Hosts::link`] does, without a link in between.
fn lay_cable(hosts: &Hosts) -> Result<(), LabError> {
    let (terminal, gateway) = (&hosts.terminal, &hosts.gateway);
    Namespace::veth(terminal, DEVICE, gateway, DEVICE)?;
    for (host, own, peer, beyond) in [(terminal, TERMINAL, GATEWAY, 2), (gateway, GATEWAY, TERMINAL, 1)] {
        host.ip(&format!("link set {DEVICE} up"))?;
        host.ip(&format!("address add {}/30 dev {DEVICE}", own.0))?;
        host.ip(&format!("-6 address add {}/64 nodad dev {DEVICE}", own.1))?;
        host.ip(&format!("route add 10.77.{beyond}.0/24 via {}", peer.0))?;
        host.ip(&format!("-6 route add fd77:{beyond}::/64 via {}", peer.1))?;
    }
    Ok(())
}

/// The columns that do not depend on the workload's result; the others hold zero or nothing.
fn frame(run: &Run<'_>, report: &Report, used: &Used) -> Row {
    let way = match run.job.data() {
        Dir::Forward => &report.forward,
        Dir::Back => &report.back,
    };
    let invalid = report.invalid();
    let lost = |cause| way.link.dropped(cause).packets;
    let (published, relation) = published(run);
    let offered = (run.on == On::Hosts).then_some(way.link.offered);
    let repeated = used.repeated(run.scheme, offered.map_or(0, |offered| offered.packets));
    let PairUsage { terminal, gateway, .. } = used.programs;
    let cpu = |usage: Option<Usage>| usage.map(|usage| usage.cpu.as_secs_f64());
    Row {
        scenario: run.scenario.id.clone(),
        on: run.on.name().to_owned(),
        scheme: run.scheme.to_string(),
        workload: run.job.name().to_owned(),
        algorithm: run.scheme.algorithm().to_owned(),
        buffers: run.scheme.buffers().to_owned(),
        bytes: run.bytes.0,
        received_bytes: 0,
        complete: false,
        seconds: 0.0,
        goodput_bit_per_s: 0.0,
        limit_bit_per_s: None,
        fraction_of_limit: None,
        second_half_bit_per_s: None,
        extrapolated_seconds: None,
        integrity_ok: None,
        valid: invalid.is_none(),
        invalid_reason: invalid,
        error: None,
        seed: run.seed,
        repetition: run.repetition,
        setup_seconds: None,
        command_seconds: 0.0,
        first_byte_seconds: None,
        fetches: None,
        terminal_cpu_seconds: cpu(terminal),
        gateway_cpu_seconds: cpu(gateway),
        cpu_seconds_per_gb: None,
        terminal_peak_bytes: terminal.map(|usage| usage.peak_bytes),
        gateway_peak_bytes: gateway.map(|usage| usage.peak_bytes),
        link_lost_packets: Cause::ALL.into_iter().filter(|cause| *cause != Cause::QueueFull).map(lost).sum(),
        queue_dropped_packets: lost(Cause::QueueFull),
        published_bit_per_s: published,
        published_relation: relation,
        settings: None,
        unavailable: None,
        processor: Some(processor()),
        processors: used.machine.map(|machine| machine.processors),
        terminal_cpu_share: None,
        gateway_cpu_share: None,
        machine_cpu_seconds: used.machine.map(|machine| machine.busy.as_secs_f64()),
        machine_cpu_seconds_per_gb: None,
        retransmitted_packets: repeated.map(|(repeated, _)| repeated),
        retransmitted_share: repeated
            .filter(|(_, sent)| *sent > 0)
            .map(|(repeated, sent)| repeated as f64 / sent as f64),
        link_offered_bytes: offered.map(|offered| offered.bytes.0),
    }
}

/// The row of a scheme that this machine cannot try.
pub fn unavailable(run: &Run<'_>, why: &LabError) -> Row {
    let used = Used { programs: PairUsage::default(), machine: None, segments: None };
    let frame = frame(run, &Report::default(), &used);
    Row { unavailable: Some(why.to_string()), valid: true, invalid_reason: None, ..frame }
}

/// The first rate that was printed about the scenario, if this is the scenario's own workload.
fn published(run: &Run<'_>) -> (Option<f64>, Option<String>) {
    if run.on != On::Hosts || run.job != Job::from(run.scenario.workload.kind) {
        return (None, None);
    }
    let rate = run.scenario.published.iter().find_map(|published| match published.figure {
        Figure::Goodput(rate) | Figure::LinkRate(rate) => Some((rate, published.relation)),
        _ => None,
    });
    rate.map(|(rate, relation)| (rate.as_f64(), relation.name().to_owned())).unzip()
}

fn rows(run: &Run<'_>, frame: &Row, done: Done, intact: Option<bool>) -> Vec<Row> {
    match done {
        Done::File { outcome, .. } => vec![file_row(run, frame, &outcome, intact)],
        Done::Stream(stream) => vec![stream_row(run, frame, stream)],
        Done::Objects(objects) => {
            let rows = objects.into_iter().map(|object| object_row(run, frame, object));
            let mut rows: Vec<Row> = rows.collect();
            // Processor time is that of all sizes and repetitions together: told once, and for no size in particular.
            for (index, row) in rows.iter_mut().enumerate() {
                (row.cpu_seconds_per_gb, row.machine_cpu_seconds_per_gb) = (None, None);
                (row.terminal_cpu_share, row.gateway_cpu_share) = (None, None);
                if index > 0 {
                    (row.terminal_cpu_seconds, row.gateway_cpu_seconds) = (None, None);
                    row.machine_cpu_seconds = None;
                }
            }
            rows
        }
    }
}

fn file_row(run: &Run<'_>, frame: &Row, outcome: &Outcome, intact: Option<bool>) -> Row {
    let time = outcome.last_byte.saturating_sub(outcome.opened.unwrap_or_default());
    let mut row = Row {
        received_bytes: outcome.received.0,
        complete: outcome.ending == Ending::Complete,
        integrity_ok: intact,
        setup_seconds: outcome.opened.map(|opened| opened.as_secs_f64()),
        command_seconds: outcome.command.as_secs_f64(),
        ..frame.clone()
    };
    if let Ending::Failed(reason) = &outcome.ending {
        row.error.get_or_insert_with(|| reason.clone());
    }
    row.measure(time, link_limit(run, limit(run, run.bytes)));
    let steady = time >= run.scenario.rtt() * STEADY_ROUND_TRIPS;
    row.second_half_bit_per_s = outcome.second_half.filter(|_| steady).map(Rate::as_f64);
    if outcome.ending == Ending::Stopped {
        let mean = Rate::from_f64(row.goodput_bit_per_s);
        let rate = outcome.second_half.or(Some(mean)).filter(|rate| *rate > Rate::ZERO);
        let rest = run.bytes.saturating_sub(outcome.received);
        row.extrapolated_seconds = rate.map(|rate| time.saturating_add(rate.time_for(rest)).as_secs_f64());
    }
    row
}

fn stream_row(run: &Run<'_>, frame: &Row, stream: Stream) -> Row {
    let mut row = Row {
        bytes: stream.received.0,
        received_bytes: stream.received.0,
        complete: stream.error.is_none(),
        command_seconds: stream.command.as_secs_f64(),
        ..frame.clone()
    };
    row.error = row.error.or(stream.error);
    // There is no last byte to wait for: what counts is the payload rate.
    let limit = run.scenario.payload_limit(run.job.data(), run.scheme.payload_of_1500());
    row.measure(stream.time, link_limit(run, limit));
    row
}

fn object_row(run: &Run<'_>, frame: &Row, object: Object) -> Row {
    let mut row = Row {
        bytes: object.bytes.0,
        received_bytes: if object.fetched > 0 { object.bytes.0 } else { 0 },
        complete: object.error.is_none(),
        integrity_ok: Some(object.intact),
        command_seconds: object.command.as_secs_f64(),
        first_byte_seconds: Some(object.first_byte.as_secs_f64()),
        fetches: Some(object.fetched),
        ..frame.clone()
    };
    row.error = row.error.or(object.error);
    // The request must cross the link, too.
    let request = run.scenario.direction(run.job.data().opposite()).one_way;
    let answer = limit(run, object.bytes).time_for(object.bytes);
    row.measure(object.total, link_limit(run, object.bytes.per(request.saturating_add(answer))));
    row
}

/// The limit, if there is a link that sets one.
fn link_limit(run: &Run<'_>, limit: Rate) -> Option<Rate> {
    (run.on == On::Hosts).then_some(limit)
}

/// The greatest goodput of a file of this size.
fn limit(run: &Run<'_>, bytes: Bytes) -> Rate {
    let limit = run.scenario.limit_of(run.job.data(), bytes, run.scheme.payload_of_1500());
    match run.job {
        // The clock runs from the moment at which the client has the server's connection, and data can be right behind.
        Job::FtpDownloadActive => {
            let travel = run.scenario.direction(run.job.data()).one_way;
            bytes.per(limit.time_for(bytes).saturating_sub(travel))
        }
        _ => limit,
    }
}

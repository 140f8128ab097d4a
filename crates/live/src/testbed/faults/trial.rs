//! One fault in the middle of one transfer.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use skyhaul_cc::units::{Bytes, Rate};
use skyhaul_sim::scenario::{Dir, Scenario};

use super::list::{Fault, Kind};
use super::Row;
use crate::emulate::{Disturbance, Emulator, Hosts, DEVICE, SERVER, TERMINAL};
use crate::netns::Namespace;
use crate::testbed::files::{Scratch, Source};
use crate::testbed::lab::transfer;
use crate::testbed::pair::{Pair, Which, PORT};
use crate::testbed::servers::{Server, Shop};
use crate::testbed::transfer::Ending;
use crate::testbed::workload::Job;
use crate::testbed::{Ends, LabError, Progress};

/// What became of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every byte arrived, and no other.
    Intact,
    /// It failed, what had arrived was right, and the client knows.
    Told,
    /// It stood still until the trial ended.
    Stuck,
    /// Something was taken for delivered that was not.
    Lost,
}

impl Verdict {
    /// As in results.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Intact => "intact",
            Verdict::Told => "told",
            Verdict::Stuck => "stuck",
            Verdict::Lost => "LOST",
        }
    }
}

/// Where trials are made: the files they share. Several may run at once, each with hosts of its own.
#[derive(Debug)]
pub struct Place {
    scratch: Scratch,
    source: Source,
    scenario: Scenario,
}

impl Place {
    /// Prepares a file of `bytes` for trials over `scenario`, `jobs` of them at once. Call it before threads are
    /// started, after [`crate::netns::ensure_privileged`].
    ///
    /// # Errors
    /// When there is no place for the files.
    pub fn new(scenario: Scenario, bytes: Bytes, jobs: u64) -> Result<Place, LabError> {
        let scratch = Scratch::new(Bytes(bytes.0.saturating_mul(jobs + 1)))?;
        let source = Source::create(scratch.path().join("source.bin"), bytes, 1)?;
        Ok(Place { scratch, source, scenario })
    }

    /// Carries a trial out.
    ///
    /// # Errors
    /// When hosts, servers or the pair cannot be set up, or the fault cannot be made.
    pub fn run(&self, fault: &Fault) -> Result<Row, LabError> {
        let dir = self.scratch.path().join(fault.name);
        let _ = std::fs::remove_dir_all(&dir);
        let row = self.attempt(fault, &dir);
        let _ = std::fs::remove_dir_all(&dir);
        row
    }

    fn attempt(&self, fault: &Fault, dir: &Path) -> Result<Row, LabError> {
        let hosts = Hosts::new()?;
        let shop = Shop::new(dir)?;
        let link = hosts.link(&self.scenario, 1)?;
        let contender = "skyhaul".parse().expect("it is a registered controller");
        let pair = Pair::start(&hosts, &self.scenario, &contender, &dir.join("pair"))?;
        let ends = Ends { client: &hosts.client, server: &hosts.server, address: IpAddr::V4(SERVER.0) };
        // A server of its own, which is there when the transfer is over.
        let objects = Shop::new(&dir.join("objects"))?;
        let path = objects.root.join("object.bin");
        std::fs::write(&path, [b'x'; OBJECT]).map_err(|e| LabError::io("write", &path, e))?;
        let _web = Server::nginx(ends.server, SocketAddr::new(ends.address, WEB), &objects)?;
        let job = match fault.way {
            Dir::Forward => Job::FtpUpload,
            Dir::Back => Job::HttpDownload,
        };
        let mut trial = Trial {
            fault,
            hosts: &hosts,
            link: &link,
            pair,
            samples: Vec::new(),
            began: None,
            ended: None,
            detected: None,
            logs: [0; 2],
            connections: Arc::default(),
            failure: None,
        };
        let limit = CALM + fault.lasts.unwrap_or_default() + PATIENCE;
        let start = Instant::now();
        let outcome = transfer(job, &ends, &shop, &self.source, limit, &mut |progress| {
            trial.watch(progress, &hosts.client)
        });
        trial.wait_for_a_connection();
        if let Some(failure) = trial.failure.take() {
            return Err(failure);
        }
        let (outcome, received) = outcome?;
        // What was sent may still be on its way to the receiver's disk.
        thread::sleep(SETTLE);
        let after = Instant::now();
        trial.note_words(after);
        tracing::debug!(
            "{}: terminal:\n{}\ngateway:\n{}",
            fault.name,
            trial.pair.said(Which::Terminal),
            trial.pair.said(Which::Gateway)
        );
        let intact = self.source.matches(&received, outcome.ending == Ending::Complete)?;
        let verdict = match (&outcome.ending, intact) {
            (_, false) => Verdict::Lost,
            (Ending::Complete, true) => Verdict::Intact,
            (Ending::Failed(_), true) => Verdict::Told,
            (Ending::Stopped, true) => Verdict::Stuck,
        };
        tracing::debug!("{}: {:?}", fault.name, outcome);
        Ok(trial.row(verdict, &outcome.ending, start + outcome.last_byte, outcome.received, job))
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    received: Bytes,
}

struct Trial<'a> {
    fault: &'a Fault,
    hosts: &'a Hosts,
    link: &'a Emulator,
    pair: Pair,
    samples: Vec<Sample>,
    began: Option<Instant>,
    ended: Option<Instant>,
    /// The first word in a log after the fault.
    detected: Option<(Instant, String)>,
    /// How much of each log was there when the fault began.
    logs: [usize; 2],
    connections: Arc<Connections>,
    failure: Option<LabError>,
}

/// New connections while the fault lasts.
#[derive(Debug, Default)]
struct Connections {
    /// When each began that brought its object.
    good: Mutex<Vec<Instant>>,
    over: AtomicBool,
}

impl Connections {
    /// The first that brought its object.
    fn first(&self) -> Option<Instant> {
        self.good.lock().unwrap_or_else(PoisonError::into_inner).iter().min().copied()
    }
}

impl Trial<'_> {
    /// Called ten times a second.
    fn watch(&mut self, progress: Progress, client: &Namespace) {
        let Progress::Moving { received, total, .. } = progress else { return };
        let now = Instant::now();
        self.samples.push(Sample { at: now, received });
        let done = match (self.began, self.ended) {
            (None, _) if received.0 >= total.0 / 4 => {
                self.logs = [Which::Terminal, Which::Gateway].map(|which| self.pair.said(which).len());
                self.began = Some(now);
                knock(client.clone(), Arc::clone(&self.connections), now);
                self.begin()
            }
            (Some(began), None) if self.fault.lasts.is_some_and(|time| now >= began + time) => {
                self.ended = Some(now);
                self.end()
            }
            _ => Ok(()),
        };
        if let Err(failure) = done {
            self.failure.get_or_insert(failure);
        }
        self.note_words(now);
    }

    fn begin(&mut self) -> Result<(), LabError> {
        match self.fault.kind {
            Kind::Link { forward, back } => {
                self.link.disturb(Dir::Forward, forward);
                self.link.disturb(Dir::Back, back);
            }
            Kind::Signal(which, signal) => self.pair.signal(which, signal),
            Kind::Refused => nft(
                &self.hosts.gateway,
                &format!(
                    "table inet fault {{ chain input {{ type filter hook input priority -10; \
                     udp dport {PORT} reject with icmpx port-unreachable ; }} ; }}"
                ),
            )?,
            Kind::NewAddress => {
                let (terminal, gateway) = (&self.hosts.terminal, &self.hosts.gateway);
                gateway.ip(&format!("route add {NEW_ADDRESS}/32 dev {DEVICE}"))?;
                terminal.ip(&format!("address add {NEW_ADDRESS}/29 dev {DEVICE}"))?;
                terminal.ip(&format!("address del {}/30 dev {DEVICE}", TERMINAL.0))?;
                terminal.ip(&format!(
                    "route replace 10.77.2.0/24 via {} dev {DEVICE}",
                    crate::emulate::GATEWAY.0
                ))?;
                gateway.ip(&format!("route replace 10.77.1.0/24 dev {DEVICE}"))?;
            }
            Kind::NewPort => nft(
                &self.hosts.terminal,
                &format!(
                    "table ip fault {{ chain out {{ type nat hook postrouting priority srcnat; \
                     udp dport {PORT} snat to {}:{NEW_PORT} ; }} ; }}",
                    TERMINAL.0
                ),
            )?,
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), LabError> {
        match self.fault.kind {
            Kind::Link { .. } => {
                self.link.disturb(Dir::Forward, Disturbance::NONE);
                self.link.disturb(Dir::Back, Disturbance::NONE);
            }
            Kind::Signal(which, Signal::SIGSTOP) => self.pair.signal(which, Signal::SIGCONT),
            Kind::Signal(which, _) => self.pair.start_again(which)?,
            // The others stay.
            Kind::Refused | Kind::NewAddress | Kind::NewPort => {}
        }
        Ok(())
    }

    /// A client that was told at once is no reason to stop knocking.
    fn wait_for_a_connection(&mut self) {
        self.note_words(Instant::now());
        let Some(began) = self.began.filter(|_| self.fault.reachable) else { return };
        while self.connections.first().is_none() && began.elapsed() < KNOCKING {
            thread::sleep(KNOCK);
            self.note_words(Instant::now());
        }
        self.connections.over.store(true, Ordering::Relaxed);
    }

    /// Looks for the first word about the fault.
    fn note_words(&mut self, now: Instant) {
        if self.began.is_none() || self.detected.is_some() {
            return;
        }
        for (which, before) in [Which::Terminal, Which::Gateway].into_iter().zip(self.logs) {
            let said = self.pair.said(which);
            let word = said.get(before..).unwrap_or_default().lines().find(|line| line.contains("channel"));
            if let Some(word) = word {
                // Without the time and the module.
                let word = word.split_once(": ").map_or(word, |(_, text)| text);
                self.detected = Some((now, word.to_owned()));
                return;
            }
        }
    }

    fn row(&self, verdict: Verdict, ending: &Ending, over: Instant, received: Bytes, job: Job) -> Row {
        let fault = self.fault;
        let since = |at: Option<Instant>| {
            let began = self.began?;
            at.map(|at| at.saturating_duration_since(began).as_secs_f64())
        };
        let before = self.began.map_or(Rate::ZERO, |began| self.rate_before(began));
        let recovered = self.recovered(before);
        let new_connection = since(self.connections.first());
        let told = (verdict == Verdict::Told).then(|| since(Some(over))).flatten();
        let mut missed = Vec::new();
        if self.began.is_none() {
            missed.push(format!("the transfer ended before the fault: {ending:?}"));
        }
        if fault.lasts.is_some() && self.ended.is_none() && verdict != Verdict::Told {
            missed.push("the transfer ended before the fault did".to_owned());
        }
        match verdict {
            Verdict::Intact => {}
            Verdict::Told if fault.survivable => missed.push(format!("failed: {ending:?}")),
            Verdict::Told if told.is_some_and(|told| told > TOLD.as_secs_f64()) => {
                missed.push(format!("the client was told after more than {} s", TOLD.as_secs()));
            }
            Verdict::Told => {}
            Verdict::Stuck | Verdict::Lost => missed.push(format!("{}: {ending:?}", verdict.name())),
        }
        if fault.reachable && new_connection.is_none_or(|time| time > DETECTION.as_secs_f64() + GRACE) {
            missed.push(format!("no new connection within {} s", DETECTION.as_secs()));
        }
        if let Some(within) = fault.back_within {
            if recovered.is_none_or(|time| time > within.as_secs_f64() + GRACE) {
                missed.push(format!("not back at 90 % of its rate within {:.1} s", within.as_secs_f64()));
            }
        }
        Row {
            fault: fault.name.to_owned(),
            what: fault.what.to_owned(),
            workload: job.name().to_owned(),
            lasts_seconds: fault.lasts.map(|time| time.as_secs_f64()),
            before_bit_per_s: before.as_f64(),
            detected_seconds: self.detected.as_ref().and_then(|(at, _)| since(Some(*at))),
            detected_by: self.detected.as_ref().map(|(_, word)| word.clone()),
            new_connection_seconds: new_connection,
            told_seconds: told,
            recovered_seconds: recovered,
            complete_seconds: (verdict == Verdict::Intact).then(|| since(Some(over))).flatten(),
            bytes_lost: if verdict == Verdict::Lost { received.0 } else { 0 },
            verdict,
            missed,
        }
    }

    /// Over the last seconds before the fault, start-up left out.
    fn rate_before(&self, began: Instant) -> Rate {
        let from = began.checked_sub(LOOK).unwrap_or(began);
        let calm: Vec<&Sample> =
            self.samples.iter().filter(|sample| sample.at >= from && sample.at <= began).collect();
        match (calm.first(), calm.last()) {
            (Some(first), Some(last)) if last.at > first.at => {
                last.received.saturating_sub(first.received).per(last.at - first.at)
            }
            _ => Rate::ZERO,
        }
    }

    /// From the end of the fault to the first stretch at the old rate; from its start, if it stays, to the first
    /// stretch at a tenth of that: what carries the bytes then has a rate of its own.
    fn recovered(&self, before: Rate) -> Option<f64> {
        let from = match (self.began, self.ended) {
            (_, Some(ended)) => ended,
            // What was under way still arrives for a moment.
            (Some(began), None) => began + UNDER_WAY,
            (None, None) => return None,
        };
        let wanted = before.scale(if self.fault.lasts.is_some() { 0.9 } else { 0.1 });
        let after: Vec<&Sample> = self.samples.iter().filter(|sample| sample.at >= from).collect();
        let found = after.iter().enumerate().find_map(|(index, first)| {
            let last = after[index..].iter().find(|last| last.at - first.at >= STRETCH)?;
            let rate = last.received.saturating_sub(first.received).per(last.at - first.at);
            (rate >= wanted).then_some(first.at)
        });
        let origin = self.ended.or(self.began)?;
        // The file may end before a stretch is over.
        let at = found.or_else(|| {
            let (first, last) = (after.first()?, after.last()?);
            let rest = last.received.saturating_sub(first.received);
            (last.at - first.at < STRETCH && rest > Bytes::ZERO).then_some(last.at)
        })?;
        Some(at.saturating_duration_since(origin).as_secs_f64())
    }
}

/// Opens new connections, four a second, until one and all later ones succeed for a while.
fn knock(client: Namespace, connections: Arc<Connections>, began: Instant) {
    thread::spawn(move || {
        while !connections.over.load(Ordering::Relaxed) && began.elapsed() < KNOCKING {
            let (client, notes) = (client.clone(), Arc::clone(&connections));
            thread::spawn(move || {
                let at = Instant::now();
                match client.run(fetch) {
                    // One that was begun before the fault was noticed and arrived in the end is no good sign.
                    Ok(()) if at.elapsed() > AS_EVER => {}
                    Ok(()) => notes.good.lock().unwrap_or_else(PoisonError::into_inner).push(at),
                    Err(error) => tracing::debug!("a new connection after {:?}: {error}", at - began),
                }
            });
            if connections.good.lock().unwrap_or_else(PoisonError::into_inner).len() >= ENOUGH {
                return;
            }
            thread::sleep(KNOCK);
        }
    });
}

/// Fetches the object over a connection of its own.
fn fetch() -> io::Result<()> {
    let address = SocketAddr::new(IpAddr::V4(SERVER.0), WEB);
    let mut stream = TcpStream::connect_timeout(&address, FETCH)?;
    stream.set_read_timeout(Some(FETCH))?;
    stream.write_all(b"GET /object.bin HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer.ends_with(&[b'x'; OBJECT]) {
        Ok(())
    } else {
        Err(io::Error::other(format!("an answer of {} bytes without the object", answer.len())))
    }
}

fn nft(host: &Namespace, rules: &str) -> Result<(), LabError> {
    let failed = |what: String| LabError::Pair { end: "nft", what, said: String::new() };
    let mut command = host.command("nft");
    let output = command.arg(rules).output().map_err(|error| LabError::start("nft", error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

const WEB: u16 = 8080;
/// Small enough for one packet of a link that has become narrow.
const OBJECT: usize = 300;
/// Another address of the terminal on the link, and another port of a NAT.
const NEW_ADDRESS: &str = "10.77.0.6";
const NEW_PORT: u16 = 40_000;
/// What a transfer takes without faults, at most, and how long one that was disturbed may take longer.
const CALM: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(90);
const SETTLE: Duration = Duration::from_millis(300);
/// The goals: max(3 s, 4 round trips), and 10 s until a client is told.
const DETECTION: Duration = Duration::from_secs(3);
const TOLD: Duration = Duration::from_secs(10);
/// The trial looks ten times and knocks four times a second.
const GRACE: f64 = 0.3;
const LOOK: Duration = Duration::from_secs(2);
const STRETCH: Duration = Duration::from_secs(1);
const UNDER_WAY: Duration = Duration::from_millis(600);
const KNOCK: Duration = Duration::from_millis(250);
const KNOCKING: Duration = Duration::from_secs(15);
const FETCH: Duration = Duration::from_secs(10);
const ENOUGH: usize = 8;
/// By plain TCP an object takes two round trips, and one packet lost on the way two more.
const AS_EVER: Duration = Duration::from_millis(4 * 540 + 340);

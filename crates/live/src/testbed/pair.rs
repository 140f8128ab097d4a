//! Our programs as real processes on the hosts next to the link: terminal and gateway, the two ends of a FEC tunnel, or
//! one or two splitters.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use skyhaul_cc::registry::{Contender, StartMode};
use skyhaul_cc::units::{Bytes, Rate};
use skyhaul_sim::scenario::{Dir, Direction, Scenario};

use super::measure::Usage;
use super::LabError;
use crate::config::{HostPort, PathMemory};
use crate::emulate::{Hosts, GATEWAY};
use crate::keys::Replace;
use crate::netns::Namespace;
use crate::pair::Plan;

mod others;

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    /// The program on the terminal's host.
    Terminal,
    /// The program on the gateway's host.
    Gateway,
}

/// Our running programs; dropping it ends them.
#[derive(Debug)]
pub struct Pair {
    terminal: Option<End>,
    gateway: Option<End>,
}

/// What our programs have used.
#[derive(Clone, Copy, Debug, Default)]
pub struct PairUsage {
    /// The one on the terminal's host, if there is one.
    pub terminal: Option<Usage>,
    /// The one on the gateway's host, if there is one.
    pub gateway: Option<Usage>,
    /// Packets lost and packets sent on the channel, by the log of the end that sends the payload; only of a pair of
    /// proxies.
    pub lost_of: Option<(u64, u64)>,
}

impl PairUsage {
    /// What was used since `earlier`.
    pub fn since(self, earlier: PairUsage) -> PairUsage {
        let since =
            |now: Option<Usage>, then: Option<Usage>| now.zip(then).map(|(now, then)| now.since(then));
        let (lost, sent) = earlier.lost_of.unwrap_or_default();
        PairUsage {
            terminal: since(self.terminal, earlier.terminal),
            gateway: since(self.gateway, earlier.gateway),
            lost_of: self.lost_of.map(|now| (now.0.saturating_sub(lost), now.1.saturating_sub(sent))),
        }
    }
}

impl Pair {
    /// Makes keys and configs in `dir` as `skyhaul pair` does, starts both ends and waits until the channel is up. The
    /// controller "rate" and one whose start is "known" are told the rates of the scenario; no other is told anything,
    /// and nobody remembers earlier runs.
    ///
    /// # Errors
    /// When an end does not start, or the channel does not come up.
    pub fn start(
        hosts: &Hosts,
        scenario: &Scenario,
        contender: &Contender,
        dir: &Path,
    ) -> Result<Pair, LabError> {
        let files = plan(scenario, contender).write(dir, Replace::Existing).map_err(|error| {
            LabError::Pair { end: "skyhaul pair", what: error.to_string(), said: String::new() }
        })?;
        // Each is ready before the next step, so that the handshake of the channel is never sent to nobody.
        let start = |name, role: &str, host, config: &Path| {
            let args = [role.to_owned(), "--config".to_owned(), config.display().to_string()];
            End::start(name, host, &args, &config.with_extension("log"))
        };
        let mut gateway = start("skyhaul gateway", "gateway", &hosts.gateway, &files.gateway)?;
        gateway.wait_for(" ready: ", START)?;
        let mut terminal = start("skyhaul terminal", "terminal", &hosts.terminal, &files.terminal)?;
        terminal.wait_for(" is up", START + scenario.rtt() * 20)?;
        Ok(Pair { terminal: Some(terminal), gateway: Some(gateway) })
    }

    /// Sends an end a signal.
    pub fn signal(&mut self, which: Which, signal: Signal) {
        let pid = self.end_mut(which).and_then(|end| i32::try_from(end.child.id()).ok());
        if let Some(pid) = pid {
            // One that has ended by itself gets none.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Starts an end anew that has ended; its log begins anew, too.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_again(&mut self, which: Which) -> Result<(), LabError> {
        let Some(end) = self.end_mut(which) else { return Ok(()) };
        let _ = end.child.wait();
        end.child = spawn(end.name, &end.host, &end.args, &end.log)?;
        end.wait_for(" ready: ", START)
    }

    /// What an end has logged.
    pub fn said(&self, which: Which) -> String {
        let end = match which {
            Which::Terminal => &self.terminal,
            Which::Gateway => &self.gateway,
        };
        end.as_ref().map_or_else(String::new, End::said)
    }

    fn end_mut(&mut self, which: Which) -> Option<&mut End> {
        match which {
            Which::Terminal => self.terminal.as_mut(),
            Which::Gateway => self.gateway.as_mut(),
        }
    }

    /// What the programs have used so far; `data` is the payload's direction.
    pub fn usage(&self, data: Dir) -> PairUsage {
        let sender = match data {
            Dir::Forward => &self.terminal,
            Dir::Back => &self.gateway,
        };
        let used = |end: &Option<End>| end.as_ref().and_then(End::usage);
        PairUsage {
            terminal: used(&self.terminal),
            gateway: used(&self.gateway),
            lost_of: sender.as_ref().and_then(|end| losses(&end.said())),
        }
    }

    /// Ends them. Says so if one had ended by itself.
    pub fn end(mut self) -> Option<String> {
        let mut ends: Vec<&mut End> = [&mut self.terminal, &mut self.gateway].into_iter().flatten().collect();
        let complaint = ends.iter_mut().find_map(|end| end.complaint());
        for end in ends {
            end.stop();
            tracing::debug!("{} says:\n{}", end.name, end.said());
        }
        complaint
    }
}

fn plan(scenario: &Scenario, contender: &Contender) -> Plan {
    let known = contender.start == StartMode::Known || contender.controller == "rate";
    let told = |direction| known.then(|| ip_rate(direction));
    let gateway = HostPort { host: GATEWAY.0.to_string(), port: PORT };
    Plan {
        terminal_lan: Some("lan".to_owned()),
        gateway_lan: Some("lan".to_owned()),
        networks: ["10.77.1.0/24", "fd77:1::/64"].iter().filter_map(|text| text.parse().ok()).collect(),
        preserve_source: true,
        controller: contender.controller.clone(),
        terminal_rate: told(&scenario.forward),
        gateway_rate: told(&scenario.back),
        rtt: scenario.rtt(),
        socks5: None,
        // Each run begins as if there had been none before.
        memory: PathMemory::OFF,
        ..Plan::new(gateway)
    }
}

/// The link's rate counted in bytes of IP packets, for full packets.
fn ip_rate(direction: &Direction) -> Rate {
    let full = Bytes(1500);
    let counted = full + direction.rate_base.overhead();
    direction.rate.scale(full.as_f64() / counted.as_f64())
}

/// One end.
#[derive(Debug)]
struct End {
    name: &'static str,
    host: Namespace,
    args: Vec<String>,
    child: Child,
    log: PathBuf,
}

impl End {
    /// Starts a command of this program on a host. Its log goes to `log`.
    fn start(name: &'static str, host: &Namespace, args: &[String], log: &Path) -> Result<End, LabError> {
        let child = spawn(name, host, args, log)?;
        Ok(End { name, args: args.to_vec(), host: host.clone(), child, log: log.to_owned() })
    }

    /// Waits until the log has `sign` in it.
    fn wait_for(&mut self, sign: &str, patience: Duration) -> Result<(), LabError> {
        let end = Instant::now() + patience;
        while !self.said().contains(sign) {
            let what = match self.child.try_wait() {
                Ok(Some(status)) => format!("ended at once ({status})"),
                _ if Instant::now() > end => format!("is not ready after {} s", patience.as_secs()),
                _ => {
                    thread::sleep(PAUSE);
                    continue;
                }
            };
            return Err(LabError::Pair { end: self.name, what, said: self.said() });
        }
        Ok(())
    }

    fn said(&self) -> String {
        fs::read(&self.log).map_or(String::new(), |text| String::from_utf8_lossy(&text).into_owned())
    }

    fn usage(&self) -> Option<Usage> {
        Usage::of(self.child.id())
    }

    /// If it has ended by itself: how, and its last words.
    fn complaint(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let said = self.said();
        Some(format!(
            "{} ended during the run ({status}): {}",
            self.name,
            said.lines().last().unwrap_or_default()
        ))
    }

    /// Asks it to end, and makes it.
    fn stop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let end = Instant::now() + GOODBYE;
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(name: &str, host: &Namespace, args: &[String], log: &Path) -> Result<Child, LabError> {
    let file = File::create(log).map_err(|error| LabError::io("write", log, error))?;
    // This program itself, even if a newer one has taken its place on disk since it was started.
    let mut command = host.command("/proc/self/exe");
    command.args(args);
    // The log says when the end is ready, and what the channel lost; more of it is there for whoever asks for more.
    let wanted = std::env::var("SKYHAUL_LOG").unwrap_or_default();
    let always = "info,skyhaul_live::driver=debug";
    let filter = if wanted.is_empty() { always.to_owned() } else { format!("{always},{wanted}") };
    command.env("SKYHAUL_LOG", filter);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    command.spawn().map_err(|error| LabError::start(name, error))
}

/// Packets lost and packets sent, from the last line of a driver's log that tells them.
fn losses(log: &str) -> Option<(u64, u64)> {
    let line = log.lines().rev().find(|line| line.contains(" packets lost, "))?;
    let (before, _) = line.split_once(" packets lost, ")?;
    let mut words = before.rsplit(' ');
    let sent = words.next()?.parse().ok()?;
    let lost = words.nth(1)?.parse().ok()?;
    Some((lost, sent))
}

/// UDP port of the gateway.
pub(super) const PORT: u16 = 4433;
const PAUSE: Duration = Duration::from_millis(10);
/// To open sockets and set up interception.
const START: Duration = Duration::from_secs(20);
/// To remove rules and routes.
const GOODBYE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;
    use skyhaul_sim::scenario::RateBase;

    #[test]
    fn losses_are_read_from_the_last_word_of_the_driver() {
        let log = "12:00 DEBUG gw: Cruise, round trip 541ms, 3 of 1000 packets lost, PathHistory\n\
                   12:01 DEBUG gw: Cruise, round trip 541ms, 24 of 2000 packets lost, PathHistory\n\
                   12:02 INFO gw stopped";
        assert_eq!(losses(log), Some((24, 2000)));
        assert_eq!(losses("INFO gateway ready: x of y packets lost, z"), None);
        assert_eq!(losses(""), None);
    }

    #[test]
    fn only_who_asks_for_the_rates_is_told_them() {
        let scenario = Scenario::find("p1.down-270").unwrap();
        let told = plan(&scenario, &"rate".parse().unwrap());
        assert_eq!(told.terminal_rate, Some(Rate::mbit(150)));
        assert_eq!(told.gateway_rate, Some(Rate::mbit(10)));
        let known = plan(&scenario, &"skyhaul/known".parse().unwrap());
        assert_eq!((known.terminal_rate, known.gateway_rate), (told.terminal_rate, told.gateway_rate));
        let untold = plan(&scenario, &"bbr".parse().unwrap());
        assert_eq!((untold.terminal_rate, untold.gateway_rate), (None, None));
        assert_eq!(untold.networks.len(), 2);
    }

    #[test]
    fn a_rate_that_counts_more_than_ip_bytes_is_converted() {
        let mut scenario = Scenario::find("p1.down-270").unwrap();
        scenario.forward.rate_base = RateBase::Wire;
        assert_eq!(ip_rate(&scenario.forward).as_bit(), (150e6 * 1500.0 / 1538.0_f64).round() as u64);
    }
}

//! Terminal and gateway as real processes on their hosts.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use skyhaul_cc::registry::{Contender, StartMode};
use skyhaul_cc::units::{Bytes, Rate};
use skyhaul_sim::scenario::{Direction, Scenario};

use super::measure::Usage;
use super::LabError;
use crate::config::{HostPort, PathMemory};
use crate::emulate::{Hosts, GATEWAY};
use crate::keys::Replace;
use crate::netns::Namespace;
use crate::pair::Plan;

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    /// `skyhaul terminal`.
    Terminal,
    /// `skyhaul gateway`.
    Gateway,
}

/// A running terminal and a running gateway with the channel between them; dropping it ends both.
#[derive(Debug)]
pub struct Pair {
    terminal: End,
    gateway: End,
}

/// What both ends have used.
#[derive(Clone, Copy, Debug)]
pub struct PairUsage {
    /// `skyhaul terminal`.
    pub terminal: Usage,
    /// `skyhaul gateway`.
    pub gateway: Usage,
}

impl PairUsage {
    /// What was used since `earlier`.
    pub fn since(self, earlier: PairUsage) -> PairUsage {
        PairUsage {
            terminal: self.terminal.since(earlier.terminal),
            gateway: self.gateway.since(earlier.gateway),
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
        let mut gateway = End::start("gateway", &hosts.gateway, &files.gateway)?;
        gateway.wait_for(" ready: ", START)?;
        let mut terminal = End::start("terminal", &hosts.terminal, &files.terminal)?;
        terminal.wait_for(" is up", START + scenario.rtt() * 20)?;
        Ok(Pair { terminal, gateway })
    }

    /// Sends an end a signal.
    pub fn signal(&mut self, which: Which, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.end_mut(which).child.id()) {
            // One that has ended by itself gets none.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Starts an end anew that has ended; its log begins anew, too.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_again(&mut self, which: Which) -> Result<(), LabError> {
        let end = self.end_mut(which);
        let _ = end.child.wait();
        end.child = spawn(end.name, end.role, &end.host, &end.config, &end.log)?;
        end.wait_for(" ready: ", START)
    }

    /// What an end has logged.
    pub fn said(&self, which: Which) -> String {
        match which {
            Which::Terminal => self.terminal.said(),
            Which::Gateway => self.gateway.said(),
        }
    }

    fn end_mut(&mut self, which: Which) -> &mut End {
        match which {
            Which::Terminal => &mut self.terminal,
            Which::Gateway => &mut self.gateway,
        }
    }

    /// What both ends have used so far.
    pub fn usage(&self) -> Option<PairUsage> {
        Some(PairUsage { terminal: self.terminal.usage()?, gateway: self.gateway.usage()? })
    }

    /// Ends both. Says so if one had ended by itself.
    pub fn end(mut self) -> Option<String> {
        let complaint = self.terminal.complaint().or_else(|| self.gateway.complaint());
        for end in [&mut self.terminal, &mut self.gateway] {
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
    role: &'static str,
    host: Namespace,
    config: PathBuf,
    child: Child,
    log: PathBuf,
}

impl End {
    fn start(role: &'static str, host: &Namespace, config: &Path) -> Result<End, LabError> {
        let name = if role == "terminal" { "skyhaul terminal" } else { "skyhaul gateway" };
        let log = config.with_extension("log");
        let child = spawn(name, role, host, config, &log)?;
        Ok(End { name, role, host: host.clone(), config: config.to_owned(), child, log })
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

fn spawn(name: &str, role: &str, host: &Namespace, config: &Path, log: &Path) -> Result<Child, LabError> {
    let file = File::create(log).map_err(|error| LabError::io("write", log, error))?;
    // This program itself, even if a newer one has taken its place on disk since it was started.
    let mut command = host.command("/proc/self/exe");
    command.args([role, "--config"]).arg(config);
    // The log says when the end is ready; more of it is there for whoever asks for more.
    let wanted = std::env::var("SKYHAUL_LOG").unwrap_or_default();
    command.env("SKYHAUL_LOG", if wanted.is_empty() { "info".to_owned() } else { format!("info,{wanted}") });
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    command.spawn().map_err(|error| LabError::start(name, error))
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

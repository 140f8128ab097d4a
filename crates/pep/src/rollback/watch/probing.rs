//! Which probes leave when, and what a word says.

use super::{Action, Phase, Probe, Watch};
use crate::rollback::wire::{Word, WORD};
use skyhaul_cc::{Duration, Time};
use std::net::SocketAddr;

/// Probes remembered: ten seconds of the fastest probing.
const PROBES: usize = 128;
/// Time between probes while a probe is overdue …
pub(super) const URGENT: Duration = Duration::from_millis(100);
/// … while nothing gets through …
const SILENT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(250));
/// … while TCP carries, to learn when UDP works again …
const CARRIED: Duration = Duration::from_millis(500);
/// … and by the TCP connection that carries.
const BY_LINE: Duration = Duration::from_secs(1);
/// Data that left within this time before a probe is due stands for it.
const JUST: Duration = Duration::from_millis(50);
/// Full probes while no flow is open.
const IDLE_FULL: Duration = Duration::from_secs(3);
/// Shortest and longest time between probes of a healthy path.
pub(super) const HEARTBEAT: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
/// Until the gateway confirms a change, it is told again so often.
const REPEAT: Duration = Duration::from_millis(100);

impl Watch {
    /// When probes of any and of full size are due by UDP, and one by TCP.
    pub(super) fn dues(&self) -> (Time, Time, Option<Time>) {
        let urgent = |full: bool, calm: Duration, fast: Duration| {
            let lane = self.lane(full);
            let usual = lane.probed.max(lane.acked) + calm;
            // From the moment the oldest is overdue, fast.
            self.overdue_since(full).map_or(usual, |at| usual.min(at.max(lane.probed + fast)))
        };
        let told = if self.terminal && !self.confirmed { REPEAT } else { CARRIED };
        match self.phase {
            Phase::Udp => {
                let full = if self.has_flows { self.heartbeat() } else { IDLE_FULL };
                let any = urgent(false, self.heartbeat(), URGENT);
                // The other end must hear of it, and not by the datagrams that do not get there.
                let soon = told == REPEAT
                    || self.overdue_since(true).is_some_and(|at| at + self.patience() <= self.looked);
                let any = if soon { any.min(self.any.probed + REPEAT) } else { any };
                (any, urgent(true, full, URGENT), None)
            }
            Phase::Tcp => {
                let lane = &self.line_lane;
                let calm = lane.probed.max(lane.acked) + BY_LINE;
                let line = if told == REPEAT { calm.min(lane.probed + REPEAT) } else { calm };
                (self.any.probed + CARRIED, self.full.probed + CARRIED, Some(line))
            }
            Phase::Silent { .. } => (self.any.probed + SILENT.0, self.full.probed + SILENT.1, None),
        }
    }

    pub(super) fn probe_what_is_due(&mut self, now: Time) {
        let (any, full, line) = self.dues();
        let is_probed = full <= now && !self.data_probes(now);
        if is_probed {
            self.probe(now, false, true);
        }
        if any <= now && (!is_probed || self.phase != Phase::Udp || self.overdue_since(true).is_some()) {
            self.probe(now, false, false);
        }
        if line.is_some_and(|at| at <= now) {
            self.probe(now, true, false);
        }
    }

    /// A full datagram of data that has just left is as good as a full probe, and costs a thin link nothing. Once one is
    /// overdue, only probes will do: they do not wait for a window.
    fn data_probes(&mut self, now: Time) -> bool {
        if self.phase != Phase::Udp || self.overdue_since(true).is_some_and(|overdue| overdue <= now) {
            return false;
        }
        let before = self.probes.back().map_or(self.full.acked, |probe| probe.at.max(self.full.acked));
        let Some(at) = self.sent_full.filter(|&at| at > before && now <= at + JUST) else {
            return false;
        };
        self.number += 1;
        self.await_answer(Probe { number: self.number, at, full: true, by_tcp: false });
        self.full.probed = at;
        true
    }

    fn await_answer(&mut self, probe: Probe) {
        self.probes.push_back(probe);
        if self.probes.len() > PROBES {
            self.probes.pop_front();
        }
    }

    pub(super) fn probe(&mut self, now: Time, by_tcp: bool, full: bool) {
        let word = self.word(now, if full { self.full_size } else { WORD as u16 }, None);
        self.await_answer(Probe { number: word.number, at: now, full, by_tcp });
        if by_tcp {
            self.line_lane.probed = now;
        } else {
            // A full one shows as much as a small one.
            self.any.probed = now;
            if full {
                self.full.probed = now;
            }
        }
        self.send(by_tcp, None, &word);
    }

    pub(super) fn word(&mut self, now: Time, size: u16, answers: Option<u64>) -> Word {
        self.number += 1;
        Word {
            answer: answers.is_some(),
            full: size > WORD as u16,
            tcp: self.tcp,
            deaf: self.is_deaf(now),
            channel: self.keys.channel,
            number: self.number,
            echo: answers.unwrap_or(0),
            turn: self.turn,
            size,
            why: self.why.code(),
        }
    }

    pub(super) fn send(&mut self, by_tcp: bool, to: Option<SocketAddr>, word: &Word) {
        self.stats.words_sent += 1;
        let word = self.keys.sign(by_tcp, word);
        self.actions.push_back(match by_tcp {
            true => Action::Say { word },
            false => Action::Send { to, word },
        });
    }
}

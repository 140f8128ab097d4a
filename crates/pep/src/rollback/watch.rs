//! The supervisor of one channel's path: hears what was acknowledged and what the other end says outside QUIC,
//! and decides what carries the channel. No socket, no clock.
//!
//! A path is alive if something sent lately was acknowledged, by QUIC or by an answer to a probe. Two lanes are
//! watched: datagrams of any size, and those of full size, which an MTU black hole swallows alone. The terminal
//! decides; the gateway follows what the terminal has said last (its *turn*), and says in its words if its own
//! full datagrams get no answer.

mod line;
mod probing;

use super::quality::{Progress, Quality, Verdict};
use super::wire::{Keys, Word, WORD};
use super::{Carriage, RollbackStats, Settings, Standing, Trouble};
use probing::{HEARTBEAT, URGENT};
use skyhaul_cc::{Duration, Time};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A word leaves by UDP, to this address or, without one, to the other end's.
    Send { to: Option<SocketAddr>, word: Vec<u8> },
    /// A word leaves by the TCP connection.
    Say { word: Vec<u8> },
    /// Open a TCP connection to the other end.
    Dial,
    /// Close the TCP connection, or give the attempt up.
    HangUp,
    /// Datagrams of QUIC go this way from now on.
    Use(Carriage),
    /// The path is back: QUIC shall try at once.
    Wake { after_silence: bool },
    /// Tell the owner.
    Tell(Standing, Trouble),
    /// One datagram of QUIC shall leave whatever its window says: its answer shows what was lost, and a program that was
    /// started anew answers it with a stateless reset (RFC 9000 §10.3).
    Knock,
    /// The other end's program has gone.
    Gone(Trouble),
    /// Nothing has got through for as long as the operator waits.
    GiveUp,
}

/// What the channel can say of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// Round trip by UDP.
    pub(crate) rtt: Duration,
    /// Send time of the newest packet acknowledged, and of the newest full one, on the present carriage.
    pub(crate) acked: Option<Time>,
    pub(crate) acked_full: Option<Time>,
    /// When the newest full one left.
    pub(crate) sent_full: Option<Time>,
    /// Flows are open.
    pub(crate) has_flows: bool,
    /// What it has moved.
    pub(crate) progress: Progress,
}

/// Signs of life of datagrams of one kind.
#[derive(Clone, Copy, Debug)]
struct Lane {
    /// When the newest that was acknowledged had left …
    acked: Time,
    /// … and when that was learnt.
    learnt: Time,
    /// When a probe of this kind left last.
    probed: Time,
}

impl Lane {
    fn new(now: Time) -> Self {
        Lane { acked: now, learnt: now, probed: now }
    }

    fn hear(&mut self, now: Time, sent_at: Time) {
        if sent_at > self.acked {
            self.acked = sent_at;
            self.learnt = now;
        }
    }
}

/// A probe that nobody has answered.
#[derive(Clone, Copy, Debug)]
struct Probe {
    number: u64,
    at: Time,
    full: bool,
    by_tcp: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Udp,
    Tcp,
    Silent { since: Time },
}

/// The TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    None,
    Dialling {
        since: Time,
    },
    /// `proven`: the other end has said something by it.
    Open {
        since: Time,
        proven: bool,
    },
}

#[derive(Debug)]
pub(crate) struct Watch {
    settings: Settings,
    terminal: bool,
    keys: Keys,
    full_size: u16,
    rtt: Duration,
    has_flows: bool,
    /// When the newest full datagram of data left, if others that left lately are known to have arrived.
    sent_full: Option<Time>,
    /// Our words so far.
    number: u64,
    /// The highest number of a word that opened a line.
    opened_by: u64,
    /// How often the terminal has changed the carriage, what it chose and why.
    turn: u32,
    tcp: bool,
    why: Trouble,
    /// The gateway has heard of that.
    confirmed: bool,
    any: Lane,
    full: Lane,
    line_lane: Lane,
    probes: VecDeque<Probe>,
    phase: Phase,
    line: Line,
    next_dial: Time,
    refusals: u32,
    /// Connections that were made and closed by the other end before it said a word, and the first of them.
    rejections: u32,
    rejected: Time,
    /// When something of the other end came last by UDP, and by anything.
    heard: Time,
    heard_any: Time,
    /// When the newest of ours left that was answered, by whatever way.
    lived: Time,
    knocked: Time,
    /// The other end's full datagrams get no answer, it says: since when, and when it said so last.
    other_deaf: Option<(Time, Time)>,
    /// ICMP says since then that nobody listens.
    unreachable: Option<Time>,
    hold: Duration,
    healthy_since: Option<Time>,
    returned: Option<Time>,
    /// QUIC has been woken and not been answered; when to wake it again.
    waking: Option<(Time, Time)>,
    quality: Quality,
    /// The newest look.
    looked: Time,
    actions: VecDeque<Action>,
    stats: RollbackStats,
}

/// No need to look more often than this.
const PAUSE: Duration = Duration::from_millis(1);
/// A sign of life this long ago, and nothing since, is silence; shorter gaps are a busy host's.
const GRACE: Duration = Duration::from_millis(500);
/// So many probes must have gone unanswered before the path is blamed: one word lost is no trouble.
const UNANSWERED: usize = 3;
/// What is promised is kept with this part of it to spare.
const EARLY: u32 = 32;
/// What was said of deafness for full datagrams so long ago says nothing more; …
const DEAF: Duration = Duration::from_millis(500);
/// … believed is what has been said for so long, which is two words in a row at least.
const BELIEVE: Duration = Duration::from_millis(200);
/// Longest hold.
const HOLD_MOST: Duration = Duration::from_secs(300);
/// Trouble this soon after a return is a relapse, …
const RELAPSE: Duration = Duration::from_secs(60);
/// QUIC is woken again so often until it is answered.
const WAKE_AGAIN: Duration = Duration::from_millis(250);
/// While nothing gets through QUIC sends a datagram so often; a little less than probes leave, which wake the watch.
const KNOCK: Duration = Duration::from_millis(240);
/// A line that says nothing is dead after so many times the time of detection: TCP repeats by itself.
const LINE_PATIENCE: u32 = 2;

impl Watch {
    pub(crate) fn new(now: Time, settings: Settings, terminal: bool, keys: Keys, full_size: u16) -> Self {
        Watch {
            settings,
            terminal,
            keys,
            full_size: full_size.max(WORD as u16),
            rtt: Duration::from_millis(600),
            has_flows: false,
            sent_full: None,
            number: 0,
            opened_by: 0,
            turn: 0,
            tcp: false,
            why: Trouble::Healthy,
            confirmed: true,
            any: Lane::new(now),
            full: Lane::new(now),
            line_lane: Lane::new(now),
            probes: VecDeque::new(),
            phase: Phase::Udp,
            line: Line::None,
            next_dial: now,
            refusals: 0,
            rejections: 0,
            rejected: now,
            heard: now,
            heard_any: now,
            lived: now,
            knocked: now,
            other_deaf: None,
            unreachable: None,
            hold: settings.hold,
            healthy_since: None,
            returned: None,
            waking: None,
            quality: Quality::new(now),
            looked: now,
            actions: VecDeque::new(),
            stats: RollbackStats::default(),
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        match self.phase {
            Phase::Udp => Standing::Up,
            Phase::Tcp => Standing::Carried,
            Phase::Silent { .. } => Standing::Silent,
        }
    }

    pub(crate) fn stats(&self) -> RollbackStats {
        RollbackStats { carriage: self.carriage(), ..self.stats }
    }

    fn carriage(&self) -> Carriage {
        match self.phase {
            Phase::Tcp => Carriage::Tcp,
            _ => Carriage::Udp,
        }
    }

    /// The next thing to do.
    pub(crate) fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// A QUIC datagram of the other end came and was genuine.
    pub(crate) fn heard_quic(&mut self, now: Time, by_tcp: bool) {
        self.heard_any = now;
        if !by_tcp {
            self.heard = now;
        }
    }

    /// Something came that claims to be a word of the other end. True if it is.
    pub(crate) fn hear(&mut self, now: Time, by_tcp: bool, from: Option<SocketAddr>, bytes: &[u8]) -> bool {
        let Some(word) = self.keys.verify(by_tcp, bytes) else {
            self.stats.words_refused += 1;
            return false;
        };
        self.stats.words_heard += 1;
        self.heard_quic(now, by_tcp);
        if let (true, Line::Open { since, proven: false }) = (by_tcp, self.line) {
            self.line = Line::Open { since, proven: true };
            (self.refusals, self.rejections) = (0, 0);
            self.line_lane = Lane::new(now);
        }
        if word.answer {
            self.answered(now, by_tcp, word.echo);
        } else {
            let answer = self.word(now, WORD as u16, Some(word.number));
            self.send(by_tcp, from, &answer);
        }
        if !by_tcp {
            let since = self.other_deaf.map_or(now, |(since, _)| since);
            self.other_deaf = word.deaf.then_some((since, now));
        }
        if self.terminal {
            self.confirmed |= word.turn == self.turn;
        } else if word.turn > self.turn || (word.turn == self.turn && by_tcp && self.tcp) {
            self.follow(now, &word);
        }
        self.decide(now);
        true
    }

    /// The gateway does as the terminal says.
    fn follow(&mut self, now: Time, word: &Word) {
        let carried = word.tcp && matches!(self.line, Line::Open { proven: true, .. });
        // By TCP, but not by a connection that is open here: its first word is still to come.
        if word.tcp && !carried {
            return;
        }
        let news = word.turn > self.turn;
        (self.turn, self.tcp, self.why) = (word.turn, word.tcp, Trouble::of(word.why));
        match (carried, self.phase) {
            (true, Phase::Udp | Phase::Silent { .. }) => self.carry(now, self.why),
            (false, Phase::Tcp | Phase::Silent { .. }) if news => self.go_udp(now, self.why),
            _ => {}
        }
    }

    fn answered(&mut self, now: Time, by_tcp: bool, number: u64) {
        let Some(index) = self.probes.iter().position(|probe| probe.number == number) else { return };
        let Some(probe) = self.probes.remove(index).filter(|probe| probe.by_tcp == by_tcp) else { return };
        self.lived = self.lived.max(probe.at);
        if by_tcp {
            self.line_lane.hear(now, probe.at);
            return;
        }
        self.unreachable = None;
        self.refusals = 0;
        self.any.hear(now, probe.at);
        if probe.full {
            self.full.hear(now, probe.at);
        }
    }

    /// ICMP says that nobody listens where the other end was.
    pub(crate) fn unreachable(&mut self, now: Time) {
        self.unreachable.get_or_insert(now);
        self.decide(now);
    }

    /// What the channel knows; then what follows from that and from the time.
    pub(crate) fn look(&mut self, now: Time, look: &Look) {
        (self.rtt, self.looked) = (look.rtt, self.looked.max(now));
        let learnt = self.any.learnt;
        self.has_flows = look.has_flows;
        let lately = look.acked_full.is_some_and(|at| now - at <= self.patience());
        self.sent_full = look.sent_full.filter(|_| lately);
        let lanes = match self.phase {
            Phase::Tcp => [Some(&mut self.line_lane), None],
            _ => [Some(&mut self.any), Some(&mut self.full)],
        };
        for (lane, acked) in lanes.into_iter().zip([look.acked, look.acked_full]) {
            if let (Some(lane), Some(acked)) = (lane, acked) {
                lane.hear(now, acked);
            }
        }
        self.lived = self.lived.max(look.acked.unwrap_or(self.lived));
        if self.any.learnt > learnt {
            (self.unreachable, self.refusals, self.rejections) = (None, 0, 0);
        }
        let told = self.any.acked.min(self.full.acked);
        while self.probes.front().is_some_and(|p| p.at <= if p.by_tcp { self.line_lane.acked } else { told })
        {
            self.probes.pop_front();
        }
        if self.waking.is_some_and(|(since, _)| look.acked.is_some_and(|acked| acked >= since)) {
            self.waking = None;
        }
        if !matches!(self.phase, Phase::Silent { .. }) {
            self.quality.look(now, self.carriage(), look.rtt, look.progress);
        }
        self.decide(now);
        self.probe_what_is_due(now);
        self.repeat_wake(now);
        // The first that is answered shows QUIC what was lost before it: repetitions leave a round trip earlier than if
        // it began when a probe is answered. And where TCP is filtered nothing else tells of a gateway that was started
        // anew, since QUIC's own attempts become ever fewer.
        if matches!(self.phase, Phase::Silent { .. }) && now - self.knocked >= KNOCK {
            self.knocked = now;
            self.actions.push_back(Action::Knock);
        }
    }

    /// When to look again if nothing else happens.
    pub(crate) fn next_wake(&self) -> Time {
        let (any, full, line) = self.dues();
        let mut next = any.min(full);
        if let Some(line) = line {
            next = next.min(line);
        }
        if let Some((_, again)) = self.waking {
            next = next.min(again);
        }
        if matches!(self.line, Line::None) && self.wants_line_at().is_some() {
            next = next.min(self.wants_line_at().unwrap_or(next).max(self.next_dial));
        }
        let alarms = [false, true].into_iter().filter(|&full| self.unanswered(full).count() >= UNANSWERED);
        let alarm = alarms.filter_map(|full| self.alarm_at(full)).min().filter(|_| self.phase == Phase::Udp);
        let held = self.healthy_since.filter(|_| self.phase == Phase::Tcp && self.terminal);
        let back = held.map(|at| at + self.hold).filter(|at| *at > self.looked);
        let next = [alarm, back, self.give_up_at()].into_iter().flatten().fold(next, Time::min);
        next.max(self.looked + PAUSE)
    }

    fn detect(&self) -> Duration {
        self.settings.detect.max(self.rtt * 4)
    }

    fn heartbeat(&self) -> Duration {
        let spare = (self.detect() / 2).saturating_sub(self.rtt.mul_f64(1.25));
        // Of what the gateway finds the terminal hears after a one-way delay, and does not believe it at once.
        let told = if self.terminal || !self.has_flows { Duration::ZERO } else { self.rtt / 2 + BELIEVE };
        spare.saturating_sub(told).clamp(HEARTBEAT.0, HEARTBEAT.1)
    }

    /// After so long a probe should have been answered.
    fn patience(&self) -> Duration {
        self.rtt.mul_f64(1.25) + Duration::from_millis(50)
    }

    fn lane(&self, full: bool) -> &Lane {
        if full {
            &self.full
        } else {
            &self.any
        }
    }

    /// Probes by UDP of this kind that left after the newest sign of life.
    fn unanswered(&self, full: bool) -> impl Iterator<Item = &Probe> {
        let acked = self.lane(full).acked;
        self.probes.iter().filter(move |p| !p.by_tcp && (p.full || !full) && p.at > acked)
    }

    fn overdue_since(&self, full: bool) -> Option<Time> {
        self.unanswered(full).next().map(|probe| probe.at + self.patience())
    }

    /// When this lane will be given up, if nothing is heard and the probes due leave.
    fn alarm_at(&self, full: bool) -> Option<Time> {
        let first = self.unanswered(full).next()?.at;
        let lane = self.lane(full);
        let within = self.detect() - self.detect() / EARLY;
        let age = first + within.saturating_sub(self.heartbeat());
        Some((lane.acked + within).max(lane.learnt + GRACE).max(age))
    }

    fn is_dead(&self, full: bool, now: Time) -> bool {
        self.alarm_at(full).is_some_and(|at| at <= now) && self.unanswered(full).count() >= UNANSWERED
    }

    /// Full datagrams, and only they, are about to be given up: told early, so that the other end knows in time.
    fn is_deaf(&self, now: Time) -> bool {
        let first = self.unanswered(true).next();
        // The first was overdue, and so are three that left then.
        first.is_some_and(|first| now - first.at >= self.patience() * 2 + URGENT * 2)
            && self.unanswered(true).count() >= UNANSWERED
            && self.is_fresh(false, now)
            && self.any.acked > self.full.acked + self.heartbeat()
    }

    /// Datagrams of this kind get through, as far as is known.
    fn is_fresh(&self, full: bool, now: Time) -> bool {
        now - self.lane(full).acked < self.detect()
    }

    fn decide(&mut self, now: Time) {
        match self.phase {
            Phase::Udp => self.decide_up(now),
            Phase::Tcp => self.decide_carried(now),
            Phase::Silent { since } => self.decide_silent(now, since),
        }
        if !matches!(self.phase, Phase::Tcp) {
            self.tend_line(now);
        }
        self.decide_gone(now);
    }

    fn decide_up(&mut self, now: Time) {
        let deaf = self.other_deaf.is_some_and(|(since, last)| now - last < DEAF && now - since >= BELIEVE);
        // Full datagrams are acknowledged less often, so where nothing passes they are missed first.
        let small_pass = self.overdue_since(false).is_none_or(|at| at > now);
        let why = if self.is_dead(false, now) || (self.is_dead(true, now) && !small_pass) {
            self.silence(now)
        } else if self.is_dead(true, now) || (self.terminal && deaf) {
            Trouble::MtuBlackHole
        } else if self.unreachable.is_some() && self.has_line() && self.terminal {
            Trouble::Unreachable
        } else if self.wants_trial(now) && self.has_line() {
            Trouble::Degraded
        } else {
            return;
        };
        self.stats.last_detection = now - self.lane(why == Trouble::MtuBlackHole).acked;
        self.relapse(now);
        if self.terminal && self.has_line() {
            self.turn_to(now, true, why);
            self.carry(now, why);
        } else if why != Trouble::Degraded {
            self.fall_silent(now, why);
        }
    }

    /// Nothing of ours gets through: what is known of the reason.
    fn silence(&self, now: Time) -> Trouble {
        if self.unreachable.is_some() {
            Trouble::Unreachable
        } else if now - self.heard < self.detect() / 2 {
            Trouble::OneWay
        } else {
            Trouble::Silent
        }
    }

    /// The other end's full datagrams get no answer, it has said lately.
    fn hears_deafness(&self, now: Time) -> bool {
        self.other_deaf.is_some_and(|(_, last)| now - last < self.detect())
    }

    fn wants_trial(&self, now: Time) -> bool {
        self.terminal && self.settings.carriage && self.quality.wants_trial(now)
    }

    fn relapse(&mut self, now: Time) {
        let soon = RELAPSE.max(self.hold * 2);
        self.hold = match self.returned {
            Some(at) if now - at < soon => (self.hold * 2).min(HOLD_MOST),
            _ => self.settings.hold,
        };
        self.returned = None;
    }

    fn decide_carried(&mut self, now: Time) {
        let healthy = self.is_fresh(false, now) && self.is_fresh(true, now) && !self.hears_deafness(now);
        if !healthy {
            self.healthy_since = None;
        } else {
            self.healthy_since.get_or_insert(now);
        }
        if !self.terminal {
            return;
        }
        let patience = self.detect() * LINE_PATIENCE;
        let unanswered = self.probes.iter().filter(|p| p.by_tcp && p.at > self.line_lane.acked).count();
        if now - self.line_lane.acked >= patience
            && now - self.line_lane.learnt >= GRACE
            && unanswered >= UNANSWERED
        {
            self.line = Line::None;
            self.next_dial = now;
            self.actions.push_back(Action::HangUp);
            self.lose_line(now);
            return;
        }
        let held = self.healthy_since.is_some_and(|since| now - since >= self.hold);
        let return_now = match self.quality.verdict(now) {
            Some(Verdict::KeepTcp) => false,
            Some(Verdict::BackToUdp) => healthy,
            None => held,
        };
        if return_now {
            self.returned = Some(now);
            self.turn_to(now, false, Trouble::Healthy);
            self.go_udp(now, Trouble::Healthy);
        }
    }

    fn decide_silent(&mut self, now: Time, since: Time) {
        if self.terminal && self.has_line() {
            let why = self.why;
            self.turn_to(now, true, why);
            return self.carry(now, why);
        }
        // Both lanes have a sign of life that left after the silence began to be felt.
        let alive = |lane: &Lane| lane.learnt > since && now - lane.acked < self.detect();
        let deaf = self.terminal && self.hears_deafness(now);
        if alive(&self.any) && alive(&self.full) && !deaf {
            if self.terminal && self.tcp {
                self.turn_to(now, false, Trouble::Healthy);
            }
            self.go_udp(now, Trouble::Healthy);
        }
    }

    fn turn_to(&mut self, now: Time, tcp: bool, why: Trouble) {
        self.turn = self.turn.wrapping_add(1);
        (self.tcp, self.why, self.confirmed) = (tcp, why, false);
        self.probe(now, tcp, false);
    }

    fn trouble(&mut self, why: Trouble) {
        self.stats.troubles += 1;
        self.stats.by_kind[usize::from(why.code())] += 1;
        self.why = why;
    }

    fn carry(&mut self, now: Time, why: Trouble) {
        if !matches!(self.phase, Phase::Silent { .. }) {
            self.trouble(why);
        }
        self.stats.carried += 1;
        self.phase = Phase::Tcp;
        self.healthy_since = None;
        self.line_lane = Lane::new(now);
        self.quality.moved(now, Carriage::Tcp, why == Trouble::Degraded);
        self.actions.push_back(Action::Use(Carriage::Tcp));
        self.wake(now, false);
        self.actions.push_back(Action::Tell(Standing::Carried, why));
    }

    fn fall_silent(&mut self, now: Time, why: Trouble) {
        self.trouble(why);
        self.stats.silences += 1;
        if self.phase == Phase::Tcp {
            self.actions.push_back(Action::Use(Carriage::Udp));
        }
        self.phase = Phase::Silent { since: now };
        self.actions.push_back(Action::Tell(Standing::Silent, why));
    }

    fn go_udp(&mut self, now: Time, why: Trouble) {
        let after_silence = match self.phase {
            Phase::Silent { since } => {
                self.stats.last_silence = now - since;
                true
            }
            Phase::Tcp => {
                self.stats.returned += 1;
                self.actions.push_back(Action::Use(Carriage::Udp));
                false
            }
            Phase::Udp => return,
        };
        self.phase = Phase::Udp;
        // What was not answered before says nothing any more.
        self.probes.retain(|probe| probe.by_tcp);
        (self.any.acked, self.full.acked) = (self.any.acked.max(now), self.full.acked.max(now));
        self.quality.moved(now, Carriage::Udp, false);
        self.wake(now, after_silence);
        self.actions.push_back(Action::Tell(Standing::Up, why));
    }

    /// The line that carried has gone.
    fn lose_line(&mut self, now: Time) {
        let works = self.is_fresh(false, now) && self.is_fresh(true, now);
        if self.terminal && works && !self.quality.is_trial() {
            self.trouble(Trouble::CarriageLost);
            self.turn_to(now, false, Trouble::CarriageLost);
            self.go_udp(now, Trouble::CarriageLost);
        } else {
            self.fall_silent(now, Trouble::CarriageLost);
        }
    }

    fn wake(&mut self, now: Time, after_silence: bool) {
        self.waking = Some((now, now + WAKE_AGAIN));
        self.actions.push_back(Action::Wake { after_silence });
    }

    fn repeat_wake(&mut self, now: Time) {
        let Some((since, again)) = self.waking else { return };
        if again <= now {
            self.waking = Some((since, now + WAKE_AGAIN)).filter(|_| now - since < self.detect());
            self.actions.push_back(Action::Wake { after_silence: false });
        }
    }
}

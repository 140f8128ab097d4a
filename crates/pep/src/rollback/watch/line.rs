//! The TCP connection: when it is wanted, and what becomes of it.

use super::probing::URGENT;
use super::{Action, Lane, Line, Phase, Watch};
use crate::rollback::Trouble;
use skyhaul_cc::{Duration, Time};

/// After an attempt to connect …
const DIAL_AGAIN: Duration = Duration::from_secs(1);
/// … and after one that was refused: refused twice in this time, the program is gone.
const REFUSED_AGAIN: Duration = Duration::from_millis(300);
/// A line that is not needed is closed after so long.
const LINE_IDLE: Duration = Duration::from_secs(60);
/// A program that ICMP says is gone and nobody hears of by other means is believed gone after this.
const UNREACHABLE: Duration = Duration::from_secs(6);
/// A program that takes connections and ends them without a word, so often and over such a time, is another one.
/// A single one may be the doing of a box in between.
const REJECTIONS: u32 = 3;
const REJECTED: Duration = Duration::from_secs(2);

impl Watch {
    /// The owner's TCP connection is made (terminal), or one has shown a genuine first word (gateway).
    pub(crate) fn line_open(&mut self, now: Time) {
        self.line = Line::Open { since: now, proven: false };
        self.line_lane = Lane::new(now);
        if self.terminal {
            self.probe(now, true, false);
        }
    }

    /// Whether `bytes` are a first word for a new line: genuine and not heard before.
    pub(crate) fn opens_line(&mut self, bytes: &[u8]) -> bool {
        match self.keys.verify(true, bytes) {
            Some(word) if !self.terminal && !word.answer && word.number > self.opened_by => {
                self.opened_by = word.number;
                true
            }
            _ => {
                self.stats.words_refused += 1;
                false
            }
        }
    }

    /// The TCP connection could not be made, or has ended.
    pub(crate) fn line_lost(&mut self, now: Time, refused: bool) {
        let since = match std::mem::replace(&mut self.line, Line::None) {
            Line::None => return,
            Line::Open { since, proven: false } => {
                if self.rejections == 0 {
                    self.rejected = now;
                }
                self.rejections += 1;
                since
            }
            Line::Dialling { since } | Line::Open { since, .. } => since,
        };
        self.next_dial = now + DIAL_AGAIN;
        if refused {
            self.next_dial = now + REFUSED_AGAIN;
            if self.any.learnt <= since {
                self.refusals += 1;
            }
        }
        if self.phase == Phase::Tcp {
            self.next_dial = now;
            self.lose_line(now);
        }
        self.decide(now);
    }

    /// Whoever listens there does not any more.
    pub(super) fn decide_gone(&mut self, now: Time) {
        let icmp = self.unreachable.is_some_and(|since| {
            let alone = !self.settings.carriage || (self.terminal && self.refusals > 0);
            alone || (now - since >= UNREACHABLE && self.heard_any <= since)
        });
        // It answers and does not know this channel: its program was started anew.
        let strange = self.rejections >= REJECTIONS && now - self.rejected >= REJECTED;
        if icmp || strange || self.refusals > 1 {
            (self.refusals, self.rejections) = (0, 0);
            self.unreachable = None;
            self.actions.push_back(Action::Gone(Trouble::Refused));
        } else if self.give_up_at().is_some_and(|at| at <= now) {
            self.actions.push_back(Action::GiveUp);
        }
    }

    /// While nothing gets through: when the other end is given up.
    pub(super) fn give_up_at(&self) -> Option<Time> {
        let give_up = self.settings.give_up;
        // One that is heard and does not hear is there.
        let at = (self.lived + give_up).max(self.heard_any + give_up / 2);
        matches!(self.phase, Phase::Silent { .. }).then_some(at)
    }

    pub(super) fn has_line(&self) -> bool {
        matches!(self.line, Line::Open { proven: true, .. })
    }

    /// From when on a TCP connection is wanted while UDP is in use.
    pub(super) fn wants_line_at(&self) -> Option<Time> {
        if !self.terminal || !self.settings.carriage {
            return None;
        }
        let deaf = self.other_deaf.map(|_| self.next_dial);
        let degraded = self.quality.suspects_since();
        let silent = match self.phase {
            Phase::Silent { since } => Some(since),
            _ => None,
        };
        // A quarter of a round trip beyond what a late answer takes.
        let overdue = [false, true].into_iter().filter_map(|full| self.overdue_since(full)).min();
        [self.unreachable, deaf, degraded, silent, overdue.map(|at| at + URGENT)].into_iter().flatten().min()
    }

    /// Opens the TCP connection in time and closes it when it is not needed.
    pub(super) fn tend_line(&mut self, now: Time) {
        if !self.terminal {
            return;
        }
        let wanted = self.wants_line_at().is_some_and(|at| at <= now) || self.refusals > 0;
        match self.line {
            Line::None if wanted && now >= self.next_dial => {
                self.line = Line::Dialling { since: now };
                self.stats.dialled += 1;
                self.actions.push_back(Action::Dial);
            }
            // Made, and nothing said by it.
            Line::Open { since, proven: false } if now - since >= self.detect() => self.hang_up(now),
            Line::Open { since, proven: true } if !wanted && now - since >= LINE_IDLE => self.hang_up(now),
            _ => {}
        }
    }

    pub(super) fn hang_up(&mut self, now: Time) {
        self.line = Line::None;
        self.next_dial = now + DIAL_AGAIN;
        self.actions.push_back(Action::HangUp);
    }
}

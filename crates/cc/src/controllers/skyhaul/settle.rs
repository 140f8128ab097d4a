//! After somebody has joined: equal shares within seconds.
//!
//! With the same addition for everyone and small cuts every other second flows do become equal, but over minutes
//! where round trips are long. So whoever joins a busy link, or finds a queue that only a newcomer makes, cuts more
//! and oftener for a while.
//!
//! - What is cut grows with our share of the link: who has twice as much gives four times as much. A newcomer
//!   that alone thinks it has to cut so loses next to nothing by it.
//! - Everyone adds the same per round until a queue of 0.08 D stands, which is what a cut of one of three
//!   flows takes away: so the link stays full, and all flows see the same reason to stop.
//! - They cut at different times, or the link would be empty: every flow draws its own. Who waited for a queue before
//!   it cuts would cut with all others who see the same queue; who finds the link idle passes its turn over.
//! - A newcomer begins with a small share and adds as much per round for some rounds, whatever the queue:
//!   others yield to a queue only.
//!
//! What trains find free does not make anyone grow faster here: who has little sees others' trains and pauses more
//! than who has much.

use super::cruise::View;
use super::path::between;
use super::round::Finding;
use super::{Phase, Skyhaul};
use crate::parts::draw::draw;
use crate::units::Time;

/// Rounds from one cut to the next: at least, and up to so many more by chance.
const CYCLE: (u32, u32) = (3, 5);
/// A cut as a part of our share of the capacity, and at most.
const CUT: f64 = 0.5;
const CUT_MOST: f64 = 0.4;
/// While trains find so much of the capacity free beyond what we use, and hardly a queue stands, the turn is passed over.
const IDLE: f64 = 0.1;
/// Everyone adds this share of the capacity per round …
const STEP: f64 = 0.025;
/// … to a queue of this share of a round trip …
const QUEUE: f64 = 0.08;
/// … and takes away so much of what is above it, and at most this share of the window.
const GAIN: f64 = 0.5;
const FALL_MOST: f64 = 0.25;
/// It goes on for so many rounds and seconds …
const ROUNDS: u32 = 30;
const SECONDS: f64 = 5.0;
/// … and does not begin anew for so many rounds and as many seconds: the queue it has made is still there.
const REST: u32 = 30;
/// A queue of so many targets and of this share of a round trip, all through a round: somebody has joined.
const JOINED: (f64, f64) = (2.0, 0.15);
/// Rounds after a cut that still show the window before.
const ECHO: u32 = 1;
/// Share of the capacity that a newcomer adds per round, and rounds in which it does: within half a
/// bandwidth-delay product of queue there is room for what others have not yet yielded.
const RAMP: f64 = 0.1;
const RAMP_ROUNDS: u32 = 3;
/// At other times a dip becomes permanent by this part of our share of the capacity …
const DIP_CUT: f64 = 0.3;
/// … half of that over so many seconds of a round trip: others take more of the time until the next one to fill it.
const DIP_CUT_TIME: f64 = 0.5;
/// Trains that are remembered …
const FOUND: usize = 5;
/// … and how many of them are several.
const FOUND_LEAST: usize = 3;
/// What they found free is looked at for a round trip and at least so many seconds.
const RECENT: f64 = 0.3;
/// So much of the capacity free beside what we use, without a queue, for so many rounds: the others have gone.
const LEFT: f64 = 0.25;
const LEFT_ROUNDS: u32 = 2;

/// Where we are in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settle {
    /// What the last trains found free for us.
    found: [Option<(Time, f64)>; FOUND],
    /// Rounds in a row in which nobody else seemed to be there.
    alone: u32,
    /// Rounds left.
    left: u32,
    /// Rounds until it may begin again.
    rest: u32,
    /// Rounds of the ramp that are over.
    ramp: Option<u32>,
    /// Rounds in which nothing is decided.
    wait: u32,
    /// Rounds until the next cut.
    turn: u32,
}

impl Settle {
    /// Somebody has joined.
    fn stir(&mut self, round_trip: f64) {
        if self.left == 0 {
            self.left = ROUNDS.max((SECONDS / round_trip.max(1e-3)) as u32);
        }
    }

    /// We have joined a busy link.
    pub fn join(&mut self, round_trip: f64) {
        self.left = 0;
        self.stir(round_trip);
        self.ramp = Some(0);
    }

    /// A train has found this rate to be ours to take.
    pub fn hear_available(&mut self, now: Time, rate: f64) {
        self.found.rotate_left(1);
        self.found[FOUND - 1] = Some((now, rate));
    }

    /// The least that trains found in the last so many seconds and the least but one, if there were several: others
    /// pause after a train of their own, and whoever meets that finds too much.
    pub fn found(&self, now: Time, seconds: f64) -> Option<(f64, f64)> {
        let recent = self.found.iter().flatten().filter(|(at, _)| between(*at, now) < seconds);
        let mut recent: Vec<f64> = recent.map(|(_, rate)| *rate).collect();
        recent.sort_unstable_by(f64::total_cmp);
        Some((*recent.first()?, *recent.get(1)?)).filter(|_| recent.len() >= FOUND_LEAST)
    }

    /// The share that a newcomer takes.
    pub fn ramp(&self) -> Option<f64> {
        self.ramp.map(|rounds| RAMP * f64::from(rounds + 1))
    }

    /// The window has just been cut: the next round says nothing.
    pub fn cut(&mut self) {
        self.wait = ECHO;
    }

    /// Whether a round that ends shows a window of before.
    pub fn is_echo(&mut self) -> bool {
        let waits = self.wait > 0;
        self.wait = self.wait.saturating_sub(1);
        waits
    }

    /// Whether shares are being made equal.
    pub fn is_under_way(&self) -> bool {
        self.left > 0
    }

    /// Rounds until the next cut, by chance.
    fn draw(&mut self, now: Time) {
        self.turn = CYCLE.0 + (draw(now) % u64::from(CYCLE.1)) as u32;
    }
}

impl Skyhaul {
    /// A round has ended: whether somebody has joined since the last.
    pub(super) fn look_for_joins(&mut self, finding: &Finding, shared: bool, target: f64) {
        let round_trip = self.round_trip();
        let settle = &mut self.settle;
        settle.rest = settle.rest.saturating_sub(1);
        let long = finding.least > (JOINED.0 * target).max(JOINED.1 * round_trip);
        if shared && long && settle.rest == 0 {
            settle.stir(round_trip);
        }
    }

    /// What is free on a link of this capacity that others share by all signs, while we use `rate` of it, and whether
    /// nobody else is there any more: there has been no queue for some rounds, and trains found much more than we use.
    pub(super) fn look_for_room(
        &mut self,
        finding: &Finding,
        shared: Option<f64>,
        rate: f64,
    ) -> (Option<f64>, bool) {
        let Some(capacity) = shared else { return (None, false) };
        let found = self.settle.found(finding.now, self.round_trip().max(RECENT));
        let much = found.is_some_and(|(_, but_one)| but_one > rate + LEFT * capacity);
        let alone = much && finding.least < 0.5 * self.target();
        self.settle.alone = if alone { self.settle.alone.saturating_add(1) } else { 0 };
        if self.settle.alone >= LEFT_ROUNDS {
            return (found.map(|(_, but_one)| but_one), true);
        }
        (found.map(|(least, _)| least), false)
    }

    /// A dip on a shared link is over and becomes permanent: with the same addition for everyone, flows become equal.
    /// Who has more cuts more.
    pub(super) fn cut_after_dip(&mut self, view: &View) {
        let Some(capacity) = view.shared.filter(|_| !view.alone) else { return };
        let most = DIP_CUT / (1.0 + view.round_trip / DIP_CUT_TIME);
        self.window.scale(1.0 - (most * view.rate / capacity).min(most));
        self.settle.cut();
    }

    /// A round on a shared link has ended; whether the window is decided.
    pub(super) fn end_settling_round(&mut self, finding: &Finding, view: &View) -> bool {
        let Some(capacity) = view.shared.filter(|_| self.phase == Phase::Cruise) else { return false };
        if !self.settle.is_under_way() || self.is_noisy() || self.compete.floor().is_some() || view.fillers {
            self.settle.ramp = None;
            return false;
        }
        self.settle.left -= 1;
        self.settle.turn = self.settle.turn.saturating_sub(1);
        if self.settle.left == 0 {
            self.settle.rest = REST.max((SECONDS / view.round_trip.max(1e-3)) as u32);
        }
        self.dips.cancel();
        if let Some(rounds) = self.settle.ramp {
            self.settle.ramp = (rounds + 1 < RAMP_ROUNDS).then_some(rounds + 1);
            if let Some(share) = self.settle.ramp() {
                let window = share * capacity * view.round_trip;
                self.window.set(window.max(self.window.segments()));
            }
            return true;
        }
        if self.settle.is_echo() {
            return true;
        }
        if finding.app_limited || finding.steady < 1.0 {
            return true;
        }
        let wanted = view.target.max(QUEUE * view.round_trip);
        if self.settle.turn == 0 {
            self.settle.draw(finding.now);
            let idle = view.free.is_some_and(|free| free > view.rate + IDLE * capacity);
            if !(view.alone || idle && finding.least < view.target) {
                self.window.scale(1.0 - (CUT * view.rate / capacity).min(CUT_MOST));
                self.settle.cut();
                return true;
            }
        }
        let window = if finding.least < wanted {
            view.window + STEP * capacity * view.round_trip
        } else {
            view.window - (GAIN * view.rate * (finding.least - wanted)).min(FALL_MOST * view.window)
        };
        self.window.set(window);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_takes_a_tenth_more_per_round_and_all_settle_for_five_seconds() {
        let mut settle = Settle::default();
        assert_eq!(settle.ramp(), None);
        settle.join(0.1);
        assert_eq!((settle.ramp(), settle.left), (Some(RAMP), 50));
        settle.stir(0.5);
        assert_eq!(settle.left, 50, "it is under way already");
        settle.join(0.5);
        assert_eq!(settle.left, ROUNDS);
    }

    #[test]
    fn flows_cut_at_unlike_times() {
        let mut settle = Settle::default();
        let mut turns = [0; 8];
        for round in 0..1_000 {
            settle.draw(Time::from_micros(round * 100_003));
            turns[settle.turn as usize] += 1;
        }
        assert!(turns[3..].iter().all(|times| (150..250).contains(times)), "{turns:?}");
    }

    #[test]
    fn what_is_free_is_known_by_several_trains() {
        let mut settle = Settle::default();
        for (at, rate) in [(1, 50.0), (2, 900.0), (3, 1000.0), (4, 300.0), (5, 1000.0)] {
            settle.hear_available(Time::from_secs(at), rate);
        }
        assert_eq!(settle.found(Time::from_secs(5), 4.5), Some((50.0, 300.0)));
        assert_eq!(settle.found(Time::from_secs(5), 2.5), Some((300.0, 1000.0)));
        assert_eq!(settle.found(Time::from_secs(5), 1.5), None);
    }
}

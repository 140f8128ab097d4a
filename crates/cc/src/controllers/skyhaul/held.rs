//! What a hold-up spoils, of the path or of a machine whose processor others take away for some milliseconds.
//!
//! Packets held back arrive together, and a first burst that does looks like that of a link many times as fast: it
//! is repeated. Trains last for milliseconds and most of them fall between two hold-ups, so a start that told
//! nothing is made up for as soon as they tell something. And who cannot keep the pace fills no window, which
//! then neither grows nor says anything of the link: it makes haste between the hold-ups, within the window.

use super::cruise::View;
use super::path::between;
use super::round::Finding;
use super::{Phase, Policy, Skyhaul, FREE, SHARED_GROWTH, USED, VALID, VALIDATED};
use crate::controller::Setup;
use crate::event::Report;
use crate::units::Time;
use crate::window::segments;

/// A burst was held up if its first packet was under way longer than others, by so many times what the burst lasted …
const LONGER: f64 = 2.0;
/// … and by more than this.
const LONGER_LEAST: f64 = 0.002;
/// First flights that are begun again because they were held up, and because they told nothing.
const AGAIN_MOST: u32 = 3;
const AGAIN_SILENT: u32 = 1;
/// The pace is raised so many times at most …
const HASTE_MOST: f64 = 3.0;
/// … and what it was raised by is forgotten by this factor per round.
const HASTE_DECAY: f64 = 0.9;
/// After an outage of the path so many rounds show what it left under way, and no haste helps.
const OUTAGE_ROUNDS: u32 = 3;

/// What is remembered of hold-ups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// Packets of the first flight.
    window: f64,
    /// The number of its train, and how long the first packet of that was under way, by two clocks.
    train: Option<u32>,
    delay: Option<f64>,
    again: u32,
    /// When it was begun again.
    again_at: Time,
    haste: f64,
    /// Rounds without haste.
    calm: u32,
}

impl Held {
    pub fn new(setup: &Setup) -> Self {
        Held {
            window: segments(setup.initial_window, setup.mss),
            train: None,
            delay: None,
            again: 0,
            again_at: Time::ZERO,
            haste: 1.0,
            calm: 0,
        }
    }

    /// How many times the pace is raised, so that its mean is what it should be.
    pub fn haste(&self) -> f64 {
        self.haste
    }

    /// This train is the first flight: those before were greetings.
    pub fn begin(&mut self, train: Option<u32>) {
        (self.train, self.delay) = (train, None);
    }

    /// The path was cut for a moment.
    pub fn hear_outage(&mut self) {
        self.haste = 1.0;
        self.calm = OUTAGE_ROUNDS;
    }
}

impl Skyhaul {
    /// A packet has arrived: begins the first flight again if that was held up.
    pub(super) fn look_for_hold_up(&mut self, report: &Report, received_at: Time) {
        match self.phase {
            Phase::First if report.train.is_some() && report.train == self.held.train => {
                self.held.delay.get_or_insert(between(report.sent_at, received_at));
            }
            Phase::First | Phase::Validate { .. } => {}
            Phase::Cruise => self.held.begin(None),
        }
        let rests_on_it = self.phase != Phase::First && self.available.is_none();
        let (Some(delay), Some(capacity)) = (self.held.delay, self.trains.capacity()) else { return };
        let held_up = rests_on_it && self.is_held_up(delay, self.flight.1 / capacity);
        if held_up && self.held.again < AGAIN_MOST {
            self.begin_again(report.now);
        }
    }

    /// Whether a burst that lasted so long by its packets, the first of which was so long under way, was held up.
    pub(super) fn is_held_up(&self, delay: f64, lasted: f64) -> bool {
        self.path.base().is_some_and(|base| delay - base > (LONGER * lasted).max(LONGER_LEAST))
    }

    fn begin_again(&mut self, now: Time) {
        self.held = Held { again: self.held.again + 1, again_at: now, ..self.held };
        self.held.begin(None);
        self.phase = Phase::First;
        self.flight = (now, 0.0);
        self.given_tried = false;
        self.trains.forget();
        // What is under way does not keep it from leaving.
        self.window.set(self.held.window + self.in_flight);
    }

    /// Whether the first flight is over, by the time when a packet left whose answer is here.
    pub(super) fn is_flight_over(&self, sent_at: Time) -> bool {
        let again = self.held.again > 0 && between(self.held.again_at, sent_at) > 0.5 * self.round_trip();
        self.phase == Phase::First && ((self.has_flown() && sent_at > self.flight.0) || again)
    }

    /// The first flight is over and no train told anything: another one, or growth without.
    pub(super) fn end_silent_flight(&mut self, now: Time) {
        let told = self.given.is_some() || self.trains.capacity().is_some() || self.trains.so_far().is_some();
        if !told && self.held.again < AGAIN_SILENT && !self.is_noisy() {
            self.begin_again(now);
        } else {
            self.phase = Phase::Cruise;
        }
    }

    /// A round has ended in which so many packets were in flight at most.
    pub(super) fn make_haste(&mut self, most: f64, app_limited: bool) {
        let before = self.before.iter().map(|(window, _)| *window);
        let window = before.fold(self.effective(), f64::min);
        let held = &mut self.held;
        held.calm = held.calm.saturating_sub(1);
        let late = self.phase == Phase::Cruise && !app_limited && held.calm == 0;
        held.haste = if late && most < USED * window {
            (held.haste * window / most.max(1.0)).min(HASTE_MOST)
        } else {
            1.0 + HASTE_DECAY * (held.haste - 1.0)
        };
    }

    /// Whether the link is to be filled by what trains say: it never was, because no first flight told anything.
    fn is_unfilled(&self, now: Time) -> bool {
        self.phase == Phase::Cruise
            && !self.cruise.is_full()
            && self.policy != Policy::Scavenge
            && self.trains.bursts() > 1
            && self.trains.is_trusted()
            && !self.is_shared(now, SHARED_GROWTH)
    }

    /// A burst told something long after the start.
    pub(super) fn hear_late_burst(&mut self, agrees: bool) {
        if agrees && self.available.is_none() && self.is_unfilled(self.now) {
            self.trains.pace_next(2);
        }
    }

    /// A paced train found this much free outside validation.
    pub(super) fn fill_late(&mut self, rate: f64, now: Time) {
        let Some(capacity) = self.trains.capacity().filter(|capacity| rate > VALID * capacity) else {
            return;
        };
        let window = VALIDATED * rate.min(capacity) * self.round_trip();
        if self.is_unfilled(now) && window > self.window.segments() {
            self.window.set(window);
            self.cruise.filled();
        }
    }

    /// Whether trains find much more free than goes through, and no queue stands: the window may grow although the host
    /// did not fill it.
    pub(super) fn is_free(&self, finding: &Finding, view: &View) -> bool {
        let free = view.available.is_some_and(|available| available > FREE * view.rate);
        free && view.shared.is_none() && finding.least < 0.5 * view.target
    }
}

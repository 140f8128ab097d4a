//! Loss detection by odds: what [`LossOdds`] needs to know of a TCP sender, and what it cannot know.

use std::collections::{BTreeMap, VecDeque};

use super::scoreboard::{Losses, Place, Record, Scoreboard};
use super::truth::Truth;
use skyhaul_cc::parts::loss_odds::Fate;
use skyhaul_cc::parts::LossOdds;
use skyhaul_cc::units::{Duration, Time};

/// What the predictive judgement did, and how well its odds agree with what truly happened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Judgement {
    /// Judged lost by age: nothing sent later was acknowledged.
    pub by_age: u64,
    /// Judged lost by order: something sent later is acknowledged and took so much less time.
    pub by_order: u64,
    /// Judged lost by the conventional rule, because it was sooner or too little was learned.
    pub by_rule: u64,
    /// Of all these, those that arrived before their copy could.
    pub acquitted: u64,
    /// The odds of transmissions while they were the oldest open one, by tenths; each transmission counts
    /// once in each tenth that it was found in.
    pub deciles: [Decile; 10],
}

/// Transmissions whose odds of being lost were found in one tenth of [0, 1].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Decile {
    /// How many.
    pub found: u64,
    /// Of these, truly lost.
    pub lost: u64,
    /// Sum of the odds when they were first found there.
    pub predicted: f64,
}

impl Decile {
    /// Share of the lost ones less the mean of the odds: zero is perfect, greater means that more is lost
    /// than predicted. None where none was found.
    pub fn error(&self) -> Option<f64> {
        (self.found > 0).then(|| (self.lost as f64 - self.predicted) / self.found as f64)
    }
}

/// The predictive judgement of one sender.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    odds: LossOdds,
    /// Transmissions that were the newest to be answered when they were, with their round trips, in rising
    /// order: the first one above a transmission is the one that overtook it first.
    overtakers: VecDeque<(u64, Duration)>,
    /// What was judged lost and is not answered yet, by segment.
    suspects: BTreeMap<u64, Suspect>,
    /// Of these, how many nothing has overtaken yet.
    alone: usize,
    /// The newest transmission that was answered.
    newest: Newest,
    /// Segments that the ACK under way answers.
    fresh: u32,
    /// Segments per ACK while all is in order: whether the receiver holds ACKs back.
    bundle: f64,
    /// When something was last answered.
    heard: Time,
    /// Judged by age since.
    by_age: u32,
    /// The transmission last counted, and the tenths it was counted in.
    counted: (u64, u16),
    judgement: Judgement,
}

#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    transmission: u64,
    rtt: Duration,
    answered: Time,
}

#[derive(Clone, Copy, Debug)]
struct Suspect {
    transmission: u64,
    sent_at: Time,
    overtaken: Option<Duration>,
    /// Fate of the transmission before it.
    before: Option<Fate>,
}

impl Judge {
    pub fn new(odds: LossOdds) -> Self {
        Judge {
            odds,
            overtakers: VecDeque::new(),
            suspects: BTreeMap::new(),
            alone: 0,
            newest: Newest::default(),
            fresh: 0,
            bundle: 1.0,
            heard: Time::ZERO,
            by_age: 0,
            counted: (0, 0),
            judgement: Judgement::default(),
        }
    }

    pub fn judgement(&self) -> &Judgement {
        &self.judgement
    }

    /// Whether enough was seen to judge by age, which needs a timer and not an ACK.
    pub fn is_ready(&self) -> bool {
        self.odds.is_ready()
    }

    /// The ACK under way covers `seq`; `earlier_copy` if it answers a copy sent before the last one.
    /// Returns whether something judged lost was only late.
    pub fn on_arrived(&mut self, now: Time, seq: u64, record: &Record, earlier_copy: bool) -> bool {
        self.fresh += 1;
        let earlier_copy = earlier_copy || record.place == Place::Lost;
        let suspect = if record.again || earlier_copy { self.suspects.remove(&seq) } else { None };
        self.alone -= usize::from(suspect.is_some_and(|suspect| suspect.overtaken.is_none()));
        if !earlier_copy {
            let rtt = now.since(record.sent_at);
            self.odds.on_arrived(rtt);
            if self.newest.answered == now {
                // One ACK for both: there was no time in which only the later one was answered.
                self.odds.on_compared(Duration::ZERO);
            } else if record.transmission > self.newest.transmission {
                // It is the later one for the newest so far, if they were under way together.
                if record.sent_at < self.newest.answered {
                    self.odds.on_compared(self.newest.rtt.saturating_sub(rtt));
                }
            } else if let Some(later) = self.overtaken(record.transmission) {
                self.odds.on_compared(rtt.saturating_sub(later));
            }
            if record.transmission > self.newest.transmission {
                self.newest = Newest { transmission: record.transmission, rtt, answered: now };
            }
            return false;
        }
        // Of what a timeout gave up nothing is known.
        let Some(suspect) = suspect else { return false };
        let rtt = now.since(suspect.sent_at);
        self.odds.on_arrived(rtt);
        if let Some(later) = suspect.overtaken {
            self.odds.on_compared(rtt.saturating_sub(later));
        }
        self.odds.on_acquitted(suspect.before);
        self.judgement.acquitted += 1;
        true
    }

    /// The ACK has been taken in; `in_order` if nothing was missing before and after it.
    pub fn on_ack(&mut self, now: Time, in_order: bool) {
        let segments = std::mem::take(&mut self.fresh);
        if segments == 0 {
            return;
        }
        self.heard = now;
        self.by_age = 0;
        if in_order {
            self.bundle += (f64::from(segments) - self.bundle) / BUNDLE_MEMORY;
        }
        let Newest { transmission: newest, rtt, .. } = self.newest;
        if self.overtakers.back().is_none_or(|&(highest, _)| highest < newest) {
            self.overtakers.push_back((newest, rtt));
            if self.alone > 0 {
                let overtaken = |s: &&mut Suspect| s.overtaken.is_none() && s.transmission < newest;
                for suspect in self.suspects.values_mut().filter(overtaken) {
                    suspect.overtaken = Some(rtt);
                    self.alone -= 1;
                }
            }
        }
    }

    /// The timeout has given up everything.
    pub fn on_rto(&mut self) {
        self.suspects.clear();
        self.alone = 0;
        self.by_age = 0;
        self.odds.forget_order();
    }

    /// Looks at the oldest open transmissions: declares lost what is, and says when to look again.
    /// `rule` tells when the conventional rule loses a transmission, if it would.
    pub fn look(
        &mut self,
        now: Time,
        board: &mut Scoreboard,
        rule: impl Fn(u64, Time) -> Option<Time>,
    ) -> (Losses, Option<Time>) {
        let mut losses = Losses::default();
        while let Some((seq, transmission)) = board.oldest() {
            match board.record(seq) {
                // A probe repeated it while it was in flight: nobody knows.
                Some(record) if record.transmission != transmission => {}
                Some(record) if record.place == Place::InFlight => {
                    let record = *record;
                    let later = board.transmissions() - transmission;
                    let at = self.due(now, &record, later, rule(transmission, record.sent_at));
                    if at.is_none_or(|at| at > now) {
                        return (losses, at);
                    }
                    let before = self.odds.fate_before();
                    let overtaken = self.overtaken(transmission);
                    let suspect = Suspect { transmission, sent_at: record.sent_at, overtaken, before };
                    self.alone += usize::from(overtaken.is_none());
                    if let Some(old) = self.suspects.insert(seq, suspect) {
                        self.alone -= usize::from(old.overtaken.is_none());
                    }
                    self.odds.on_fate(Fate::Lost);
                    board.lose(seq, &mut losses);
                }
                _ => self.odds.on_fate(Fate::Arrived),
            }
            board.take_oldest();
            while self.overtakers.front().is_some_and(|&(newest, _)| newest <= transmission) {
                self.overtakers.pop_front();
            }
        }
        (losses, None)
    }

    /// When the oldest open transmission is lost, `later` ones having been sent since. Counts the look,
    /// and the judgement if that is not in the future.
    fn due(&mut self, now: Time, record: &Record, later: u64, rule: Option<Time>) -> Option<Time> {
        let Some(crossing) = self.odds.crossing() else {
            self.judgement.by_rule += u64::from(rule.is_some_and(|at| at <= now));
            return rule;
        };
        let overtaken = self.overtaken(record.transmission);
        // The receiver may be waiting for more to acknowledge with it.
        let held = overtaken.is_none() && self.bundle > BUNDLED && (later as f64) < self.bundle;
        let patience = if held { HELD } else { Duration::ZERO };
        let age = now.since(record.sent_at);
        self.count(age.saturating_sub(patience), overtaken.map(|rtt| age.saturating_sub(rtt)), record);

        // Silence of everything since a first copy left tells of an outage, in which repeating helps
        // nobody: the timeout backs off. So does silence of very much.
        let silent = self.by_age >= MOST_BY_AGE || record.again && record.sent_at >= self.heard;
        let by_age = (overtaken.is_some() || !silent).then(|| record.sent_at + patience + crossing.age);
        let by_order = overtaken.map(|rtt| record.sent_at + rtt + crossing.longer);
        let odds = match (by_age, by_order) {
            (Some(age), Some(order)) => Some(age.min(order)),
            (age, order) => age.or(order),
        };
        let at = match (odds, rule) {
            (Some(odds), Some(rule)) => odds.min(rule),
            (odds, rule) => odds.or(rule)?,
        };
        if at <= now {
            let judgement = &mut self.judgement;
            if odds.is_none_or(|odds| odds > now) {
                judgement.by_rule += 1;
            } else if overtaken.is_some() {
                judgement.by_order += 1;
            } else {
                judgement.by_age += 1;
                self.by_age += 1;
            }
        }
        Some(at)
    }

    fn count(&mut self, age: Duration, longer: Option<Duration>, record: &Record) {
        let lost = self.odds.lost(age, longer);
        let tenth = ((lost * 10.0) as usize).min(9);
        if self.counted.0 != record.transmission {
            self.counted = (record.transmission, 0);
        }
        if self.counted.1 & 1 << tenth == 0 {
            self.counted.1 |= 1 << tenth;
            let decile = &mut self.judgement.deciles[tenth];
            decile.found += 1;
            decile.lost += u64::from(record.truth != Truth::Arrives);
            decile.predicted += lost;
        }
    }

    /// Round trip of the first transmission later than this one that was answered.
    fn overtaken(&self, transmission: u64) -> Option<Duration> {
        // Mostly nothing, or the front.
        if self.overtakers.back()?.0 <= transmission {
            return None;
        }
        let place = self.overtakers.partition_point(|&(newest, _)| newest <= transmission);
        self.overtakers.get(place).map(|&(_, rtt)| rtt)
    }
}

/// Most transmissions judged by age while nothing at all is answered: the bursts of the papers' links, 20
/// packets, and some.
const MOST_BY_AGE: u32 = 32;
/// ACKs after which the mean of segments per ACK has followed a change by two thirds.
const BUNDLE_MEMORY: f64 = 16.0;
/// With more segments per ACK than this, ACKs are held back for a second segment.
const BUNDLED: f64 = 1.25;
/// How long a receiver holds an ACK back: 40 ms, as Linux begins with. Up to 500 ms are allowed (RFC 1122
/// §4.2.3.2), but a needless copy of a last segment costs little.
const HELD: Duration = Duration::from_millis(40);

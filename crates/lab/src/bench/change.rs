//! Links that change while a flow is on its way: fade and return, handover, outage.

use skyhaul_cc::registry::Contender;
use skyhaul_cc::units::{Duration, Rate, Time};
use skyhaul_sim::scenario::Change;

use super::path::{ms, Path, Told};
use super::watch::{self, Arrivals, Seen};
use super::{limits, Ask, Cell, Goal, Host, Run};
use crate::experiment::LabError;

/// Seconds at which the link gets worse, and at which it is as before.
const WORSE: u64 = 20;
const AGAIN: u64 = 40;
const END: u64 = 60;
/// A fade leaves this share of the rate.
const FADED: f64 = 0.25;
/// The flow is back when it has this share of the link.
const BACK: f64 = 0.9;
/// Intervals in which arrivals are counted.
const BIN: Duration = Duration::from_millis(20);
/// Seconds of low orbit: the first handover after the start, and the time between two.
const HANDOVER: u64 = 15;
/// What is looked at there, in seconds.
const ORBIT: (u64, u64) = (5, 95);

/// A link that changes.
#[derive(Clone, Debug)]
struct Changing {
    id: String,
    about: String,
    path: Path,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    /// Worse for a while; the return counts, at this second.
    Return { at: u64 },
    /// Handovers again and again; what is carried of what was offered counts.
    Handovers,
}

pub(super) fn cells(quick: bool) -> Vec<Box<dyn Cell>> {
    let mut cells = Vec::new();
    for (mbit, rtt, loss, queue) in [(150, 540, 0.012, 0.5), (150, 540, 0.0, 1.0), (100, 40, 0.0, 1.0)] {
        cells.push(fade(mbit, rtt, loss, queue));
    }
    for (step, out) in [(10, 50), (30, 200), (30, 500)] {
        cells.push(handovers(step, out));
    }
    for (mbit, rtt, seconds) in [(100, 40, 2), (150, 540, 2), (150, 540, 15)] {
        if !quick || mbit == 100 {
            cells.push(outage(mbit, rtt, seconds));
        }
    }
    let cells = cells.into_iter().map(|cell| cell.expect("the catalogue has the model"));
    cells.map(|cell| Box::new(cell) as Box<dyn Cell>).collect()
}

fn fade(mbit: u64, rtt: u64, loss: f64, queue: f64) -> Result<Changing, LabError> {
    let mut path = Path::with_queue(mbit, ms(rtt), loss, queue)?;
    let rate = path.forward().rate;
    for (at, rate) in [(WORSE, rate.scale(FADED)), (AGAIN, rate)] {
        let at = Duration::from_secs(at);
        path.forward_mut().changes.push(Change { at, rate: Some(rate), ..Change::default() });
    }
    let id = format!("fade-{mbit}-{rtt}-{queue}");
    let about = format!("{rate}, {rtt} ms, {} % loss, queue {queue} BDP: a quarter for 20 s", loss * 100.0);
    Ok(Changing { id, about, path, what: What::Return { at: AGAIN } })
}

/// Low orbit: at each handover the path is longer or shorter, and out for a moment.
fn handovers(step: u64, out: u64) -> Result<Changing, LabError> {
    let (rate, rtt) = (100, 40);
    let mut path = Path::with_queue(rate, ms(rtt), 0.0, 1.0)?;
    for direction in [&mut path.scenario.forward, &mut path.scenario.back] {
        for (nth, way) in [rtt / 2 + step, rtt / 2].into_iter().enumerate() {
            direction.changes.push(Change {
                at: Duration::from_secs(HANDOVER * (nth as u64 + 1)),
                one_way: Some(ms(way)),
                outage: Some(ms(out)),
                every: Some(Duration::from_secs(2 * HANDOVER)),
                ..Change::default()
            });
        }
    }
    let about =
        format!("{rate} Mbit/s, {rtt} ms: every {HANDOVER} s {step} ms longer or shorter, out for {out} ms");
    Ok(Changing { id: format!("leo-{step}-{out}"), about, path, what: What::Handovers })
}

fn outage(mbit: u64, rtt: u64, seconds: u64) -> Result<Changing, LabError> {
    let mut path = Path::with_queue(mbit, ms(rtt), 0.0, 1.0)?;
    for direction in [&mut path.scenario.forward, &mut path.scenario.back] {
        direction.changes.push(Change {
            at: Duration::from_secs(WORSE),
            outage: Some(Duration::from_secs(seconds)),
            ..Change::default()
        });
    }
    let about = format!("{mbit} Mbit/s, {rtt} ms: out for {seconds} s");
    let id = format!("outage-{mbit}-{rtt}-{seconds}");
    Ok(Changing { id, about, path, what: What::Return { at: WORSE + seconds } })
}

impl Changing {
    fn end(&self) -> Time {
        Time::from_secs(if self.what == What::Handovers { ORBIT.1 } else { END })
    }

    /// Three round trips and 0.2 s.
    fn back_within(&self) -> Duration {
        self.path.rtt() * 3 + ms(200)
    }
}

impl Cell for Changing {
    fn id(&self) -> &str {
        &self.id
    }

    fn about(&self) -> String {
        self.about.clone()
    }

    fn cost(&self, _: Host) -> f64 {
        let packets = self.path.payload_rate().bytes_in(self.end().since_start());
        packets.as_f64() / self.path.mss.as_f64() * limits::SECONDS_PER_PACKET
    }

    fn floor(&self, _: Host) -> Rate {
        let (from, to) = if self.what == What::Handovers { ORBIT } else { (0, END) };
        let (from, to) = (Time::from_secs(from), Time::from_secs(to));
        Rate::from_f64(self.path.offered(from, to) / to.since(from).as_secs_f64())
    }

    fn asks(&self, _: &Contender) -> Vec<Ask> {
        match self.what {
            What::Handovers => vec![Ask::new("use", Goal::AtLeast(0.97))],
            What::Return { at } => {
                let mut asks = vec![
                    Ask::new("return_ms", Goal::AtMost(self.back_within().as_secs_f64() * 1e3)),
                    Ask::only("return_rtt"),
                ];
                if at == AGAIN {
                    asks.push(Ask::only("use_in_fade"));
                }
                asks
            }
        }
    }

    fn run(&self, host: Host, who: &Contender, seed: u64) -> Result<Run, LabError> {
        let mut world = self.path.world(seed);
        world.add(self.path.flow(host, who, &Told::default(), None)?);
        let (arrivals, seen) = Arrivals::new(BIN, self.path.mss);
        world.observe(arrivals);
        let queues = watch::queues(&mut world, self.end(), self.path.packet())?;
        let (from, to) = match self.what {
            What::Handovers => (Time::from_secs(ORBIT.0), Time::from_secs(ORBIT.1)),
            What::Return { .. } => (Time::ZERO, self.end()),
        };
        let bits = seen.bits(0, from, to);
        let values = match self.what {
            What::Handovers => vec![Some(bits / self.path.offered(from, to))],
            What::Return { at } => {
                let back = until_back(&seen, &self.path, Time::from_secs(at), self.end());
                let rtt = self.path.rtt().as_secs_f64();
                // The fade itself, once its news has arrived.
                let from = align(Time::from_secs(WORSE) + self.back_within());
                let to = Time::from_secs(AGAIN);
                let used = seen.bits(0, from, to) / self.path.offered(from, to).max(1.0);
                let mut values = vec![back.map(|back| back * 1e3), back.map(|back| back / rtt)];
                values.extend((at == AGAIN).then_some(Some(used)));
                values
            }
        };
        Ok(Run {
            goodput: bits / to.since(from).as_secs_f64(),
            queue_p95: watch::p95(&queues),
            drops: world.forward().counters().queue_full.packets,
            values,
        })
    }
}

/// The interval's beginning.
fn align(at: Time) -> Time {
    let bins = (at.as_secs_f64() / BIN.as_secs_f64()).round() as u32;
    Time::ZERO + BIN * bins
}

/// Seconds from `from` until as much arrives as 90 % of the link, kept up for 0.1 s or half a round trip.
fn until_back(seen: &Seen, path: &Path, from: Time, end: Time) -> Option<f64> {
    let window = align(Time::ZERO + (path.rtt() / 2).max(ms(100))).since_start();
    let wanted = path.arriving_rate().scale(BACK);
    let mut at = from;
    while at + window <= end {
        if seen.rate(0, at, at + window) >= wanted {
            return Some(at.since(from).as_secs_f64());
        }
        at += BIN;
    }
    None
}

//! Three flows with one controller that join a link one after the other.

use skyhaul_cc::registry::Contender;
use skyhaul_cc::units::{Duration, Rate, Time};
use skyhaul_sim::rng::Stream;

use super::path::{ms, Path, Told};
use super::watch::{self, jain, Arrivals};
use super::{limits, Ask, Cell, Goal, Host, Run};
use crate::experiment::LabError;

/// Flows, and seconds between their starts.
const FLOWS: usize = 3;
const APART: u64 = 10;
/// Each may be so much later: on a link without losses nothing else differs from seed to seed.
const LATER: Duration = Duration::from_millis(100);
/// The last one begins here, lateness not counted.
const JOINED: u64 = (FLOWS as u64 - 1) * APART;
/// Intervals in which arrivals are counted.
const BIN: Duration = Duration::from_millis(100);
/// Shares are fair from here on.
const FAIR: f64 = 0.99;

/// A link on which flows meet.
#[derive(Clone, Debug)]
struct Sharing {
    id: String,
    path: Path,
    queue: f64,
    /// Seconds that the flows have to become equal after the last has begun.
    settle: u64,
    /// Seconds that are looked at from then on.
    look: u64,
}

pub(super) fn cells(quick: bool) -> Vec<Box<dyn Cell>> {
    let mut cells: Vec<Box<dyn Cell>> = Vec::new();
    for (mbit, rtt) in [(1000, 20), (1000, 100), (200, 50), (150, 540)] {
        for queue in [0.5, 1.0] {
            // Long ways need more than five seconds; a quick look leaves out what costs most.
            let (settle, look) = if rtt > 100 { (20, 20) } else { (5, if quick { 5 } else { 20 }) };
            if quick && mbit == 1000 && queue < 1.0 {
                continue;
            }
            let path = Path::with_queue(mbit, ms(rtt), 0.0, queue).expect("the catalogue has the model");
            cells.push(Box::new(Sharing { id: format!("{mbit}-{rtt}-{queue}"), path, queue, settle, look }));
        }
    }
    cells
}

impl Sharing {
    fn end(&self) -> Time {
        Time::from_secs(JOINED + self.settle + self.look)
    }

    /// Long enough for shares to mean something.
    fn window(&self) -> Duration {
        (self.path.rtt() * 10).max(Duration::from_secs(1))
    }
}

impl Cell for Sharing {
    fn id(&self) -> &str {
        &self.id
    }

    fn about(&self) -> String {
        let (rate, rtt) = (self.path.forward().rate, self.path.rtt().as_millis());
        format!("{rate}, {rtt} ms, queue {} BDP", self.queue)
    }

    fn cost(&self, _: Host) -> f64 {
        let packets = self.path.payload_rate().bytes_in(self.end().since_start());
        packets.as_f64() / self.path.mss.as_f64() * limits::SECONDS_PER_PACKET
    }

    fn floor(&self, _: Host) -> Rate {
        self.path.arriving_rate()
    }

    fn asks(&self, _: &Contender) -> Vec<Ask> {
        vec![
            Ask::new("jain", Goal::AtLeast(FAIR)),
            Ask::new("sum", Goal::AtLeast(0.98)),
            Ask::new("queue_drops", Goal::AtMost(0.0)),
            Ask::only("seconds_to_fair"),
        ]
    }

    fn run(&self, host: Host, who: &Contender, seed: u64) -> Result<Run, LabError> {
        let mut world = self.path.world(seed);
        let mut luck = Stream::new(seed, "start");
        for flow in 0..FLOWS {
            let later = LATER.mul_f64(luck.unit());
            let start = Time::from_secs(flow as u64 * APART) + later;
            world.add(skyhaul_sim::world::Flow {
                start,
                ..self.path.flow(host, who, &Told::default(), None)?
            });
        }
        let (arrivals, seen) = Arrivals::new(BIN, self.path.mss);
        world.observe(arrivals);
        let (from, end) = (Time::from_secs(JOINED + self.settle), self.end());
        world.run(from)?;
        let queues = watch::queues(&mut world, end, self.path.packet())?;
        let got = seen.each(FLOWS, from, end);
        let sum: f64 = got.iter().sum();
        let drops = world.forward().counters().queue_full.packets;
        let fair = until_fair(&seen, self.window(), Time::from_secs(JOINED), end);
        Ok(Run {
            goodput: sum / end.since(from).as_secs_f64(),
            queue_p95: watch::p95(&queues),
            drops,
            values: vec![
                Some(jain(&got)),
                Some(sum / self.path.offered(from, end)),
                Some(drops as f64),
                fair.map(|fair| fair.as_secs_f64()),
            ],
        })
    }
}

/// From when on, counted from `joined`, the shares of a window's length were fair for the first time.
fn until_fair(seen: &watch::Seen, window: Duration, joined: Time, end: Time) -> Option<Duration> {
    let mut from = joined;
    while from + window <= end {
        if jain(&seen.each(FLOWS, from, from + window)) >= FAIR {
            return Some(from.since(joined));
        }
        from += seen.bin();
    }
    None
}

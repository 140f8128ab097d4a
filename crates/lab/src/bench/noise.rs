//! One flow without end on links that lose, hold back and jitter: what it uses when its start is over.

use skyhaul_cc::registry::Contender;
use skyhaul_cc::units::{Bytes, Duration, Rate, Time};
use skyhaul_sim::scenario::{GilbertElliott, Jitter, JitterShape};

use super::path::{ms, share, Path, Told};
use super::watch::{self, Arrivals};
use super::{limits, Ask, Cell, Goal, Host, Run};
use crate::experiment::LabError;

/// What is looked at, in seconds.
const LOOK: (u64, u64) = (10, 60);
const QUICK: (u64, u64) = (10, 30);
const BIN: Duration = Duration::from_millis(100);
/// Share of rate × (1 - loss) that is to be used …
const STEADY: f64 = 0.993;
/// … and where the data itself comes late by chance or by turns.
const SHAKEN: f64 = 0.95;
/// The queue may be this share of the round trip, or this long.
const QUEUE_SHARE: f64 = 0.03;
const QUEUE: f64 = 0.005;

/// A noisy link.
#[derive(Clone, Debug)]
struct Noisy {
    id: String,
    about: &'static str,
    path: Path,
    goal: f64,
    look: (u64, u64),
}

type Edit = fn(&mut Path);

/// Name, words, loss, goal, and what else makes the link noisy.
const NOISE: [(&str, &str, f64, f64, Edit); 11] = [
    ("loss-1", "1 % loss", 0.01, STEADY, |_| {}),
    ("loss-5", "5 % loss", 0.05, STEADY, |_| {}),
    ("bursts-8", "1 % loss in bursts of 8 packets", 0.0, STEADY, |path| {
        path.forward_mut().burst = GilbertElliott::from_burst(8.0, share(0.01));
    }),
    ("ack-loss-20", "1 % loss, 20 % of ACKs lost", 0.01, STEADY, |path| path.back_mut().loss = share(0.2)),
    ("ack-tdma-40", "1 % loss, ACKs in frames of 40 ms", 0.01, STEADY, |path| {
        path.frames[1] = Some(ms(40));
    }),
    ("return-1", "1 % loss, return link of 1 Mbit/s", 0.01, STEADY, |path| {
        path.back_mut().rate = Rate::mbit(1)
    }),
    ("queue-0.05", "1 % loss, queue 0.05 BDP", 0.01, STEADY, |path| {
        let queue = path.forward().queue;
        path.forward_mut().queue = Bytes(queue.0 / 20);
    }),
    ("jitter-5", "1 % loss, 5 ms of jitter in order", 0.01, SHAKEN, |path| jitter(path, 5)),
    ("jitter-20", "1 % loss, 20 ms of jitter in order", 0.01, SHAKEN, |path| jitter(path, 20)),
    ("tdma-20", "1 % loss, data in frames of 20 ms", 0.01, SHAKEN, |path| path.frames[0] = Some(ms(20))),
    ("reorder-10", "1 % loss, 1 % of the data up to 10 ms late", 0.01, SHAKEN, |path| {
        path.forward_mut().reorder = true;
        path.detour = Some((share(0.01), ms(10)));
    }),
];

fn jitter(path: &mut Path, range: u64) {
    path.forward_mut().jitter = Some(Jitter { half_range: ms(range) / 2, shape: JitterShape::Uniform });
}

pub(super) fn cells(quick: bool) -> Vec<Box<dyn Cell>> {
    let mut cells: Vec<Box<dyn Cell>> = Vec::new();
    for (mbit, rtt) in [(150, 540), (100, 40)] {
        for (name, about, loss, goal, edit) in NOISE {
            let mut path = Path::with_queue(mbit, ms(rtt), loss, 1.0).expect("the catalogue has the model");
            edit(&mut path);
            let look = if quick { QUICK } else { LOOK };
            cells.push(Box::new(Noisy { id: format!("{mbit}-{rtt}-{name}"), about, path, goal, look }));
        }
    }
    cells
}

impl Cell for Noisy {
    fn id(&self) -> &str {
        &self.id
    }

    fn about(&self) -> String {
        format!("{}, {} ms, {}", self.path.forward().rate, self.path.rtt().as_millis(), self.about)
    }

    fn cost(&self, _: Host) -> f64 {
        let packets = self.path.payload_rate().bytes_in(Duration::from_secs(self.look.1));
        packets.as_f64() / self.path.mss.as_f64() * limits::SECONDS_PER_PACKET
    }

    fn floor(&self, _: Host) -> Rate {
        self.path.arriving_rate()
    }

    fn asks(&self, _: &Contender) -> Vec<Ask> {
        let queue = (self.path.rtt().as_secs_f64() * QUEUE_SHARE).max(QUEUE);
        vec![Ask::new("use", Goal::AtLeast(self.goal)), Ask::new("queue_p95_ms", Goal::AtMost(queue * 1e3))]
    }

    fn run(&self, host: Host, who: &Contender, seed: u64) -> Result<Run, LabError> {
        let mut world = self.path.world(seed);
        world.add(self.path.flow(host, who, &Told::default(), None)?);
        let (arrivals, seen) = Arrivals::new(BIN, self.path.mss);
        world.observe(arrivals);
        let (from, to) = (Time::from_secs(self.look.0), Time::from_secs(self.look.1));
        world.run(from)?;
        let queues = watch::queues(&mut world, to, self.path.packet())?;
        let bits = seen.bits(0, from, to);
        let queue = watch::p95(&queues);
        Ok(Run {
            goodput: bits / to.since(from).as_secs_f64(),
            queue_p95: queue,
            drops: world.forward().counters().queue_full.packets,
            values: vec![Some(bits / self.path.offered(from, to)), queue.map(|queue| queue * 1e3)],
        })
    }
}

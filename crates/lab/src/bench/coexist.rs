//! One flow beside another kind of flow.

use skyhaul_cc::controller::Policy;
use skyhaul_cc::registry::Contender;
use skyhaul_cc::units::{Duration, Rate, Time};
use skyhaul_cc::StartMode;
use skyhaul_sim::rng::Stream;
use skyhaul_sim::world::Flow;

use super::path::{ms, Path, Told};
use super::watch::{self, Arrivals};
use super::{limits, Ask, Cell, Goal, Host, Run};
use crate::experiment::LabError;

/// Seconds by which the second one begins later, and by chance so much more.
const SECOND: u64 = 5;
const LATER: Duration = Duration::from_millis(100);
/// What is looked at, in seconds.
const LOOK: (u64, u64) = (70, 100);
/// A quick look takes these.
const QUICK: (u64, u64) = (40, 60);
const BIN: Duration = Duration::from_millis(100);

/// A link with two flows.
#[derive(Clone, Debug)]
struct Beside {
    id: String,
    path: Path,
    queue: f64,
    other: Contender,
    order: Order,
    policy: Policy,
    look: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    First,
    Second,
}

pub(super) fn cells(quick: bool) -> Vec<Box<dyn Cell>> {
    let mut cells: Vec<Box<dyn Cell>> = Vec::new();
    let links: &[(u64, u64)] = if quick { &[(100, 40)] } else { &[(100, 40), (300, 80), (50, 540)] };
    for policy in [Policy::Share, Policy::Scavenge] {
        for other in ["cubic", "bbr"] {
            for &(mbit, rtt) in links {
                for queue in [0.25, 1.0, 4.0] {
                    for order in [Order::First, Order::Second] {
                        // Giving way is asked on one link, by the one who was there.
                        if policy == Policy::Scavenge
                            && ((mbit, queue) != (100, 1.0) || order == Order::Second)
                        {
                            continue;
                        }
                        let when = if order == Order::First { "first" } else { "second" };
                        let path = Path::with_queue(mbit, ms(rtt), 0.0, queue);
                        cells.push(Box::new(Beside {
                            id: format!("{}-{other}-{mbit}-{rtt}-{queue}-{when}", policy.name()),
                            path: path.expect("the catalogue has the model"),
                            queue,
                            other: Contender { controller: other.to_owned(), start: StartMode::Cold },
                            order,
                            policy,
                            look: if quick { QUICK } else { LOOK },
                        }));
                    }
                }
            }
        }
    }
    cells
}

impl Cell for Beside {
    fn id(&self) -> &str {
        &self.id
    }

    fn about(&self) -> String {
        let (rate, rtt) = (self.path.forward().rate, self.path.rtt().as_millis());
        let order = if self.order == Order::First { "before" } else { "after" };
        format!("{rate}, {rtt} ms, queue {} BDP, begun 5 s {order} {}", self.queue, self.other)
    }

    fn cost(&self, _: Host) -> f64 {
        let packets = self.path.payload_rate().bytes_in(Duration::from_secs(self.look.1));
        packets.as_f64() / self.path.mss.as_f64() * limits::SECONDS_PER_PACKET
    }

    fn floor(&self, _: Host) -> Rate {
        self.path.arriving_rate()
    }

    fn asks(&self, _: &Contender) -> Vec<Ask> {
        let own = match self.policy {
            // Only what the other leaves.
            Policy::Scavenge => Goal::AtMost(0.1),
            // BBR is not to be protected: where it takes less than we do, it does so by its own law.
            _ if self.other.controller == "bbr" => Goal::AtLeast(0.25),
            _ => Goal::Between(0.25, 0.75),
        };
        vec![Ask::new("own_share", own), Ask::only("other_share"), Ask::only("sum")]
    }

    fn run(&self, host: Host, who: &Contender, seed: u64) -> Result<Run, LabError> {
        let mut world = self.path.world(seed);
        let mut luck = Stream::new(seed, "start");
        let late = Time::from_secs(SECOND) + LATER.mul_f64(luck.unit());
        let (own, other) = match self.order {
            Order::First => (Time::ZERO, late),
            Order::Second => (late, Time::ZERO),
        };
        let told = Told { policy: self.policy, ..Told::default() };
        world.add(Flow { start: own, ..self.path.flow(host, who, &told, None)? });
        world.add(Flow { start: other, ..self.path.flow(host, &self.other, &Told::default(), None)? });
        let (arrivals, seen) = Arrivals::new(BIN, self.path.mss);
        world.observe(arrivals);
        let (from, to) = (Time::from_secs(self.look.0), Time::from_secs(self.look.1));
        world.run(from)?;
        let queues = watch::queues(&mut world, to, self.path.packet())?;
        let got = seen.each(2, from, to);
        let sum = (got[0] + got[1]).max(1.0);
        Ok(Run {
            goodput: got[0] / to.since(from).as_secs_f64(),
            queue_p95: watch::p95(&queues),
            drops: world.forward().counters().queue_full.packets,
            values: vec![Some(got[0] / sum), Some(got[1] / sum), Some(sum / self.path.offered(from, to))],
        })
    }
}

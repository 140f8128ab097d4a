//! What really became of packets, as only the link knows, against what a controller made of their loss. For
//! statistics; no decision hears of it.

use crate::link::Cause;
use crate::world::World;
use skyhaul_cc::units::Duration;
use skyhaul_cc::{Judgement, Share};

/// What became of a transmission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Truth {
    /// It arrives; who declares it lost is wrong.
    #[default]
    Arrives,
    /// The queue had no room.
    Overflow,
    /// Lost by itself while hardly a queue stood: at most 1/20 of the round trip.
    Alone,
    /// Lost by itself while a longer queue stood.
    BesideQueue,
    /// Sent during an outage.
    Outage,
}

/// A queue of so much of the round trip is hardly one: what a controller that holds a short queue holds.
const HARDLY: f64 = 0.05;

impl Truth {
    /// All of them, in the order of reports.
    pub const ALL: [Truth; 5] =
        [Truth::Arrives, Truth::Overflow, Truth::Alone, Truth::BesideQueue, Truth::Outage];

    /// The link dropped a packet for this reason while a queue of `queue` stood on a path of `rtt`.
    pub fn of(cause: Cause, queue: Duration, rtt: Duration) -> Truth {
        match cause {
            Cause::QueueFull => Truth::Overflow,
            Cause::Outage => Truth::Outage,
            Cause::RandomLoss | Cause::BitError | Cause::Burst => {
                if queue.as_secs_f64() <= HARDLY * rtt.as_secs_f64() {
                    Truth::Alone
                } else {
                    Truth::BesideQueue
                }
            }
        }
    }

    /// The forward link dropped a packet just now for this reason.
    pub(crate) fn in_world(world: &World, cause: Cause) -> Truth {
        let (now, forward) = (world.now(), world.forward());
        let queue = forward.rate(now).time_for(forward.queued(now));
        Truth::of(cause, queue, forward.one_way(now).saturating_add(world.back().one_way(now)))
    }

    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Truth::Arrives => "not lost",
            Truth::Overflow => "queue full",
            Truth::Alone => "random, hardly a queue",
            Truth::BesideQueue => "random, beside a queue",
            Truth::Outage => "outage",
        }
    }
}

/// How many packets, by what became of them and what the controller took it for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confusion {
    counts: [[u64; 3]; 5],
}

impl Confusion {
    /// Counts `packets` of each truth (in the order of [`Truth::ALL`]) as judged so.
    pub fn add(&mut self, packets: &[u64; 5], judged: Option<Judgement>) {
        for (row, count) in self.counts.iter_mut().zip(packets) {
            row[column(judged)] += count;
        }
    }

    /// Packets of that truth that were judged so; without a judgement for controllers that make none.
    pub fn count(&self, truth: Truth, judged: Option<Judgement>) -> u64 {
        self.counts[truth as usize][column(judged)]
    }

    /// Packets of that truth.
    pub fn total(&self, truth: Truth) -> u64 {
        self.counts[truth as usize].iter().sum()
    }

    /// Share of the packets of that truth that were judged so; nothing without packets.
    pub fn share(&self, truth: Truth, judged: Judgement) -> Option<Share> {
        let total = self.total(truth);
        if total == 0 {
            return None;
        }
        Share::new(self.count(truth, Some(judged)) as f64 / total as f64)
    }

    /// Counts those of `other` too.
    pub fn merge(&mut self, other: &Confusion) {
        for (row, more) in self.counts.iter_mut().zip(&other.counts) {
            row.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
    }
}

impl World {
    /// What became of the packets that were declared lost, and what the controllers that tell causes apart
    /// took their loss for, over all flows that judge.
    pub fn judged(&self) -> Confusion {
        let mut all = Confusion::default();
        let senders = (0..).map_while(|flow| self.sender(flow));
        let judges = senders.filter(|sender| sender.controller().judgement().is_some());
        judges.for_each(|sender| all.merge(&sender.counters().judged));
        all
    }
}

fn column(judged: Option<Judgement>) -> usize {
    match judged {
        Some(Judgement::Random) => 0,
        Some(Judgement::Congestion) => 1,
        None => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_packets_with_that_truth() {
        let mut confusion = Confusion::default();
        confusion.add(&[0, 3, 1, 0, 0], Some(Judgement::Congestion));
        confusion.add(&[0, 1, 0, 0, 0], Some(Judgement::Random));
        assert_eq!(confusion.share(Truth::Overflow, Judgement::Congestion), Share::new(0.75));
        assert_eq!(confusion.share(Truth::Alone, Judgement::Random), Share::new(0.0));
        assert_eq!(confusion.share(Truth::Outage, Judgement::Random), None);
    }

    #[test]
    fn a_random_loss_is_told_apart_by_the_queue_beside_it() {
        let ms = Duration::from_millis;
        assert_eq!(Truth::of(Cause::BitError, ms(5), ms(100)), Truth::Alone);
        assert_eq!(Truth::of(Cause::Burst, ms(6), ms(100)), Truth::BesideQueue);
        assert_eq!(Truth::of(Cause::QueueFull, ms(0), ms(100)), Truth::Overflow);
    }
}

//! Packet-timed round trips: a round ends when a packet sent after its beginning is acknowledged
//! (as in draft-cardwell-iccrg-bbr-congestion-control-00 §4.1.1.3). Clock-timed rounds would count
//! several rounds while a queue grows.

use crate::units::Time;

/// Counts packet-timed round trips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    began: Time,
    count: u64,
}

impl Rounds {
    /// No round yet.
    pub fn new() -> Self {
        Rounds::default()
    }

    /// Hears of an ACK at `now` whose newest packet left at `sent_at`; says whether it starts a
    /// round. A packet sent at the very moment the round began belongs to the next one, because
    /// hosts answer an ACK with packets at the same moment.
    pub fn on_ack(&mut self, now: Time, sent_at: Time) -> bool {
        let starts = sent_at >= self.began;
        if starts {
            self.began = now;
            self.count = self.count.saturating_add(1);
        }
        starts
    }

    /// Begins the round anew at `now` without counting one: the next round starts with the answer to a
    /// packet sent from now on.
    pub fn begin(&mut self, now: Time) {
        self.began = now;
    }

    /// Rounds begun so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// When the current round began.
    pub fn began(&self) -> Time {
        self.began
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_begins_per_round_trip_however_many_acks_arrive() {
        let mut rounds = Rounds::new();
        // A packet every 10 ms, acknowledged 100 ms later.
        let starts = (0..100u64)
            .filter(|i| rounds.on_ack(Time::from_millis(i * 10 + 100), Time::from_millis(i * 10)))
            .count();
        assert_eq!(starts, 10);
        assert_eq!(rounds.count(), 10);
    }

    #[test]
    fn an_old_packet_starts_no_round() {
        let mut rounds = Rounds::new();
        assert!(rounds.on_ack(Time::from_millis(100), Time::ZERO));
        assert!(!rounds.on_ack(Time::from_millis(150), Time::from_millis(99)));
        assert!(rounds.on_ack(Time::from_millis(200), Time::from_millis(100)));
        assert_eq!(rounds.began(), Time::from_millis(200));
    }
}

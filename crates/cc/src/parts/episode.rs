//! One cut per recovery episode (RFC 9002 §7.3.2, RFC 6582 §3): losses of packets that left before
//! the last cut tell of the same congestion and must not cut again.

use crate::units::Time;

/// Tells new losses from those already answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Episodes {
    last_cut: Option<Time>,
}

impl Episodes {
    /// No loss yet.
    pub fn new() -> Self {
        Episodes::default()
    }

    /// Hears of a loss, declared at `now`, whose newest packet left at `sent_at`; says whether it
    /// begins a new episode and, if so, remembers `now` as the moment of the cut.
    pub fn on_loss(&mut self, now: Time, sent_at: Time) -> bool {
        let new = self.last_cut.is_none_or(|cut| sent_at > cut);
        if new {
            self.last_cut = Some(now);
        }
        new
    }

    /// Whether a packet that left at `sent_at` is from before the last cut: its acknowledgment does
    /// not let a window grow.
    pub fn in_recovery(&self, sent_at: Time) -> bool {
        self.last_cut.is_some_and(|cut| sent_at <= cut)
    }

    /// Forgets the last cut, as after a timeout (RFC 9002 §7.6.2).
    pub fn clear(&mut self) {
        self.last_cut = None;
    }

    /// When the last episode began.
    pub fn last_cut(&self) -> Option<Time> {
        self.last_cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_one_flight_are_one_episode() {
        let mut episodes = Episodes::new();
        assert!(episodes.on_loss(Time::from_millis(540), Time::ZERO));
        assert!(!episodes.on_loss(Time::from_millis(700), Time::from_millis(300)));
        assert!(!episodes.on_loss(Time::from_millis(1080), Time::from_millis(540)));
        assert!(episodes.on_loss(Time::from_millis(1090), Time::from_millis(541)));
        assert_eq!(episodes.last_cut(), Some(Time::from_millis(1090)));
    }

    #[test]
    fn recovery_lasts_until_a_packet_sent_after_the_cut_is_acknowledged() {
        let mut episodes = Episodes::new();
        assert!(!episodes.in_recovery(Time::ZERO));
        episodes.on_loss(Time::from_millis(540), Time::ZERO);
        assert!(episodes.in_recovery(Time::from_millis(540)));
        assert!(!episodes.in_recovery(Time::from_millis(541)));
        episodes.clear();
        assert!(!episodes.in_recovery(Time::ZERO));
    }
}

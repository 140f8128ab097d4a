//! What quinn-proto has been given and has not sent yet, guessed: it does not say.

use super::PAYLOAD_BELOW_DATAGRAM;
use crate::repair::Progress;
use skyhaul_cc::Bytes;

/// Feed more stream data when less than this many datagrams are left to send: enough that datagrams
/// stay full, little enough that a new flow waits for no backlog.
const FEED_BELOW_DATAGRAMS: u64 = 8;
/// Feed flows that have only just something to send up to this. quinn-proto lets streams take turns by
/// the datagram, so they overtake what is there already, and each other if they are too many at once.
const FEED_FRESH_BELOW_DATAGRAMS: u64 = 64;

/// Stream bytes with quinn-proto that are still to be sent, counted so that the guess errs on the high
/// side; it is put right when a poll finds nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    /// For the first time.
    first: u64,
    /// Once more, because they were lost.
    again: u64,
    /// What has left since the beginning.
    sent: u64,
}

/// How much more quinn-proto may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Something of everybody's.
    Any,
    /// Something of flows that have only just something to send.
    Fresh,
    /// Nothing.
    None,
}

impl Backlog {
    /// So many bytes were handed over.
    pub(super) fn fed(&mut self, bytes: u64) {
        self.first += bytes;
    }

    /// So many bytes were lost and will be sent again.
    pub(super) fn lost(&mut self, bytes: u64) {
        self.again += bytes;
    }

    /// A datagram of this size left with stream data in it.
    pub(super) fn sent(&mut self, size: usize) {
        let payload = (size as u64).saturating_sub(PAYLOAD_BELOW_DATAGRAM);
        // Which stream's, quinn-proto does not say, but it lets streams take turns; so the repetitions of
        // one flow that has lost a queue full do not keep the others from being fed.
        let again = (payload / 2).min(self.again).max(payload.saturating_sub(self.first).min(self.again));
        self.sent += payload;
        self.again -= again;
        self.first = self.first.saturating_sub(payload - again);
    }

    /// Whether nothing is left to send.
    pub(super) fn is_empty(&self) -> bool {
        self.first == 0 && self.again == 0
    }

    /// A poll found nothing to send: only what was just `fed` is left.
    pub(super) fn found_empty(&mut self, fed: u64) {
        let sent = self.sent + self.first + self.again;
        *self = Backlog { first: fed, again: 0, sent };
    }

    /// What has left, and what may go before a byte that is handed over now: of what was lost, at most as
    /// much as of the rest.
    pub(super) fn progress(&self) -> Progress {
        Progress { sent: self.sent, ahead: self.first + self.again.min(self.first) }
    }

    /// What may be fed now, when datagrams have this size. Repetitions do not count: flows that have lost
    /// nothing shall go on beside those that have.
    pub(super) fn room(&self, datagram: Bytes) -> Room {
        if self.first < datagram.0 * FEED_BELOW_DATAGRAMS {
            Room::Any
        } else if self.first < datagram.0 * FEED_FRESH_BELOW_DATAGRAMS {
            Room::Fresh
        } else {
            Room::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: Bytes = Bytes(1500);

    #[test]
    fn repetitions_and_new_data_take_turns_and_both_come_to_an_end() {
        let mut backlog = Backlog::default();
        backlog.lost(100_000);
        backlog.fed(50_000);
        let mut datagrams = 0;
        while backlog.first + backlog.again > 0 {
            backlog.sent(1472);
            datagrams += 1;
        }
        assert_eq!(datagrams, 150_000u32.div_ceil(1472 - PAYLOAD_BELOW_DATAGRAM as u32));
    }

    #[test]
    fn a_queue_full_of_losses_keeps_nobody_from_being_fed() {
        let mut backlog = Backlog::default();
        backlog.lost(10_000_000);
        assert_eq!(backlog.room(DATAGRAM), Room::Any);
        backlog.fed(64 * 1024);
        assert_eq!(backlog.room(DATAGRAM), Room::Fresh);
        backlog.fed(64 * 1024);
        assert_eq!(backlog.room(DATAGRAM), Room::None);
    }
}

//! How much each flow may have waiting at the far end.
//!
//! QUIC's flow control cannot hold a flow back, because everything that arrives is drained at once (see
//! [`crate::reassembly`]). So the far end says how much memory it has (a pool for all flows and a small
//! floor for each) and how much of each flow it has passed on; the sender does the rest. An idle flow
//! holds nothing. A flow whose reader has stopped holds at most two thirds of what the others leave,
//! the dynamic threshold of shared-memory switches (Choudhury and Hahne, IEEE/ACM ToN 6(2), 1998), and
//! flows that hold much leave a sixteenth of the pool to those that hold little, so there is always room
//! for the next one.

/// A flow may hold this many times what is free: alone 5/8 of the pool, beside one stopped reader 5/24.
const SHARE_OF_FREE: u64 = 2;
/// This part of the pool is for flows that hold less than [`LITTLE`]: a newcomer beside many stopped
/// readers lives on it.
const SPARE: u64 = 16;
/// A request and most of an answer; per round trip, a newcomer's rate at worst.
const LITTLE: u64 = 64 * 1024;

/// A pool that shrinks is told of when it has become smaller by this part.
const STEP: u64 = 8;

/// The sender's view of the far end's memory, for all flows of one channel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pool {
    floor: u64,
    size: u64,
    outstanding: u64,
    /// The offer that is being followed, where it asks for a smaller pool than there is still need for.
    shrinking: Option<(u64, u64)>,
}

impl Pool {
    /// Sizes as the far end's hello gives them.
    pub(crate) fn new(floor: u64, size: u64) -> Self {
        Pool { floor, size, outstanding: 0, shrinking: None }
    }

    /// Bytes that the far end is not known to have passed on.
    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// The far end offers another size. The answer is what this end keeps from now on: the new size, or if more is
    /// waiting there already, that much; then [`shrink`](Self::shrink) follows.
    pub(crate) fn offer(&mut self, sequence: u64, size: u64) -> u64 {
        self.shrinking = None;
        let kept = size.max(self.outstanding.min(self.size));
        if kept > size {
            self.shrinking = Some((sequence, size));
        }
        self.size = kept;
        kept
    }

    /// Something was passed on at the far end: the offer that is followed and what is kept now, if that is worth
    /// telling.
    pub(crate) fn shrink(&mut self) -> Option<(u64, u64)> {
        let (sequence, aim) = self.shrinking?;
        let kept = aim.max(self.outstanding.min(self.size));
        if kept > aim && self.size - kept < self.size / STEP {
            return None;
        }
        if kept == aim {
            self.shrinking = None;
        }
        self.size = kept;
        Some((sequence, kept))
    }

    fn free(&self) -> u64 {
        self.size.saturating_sub(self.outstanding)
    }
}

/// The sender's account of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendAccount {
    sent: u64,
    consumed: u64,
}

impl SendAccount {
    /// Bytes of the flow that the far end is not known to have passed on.
    pub(crate) fn outstanding(&self) -> u64 {
        self.sent - self.consumed
    }

    /// The far end holds nothing of this flow.
    pub(crate) fn is_settled(&self) -> bool {
        self.outstanding() == 0
    }

    /// Bytes this flow may send now.
    pub(crate) fn available(&self, pool: &Pool) -> u64 {
        let held = self.outstanding();
        let lent = pool.free().saturating_sub(pool.size / SPARE);
        let much = lent.saturating_mul(SHARE_OF_FREE).saturating_sub(held).min(lent);
        let little =
            pool.free().saturating_mul(SHARE_OF_FREE).min(LITTLE).saturating_sub(held).min(pool.free());
        // The rules bound what one flow holds; the pool itself is never overdrawn beyond the floors.
        much.max(little).max(pool.floor.saturating_sub(held))
    }

    /// `bytes` of the flow went to the channel.
    pub(crate) fn spend(&mut self, bytes: u64, pool: &mut Pool) {
        self.sent += bytes;
        pool.outstanding += bytes;
    }

    /// The far end has passed on `total` bytes since the beginning. False if it cannot have.
    pub(crate) fn consumed(&mut self, total: u64, pool: &mut Pool) -> bool {
        if total > self.sent {
            return false;
        }
        // Reports travel in order, but an account may be settled before the last one arrives.
        let news = total.saturating_sub(self.consumed);
        self.consumed += news;
        pool.outstanding -= news;
        true
    }

    /// The flow is over: whatever it held is free.
    pub(crate) fn settle(&mut self, pool: &mut Pool) {
        pool.outstanding -= self.outstanding();
        self.consumed = self.sent;
    }
}

/// The receiver's account of one flow: what has been passed on and what has been said of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceiveAccount {
    consumed: u64,
    reported: u64,
}

/// Report at least this often while the reader keeps up, so that many quiet flows do not add up.
const REPORT_WHEN_DRAINED: u64 = 4 * 1024;

impl ReceiveAccount {
    /// `bytes` were passed on to the TCP connection. Answers with the total to report, when it is time:
    /// every 1/64 of the pool, sooner when nothing is `waiting` in memory.
    pub(crate) fn consume(&mut self, bytes: u64, waiting: u64, pool: u64) -> Option<u64> {
        self.consumed += bytes;
        let news = self.consumed - self.reported;
        let enough = if waiting == 0 { REPORT_WHEN_DRAINED.min(pool / 64) } else { pool / 64 };
        (news > 0 && news >= enough).then(|| self.report())
    }

    /// The total to report now, whatever it is.
    pub(crate) fn report(&mut self) -> u64 {
        self.reported = self.consumed;
        self.consumed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIB: u64 = 1024;

    #[test]
    fn a_flow_alone_gets_five_eighths_of_the_pool() {
        let mut pool = Pool::new(64 * KIB, 96 << 20);
        let mut flow = SendAccount::default();
        loop {
            let step = flow.available(&pool).min(16 * KIB);
            if step == 0 {
                break;
            }
            flow.spend(step, &mut pool);
        }
        let held = flow.outstanding();
        assert!(held.abs_diff(60 << 20) < 64 * KIB, "{held}");
    }

    #[test]
    fn a_hundred_stopped_readers_leave_room_for_a_newcomer() {
        let mut pool = Pool::new(64 * KIB, 96 << 20);
        for _ in 0..100 {
            let mut flow = SendAccount::default();
            while flow.available(&pool) > 0 {
                let step = flow.available(&pool).min(16 * KIB);
                flow.spend(step, &mut pool);
            }
        }
        let newcomer = SendAccount::default();
        assert!(newcomer.available(&pool) >= 64 * KIB);
        assert!(pool.outstanding <= (96 << 20) + 100 * 64 * KIB, "{}", pool.outstanding);
    }

    #[test]
    fn newcomers_beside_many_stopped_readers_do_not_live_on_floors_alone() {
        let mut pool = Pool::new(KIB, 16 << 20);
        let mut fill = |most: u64| {
            let mut flow = SendAccount::default();
            while flow.available(&pool) > 0 && flow.outstanding() < most {
                let step = flow.available(&pool).min(16 * KIB).min(most - flow.outstanding());
                flow.spend(step, &mut pool);
            }
            flow.outstanding()
        };
        for _ in 0..8 {
            fill(u64::MAX);
        }
        assert_eq!((0..4).map(|_| fill(LITTLE)).collect::<Vec<_>>(), [0; 4].map(|_| LITTLE).to_vec());
    }

    #[test]
    fn a_report_of_more_than_was_sent_is_refused() {
        let mut pool = Pool::new(KIB, 64 * KIB);
        let mut flow = SendAccount::default();
        flow.spend(100, &mut pool);
        assert!(flow.consumed(100, &mut pool));
        assert!(!flow.consumed(101, &mut pool));
    }

    proptest! {
        #[test]
        fn the_pool_is_never_overdrawn_beyond_the_floors(steps in proptest::collection::vec((0usize..8, 0u64..200_000, any::<bool>()), 1..400)) {
            let (floor, size) = (8 * KIB, 1 << 20);
            let mut pool = Pool::new(floor, size);
            let mut flows = [SendAccount::default(); 8];
            for (i, amount, send) in steps {
                if send {
                    let amount = amount.min(flows[i].available(&pool));
                    flows[i].spend(amount, &mut pool);
                } else {
                    let total = (flows[i].consumed + amount).min(flows[i].sent);
                    prop_assert!(flows[i].consumed(total, &mut pool));
                }
                let held: u64 = flows.iter().map(SendAccount::outstanding).sum();
                prop_assert_eq!(held, pool.outstanding);
                prop_assert!(held <= size + floor * 8, "{} held", held);
            }
        }
    }
}

//! How much each flow may have waiting at the far end.
//!
//! QUIC's flow control cannot hold a flow back, because everything that arrives is drained at once (see
//! [`crate::reassembly`]). So the far end says how much memory it has (a pool for all flows and a small
//! floor for each) and how much of each flow it has passed on; the sender does the rest. An idle flow
//! holds nothing. A flow whose reader has stopped holds at most two thirds of what the others leave,
//! the dynamic threshold of shared-memory switches (Choudhury and Hahne, IEEE/ACM ToN 6(2), 1998), so
//! there is always room for the next one.

/// A flow may hold this many times what is free: alone 2/3 of the pool, beside one stopped reader 2/9.
const SHARE_OF_FREE: u64 = 2;

/// The sender's view of the far end's memory, for all flows of one channel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pool {
    floor: u64,
    size: u64,
    outstanding: u64,
}

impl Pool {
    /// Sizes as the far end's hello gives them.
    pub(crate) fn new(floor: u64, size: u64) -> Self {
        Pool { floor, size, outstanding: 0 }
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
    fn outstanding(&self) -> u64 {
        self.sent - self.consumed
    }

    /// The far end holds nothing of this flow.
    pub(crate) fn is_settled(&self) -> bool {
        self.outstanding() == 0
    }

    /// Bytes this flow may send now.
    pub(crate) fn available(&self, pool: &Pool) -> u64 {
        let allowed = pool.floor.max(pool.free().saturating_mul(SHARE_OF_FREE));
        // The rule bounds what one flow holds; the pool itself is never overdrawn beyond the floors.
        let headroom = pool.free().max(pool.floor.saturating_sub(self.outstanding()));
        allowed.saturating_sub(self.outstanding()).min(headroom)
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
    fn a_flow_alone_gets_two_thirds_of_the_pool() {
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
        assert!(held.abs_diff(64 << 20) < 64 * KIB, "{held}");
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

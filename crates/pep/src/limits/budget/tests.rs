use super::*;
use crate::credit::{Pool, SendAccount};
use proptest::prelude::*;
use std::collections::VecDeque;

#[test]
fn all_kinds_of_data_together_stay_within_the_memory() {
    for memory in [4, 8, 96, 256, 4096] {
        for flows in [1, 100, 4096, 100_000] {
            let split = Split::of(Bytes::mib(memory), flows);
            assert!(split.total() <= Bytes::mib(memory), "{split:?}");
            assert!(split.flows >= 64.min(flows), "{split:?}");
        }
    }
    // By default one channel's pool holds several windows of 150 Mbit/s at 540 ms.
    assert_eq!(Split::of(Bytes::mib(256), 4096).pools, Bytes::mib(96));
    assert_eq!(Split::of(Bytes::mib(256), 4096).flows, 4096);
}

#[test]
fn a_queue_that_fills_leaves_every_flow_its_floor_and_never_overflows() {
    let split = Split::of(Bytes::mib(64), 1024);
    let most = Bytes::kib(256);
    let mut queued = vec![Bytes::ZERO; split.flows];
    for _ in 0..3 {
        for flow in 0..queued.len() {
            let all: Bytes = queued.iter().copied().sum();
            let room = split.queue_room(queued[flow], all, most);
            queued[flow] += room;
            assert!(queued[flow] <= most && queued[flow] >= split.queue_floor);
        }
    }
    let all: Bytes = queued.iter().copied().sum();
    assert!(all <= split.queue + split.queue_floor * split.flows as u64, "{all}");
}

const BUSY_USAGE: Usage = Usage {
    received: Bytes::mib(100),
    held: Bytes::ZERO,
    queued: Bytes::ZERO,
    outstanding: Bytes::ZERO,
    adjustable: true,
};
const IDLE: Usage = Usage { received: Bytes::ZERO, ..BUSY_USAGE };

#[test]
fn a_channel_alone_has_everything_and_gives_half_to_one_that_becomes_busy() {
    let split = Split::of(Bytes::mib(256), 4096);
    let mut budget = Budget::new(split, 1);
    assert_eq!(budget.open('a').unwrap().pool, split.pools);
    assert!(!budget.is_divided());
    budget.close('a');

    // Two configured: the first leaves the second its floor.
    let mut budget = Budget::new(split, 2);
    let first = budget.open('a').unwrap().pool;
    let second = budget.open('b').unwrap().pool;
    assert_eq!((first, second), (split.pools - split.pools / 8, split.pools / 8));
    assert_eq!(budget.rebalance(|_| IDLE), []);
    // The second is busy and the first is not: the first is asked to give.
    let usage = |key| if key == 'b' { BUSY_USAGE } else { IDLE };
    let offers = budget.rebalance(usage);
    assert_eq!(offers, [('a', Offer { sequence: 1, pool: split.pools / 8 })]);
    // Until it has said so, nothing is given to the other.
    assert_eq!(budget.rebalance(usage), []);
    budget.kept('a', 1, split.pools / 2).unwrap();
    let offers = budget.rebalance(usage);
    assert_eq!(offers, [('b', Offer { sequence: 1, pool: split.pools / 2 })]);
    assert_eq!(budget.promised(), split.pools);
    budget.kept('b', 1, split.pools / 2).unwrap();
    budget.kept('a', 1, split.pools / 8).unwrap();
    assert_eq!(budget.rebalance(usage).len(), 1);
    assert_eq!(budget.pool('b'), split.pools - split.pools / 8);
    // Both busy: half each.
    let offers = budget.rebalance(|_| BUSY_USAGE);
    assert!(offers.is_empty(), "the last offer to b is not answered: {offers:?}");
    budget.kept('b', 2, budget.pool('b')).unwrap();
    assert_eq!(budget.rebalance(|_| BUSY_USAGE), [('b', Offer { sequence: 3, pool: split.pools / 2 })]);
}

#[test]
fn an_end_that_claims_more_than_it_was_offered_is_found_out() {
    let mut budget = Budget::new(Split::of(Bytes::mib(64), 100), 2);
    let pool = budget.open(1).unwrap().pool;
    assert!(budget.kept(1, 1, pool).is_err(), "no offer was made");
    assert!(budget.kept(1, 0, pool + Bytes(1)).is_err());
    assert!(budget.kept(1, 0, pool).is_ok());
}

#[test]
fn configured_channels_always_find_room_and_more_only_while_there_is_some() {
    for expected in [1usize, 3, 20, 200] {
        let mut budget = Budget::new(Split::of(Bytes::mib(256), 4096), expected);
        for channel in 0..expected {
            assert!(budget.open(channel).is_ok(), "{channel} of {expected}");
            budget.rebalance(|_| BUSY_USAGE);
        }
    }
    let mut small = Budget::new(Split::of(Bytes::mib(4), 100), 1000);
    let there = (0..1000).filter(|channel| small.open(*channel).is_ok()).count();
    assert!((8..1000).contains(&there), "{there}");
}

/// One channel's two ends, with frames on their way in both directions.
struct End {
    /// The sender's view.
    pool: Pool,
    flows: Vec<SendAccount>,
    /// What the receiver holds or is on its way there, per flow.
    there: Vec<u64>,
    /// Totals passed on at the receiver, and reports on their way.
    passed: Vec<u64>,
    to_sender: VecDeque<News>,
    to_receiver: VecDeque<(u64, u64)>,
    received: u64,
}

enum News {
    Offer(Offer),
    Passed(usize, u64),
}

const FLOWS: usize = 3;

impl End {
    fn new(floor: Bytes, pool: Bytes) -> End {
        End {
            pool: Pool::new(floor.0, pool.0),
            flows: vec![SendAccount::default(); FLOWS],
            there: vec![0; FLOWS],
            passed: vec![0; FLOWS],
            to_sender: VecDeque::new(),
            to_receiver: VecDeque::new(),
            received: 0,
        }
    }

    fn held(&self) -> u64 {
        self.there.iter().sum()
    }

    fn send(&mut self, flow: usize, amount: u64) {
        let amount = amount.min(self.flows[flow].available(&self.pool));
        self.flows[flow].spend(amount, &mut self.pool);
        self.there[flow] += amount;
        self.received += amount;
    }

    fn pass_on(&mut self, flow: usize, amount: u64) {
        let amount = amount.min(self.there[flow]);
        self.there[flow] -= amount;
        self.passed[flow] += amount;
        self.to_sender.push_back(News::Passed(flow, self.passed[flow]));
    }

    /// One frame reaches the sender.
    fn hear(&mut self) {
        match self.to_sender.pop_front() {
            Some(News::Offer(Offer { sequence, pool })) => {
                let kept = self.pool.offer(sequence, pool.0);
                self.to_receiver.push_back((sequence, kept));
            }
            Some(News::Passed(flow, total)) => assert!(self.flows[flow].consumed(total, &mut self.pool)),
            None => {}
        }
        self.to_receiver.extend(self.pool.shrink());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn what_all_channels_hold_never_exceeds_the_budget_however_frames_are_delayed(
        expected in 1usize..5,
        steps in prop::collection::vec((0u8..9, 0usize..5, 0usize..FLOWS, 0u64..400_000), 1..500)
    ) {
        let split = Split::of(Bytes::mib(4), 64);
        let mut budget = Budget::new(split, expected);
        let mut ends: BTreeMap<usize, End> = BTreeMap::new();
        for (what, channel, flow, amount) in steps {
            match (what, ends.get_mut(&channel)) {
                (0, None) => {
                    let room = budget.open(channel);
                    prop_assert!(room.is_ok() || ends.len() >= expected, "an expected channel is refused");
                    if let Ok(share) = room {
                        ends.insert(channel, End::new(split.floor, share.pool));
                    }
                }
                (1, Some(_)) if amount < 40_000 => {
                    ends.remove(&channel);
                    budget.close(channel);
                }
                (2 | 3, Some(end)) => end.send(flow, amount),
                (4, Some(end)) => end.pass_on(flow, amount),
                (5 | 6, Some(end)) => end.hear(),
                (7, Some(end)) => if let Some((sequence, pool)) = end.to_receiver.pop_front() {
                    prop_assert_eq!(budget.kept(channel, sequence, Bytes(pool)), Ok(()));
                },
                (8, _) => {
                    let offers = budget.rebalance(|channel| ends.get(&channel).map_or(Usage::default(), |end| Usage {
                        received: Bytes(end.received),
                        held: Bytes(end.held()),
                        adjustable: true,
                        ..Usage::default()
                    }));
                    for (channel, offer) in offers {
                        if let Some(end) = ends.get_mut(&channel) {
                            end.to_sender.push_back(News::Offer(offer));
                            end.received = 0;
                        }
                    }
                }
                _ => {}
            }
            prop_assert!(budget.promised() <= split.pools);
            let floors = split.floor.0 * FLOWS as u64;
            let mut all = 0;
            for (channel, end) in &ends {
                all += end.held();
                prop_assert!(end.held() <= budget.pool(*channel).0 + floors, "one channel exceeds its pool");
                // Nobody who holds less than its floor is kept waiting, whatever the others hold.
                for account in &end.flows {
                    prop_assert!(account.outstanding() + account.available(&end.pool) >= split.floor.0);
                }
            }
            prop_assert!(all <= split.pools.0 + floors * ends.len() as u64, "{} held", all);
        }
    }
}

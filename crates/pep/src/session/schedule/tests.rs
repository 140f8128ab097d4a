use super::*;
use proptest::prelude::*;

/// Flows with bytes to send, and what became of them.
#[derive(Default)]
struct Sources {
    schedule: Schedule,
    waiting: BTreeMap<StreamNumber, (Class, u64)>,
    sent: BTreeMap<StreamNumber, u64>,
}

const ENDLESS: u64 = 1 << 40;

impl Sources {
    fn new(flows: &[(Class, u64)]) -> Self {
        let mut sources = Sources::default();
        for (&(class, bytes), stream) in flows.iter().zip(0..) {
            sources.add(stream, class, bytes);
        }
        sources
    }

    fn add(&mut self, stream: StreamNumber, class: Class, bytes: u64) {
        let entry = self.waiting.entry(stream).or_insert((class, 0));
        entry.1 += bytes;
        self.schedule.wake(stream, entry.0);
    }

    /// Serves one turn; says whose, and how much.
    fn turn(&mut self, wanted: Wanted) -> Option<(StreamNumber, u64)> {
        let turn = self.schedule.next(wanted)?;
        let left = &mut self.waiting.get_mut(&turn.stream).expect("a flow that waits").1;
        assert!(*left > 0 && turn.bytes > 0, "{turn:?} of {left}");
        let bytes = turn.bytes.min(*left);
        *left -= bytes;
        self.schedule.served(turn.stream, bytes, *left > 0);
        *self.sent.entry(turn.stream).or_default() += bytes;
        Some((turn.stream, bytes))
    }

    fn order(&mut self, turns: usize) -> Vec<StreamNumber> {
        (0..turns).filter_map(|_| self.turn(Wanted::Any)).map(|(stream, _)| stream).collect()
    }
}

#[test]
fn a_new_flow_comes_before_those_that_have_been_sending_and_then_in_turn_with_them() {
    let mut flows = Sources::new(&[(Class::Normal, ENDLESS), (Class::Normal, ENDLESS)]);
    flows.order(10);
    flows.add(2, Class::Normal, 3 * QUANTUM);
    let order = flows.order(7);
    assert_eq!(order[0], 2);
    assert_eq!(order.iter().filter(|&&stream| stream == 2).count(), 3, "{order:?}");
    assert!(order.windows(2).all(|pair| pair[0] != pair[1]), "{order:?}");
}

#[test]
fn a_header_sent_ahead_of_its_data_does_not_use_the_first_turn_up() {
    let mut flows = Sources::new(&[(Class::Normal, ENDLESS), (Class::Normal, ENDLESS)]);
    flows.order(10);
    flows.add(2, Class::Normal, 20);
    assert_eq!(flows.turn(Wanted::Fresh), Some((2, 20)));
    assert_eq!(flows.turn(Wanted::Fresh), None);
    flows.add(2, Class::Normal, 10_000);
    assert_eq!(flows.turn(Wanted::Fresh), Some((2, 10_000)));
    // The rest of the first quantum, and no more before the others have had their turns.
    flows.add(2, Class::Normal, 10_000);
    assert_eq!(flows.turn(Wanted::Fresh), Some((2, QUANTUM - 10_020)));
    assert_eq!(flows.turn(Wanted::Fresh), None);
    assert!(flows.order(2).iter().all(|&stream| stream != 2));
}

#[test]
fn a_flow_that_pauses_for_a_round_is_fresh_again() {
    let mut flows = Sources::new(&[(Class::Normal, ENDLESS), (Class::Normal, QUANTUM)]);
    flows.order(8);
    flows.add(1, Class::Normal, 100);
    assert_eq!(flows.turn(Wanted::Fresh), Some((1, 100)));
}

#[test]
fn the_most_urgent_class_is_first_until_its_budget_is_used_up() {
    let mut flows = Sources::new(&[
        (Class::Background, ENDLESS),
        (Class::Bulk, ENDLESS),
        (Class::Normal, ENDLESS),
        (Class::Interactive, ENDLESS),
    ]);
    let order = flows.order(13);
    assert_eq!(order, [3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 1]);
}

#[test]
fn a_flow_alone_takes_long_turns_until_somebody_comes() {
    let mut flows = Sources::new(&[(Class::Bulk, ENDLESS)]);
    assert_eq!(flows.turn(Wanted::Any), Some((0, TURN_ALONE)));
    flows.add(1, Class::Bulk, ENDLESS);
    assert_eq!(flows.turn(Wanted::Any), Some((1, QUANTUM)));
}

#[test]
fn shares_follow_the_weights_within_one_turn() {
    let mut list: Vec<_> = Class::ALL.iter().map(|&class| (class, ENDLESS)).collect();
    list.extend([(Class::Normal, ENDLESS), (Class::Normal, ENDLESS)]);
    let mut flows = Sources::new(&list);
    flows.order(40_000);
    let by_class = |class: Class| -> f64 {
        flows
            .sent
            .iter()
            .filter(|(&stream, _)| list[stream as usize].0 == class)
            .map(|(_, &b)| b as f64)
            .sum()
    };
    let rounds = by_class(Class::Normal) / budget(Class::Normal) as f64;
    for class in Class::ALL {
        let due = rounds * budget(class) as f64;
        let slack = (budget(class).max(QUANTUM as i64) + budget(class)) as f64;
        assert!((by_class(class) - due).abs() <= slack, "{class}: {} of {due}", by_class(class));
    }
    let normal = [1, 4, 5].map(|stream| flows.sent[&stream]);
    let spread = normal.iter().max().unwrap() - normal.iter().min().unwrap();
    assert!(spread <= QUANTUM, "{normal:?}");
}

#[test]
fn fresh_flows_that_fill_the_link_leave_a_fifth_to_the_others() {
    let mut flows = Sources::new(&[(Class::Normal, ENDLESS)]);
    flows.order(1);
    for stream in 1..10_000 {
        flows.add(stream, Class::Normal, QUANTUM);
        flows.add(stream + 20_000, Class::Normal, QUANTUM);
        flows.turn(Wanted::Any);
    }
    let total: u64 = flows.sent.values().sum();
    let share = flows.sent[&0] as f64 / total as f64;
    assert!((share - 0.2).abs() < 0.01, "{share}");
}

#[test]
fn a_removed_flow_has_no_turn_and_its_class_goes_on() {
    let mut flows = Sources::new(&[(Class::Normal, ENDLESS), (Class::Normal, ENDLESS)]);
    flows.order(5);
    flows.schedule.remove(0);
    assert_eq!(flows.order(4), [1, 1, 1, 1]);
    flows.schedule.remove(1);
    flows.schedule.remove(1);
    assert_eq!(flows.turn(Wanted::Any), None);
    assert!(flows.schedule.entries.is_empty());
    assert!(flows.schedule.lines.iter().all(|l| l.active == 0 && l.fresh.is_empty() && l.rest.is_empty()));
}

#[test]
fn a_blocked_channel_keeps_everybodys_place() {
    let mut flows =
        Sources::new(&[(Class::Normal, ENDLESS), (Class::Normal, ENDLESS), (Class::Normal, ENDLESS)]);
    flows.order(9);
    for expected in [0, 1, 2, 0, 1, 2] {
        let turn = flows.schedule.next(Wanted::Any).unwrap();
        flows.schedule.served(turn.stream, 0, true);
        flows.schedule.block();
        assert_eq!(flows.schedule.next(Wanted::Any), None);
        flows.schedule.unblock();
        assert_eq!(flows.turn(Wanted::Any), Some((expected, QUANTUM)));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add {
        stream: u64,
        bytes: u64,
    },
    /// The turn ends without a byte and the flow waits for its reader, until more is added.
    Starve,
    Reset {
        stream: u64,
    },
    Turn(Wanted),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u64..24, prop_oneof![1u64..2_000, 10_000u64..400_000])
            .prop_map(|(stream, bytes)| Step::Add { stream, bytes }),
        1 => Just(Step::Starve),
        1 => (0u64..24).prop_map(|stream| Step::Reset { stream }),
        8 => Just(Step::Turn(Wanted::Any)),
        2 => Just(Step::Turn(Wanted::Fresh)),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_everybody_who_waits_is_served_within_a_bound(steps in proptest::collection::vec(step(), 1..2_000)) {
        // Streams keep their class: number modulo 4.
        let class = |stream: u64| Class::ALL[(stream % 4) as usize];
        let mut flows = Sources::default();
        // Bytes of others since a flow began to wait or last had a turn.
        let mut waited: BTreeMap<u64, u64> = BTreeMap::new();
        let round: u64 = Class::ALL.iter().map(|&class| budget(class) as u64).sum();
        let bound = |stream: u64| {
            // Six flows of the class have a turn each, fresh ones four turns in front of every one of them, and
            // the class may owe what it took when alone. That takes so many rounds.
            let ahead = 6 * (QUANTUM + FRESH_RUN) + TURN_ALONE;
            (ahead.div_ceil(budget(class(stream)) as u64) + 1) * round + 4 * QUANTUM
        };
        for step in steps {
            match step {
                Step::Add { stream, bytes } => {
                    flows.add(stream, class(stream), bytes);
                    waited.entry(stream).or_default();
                }
                Step::Starve => {
                    if let Some(turn) = flows.schedule.next(Wanted::Any) {
                        flows.schedule.served(turn.stream, 0, false);
                        waited.remove(&turn.stream);
                    }
                }
                Step::Reset { stream } => {
                    flows.schedule.remove(stream);
                    flows.waiting.remove(&stream);
                    waited.remove(&stream);
                }
                Step::Turn(wanted) => {
                    let Some((stream, bytes)) = flows.turn(wanted) else {
                        prop_assert!(wanted == Wanted::Fresh || waited.is_empty(), "{waited:?} forgotten");
                        continue;
                    };
                    prop_assert!(waited.contains_key(&stream), "{stream} was not waiting");
                    for (&other, behind) in waited.iter_mut().filter(|(&other, _)| other != stream) {
                        *behind += bytes;
                        prop_assert!(*behind <= bound(other), "{other}: {behind}");
                    }
                    if flows.waiting[&stream].1 == 0 {
                        waited.remove(&stream);
                    } else {
                        waited.insert(stream, 0);
                    }
                }
            }
        }
        // Left alone, all of it goes out.
        while flows.turn(Wanted::Any).is_some_and(|(stream, _)| {
            if flows.waiting[&stream].1 == 0 {
                waited.remove(&stream);
            }
            true
        }) {}
        prop_assert!(waited.is_empty(), "{:?} forgotten", waited);
    }
}

//! Sets of segment numbers as ranges: what arrived out of order, and what of it was reported.

use std::collections::VecDeque;

/// Disjoint half-open ranges in rising order; ranges that touch become one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    ranges: VecDeque<(u64, u64)>,
    count: u64,
}

impl Ranges {
    /// How many numbers the set holds.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The range that holds `number`.
    pub fn around(&self, number: u64) -> Option<(u64, u64)> {
        // News is mostly at the end.
        let range = match self.ranges.back() {
            Some(last) if last.0 <= number => last,
            Some(_) => self.ranges.get(self.ranges.partition_point(|&(_, end)| end <= number))?,
            None => return None,
        };
        (range.0 <= number && number < range.1).then_some(*range)
    }

    /// The lowest range.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.ranges.front().copied()
    }

    /// All ranges in rising order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().copied()
    }

    /// Adds `start..end` and tells `fresh` which parts of it were not there yet, in rising order.
    pub fn insert(&mut self, start: u64, end: u64, mut fresh: impl FnMut(u64, u64)) {
        if start >= end {
            return;
        }
        // News is mostly at the end.
        match self.ranges.back_mut() {
            Some(last) if last.0 <= start => {
                let from = start.max(last.1);
                if start > last.1 {
                    self.ranges.push_back((start, end));
                } else {
                    last.1 = last.1.max(end);
                }
                if from < end {
                    fresh(from, end);
                    self.count += end - from;
                }
                return;
            }
            _ => {}
        }
        // The first range that touches or follows `start..end`.
        let first = self.ranges.partition_point(|&(_, e)| e < start);
        let (mut low, mut high, mut from, mut last) = (start, end, start, first);
        while let Some(&(s, e)) = self.ranges.get(last).filter(|&&(s, _)| s <= end) {
            if from < s {
                fresh(from, s);
                self.count += s - from;
            }
            from = from.max(e);
            (low, high) = (low.min(s), high.max(e));
            last += 1;
        }
        if from < end {
            fresh(from, end);
            self.count += end - from;
        }
        match last - first {
            0 => self.ranges.insert(first, (low, high)),
            1 => self.ranges[first] = (low, high),
            _ => {
                self.ranges[first] = (low, high);
                self.ranges.drain(first + 1..last);
            }
        }
    }

    /// Forgets everything below `end`.
    pub fn forget_below(&mut self, end: u64) {
        while let Some(front) = self.ranges.front_mut().filter(|range| range.0 < end) {
            let gone = front.1.min(end) - front.0;
            self.count -= gone;
            front.0 += gone;
            if front.0 == front.1 {
                self.ranges.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_hold_what_a_plain_set_holds(
            steps in prop::collection::vec((0..60u64, 0..8u64, any::<bool>()), 0..40)
        ) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (start, length, forget) in steps {
                if forget && length == 0 {
                    ranges.forget_below(start);
                    set.retain(|&n| n >= start);
                    continue;
                }
                let mut fresh = Vec::new();
                ranges.insert(start, start + length, |s, e| fresh.extend(s..e));
                let expected: Vec<u64> = (start..start + length).filter(|n| set.insert(*n)).collect();
                prop_assert_eq!(fresh, expected);
                let held: Vec<u64> = ranges.iter().flat_map(|(s, e)| s..e).collect();
                prop_assert_eq!(&held, &set.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(ranges.count(), set.len() as u64);
                for pair in ranges.iter().collect::<Vec<_>>().windows(2) {
                    prop_assert!(pair[0].1 < pair[1].0, "{:?}", pair);
                }
                for n in 0..70 {
                    prop_assert_eq!(ranges.around(n).is_some(), set.contains(&n));
                }
            }
        }
    }
}

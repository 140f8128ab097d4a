//! Greatest and least value of a sliding window, over time or over rounds.

use crate::units::Time;
use std::collections::VecDeque;

/// Steps a window is divided into. Values of one step share an entry, so that memory stays bounded
/// however many samples arrive; a value may live up to one step longer than the window.
const STEPS: u64 = 16;

/// Entries whose values fall (or rise) from front to back; the front is the extreme.
#[derive(Clone, Debug, PartialEq)]
struct Extreme<T> {
    width: u64,
    step: u64,
    entries: VecDeque<(u64, T)>,
}

impl<T: Copy + PartialOrd> Extreme<T> {
    fn new(width: u64) -> Self {
        Extreme { width: width.max(1), step: (width / STEPS).max(1), entries: VecDeque::new() }
    }

    fn expire(&mut self, position: u64) {
        while self
            .entries
            .front()
            .is_some_and(|(at, _)| at.saturating_add(self.width).saturating_add(self.step - 1) <= position)
        {
            self.entries.pop_front();
        }
    }

    /// `better(a, b)`: `a` beats or equals `b`.
    fn update(&mut self, position: u64, value: T, better: impl Fn(T, T) -> bool) {
        // A position that went back counts as the newest one.
        let position = self.entries.back().map_or(position, |(at, _)| position.max(*at));
        self.expire(position);
        while self.entries.back().is_some_and(|(_, old)| better(value, *old)) {
            self.entries.pop_back();
        }
        match self.entries.back() {
            // Same step as a better value: nothing that would ever be asked for is lost but a
            // fraction of a step.
            Some((at, _)) if position - at < self.step => {}
            _ => self.entries.push_back((position, value)),
        }
    }
}

/// The greatest value of the last `width` positions (rounds, or nanoseconds).
#[derive(Clone, Debug, PartialEq)]
pub struct WindowedMax<T>(Extreme<T>);

impl<T: Copy + PartialOrd> WindowedMax<T> {
    /// A filter over `width` positions, at least one.
    pub fn new(width: u64) -> Self {
        WindowedMax(Extreme::new(width))
    }
    /// Takes a value at a position; positions do not decrease.
    pub fn update(&mut self, position: u64, value: T) {
        self.0.update(position, value, |a, b| a >= b);
    }
    /// Drops what has become too old at `position`.
    pub fn expire(&mut self, position: u64) {
        self.0.expire(position);
    }
    /// The greatest value, if any is left.
    pub fn get(&self) -> Option<T> {
        self.0.entries.front().map(|(_, value)| *value)
    }
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.entries.clear();
    }
}

/// The least value of the last `width` positions (rounds, or nanoseconds).
#[derive(Clone, Debug, PartialEq)]
pub struct WindowedMin<T>(Extreme<T>);

impl<T: Copy + PartialOrd> WindowedMin<T> {
    /// A filter over `width` positions, at least one.
    pub fn new(width: u64) -> Self {
        WindowedMin(Extreme::new(width))
    }
    /// Takes a value at a position; positions do not decrease.
    pub fn update(&mut self, position: u64, value: T) {
        self.0.update(position, value, |a, b| a <= b);
    }
    /// Drops what has become too old at `position`.
    pub fn expire(&mut self, position: u64) {
        self.0.expire(position);
    }
    /// The least value, if any is left.
    pub fn get(&self) -> Option<T> {
        self.0.entries.front().map(|(_, value)| *value)
    }
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.entries.clear();
    }
}

/// A moment as a position for the filters above.
pub fn position(time: Time) -> u64 {
    time.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_greatest_of_ten_rounds_is_forgotten_after_ten_rounds() {
        let mut filter = WindowedMax::new(10);
        filter.update(1, 100);
        for round in 2..=10 {
            filter.update(round, 50);
            assert_eq!(filter.get(), Some(100), "round {round}");
        }
        filter.update(11, 50);
        assert_eq!(filter.get(), Some(50));
    }

    #[test]
    fn the_least_round_trip_of_ten_seconds_is_forgotten_soon_after() {
        let mut filter = WindowedMin::new(10_000);
        filter.update(0, 540);
        filter.update(9_000, 560);
        assert_eq!(filter.get(), Some(540));
        filter.expire(10_700);
        assert_eq!(filter.get(), Some(560));
        filter.expire(30_000);
        assert_eq!(filter.get(), None);
    }

    proptest! {
        #[test]
        fn the_filter_agrees_with_a_search_through_all_values(
            steps in prop::collection::vec((0u64..3, 0u32..1000), 1..200)
        ) {
            let (mut max, mut min) = (WindowedMax::new(10), WindowedMin::new(10));
            let (mut all, mut round) = (Vec::new(), 0);
            for (ahead, value) in steps {
                round += ahead;
                all.push((round, value));
                max.update(round, value);
                min.update(round, value);
                let recent = || all.iter().filter(|(at, _)| at + 10 > round).map(|(_, v)| *v);
                prop_assert_eq!(max.get(), recent().max());
                prop_assert_eq!(min.get(), recent().min());
            }
        }

        #[test]
        fn memory_stays_bounded_for_ten_thousand_samples_in_a_window(rising in any::<bool>()) {
            let mut filter = WindowedMax::new(1_000_000_000);
            for i in 0..10_000u64 {
                let value = if rising { i } else { 10_000 - i };
                filter.update(i * 1_000_000, value);
                prop_assert!(filter.0.entries.len() <= 2 * STEPS as usize + 2);
            }
        }
    }
}

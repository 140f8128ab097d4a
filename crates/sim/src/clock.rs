//! The virtual clock: a queue of future events in whole nanoseconds.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use skyhaul_cc::units::{Duration, Time};

/// Future events in order of their time; equal times are served in the order they were scheduled.
///
/// The clock stands at the time of the last event popped.
#[derive(Clone, Debug)]
pub struct Events<E> {
    heap: BinaryHeap<Entry<E>>,
    now: Time,
    scheduled: u64,
}

impl<E> Events<E> {
    /// An empty queue whose clock stands at the start.
    pub fn new() -> Self {
        Events { heap: BinaryHeap::new(), now: Time::ZERO, scheduled: 0 }
    }

    /// The virtual time: that of the last event popped.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Schedules `event`. A time in the past is served next, at the present time.
    pub fn schedule(&mut self, at: Time, event: E) {
        let number = self.scheduled;
        self.scheduled += 1;
        self.heap.push(Entry { at: at.max(self.now), number, event });
    }

    /// Schedules `event` for `delay` from now.
    pub fn schedule_in(&mut self, delay: Duration, event: E) {
        self.schedule(self.now + delay, event);
    }

    /// When the next event is due, if there is one.
    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// Takes the next event and moves the clock to it.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        let entry = self.heap.pop()?;
        self.now = entry.at;
        Some((entry.at, entry.event))
    }

    /// Takes the next event if it is due at `limit` or before; otherwise the clock stays.
    pub fn pop_until(&mut self, limit: Time) -> Option<(Time, E)> {
        if self.next_at()? > limit {
            return None;
        }
        self.pop()
    }

    /// How many events wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Events::new()
    }
}

#[derive(Clone, Debug)]
struct Entry<E> {
    at: Time,
    number: u64,
    event: E,
}

// BinaryHeap serves the greatest first, so the earlier entry is the greater one.
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_are_served_in_the_order_of_scheduling() {
        let mut events = Events::new();
        for name in ["a", "b", "c"] {
            events.schedule(Time::from_millis(5), name);
        }
        events.schedule(Time::from_millis(1), "first");
        let order: Vec<_> = std::iter::from_fn(|| events.pop()).map(|(_, name)| name).collect();
        assert_eq!(order, ["first", "a", "b", "c"]);
    }

    #[test]
    fn the_clock_never_runs_backwards() {
        let mut events = Events::new();
        events.schedule(Time::from_secs(2), 1);
        assert_eq!(events.pop(), Some((Time::from_secs(2), 1)));
        events.schedule(Time::from_secs(1), 2);
        assert_eq!(events.pop(), Some((Time::from_secs(2), 2)));
    }

    #[test]
    fn a_limit_leaves_later_events_and_the_clock_alone() {
        let mut events = Events::new();
        events.schedule_in(Duration::from_secs(3), ());
        assert_eq!(events.pop_until(Time::from_secs(2)), None);
        assert_eq!((events.now(), events.len()), (Time::ZERO, 1));
        assert_eq!(events.pop_until(Time::from_secs(3)), Some((Time::from_secs(3), ())));
        assert!(events.is_empty());
    }
}

//! Whose bytes go into the channel next.
//!
//! Two deficit round robins (Shreedhar and Varghese, SIGCOMM 1995), one inside the other. Between
//! classes: every round each class may hand over [`budget`] bytes, the most urgent class first, so a
//! class is strictly ahead of the next until its budget of the round is used up, and none starves.
//! Between the flows of a class: [`QUANTUM`] bytes in turn, and flows that have been empty for a whole
//! round come before those that have not, once, as in FQ-CoDel (RFC 8290 §4.1 and §4.2): a request
//! does not wait behind uploads. Where that is not FQ-CoDel: a flow keeps what is left of its first
//! quantum over short pauses, because its header and its data come apart; and fresh flows, were they to
//! fill the link, leave one turn in five to the others.

use super::StreamNumber;
use crate::frame::Class;
use std::collections::BTreeMap;

/// Bytes one flow hands over before the next flow of its class has its turn. Smaller pieces cost CPU:
/// quinn-proto's send buffer is searched piece by piece for every packet.
pub(super) const QUANTUM: u64 = 16 * 1024;
/// The same for a flow that is alone, whom nobody waits for.
pub(super) const TURN_ALONE: u64 = 64 * 1024;
/// Bytes of fresh flows after which a flow that is not fresh has a turn.
const FRESH_RUN: u64 = 4 * QUANTUM;

/// Bytes a class hands over in one round when others wait too: 32 : 16 : 4 : 1. Alone each class gets the
/// whole link. A round of all four is 212 KiB, 174 ms at 10 Mbit/s; what arrives in a class that has
/// used its budget up waits no longer than the other budgets of one round take. Interactive flows have
/// twice a normal flow's share only because that must be bounded: they need to be first, not more.
fn budget(class: Class) -> i64 {
    const UNIT: i64 = 4 * 1024;
    UNIT * match class {
        Class::Interactive => 32,
        Class::Normal => 16,
        Class::Bulk => 4,
        Class::Background => 1,
    }
}

/// Who may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Whoever's turn it is.
    Any,
    /// Whoever's turn it is, if that is a fresh flow: others wait until less is on its way.
    Fresh,
}

/// A flow's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) stream: StreamNumber,
    /// Bytes it may hand over.
    pub(super) bytes: u64,
}

/// The flows of a channel that have something to send, in the order of their turns.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// In the order of [`Class::ALL`].
    lines: [Line; Class::ALL.len()],
    entries: BTreeMap<StreamNumber, Entry>,
    /// Names of places in the lists, in order.
    places: u64,
    /// The channel takes nothing from anybody.
    blocked: bool,
}

/// The flows of one class.
#[derive(Debug, Default)]
struct Line {
    /// What is left of the budget of this round; below zero what was taken in advance.
    left: i64,
    /// Flows with something to send.
    active: usize,
    fresh: BTreeMap<u64, StreamNumber>,
    /// Flows that have had their first quantum, and flows that are empty until their place comes up.
    rest: BTreeMap<u64, StreamNumber>,
    /// Bytes of fresh flows since a flow of the rest had its turn.
    fresh_run: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    class: usize,
    place: u64,
    is_fresh: bool,
    /// Has something to send.
    is_active: bool,
    /// Bytes it may hand over before the next one's turn.
    left: i64,
}

impl Line {
    fn list(&mut self, is_fresh: bool) -> &mut BTreeMap<u64, StreamNumber> {
        if is_fresh {
            &mut self.fresh
        } else {
            &mut self.rest
        }
    }
}

impl Schedule {
    /// A flow has something to send.
    pub(super) fn wake(&mut self, stream: StreamNumber, class: Class) {
        let class = class as usize;
        let left = QUANTUM as i64;
        let new = Entry { class, place: u64::MAX, is_fresh: true, is_active: false, left };
        let entry = self.entries.entry(stream).or_insert(new);
        if std::mem::replace(&mut entry.is_active, true) {
            return;
        }
        let line = &mut self.lines[entry.class];
        line.active += 1;
        if entry.is_fresh {
            line.rest.remove(&entry.place);
            self.places += 1;
            entry.place = self.places;
            line.fresh.insert(entry.place, stream);
        }
    }

    /// A flow is gone.
    pub(super) fn remove(&mut self, stream: StreamNumber) {
        let Some(entry) = self.entries.remove(&stream) else { return };
        let line = &mut self.lines[entry.class];
        line.active -= usize::from(entry.is_active);
        line.list(entry.is_fresh && entry.is_active).remove(&entry.place);
    }

    /// The channel refused what was handed over: nobody has a turn until [`unblock`](Self::unblock).
    pub(super) fn block(&mut self) {
        self.blocked = true;
    }

    /// The channel may take something again.
    pub(super) fn unblock(&mut self) {
        self.blocked = false;
    }

    /// Whose turn it is. Each answer must be followed by [`served`](Self::served) or
    /// [`remove`](Self::remove).
    pub(super) fn next(&mut self, wanted: Wanted) -> Option<Turn> {
        if self.blocked {
            return None;
        }
        let index = self.class()?;
        let stream = self.flow(index)?;
        let entry = self.entries.get(&stream)?;
        if wanted == Wanted::Fresh && !entry.is_fresh {
            return None;
        }
        let is_alone = self.lines.iter().map(|line| line.active).sum::<usize>() == 1;
        let left = entry.left.unsigned_abs();
        Some(Turn { stream, bytes: if is_alone { left.max(TURN_ALONE) } else { left } })
    }

    /// The most urgent class that has somebody waiting and something left; when none has, a round begins.
    fn class(&mut self) -> Option<usize> {
        if self.lines.iter().all(|line| line.active == 0) {
            return None;
        }
        loop {
            // A class owes a few turns at most, so this ends.
            if let Some(index) = self.lines.iter().position(|line| line.active > 0 && line.left > 0) {
                return Some(index);
            }
            for (line, class) in self.lines.iter_mut().zip(Class::ALL) {
                line.left = (line.left + budget(class)).min(budget(class));
            }
        }
    }

    /// The flow of a class that has somebody waiting.
    fn flow(&mut self, index: usize) -> Option<StreamNumber> {
        let line = &mut self.lines[index];
        loop {
            let mut from_fresh = !line.fresh.is_empty() && line.fresh_run < FRESH_RUN;
            if !from_fresh {
                // Flows that are still empty when their place comes up have been so for a round.
                while let Some((&place, stream)) = line.rest.first_key_value() {
                    if self.entries.get(stream).is_some_and(|entry| entry.is_active) {
                        break;
                    }
                    self.entries.remove(stream);
                    line.rest.remove(&place);
                }
                if line.rest.is_empty() {
                    from_fresh = true;
                    line.fresh_run = 0;
                }
            }
            let (&place, &stream) = line.list(from_fresh).first_key_value()?;
            let entry = self.entries.get_mut(&stream)?;
            if entry.left > 0 {
                return Some(stream);
            }
            line.list(from_fresh).remove(&place);
            self.places += 1;
            *entry =
                Entry { place: self.places, is_fresh: false, left: entry.left + QUANTUM as i64, ..*entry };
            line.rest.insert(self.places, stream);
        }
    }

    /// A flow had its turn and handed over `bytes`; `more` if it has more that may go. True if that was all
    /// of a burst smaller than a quantum.
    pub(super) fn served(&mut self, stream: StreamNumber, bytes: u64, more: bool) -> bool {
        let Some(entry) = self.entries.get_mut(&stream) else { return false };
        let line = &mut self.lines[entry.class];
        line.left -= bytes as i64;
        entry.left -= bytes as i64;
        line.fresh_run = if entry.is_fresh { line.fresh_run + bytes } else { 0 };
        if more {
            return false;
        }
        entry.is_active = false;
        line.active -= 1;
        line.list(entry.is_fresh).remove(&entry.place);
        // One that has used its first quantum up is not fresh again before a round has passed.
        entry.is_fresh &= entry.left > 0;
        self.places += 1;
        entry.place = self.places;
        line.rest.insert(entry.place, stream);
        entry.is_fresh
    }
}

#[cfg(test)]
mod tests;

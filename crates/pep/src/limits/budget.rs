//! One budget of memory for a whole process: what each kind of data may take, and each channel's share of it.
//!
//! ```text
//! 16 parts    6  pools: received and not passed on, over all channels
//!             4  windows: given to QUIC and not acknowledged
//!             2  kept by senders for repair beyond that
//!             1  kept by receivers for repair
//!             1  taken from TCP and not given to QUIC
//!             1  floors of all flows at the receiver, 1 at the sender
//! ```
//!
//! What a channel's pool is, the other end has been told, and what it was told it may use: a pool once offered cannot
//! be taken back. So a smaller pool is only asked for, and counts when the other end has answered that it keeps no
//! more; until then the old one counts. A pool grows at once, as far as there is memory that nobody was promised. The
//! sum of all that was promised therefore never exceeds the budget, whatever is on its way.
//!
//! Channels that are idle keep what they have until a busy one could use it; then busy ones share equally. For every
//! configured channel that is not there yet a floor is held back, so that it can come at any time.

use super::resources::{Floor, Full, Resources};
use skyhaul_cc::Bytes;
use std::collections::BTreeMap;

/// How the memory of a process is divided among kinds of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Received and not passed on, floors not counted.
    pub pools: Bytes,
    /// With QUIC: not acknowledged yet.
    pub windows: Bytes,
    /// Kept by senders for repairing the far end.
    pub retained: Bytes,
    /// Kept by receivers for repair beside what waits to be read.
    pub kept: Bytes,
    /// Taken from TCP connections and not with QUIC yet, floors not counted.
    pub queue: Bytes,
    /// What every flow may always have waiting at its receiver.
    pub floor: Bytes,
    /// What every flow may always queue at its sender.
    pub queue_floor: Bytes,
    /// Flows at once, over all channels and in both directions: their floors fit.
    pub flows: usize,
}

/// Floors of flows: below, reading costs more than it brings; above, few flows would bind much.
const FLOORS: (Bytes, Bytes) = (Bytes::kib(4), Bytes::kib(64));
/// A queue need not be longer: QUIC takes pieces of this size.
const QUEUE_FLOOR: Bytes = Bytes::kib(16);

impl Split {
    /// Divides `memory`, of which `flows` connections at once shall have their floors; fewer are possible if that
    /// is too little.
    pub fn of(memory: Bytes, flows: usize) -> Split {
        let part = memory / 16;
        let floor = (part / (flows.max(1) as u64)).clamp(FLOORS.0, FLOORS.1);
        Split {
            pools: part * 6,
            windows: part * 4,
            retained: part * 2,
            kept: part,
            queue: part,
            floor,
            queue_floor: floor.min(QUEUE_FLOOR),
            flows: usize::try_from(part.0 / floor.0).unwrap_or(usize::MAX),
        }
    }

    /// The most that is ever held.
    pub fn total(&self) -> Bytes {
        let floors = (self.floor + self.queue_floor) * self.flows as u64;
        self.pools + self.windows + self.retained + self.kept + self.queue + floors
    }

    /// Bytes that a flow may queue now which has `queued` of the `all` that all flows have; no more than `most`. Twice
    /// what is free, as for pools (see [`crate::limits`]), and its floor in any case.
    pub fn queue_room(&self, queued: Bytes, all: Bytes, most: Bytes) -> Bytes {
        let free = self.queue.saturating_sub(all);
        let allowed = (free * 2).max(self.queue_floor).min(most);
        allowed.saturating_sub(queued).min(free.max(self.queue_floor.saturating_sub(queued)))
    }
}

/// What a channel has been doing since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Flow data received since then.
    pub received: Bytes,
    /// Flow data received and not passed on.
    pub held: Bytes,
    /// Flow data queued and not sent.
    pub queued: Bytes,
    /// Flow data sent and not known to be passed on at the far end.
    pub outstanding: Bytes,
    /// The other end understands offers of pools.
    pub adjustable: bool,
}

/// A new size for the pool that the other end may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Counts offers on one channel.
    pub sequence: u64,
    /// Bytes for all flows, floors not counted.
    pub pool: Bytes,
}

/// A channel's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// What the other end may have waiting here.
    pub pool: Bytes,
    /// What may be with QUIC.
    pub window: Bytes,
    /// What may be kept for repairing the far end.
    pub retained: Bytes,
    /// What may be kept for being repaired.
    pub kept: Bytes,
}

#[derive(Clone, Copy, Debug)]
struct Account {
    sequence: u64,
    /// The last offer was answered.
    answered: bool,
    offered: Bytes,
    /// The most the other end may believe that its pool is.
    promised: Bytes,
    window: Bytes,
    busy: bool,
}

/// Divides one budget among channels named by `K`.
#[derive(Clone, Debug)]
pub struct Budget<K> {
    split: Split,
    expected: usize,
    pools: Resources<K>,
    windows: Resources<K>,
    channels: BTreeMap<K, Account>,
}

/// The least of a channel's pool and window.
const LEAST: Bytes = Bytes::kib(64);
/// Floors of all channels that are configured take this part of pools and windows at most, if that leaves each the
/// least.
const FLOORS_OF_CHANNELS: u64 = 4;
/// A channel is busy that has used this part of its share.
const BUSY: u64 = 8;

impl<K: Ord + Copy> Budget<K> {
    /// A budget for `expected` channels; more are possible while there is memory.
    pub fn new(split: Split, expected: usize) -> Self {
        let expected = expected.max(1);
        let floor = |of: Bytes| Floor((of / (FLOORS_OF_CHANNELS * expected as u64)).max(LEAST).min(of));
        let mut budget = Budget {
            split,
            expected,
            pools: Resources::new(split.pools, floor(split.pools)),
            windows: Resources::new(split.windows, floor(split.windows)),
            channels: BTreeMap::new(),
        };
        budget.reserve();
        budget
    }

    /// How the memory is divided among kinds of data.
    pub fn split(&self) -> &Split {
        &self.split
    }

    /// Channels that have a share.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Whether [`rebalance`](Self::rebalance) could change anything: not while one channel has all there is.
    pub fn is_divided(&self) -> bool {
        let alone = |account: &Account| account.promised < self.split.pools / 2;
        self.channels.len() > 1 || self.channels.values().any(alone)
    }

    /// All that was promised to other ends, floors of flows not counted.
    pub fn promised(&self) -> Bytes {
        self.channels.values().map(|account| account.promised).sum()
    }

    /// Whether a channel has a share.
    pub fn has(&self, channel: K) -> bool {
        self.channels.contains_key(&channel)
    }

    /// What one other end may believe that its pool here is.
    pub fn pool(&self, channel: K) -> Bytes {
        self.channels.get(&channel).map_or(Bytes::ZERO, |account| account.promised)
    }

    /// A channel begins: its first share.
    ///
    /// # Errors
    /// When what is promised to others leaves less than a floor.
    pub fn open(&mut self, channel: K) -> Result<Share, Full> {
        self.pools.open(channel)?;
        if let Err(full) = self.windows.open(channel) {
            self.pools.close(channel);
            return Err(full);
        }
        self.channels.insert(
            channel,
            Account {
                sequence: 0,
                answered: true,
                offered: Bytes::ZERO,
                promised: Bytes::ZERO,
                window: Bytes::ZERO,
                busy: false,
            },
        );
        self.reserve();
        self.pools.wants(channel, self.split.pools);
        self.windows.wants(channel, self.split.windows);
        let (promised, window) =
            (self.pools.take(channel, self.split.pools), self.windows.take(channel, self.split.windows));
        if let Some(account) = self.channels.get_mut(&channel) {
            (account.offered, account.promised, account.window) = (promised, promised, window);
        }
        Ok(self.share(channel))
    }

    /// A channel is over and what it held is free.
    pub fn close(&mut self, channel: K) {
        if self.channels.remove(&channel).is_some() {
            self.pools.close(channel);
            self.windows.close(channel);
            self.reserve();
        }
    }

    /// The other end answers an offer: it keeps this much, and will never use more under that offer.
    ///
    /// # Errors
    /// When it claims more than it was ever promised.
    pub fn kept(&mut self, channel: K, sequence: u64, pool: Bytes) -> Result<(), &'static str> {
        let Some(account) = self.channels.get_mut(&channel) else { return Ok(()) };
        if sequence > account.sequence || pool > account.promised {
            return Err("a pool larger than was offered");
        }
        // An answer to an earlier offer says nothing of the last.
        if sequence == account.sequence {
            account.answered = true;
            self.pools.release(channel, account.promised - pool);
            account.promised = pool;
        }
        Ok(())
    }

    /// Looks at what channels have been doing and moves shares; answers with pools to offer. Nothing changes while
    /// there is one channel.
    pub fn rebalance(&mut self, usage: impl Fn(K) -> Usage) -> Vec<(K, Offer)> {
        let used: Vec<(K, Usage)> = self.channels.keys().map(|key| (*key, usage(*key))).collect();
        let mut busy = 0;
        for (key, usage) in &used {
            let Some(account) = self.channels.get_mut(key) else { continue };
            let part = |of: Bytes| of / BUSY;
            account.busy = usage.received.max(usage.held) >= part(account.promised)
                || usage.queued.max(usage.outstanding) >= part(account.window);
            busy += usize::from(account.busy);
        }
        // Nobody gives anything up for nothing.
        let wants = |account: &Account, all: Bytes, has: Bytes| match (account.busy, busy) {
            (true, _) => all,
            (false, 0) => has,
            (false, _) => Bytes::ZERO,
        };
        let (pools, windows) = (self.split.pools, self.split.windows);
        let channels = &self.channels;
        self.pools.want(channels.iter().map(|(key, a)| (*key, wants(a, pools, a.promised))));
        self.windows.want(channels.iter().map(|(key, a)| (*key, wants(a, windows, a.window))));
        let mut offers = Vec::new();
        for (key, usage) in used {
            self.move_window(key, usage);
            offers.extend(self.move_pool(key, usage).map(|offer| (key, offer)));
        }
        offers
    }

    /// The share of a channel as it is now.
    pub fn share(&self, channel: K) -> Share {
        let Some(account) = self.channels.get(&channel) else {
            return Share {
                pool: Bytes::ZERO,
                window: Bytes::ZERO,
                retained: Bytes::ZERO,
                kept: Bytes::ZERO,
            };
        };
        let count = self.channels.len() as u64;
        let busy = self.channels.values().filter(|account| account.busy).count() as u64;
        // What is kept for repair can be let go at any time, so it follows at once.
        let part = |of: Bytes| match (count, account.busy) {
            (1, _) => of,
            (_, true) => of / 4 * 3 / busy,
            (_, false) => of / 4 / count,
        };
        Share {
            pool: account.promised,
            window: account.window,
            retained: part(self.split.retained),
            kept: part(self.split.kept),
        }
    }

    fn reserve(&mut self) {
        let to_come = self.expected.saturating_sub(self.channels.len()) as u64;
        self.pools.reserve(to_come);
        self.windows.reserve(to_come);
    }

    /// This end's own window needs nobody's consent, but what is with QUIC stays there until it is acknowledged; what
    /// the far end has passed on it has acknowledged.
    fn move_window(&mut self, channel: K, usage: Usage) {
        let granted = self.windows.granted(channel);
        let Some(account) = self.channels.get_mut(&channel) else { return };
        if granted > account.window {
            account.window += self.windows.take(channel, granted - account.window);
        } else if granted < account.window {
            let least = granted.max(usage.outstanding).min(account.window);
            self.windows.release(channel, account.window - least);
            account.window = least;
        }
    }

    fn move_pool(&mut self, channel: K, usage: Usage) -> Option<Offer> {
        let granted = self.pools.granted(channel);
        let account = self.channels.get_mut(&channel)?;
        if !usage.adjustable || !account.answered {
            return None;
        }
        let pool = if granted > account.promised {
            // A little more is not worth a word.
            let more = granted - account.promised;
            if more < account.promised / BUSY {
                return None;
            }
            let taken = self.pools.take(channel, more);
            if taken < account.promised / BUSY || taken == Bytes::ZERO {
                self.pools.release(channel, taken);
                return None;
            }
            account.promised += taken;
            account.promised
        } else if granted < account.promised && granted != account.offered {
            granted
        } else {
            return None;
        };
        account.sequence += 1;
        account.answered = false;
        account.offered = pool;
        Some(Offer { sequence: account.sequence, pool })
    }
}

#[cfg(test)]
mod tests;

//! The resource manager: memory over all flows of one process.
//!
//! Every established flow keeps a floor that nobody can take. What is left of the cap goes to flows in
//! proportion to what they can use (rate times round trip, as the learning state machine knows them), no flow more
//! than it can use; what they leave over goes to the others (max-min by weight). A flow whose floor would not fit
//! is refused at its beginning, so that no established flow ever fails for want of memory.

use skyhaul_cc::Bytes;
use std::collections::BTreeMap;

/// What every flow may always hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor(pub Bytes);

/// Divides a cap of memory among flows named by `K`.
#[derive(Clone, Debug)]
pub struct Resources<K> {
    cap: Bytes,
    floor: Bytes,
    /// Held back for flows to come.
    reserve: Bytes,
    flows: BTreeMap<K, Share>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// What the flow can use.
    wants: Bytes,
    /// What it may hold.
    granted: Bytes,
    /// What it holds.
    held: Bytes,
}

/// The flow is refused: floors of all flows would not fit under the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Flows there are.
    pub flows: usize,
    /// The cap.
    pub cap: Bytes,
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} flows fill the memory of {} with their floors; raise it or wait", self.flows, self.cap)
    }
}

impl std::error::Error for Full {}

impl<K: Ord + Copy> Resources<K> {
    /// No flows yet; each may always hold `floor`, all together `cap`.
    pub fn new(cap: Bytes, floor: Floor) -> Self {
        Resources { cap, floor: floor.0.max(Bytes(1)), reserve: Bytes::ZERO, flows: BTreeMap::new() }
    }

    /// Holds floors back for so many flows that are expected and not there, as far as there are any left: only flows
    /// that begin may use them.
    pub fn reserve(&mut self, flows: u64) {
        let most = self.cap.saturating_sub(self.floor * self.flows.len() as u64);
        self.reserve = (self.floor * flows).min(most);
        self.divide();
    }

    /// A flow begins.
    ///
    /// # Errors
    /// When the floors of all flows would exceed the cap, or what others hold now leaves no room for this one's.
    pub fn open(&mut self, flow: K) -> Result<(), Full> {
        let floors = self.floor * (self.flows.len() as u64 + 1);
        let spoken_for: Bytes = self.flows.values().map(|share| share.held.max(self.floor)).sum();
        if floors > self.cap || spoken_for + self.floor > self.cap {
            return Err(Full { flows: self.flows.len(), cap: self.cap });
        }
        self.flows.entry(flow).or_insert(Share { wants: self.floor, ..Share::default() });
        self.divide();
        Ok(())
    }

    /// A flow is over and holds nothing.
    pub fn close(&mut self, flow: K) {
        if self.flows.remove(&flow).is_some() {
            self.divide();
        }
    }

    /// What a flow could use, as its path is known: twice its rate times its round trip is a good answer.
    pub fn wants(&mut self, flow: K, bytes: Bytes) {
        if let Some(share) = self.flows.get_mut(&flow) {
            share.wants = bytes.max(self.floor);
            self.divide();
        }
    }

    /// The same for many flows at once, which costs hardly more than for one.
    pub fn want(&mut self, all: impl IntoIterator<Item = (K, Bytes)>) {
        for (flow, bytes) in all {
            if let Some(share) = self.flows.get_mut(&flow) {
                share.wants = bytes.max(self.floor);
            }
        }
        self.divide();
    }

    /// What a flow may hold; zero for flows that do not exist.
    pub fn granted(&self, flow: K) -> Bytes {
        self.flows.get(&flow).map_or(Bytes::ZERO, |share| share.granted)
    }

    /// How much more a flow may take in now: never so much that all flows together exceed the cap, also while
    /// others still hold what they were granted before.
    pub fn room(&self, flow: K) -> Bytes {
        let Some(share) = self.flows.get(&flow) else { return Bytes::ZERO };
        // Nobody's floor is lent out.
        let others: Bytes = (self.flows.iter())
            .filter(|(other, _)| **other != flow)
            .map(|(_, share)| share.held.max(self.floor))
            .sum();
        let free = self.cap.saturating_sub(self.reserve + others + share.held);
        // Its own floor is nobody else's.
        let free = free.max(self.floor.saturating_sub(share.held));
        share.granted.saturating_sub(share.held).min(free)
    }

    /// A flow takes in as much of `bytes` as it has room for; the answer is how much.
    pub fn take(&mut self, flow: K, bytes: Bytes) -> Bytes {
        let taken = bytes.min(self.room(flow));
        if let Some(share) = self.flows.get_mut(&flow) {
            share.held += taken;
        }
        taken
    }

    /// A flow has passed on `bytes`.
    pub fn release(&mut self, flow: K, bytes: Bytes) {
        if let Some(share) = self.flows.get_mut(&flow) {
            share.held = share.held.saturating_sub(bytes);
        }
    }

    /// What all flows hold.
    pub fn held(&self) -> Bytes {
        self.flows.values().map(|share| share.held).sum()
    }

    /// Max-min by weight: whoever wants less than its part gets what it wants, the others divide the rest.
    fn divide(&mut self) {
        let floor = self.floor;
        let mut rest = self.cap.saturating_sub(self.reserve + floor * self.flows.len() as u64);
        let mut order: Vec<(Bytes, K)> =
            self.flows.iter().map(|(key, share)| (share.wants - floor, *key)).collect();
        order.sort_unstable();
        let mut left = order.len() as u64;
        for (more, key) in order {
            let part = more.min(rest / left.max(1));
            rest -= part;
            left -= 1;
            if let Some(share) = self.flows.get_mut(&key) {
                share.granted = floor + part;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FLOOR: Bytes = Bytes::kib(64);

    fn resources(mib: u64) -> Resources<u32> {
        Resources::new(Bytes::mib(mib), Floor(FLOOR))
    }

    #[test]
    fn a_flow_alone_gets_what_it_can_use_and_many_share_what_there_is() {
        let mut resources = resources(64);
        resources.open(0).unwrap();
        resources.wants(0, Bytes::mib(20));
        assert_eq!(resources.granted(0), Bytes::mib(20));
        for flow in 1..4 {
            resources.open(flow).unwrap();
            resources.wants(flow, Bytes::mib(40));
        }
        let granted: Vec<u64> = (0..4).map(|flow| resources.granted(flow).0 >> 20).collect();
        assert!(granted.iter().all(|mib| (15..=16).contains(mib)), "{granted:?} MiB");
    }

    #[test]
    fn what_one_leaves_over_goes_to_the_others() {
        let mut resources = resources(64);
        for flow in 0..2 {
            resources.open(flow).unwrap();
        }
        resources.wants(0, Bytes::mib(4));
        resources.wants(1, Bytes::mib(100));
        assert_eq!((resources.granted(0), resources.granted(1)), (Bytes::mib(4), Bytes::mib(60)));
    }

    #[test]
    fn a_flow_too_many_is_refused_and_the_others_keep_their_floors() {
        let mut resources = resources(1);
        assert!((0..16).all(|flow| resources.open(flow).is_ok()));
        let refused = resources.open(16).unwrap_err();
        assert_eq!(refused, Full { flows: 16, cap: Bytes::mib(1) });
        assert!(refused.to_string().contains("16 flows"), "{refused}");
        assert!((0..16).all(|flow| resources.take(flow, Bytes::mib(1)) == FLOOR));
        assert_eq!(resources.held(), Bytes::mib(1));
    }

    proptest! {
        #[test]
        fn the_sum_never_exceeds_the_cap_and_no_flow_is_below_its_floor(
            steps in prop::collection::vec((0u8..5, 0u32..12, 0u64..2_000_000), 1..400)
        ) {
            let mut resources = resources(1);
            let mut open = std::collections::BTreeSet::new();
            for (what, flow, bytes) in steps {
                match what {
                    0 => { if resources.open(flow).is_ok() { open.insert(flow); } }
                    1 => { resources.close(flow); open.remove(&flow); }
                    2 => resources.wants(flow, Bytes(bytes)),
                    3 => resources.release(flow, Bytes(bytes)),
                    _ => { resources.take(flow, Bytes(bytes)); }
                }
                prop_assert!(resources.held() <= Bytes::mib(1), "{} held", resources.held());
                for flow in &open {
                    prop_assert!(resources.granted(*flow) >= FLOOR);
                    let held = resources.flows[flow].held;
                    // Whoever holds less than its floor can have it at once.
                    prop_assert!(held + resources.room(*flow) >= FLOOR, "{held}");
                }
            }
        }
    }
}

//! Repair of streams, as far as it concerns the flows of a session.

use super::flow::Flow;
use super::{Session, StreamNumber};
use crate::channel::RepairHints;
use crate::repair::{Code, Message, Planner, Progress, RepairStats, Retained, Streams};
use bytes::Bytes;
use skyhaul_cc::Time;
use std::collections::BTreeMap;

/// What is kept is looked at when an eighth of what may be has come anew.
const LOOK: u64 = 8;

/// The sending half.
#[derive(Default)]
pub(super) struct Sending {
    /// What all flows of the channel may keep for repairing the far end. QUIC has most of the same bytes anyway.
    limit: u64,
    planner: Planner,
    stats: RepairStats,
    /// Both ends understand repair.
    on: bool,
    fed: u64,
}

/// The receiving half.
#[derive(Default)]
pub(super) struct Receiving {
    /// What all flows of the channel may keep beside what waits to be read.
    limit: u64,
    code: Code,
    stats: RepairStats,
    on: bool,
    taken: u64,
}

impl Streams for BTreeMap<StreamNumber, Flow> {
    fn retained(&mut self, stream: u64) -> Option<&mut Retained> {
        self.get_mut(&stream).map(|flow| &mut flow.retained)
    }
}

impl Sending {
    /// A flow gave QUIC so many bytes.
    pub(super) fn fed(&mut self, stream: StreamNumber, flow: &mut Flow, bytes: u64, is_small: bool) {
        if !self.on {
            flow.retained.clear();
        } else if bytes > 0 {
            self.fed += bytes;
            self.planner.sent(stream);
            self.planner.earn(bytes);
            if is_small {
                self.planner.small_burst(stream);
            }
        }
    }

    pub(super) fn next_small(
        &mut self,
        now: Time,
        room: usize,
        hints: RepairHints,
        progress: Progress,
        flows: &mut BTreeMap<StreamNumber, Flow>,
    ) -> Option<Bytes> {
        self.planner.next_small(now, room, hints, progress, flows, &mut self.stats)
    }

    /// Keeps what is kept within its bound.
    pub(super) fn bound(&mut self, flows: &mut BTreeMap<StreamNumber, Flow>) {
        if self.fed >= self.limit / LOOK {
            self.trim(flows);
        }
    }

    /// Another bound, at once.
    pub(super) fn limit(&mut self, bytes: u64, flows: &mut BTreeMap<StreamNumber, Flow>) {
        self.limit = bytes;
        self.trim(flows);
    }

    fn trim(&mut self, flows: &mut BTreeMap<StreamNumber, Flow>) {
        self.fed = 0;
        let aim = self.limit - self.limit / LOOK;
        let mut total: u64 = flows.values().map(|flow| flow.retained.bytes()).sum();
        while total > aim {
            let Some(flow) = flows.values_mut().max_by_key(|flow| flow.retained.bytes()) else { return };
            let before = flow.retained.bytes();
            flow.retained.shrink_to(before.saturating_sub(total - aim));
            total -= before - flow.retained.bytes();
        }
    }

    pub(super) fn next(
        &mut self,
        now: Time,
        room: usize,
        hints: RepairHints,
        flows: &mut BTreeMap<StreamNumber, Flow>,
    ) -> Option<Bytes> {
        self.planner.next(now, room, hints, flows, &mut self.stats)
    }

    /// Small bursts are repaired otherwise.
    pub(super) fn spare(&mut self, most: u64, flows: &mut BTreeMap<StreamNumber, Flow>) {
        self.planner.spare(most, flows);
    }

    pub(super) fn due(&mut self, flows: &mut BTreeMap<StreamNumber, Flow>) -> Option<Time> {
        self.planner.due(flows)
    }
}

impl Receiving {
    /// A flow is about to take data: what repair needs of it is kept from the first byte on.
    pub(super) fn before_data(&self, flow: &mut Flow) {
        if self.on {
            flow.keep_for_repair();
        }
    }

    /// A flow has received data; answers with the bytes that repair has added to it.
    pub(super) fn after_data(&mut self, flow: &mut Flow) -> u64 {
        if !self.on {
            return 0;
        }
        let repaired = flow.repair(&mut self.code);
        self.stats.decoded += repaired.blocks;
        self.stats.repaired += skyhaul_cc::Bytes(repaired.bytes);
        repaired.bytes
    }
}

impl Session {
    /// The hellos are through.
    pub(super) fn begin_repair(&mut self) {
        let on = self.channel.repairs();
        (self.repair.on, self.flows.repair.on) = (on, on);
    }

    /// A message of repair came. What is wrong with it is not worth ending the connection for.
    pub(super) fn handle_repair(&mut self, message: Bytes) {
        let stats = &mut self.repair.stats;
        stats.received += 1;
        let message = match Message::decode(&message) {
            Ok(message) if self.repair.on => message,
            _ => {
                stats.ignored += 1;
                return;
            }
        };
        let stream = message.stream;
        let Some(flow) = self.flows.map.get_mut(&stream) else {
            stats.ignored += 1;
            return;
        };
        let symbols = message.symbols.len() as u64;
        if !flow.gather(message) {
            stats.ignored += 1;
            return;
        }
        self.repair.taken += symbols;
        let was_whole = flow.is_readable();
        let new = self.repair.after_data(flow);
        self.held += new;
        if new > 0 || flow.is_readable() != was_whole {
            self.taken(stream);
        }
        self.bound_kept(0);
    }

    /// Keeps what is kept for repair within its bound, after so many bytes more.
    pub(super) fn bound_kept(&mut self, bytes: u64) {
        self.repair.taken += bytes;
        if self.repair.taken >= self.repair.limit / LOOK {
            self.trim_kept();
        }
    }

    /// Another bound, at once.
    pub(super) fn limit_kept(&mut self, bytes: u64) {
        self.repair.limit = bytes;
        self.trim_kept();
    }

    fn trim_kept(&mut self) {
        self.repair.taken = 0;
        let aim = self.repair.limit - self.repair.limit / LOOK;
        let mut total: u64 = self.flows.map.values().map(Flow::kept).sum();
        while total > aim {
            let Some(flow) = self.flows.map.values_mut().max_by_key(|flow| flow.kept()) else { return };
            total -= flow.kept();
            flow.forget_kept();
        }
    }

    /// Bytes kept for repairing the far end, and for being repaired.
    pub(crate) fn kept_for_repair(&self) -> (skyhaul_cc::Bytes, skyhaul_cc::Bytes) {
        let RepairStats { retained, kept, .. } = self.repair_stats();
        (retained, kept)
    }

    pub(super) fn repair_stats(&self) -> RepairStats {
        let RepairStats { sent, sent_bytes, encoded, .. } = self.flows.repair.stats;
        let sum = |of: fn(&Flow) -> u64| skyhaul_cc::Bytes(self.flows.map.values().map(of).sum());
        let (retained, kept) = (sum(|flow| flow.retained.bytes()), sum(Flow::kept));
        RepairStats { sent, sent_bytes, encoded, retained, kept, ..self.repair.stats }
    }
}

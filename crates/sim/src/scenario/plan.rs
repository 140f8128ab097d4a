//! Who sends over the link, and over which links: TCP's settings, flows, and the sweep with its cells.

use skyhaul_cc::units::{Ber, Bytes, Duration, Rate, Share};

use super::{Dir, Scenario, WorkloadKind};
use crate::tcp::{AckOptions, Pacing, Recovery, TcpOptions};

/// Settings of TCP in the simulator, the same for all flows; `[tcp]` in scenario files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpPlan {
    /// Payload of a full segment.
    pub mss: Bytes,
    /// IP and TCP headers of each segment.
    pub headers: Bytes,
    /// When segments leave inside the window.
    pub pacing: Pacing,
    /// How the sender finds out what was lost.
    pub recovery: Recovery,
    /// Retransmission timeout before the first round-trip sample.
    pub initial_rto: Duration,
    /// First window; ten segments if nothing is said (RFC 6928).
    pub initial_window: Option<Bytes>,
    /// First slow-start threshold; unlimited if nothing is said.
    pub initial_ssthresh: Option<Threshold>,
    /// Reference round trip RTT0 of the controllers that have one; their own if nothing is said.
    pub reference_rtt: Option<Duration>,
    /// An ACK at the latest for every so many segments in order.
    pub ack_every: u32,
    /// The receiver's buffer, boundless if nothing is said.
    pub receive_window: Option<Bytes>,
}

/// A first slow-start threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// So much payload.
    Bytes(Bytes),
    /// So many products of the link's payload rate and the round trip without queues.
    Bdp(f64),
}

/// One flow of a scenario; `[[flows]]` in scenario files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowPlan {
    /// When it begins to send.
    pub start: Duration,
    /// Its controller, where the scenario fixes it.
    pub controller: Option<String>,
    /// How much it sends; nothing for without end.
    pub bytes: Option<Bytes>,
}

/// Values to run one after the other, each with each; an empty list varies nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sweep {
    /// Round trips without queues, half each way.
    pub rtt: Vec<Duration>,
    /// Single losses where the data goes.
    pub loss: Vec<Share>,
    /// Error rates where the data goes.
    pub ber: Vec<Ber>,
    /// Sizes of the transfers.
    pub bytes: Vec<Bytes>,
}

/// A scenario with one value of each list of the sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The scenario with these values in its link and flows, and without a sweep.
    pub scenario: Scenario,
    /// Round trip without queues.
    pub rtt: Duration,
    /// Single losses where the data goes.
    pub loss: Share,
    /// Error rate where the data goes.
    pub ber: Ber,
    /// Size of the first flow's transfer; nothing for without end.
    pub bytes: Option<Bytes>,
    /// What tells it from the others, such as `rtt 20 ms, loss 0.05 %`; empty if it is the only one.
    pub name: String,
}

impl Default for TcpPlan {
    fn default() -> Self {
        let (sender, receiver) = (TcpOptions::default(), AckOptions::default());
        TcpPlan {
            mss: sender.mss,
            headers: sender.headers,
            pacing: sender.pacing,
            recovery: sender.recovery,
            initial_rto: sender.initial_rto,
            initial_window: None,
            initial_ssthresh: None,
            reference_rtt: None,
            ack_every: receiver.every,
            receive_window: receiver.window,
        }
    }
}

impl TcpPlan {
    /// IP packet of a full segment.
    pub fn packet(&self) -> Bytes {
        self.mss + self.headers
    }

    /// For the sending end.
    pub fn sender(&self) -> TcpOptions {
        TcpOptions {
            mss: self.mss,
            headers: self.headers,
            recovery: self.recovery,
            pacing: self.pacing,
            initial_rto: self.initial_rto,
            ..TcpOptions::default()
        }
    }

    /// For the receiving end.
    pub fn receiver(&self) -> AckOptions {
        AckOptions { every: self.ack_every, window: self.receive_window, ..AckOptions::default() }
    }
}

impl Sweep {
    /// Whether nothing varies.
    pub fn is_empty(&self) -> bool {
        self.rtt.is_empty() && self.loss.is_empty() && self.ber.is_empty() && self.bytes.is_empty()
    }

    /// How many cells it makes.
    pub fn len(&self) -> usize {
        let counts = [self.rtt.len(), self.loss.len(), self.ber.len(), self.bytes.len()];
        counts.into_iter().map(|count| count.max(1)).fold(1, usize::saturating_mul)
    }
}

impl Scenario {
    /// Where the data goes.
    pub fn data(&self) -> Dir {
        self.workload.kind.data()
    }

    /// The flows: those of the file, or the workload's one from the start.
    pub fn flow_plans(&self) -> Vec<FlowPlan> {
        if !self.flows.is_empty() {
            return self.flows.clone();
        }
        let bytes = (self.workload.kind != WorkloadKind::Iperf3).then_some(self.workload.bytes);
        vec![FlowPlan { bytes, ..FlowPlan::default() }]
    }

    /// Payload rate of the link where the data goes, at the start and nothing lost: what full segments of
    /// `[tcp]` carry.
    pub fn payload_rate(&self) -> Rate {
        let direction = self.direction(self.data());
        let packet = self.tcp.packet() + direction.rate_base.overhead();
        direction.rate.scale(self.tcp.mss.as_f64() / packet.as_f64().max(1.0))
    }

    /// Product of payload rate and round trip, in payload.
    pub fn payload_bdp(&self) -> Bytes {
        self.payload_rate().bdp(self.rtt())
    }

    /// Changes the round trip without queues, half each way; queues in bandwidth-delay products follow.
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.forward.one_way = rtt / 2;
        self.back.one_way = rtt - rtt / 2;
        self.set_queues();
    }

    /// Computes the queues that are given in bandwidth-delay products.
    pub(super) fn set_queues(&mut self) {
        let (rtt, packet) = (self.rtt(), self.tcp.packet());
        for direction in [&mut self.forward, &mut self.back] {
            if let Some(rule) = direction.queue_rule {
                direction.queue = rule.size(direction.rate, rtt, packet, direction.rate_base.overhead());
            }
        }
    }

    /// Every combination of the sweep's values, round trips varying slowest; the scenario itself if
    /// nothing varies.
    pub fn cells(&self) -> Vec<Cell> {
        let Sweep { rtt, loss, ber, bytes } = &self.sweep;
        let mut cells = Vec::with_capacity(self.sweep.len());
        for rtt in each(rtt) {
            for loss in each(loss) {
                for ber in each(ber) {
                    for bytes in each(bytes) {
                        cells.push(self.cell(rtt, loss, ber, bytes));
                    }
                }
            }
        }
        cells
    }

    fn cell(
        &self,
        rtt: Option<Duration>,
        loss: Option<Share>,
        ber: Option<Ber>,
        bytes: Option<Bytes>,
    ) -> Cell {
        let mut scenario = Scenario { sweep: Sweep::default(), ..self.clone() };
        let mut name = Vec::new();
        if let Some(rtt) = rtt {
            scenario.set_rtt(rtt);
            name.push(format!("rtt {} ms", rtt.as_nanos() as f64 / 1e6));
        }
        let direction = match self.data() {
            Dir::Forward => &mut scenario.forward,
            Dir::Back => &mut scenario.back,
        };
        if let Some(loss) = loss {
            direction.loss = loss;
            name.push(format!("loss {loss}"));
        }
        if let Some(ber) = ber {
            direction.ber = ber;
            name.push(format!("ber {ber}"));
        }
        if let Some(bytes) = bytes {
            scenario.workload.bytes = bytes;
            scenario.flows.iter_mut().for_each(|flow| flow.bytes = flow.bytes.and(Some(bytes)));
            name.push(bytes.to_string());
        }
        let (loss, ber) = (direction.loss, direction.ber);
        let bytes = scenario.flow_plans().first().and_then(|flow| flow.bytes);
        Cell { rtt: scenario.rtt(), loss, ber, bytes, name: name.join(", "), scenario }
    }
}

/// The values of a list, or once nothing.
fn each<T: Copy>(values: &[T]) -> impl Iterator<Item = Option<T>> + '_ {
    values.iter().copied().map(Some).chain(values.is_empty().then_some(None))
}

//! The one interface between a congestion controller and whatever carries its packets.

use crate::controllers::boost::PathRecord;
use crate::event::{Ack, Judgement, Loss, Report, Sent, Train};
use crate::units::{Ber, Bytes, Duration, Rate, Share, Time};
use std::fmt::Debug;

/// What a controller is told before the first packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Bytes of one full packet as the host counts them: one "segment" of the papers.
    pub mss: Bytes,
    /// First window; RFC 6928 and RFC 9002 §7.2 say ten segments.
    pub initial_window: Bytes,
    /// First slow-start threshold, where the operator or path memory gives one.
    pub initial_ssthresh: Option<Bytes>,
    /// Round trip to assume before the first sample.
    pub initial_rtt: Duration,
    /// Rate of the link in this direction, packets counted as the host counts them, where the
    /// operator gives it. Only controllers that say so use it.
    pub link_rate: Option<Rate>,
    /// Round trip of the connection to be as fast as: RTT0 of Hybla and of the enhanced controller,
    /// RTT_ref of HYBIC. None leaves each its paper's.
    pub reference_rtt: Option<Duration>,
    /// Bit error rate of the link, where the operator gives it: p_bit of HSWA-TCP, which estimates it
    /// otherwise.
    pub ber: Option<Ber>,
    /// What an earlier connection left about this path in this direction. Only controllers that say so use
    /// it, and none trusts it beyond the first round trip.
    pub history: Option<PathHistory>,
    /// How to get on with others on the link. Only controllers that say so use it.
    pub policy: Policy,
}

/// What one direction of a path was like when a connection last used it.
///
/// It is a first guess: a controller confirms it with its first flight or forgets it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathHistory {
    /// Rate of the link, or of our share of it where others were there, packets counted as the host counts them.
    pub rate: Rate,
    /// Least round trip, without queues.
    pub min_rtt: Duration,
    /// Share of packets that the path loses by itself.
    pub loss: Share,
    /// Median difference between the one-way delays of packets that left close together.
    pub jitter: Duration,
    /// Share of packets that arrived after later ones.
    pub reordered: Share,
    /// How far the rate strayed from `rate`, as a share of it.
    pub rate_variation: Share,
    /// How much to build on all this: one for what was seen on this very path a moment ago, zero for what is
    /// more than ten minutes old or was learnt over another interface. Whoever keeps the history says it, since
    /// only he knows its age; the controller begins more slowly the less it is.
    pub confidence: Share,
}

impl PathHistory {
    /// A path of this rate and round trip without loss, jitter, reordering and doubt.
    pub fn of(rate: Rate, min_rtt: Duration) -> Self {
        PathHistory {
            rate,
            min_rtt,
            loss: Share::ZERO,
            jitter: Duration::ZERO,
            reordered: Share::ZERO,
            rate_variation: Share::ZERO,
            confidence: Share::ONE,
        }
    }

    /// Share of the remembered rate to begin with: `sure` with full confidence, half of the rate with none.
    pub fn start_share(&self, sure: f64) -> f64 {
        UNSURE + self.confidence.value() * (sure - UNSURE)
    }
}

/// What is old or from elsewhere may be twice too high: the same share as for a first estimate that nothing confirms.
const UNSURE: f64 = 0.5;

/// How to get on with others on the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The link is ours.
    Exclusive,
    /// Equal shares with flows of our own kind.
    #[default]
    Share,
    /// Only what others leave.
    Scavenge,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 3] = [Policy::Exclusive, Policy::Share, Policy::Scavenge];

    /// The name users type.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Exclusive => "exclusive",
            Policy::Share => "share",
            Policy::Scavenge => "scavenge",
        }
    }
}

impl Setup {
    /// Ten segments of `mss`, nothing known of the path, 333 ms assumed (RFC 9002 §6.2.2), equal shares.
    pub fn new(mss: Bytes) -> Self {
        Setup {
            mss,
            initial_window: mss * 10,
            initial_ssthresh: None,
            initial_rtt: Duration::from_millis(333),
            link_rate: None,
            reference_rtt: None,
            ber: None,
            history: None,
            policy: Policy::Share,
        }
    }
}

/// A controller's inner state for tapes, logs and plots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Snapshot {
    /// Congestion window.
    pub cwnd: Bytes,
    /// Slow-start threshold, where the controller has one.
    pub ssthresh: Option<Bytes>,
    /// Pacing rate, where the controller sets one.
    pub pacing_rate: Option<Rate>,
    /// Name of the phase the controller is in: "slow start", "recovery", "probe bandwidth", …
    pub phase: &'static str,
}

/// What a controller believes of its path, for plots and logs. Rates count packets as the host counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimates {
    /// Rate of the bottleneck.
    pub capacity: Option<Rate>,
    /// What of it nobody else uses.
    pub available: Option<Rate>,
    /// Queue that the newest packet met.
    pub queue: Option<Duration>,
    /// Least round trip, queues taken away.
    pub round_trip: Option<Duration>,
}

/// A congestion controller: hears events, answers with a window and a rate.
///
/// The host sends while bytes in flight are below [`cwnd`](Controller::cwnd) and not faster than
/// [`pacing_rate`](Controller::pacing_rate). Implementations never mention a transport, read no clock
/// and stay within their bounds for any order of events.
pub trait Controller: Debug + Send + Sync {
    /// The name users type, in lower case.
    fn name(&self) -> &'static str;
    /// A packet left.
    fn on_sent(&mut self, sent: &Sent);
    /// An acknowledgment arrived.
    fn on_ack(&mut self, ack: &Ack);
    /// Packets were declared lost or marked.
    fn on_loss(&mut self, loss: &Loss);
    /// The far end reported what became of a packet. Only hosts with such reports call this, and only
    /// controllers that read them need it.
    fn on_report(&mut self, _report: &Report) {}
    /// Asked by hosts with reports when a packet may leave and no train is under way: a train to begin
    /// with that packet, if one is due. Answering it begins it.
    fn poll_train(&mut self, _now: Time) -> Option<Train> {
        None
    }
    /// Bytes that may be in flight now; at least two segments.
    fn cwnd(&self) -> Bytes;
    /// Rate at which packets may leave; `None` leaves the spacing to the host, which then paces at
    /// 1.25 windows per smoothed round trip (RFC 9002 §7.7).
    fn pacing_rate(&self) -> Option<Rate>;
    /// What it took the newest loss for; nothing from controllers that do not tell causes apart.
    fn judgement(&self) -> Option<Judgement> {
        None
    }
    /// What it has learnt of its path, for the next flow there; nothing from controllers that keep no such record.
    fn path(&self) -> Option<PathRecord> {
        None
    }
    /// What it knows of its path by now, for the next connection there; nothing until it is sure of it, and
    /// nothing from controllers that could not begin with it.
    fn history(&self) -> Option<PathHistory> {
        None
    }
    /// What it believes of its path at this moment; nothing from controllers that estimate no such thing.
    fn estimates(&self) -> Option<Estimates> {
        None
    }
    /// Inner state for people to look at.
    fn snapshot(&self) -> Snapshot;
    /// A copy with the same state, for hosts that hold controllers as trait objects.
    fn boxed_clone(&self) -> Box<dyn Controller>;
}

impl Clone for Box<dyn Controller> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}

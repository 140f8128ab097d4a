//! One tape, two laws: the Rust controller and the C law hear the same events; are their windows the same?

use crate::program::{Answer, Program};
use crate::Law;
use skyhaul_cc::parts::backlog;
use skyhaul_cc::tape::Event;
use skyhaul_cc::{Ack, Bytes, Duration, Loss, Rtt, Setup, Signal, Time};
use std::fmt::Write as _;

/// The kernel's "no threshold yet".
const NO_SSTHRESH: u64 = 0x7fff_ffff;
/// Window that no flight limits, in segments.
const MOST: u64 = 1 << 24;

/// How a comparison ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Events after which the windows were compared.
    pub compared: usize,
    /// Greatest difference in units of what is allowed.
    pub worst: f64,
    /// It ended early: a decision hung on less than the two can agree on.
    pub edge: bool,
}

/// Feeds a tape to both and compares after each event: windows within one segment or 1 %. No acknowledgment covers more
/// than the window.
///
/// # Errors
/// The first event after which they differ by more.
pub fn compare(law: &Law, program: &Program, setup: &Setup, events: &[Event]) -> Result<Outcome, String> {
    let mut rust = (law.rust)(setup);
    let events: Vec<Event> = events.iter().filter_map(in_microseconds).collect();
    let mut host = Host::new(setup, law.blind_limit);
    let mut edge_of = (law.edge)();
    let (mut lines, mut windows, mut edge) = (host.begin(setup), Vec::new(), None);
    for (index, event) in events.iter().enumerate() {
        let before = segments(rust.cwnd(), setup.mss);
        let ssthresh = rust.snapshot().ssthresh.map(|bytes| segments(bytes, setup.mss));
        if edge.is_none() && edge_of(event, before, ssthresh.unwrap_or(f64::INFINITY)) {
            edge = Some(index);
        }
        let blind = law.blind_limit && ssthresh.is_none();
        match event {
            Event::Ack(ack) => {
                let ack = Ack { acked: ack.acked.min(setup.mss * (before as u64)), ..*ack };
                host.ack(&mut lines, &ack, blind);
                rust.on_ack(&ack);
            }
            Event::Loss(loss) => {
                host.loss(&mut lines, loss);
                rust.on_loss(loss);
            }
            _ => unreachable!("left out above"),
        }
        windows.push(segments(rust.cwnd(), setup.mss));
    }
    let answers: Vec<Answer> = program.answer(&lines).split_off(1);
    assert_eq!(answers.len(), windows.len(), "one answer per event");
    let compared = edge.unwrap_or(windows.len());
    let mut outcome = Outcome { compared, worst: 0.0, edge: edge.is_some() };
    for (index, (answer, window)) in answers.iter().zip(&windows).take(compared).enumerate() {
        let off = (answer.segments() - window).abs() / (0.01 * window).max(1.0);
        outcome.worst = outcome.worst.max(off);
        if off > 1.0 {
            let (event, answer) = (&events[index], answer.segments());
            return Err(format!("{}: event {index}, {event:?}: C {answer:.3}, Rust {window:.3}", law.name));
        }
    }
    Ok(outcome)
}

/// The kernel measures round trips in microseconds, so both laws hear those.
fn in_microseconds(event: &Event) -> Option<Event> {
    let cut = |duration: Duration| {
        Duration::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).max(1))
    };
    let rtt = |rtt: Rtt| Rtt { latest: cut(rtt.latest), smoothed: cut(rtt.smoothed), min: cut(rtt.min) };
    match event {
        Event::Ack(ack) => Some(Event::Ack(Ack { rtt: rtt(ack.rtt), ..*ack })),
        Event::Loss(loss) => Some(Event::Loss(Loss { rtt: rtt(loss.rtt), ..*loss })),
        _ => None,
    }
}

fn segments(bytes: Bytes, mss: Bytes) -> f64 {
    bytes.as_f64() / mss.as_f64()
}

/// The kernel's part: which acknowledgments reach the growing half of a law.
struct Host {
    mss: u64,
    cut_at: Option<Time>,
    /// The controller, too, limited growth at the last acknowledgment.
    blind: bool,
}

impl Host {
    fn new(setup: &Setup, blind: bool) -> Self {
        Host { mss: setup.mss.0, cut_at: None, blind }
    }

    fn begin(&self, setup: &Setup) -> String {
        let ssthresh = setup.initial_ssthresh.map_or(NO_SSTHRESH, |bytes| bytes.0 / self.mss);
        let reference = setup.reference_rtt.map_or(0, |rtt| rtt.as_micros());
        format!(
            "b {} {ssthresh} {} {reference} {}\n",
            setup.initial_window.0 / self.mss,
            self.mss,
            step(setup)
        )
    }

    /// Without a blind limit the flight is scaled up together with the peer's window, of which laws look only at the
    /// proportion, until it limits nothing: the controllers do not limit growth there.
    fn ack(&mut self, lines: &mut String, ack: &Ack, blind: bool) {
        let Ack { acked, in_flight, .. } = ack;
        assert_eq!(acked.0 % self.mss, 0, "tapes here have whole segments");
        let flight = (in_flight.0 + acked.0) / self.mss;
        // Laws with a blind limit do nothing else at the beginning of a round than to set it anew.
        let lifted = self.blind && !blind;
        self.blind = blind;
        let scale = if blind { 1 } else { MOST.div_ceil(flight.max(1)) };
        let rwnd = ack.peer_window.map_or(u64::MAX, |bytes| (bytes.0 / self.mss).saturating_mul(scale));
        let may_grow = !ack.app_limited && self.cut_at.is_none_or(|cut| ack.sent_at > cut);
        writeln!(
            lines,
            "a {} {} {} {} {} {} 0 {} {} {} {}",
            ack.now.as_nanos() / 1000,
            acked.0 / self.mss,
            ack.rtt.latest.as_micros(),
            ack.rtt.min.as_micros(),
            ack.rtt.smoothed.as_micros(),
            flight * scale,
            rwnd.min(u64::from(u32::MAX)),
            u8::from(ack.round_start || lifted),
            u8::from(!ack.app_limited),
            u8::from(may_grow),
        )
        .expect("a string takes everything");
    }

    fn loss(&mut self, lines: &mut String, loss: &Loss) {
        let signal = match loss.signal {
            Signal::Gap => 0,
            Signal::Timeout => 1,
            Signal::Ecn => 2,
        };
        if loss.signal == Signal::Timeout {
            self.cut_at = None;
        } else if loss.new_episode {
            self.cut_at = Some(loss.now);
        }
        writeln!(
            lines,
            "l {} {} {} {} {} {signal} {}",
            loss.now.as_nanos() / 1000,
            loss.lost.0 / self.mss,
            loss.rtt.latest.as_micros(),
            loss.rtt.min.as_micros(),
            loss.in_flight.0 / self.mss,
            u8::from(loss.new_episode),
        )
        .expect("a string takes everything");
    }
}

/// S for a given bit error rate, in 1/256 segments.
fn step(setup: &Setup) -> u64 {
    setup.ber.map_or(0, |ber| (-10.0 * libm::log10(ber.value().clamp(1e-10, 1e-2)) * 256.0).round() as u64)
}

/// Whether a backlog lies so near one of these that rounding decides on which side.
pub fn near(window: f64, rtt: &Rtt, thresholds: &[f64]) -> bool {
    let waiting = backlog(window, rtt.min, rtt.latest);
    thresholds.iter().any(|at| (waiting - at).abs() < 0.02 * at)
}

//! The sending end: window, spacing, loss detection, timeouts.

use super::judge::{Judge, Judgement};
use super::rack::Rack;
use super::reduction::Reduction;
use super::scoreboard::{Losses, Place, Scoreboard};
use super::truth::{Confusion, Truth};
use super::Arrival;
use super::{AckPacket, Pacing, Recovery, Segment, TcpOptions};
use skyhaul_cc::parts::{
    DeliveryEstimator, Episodes, Fates, LossOdds, LossOddsOptions, Rounds, RttEstimator,
};
use skyhaul_cc::tape::{Event, Tape};
use skyhaul_cc::units::{Bytes, Duration, Rate, Time};
use skyhaul_cc::window::CEILING_SEGMENTS;
use skyhaul_cc::{Ack, Controller, Loss, Rtt, Sent, Signal, Train};

/// What a sender has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SenderCounters {
    /// Segments sent, each transmission counted.
    pub sent: u64,
    /// Of these, sent again.
    pub again: u64,
    /// Of these, sent again although a copy sent before arrives: ground truth that the sender lacks.
    pub spurious: u64,
    /// Segments declared lost.
    pub lost: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Recovery episodes: how often the controller was asked to cut.
    pub episodes: u64,
    /// What became of the segments declared lost, and what the controller took their loss for.
    pub judged: Confusion,
    /// Window in segments times seconds since the last [`Sender::measure_window`].
    window_area: f64,
    window_from: Time,
    window_until: Time,
}

impl SenderCounters {
    /// Mean window over time, in segments; none before any time has passed.
    pub fn mean_window(&self) -> Option<f64> {
        let span = self.window_until.since(self.window_from);
        (!span.is_zero()).then(|| self.window_area / span.as_secs_f64())
    }
}

/// The sending end of a flow.
///
/// The host asks [`poll_transmit`](Sender::poll_transmit) after every event until it answers nothing,
/// and calls [`on_timeout`](Sender::on_timeout) when [`timeout`](Sender::timeout) or
/// [`departure`](Sender::departure) is due.
#[derive(Clone, Debug)]
pub struct Sender {
    options: TcpOptions,
    controller: Box<dyn Controller>,
    /// The controller's window, asked for once after each event it hears.
    cwnd: Bytes,
    board: Scoreboard,
    window: Option<Bytes>,
    /// The first segment beyond the peer's receive window.
    edge: u64,
    /// The first segment that the application has not written yet.
    written: u64,
    rtt: RttEstimator,
    rounds: Rounds,
    episodes: Episodes,
    delivery: DeliveryEstimator,
    rack: Rack,
    judge: Option<Box<Judge>>,
    next_departure: Time,
    /// What is due before then leaves with its batch.
    batch_until: Time,
    /// When the retransmission timer was last started.
    timer_from: Time,
    last_new: Time,
    backoff: u32,
    probe: Option<Probe>,
    /// A segment that leaves whatever window and pace say: the first of a recovery (RFC 6675 §5 step
    /// 4.3), of a timeout, or a probe.
    forced: Option<Forced>,
    /// Recovery lasts until this segment is acknowledged.
    recovery_end: u64,
    /// The cut under way, while more than the window is in flight.
    reduction: Option<Reduction>,
    counters: SenderCounters,
    /// The far end reports receive times.
    reports: Option<Fates>,
    train: Option<UnderWay>,
    tape: Option<Tape>,
    broken: Option<String>,
}

/// A train of which some packets have yet to leave.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    train: Train,
    left: u32,
    next_departure: Time,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    /// `TLP.end_seq`.
    end: u64,
    /// Departure of the segment that the probe repeats; none if it carried new data.
    repeats: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forced {
    FirstLost,
    Again(u64),
    New,
}

impl Sender {
    /// A sender of `total` bytes, or without end, over an established connection. `window` is the peer's
    /// receive buffer.
    pub fn new(
        options: TcpOptions,
        controller: Box<dyn Controller>,
        total: Option<Bytes>,
        window: Option<Bytes>,
    ) -> Self {
        let board = Scoreboard::new(options.mss, total, options.recovery != Recovery::Dupack);
        let judge = (options.recovery == Recovery::Predictive).then(|| {
            let odds = LossOddsOptions { threshold: options.threshold, ..LossOddsOptions::default() };
            Box::new(Judge::new(LossOdds::new(odds)))
        });
        let mut sender = Sender {
            options,
            cwnd: controller.cwnd(),
            controller,
            board,
            window,
            edge: 0,
            written: u64::MAX,
            rtt: RttEstimator::new(options.initial_rto),
            rounds: Rounds::new(),
            episodes: Episodes::new(),
            delivery: DeliveryEstimator::new(),
            rack: Rack::default(),
            judge,
            next_departure: Time::ZERO,
            batch_until: Time::ZERO,
            timer_from: Time::ZERO,
            last_new: Time::ZERO,
            backoff: 0,
            probe: None,
            forced: None,
            recovery_end: 0,
            reduction: None,
            counters: SenderCounters::default(),
            reports: None,
            train: None,
            tape: None,
            broken: None,
        };
        sender.open(0);
        sender.check_window();
        sender
    }

    /// The application has written the first `segments`, and waits with the rest. Without a word from it
    /// everything is there from the start.
    pub fn write_up_to(&mut self, segments: u64) {
        self.written = segments;
    }

    /// What [`Recovery::Predictive`] judged so far.
    pub fn judgement(&self) -> Option<&Judgement> {
        self.judge.as_deref().map(Judge::judgement)
    }

    /// Records what the controller hears and answers from now on; the tape grows with the run.
    pub fn record(&mut self) {
        self.tape = Some(Tape::default());
    }

    /// The far end will report receive times, by [`Sender::on_reports`]; trains are sent where the
    /// controller asks for them.
    pub fn expect_reports(&mut self) {
        self.reports = Some(Fates::default());
    }

    /// What was recorded.
    pub fn tape(&self) -> Option<&Tape> {
        self.tape.as_ref()
    }
    /// The controller.
    pub fn controller(&self) -> &dyn Controller {
        &*self.controller
    }
    /// What has been done so far.
    pub fn counters(&self) -> &SenderCounters {
        &self.counters
    }
    /// The round-trip estimate, once there is one.
    pub fn rtt(&self) -> Option<Rtt> {
        self.rtt.is_measured().then(|| self.rtt.rtt())
    }

    /// Bytes sent, not known to have arrived and not known to be lost.
    pub fn in_flight(&self) -> Bytes {
        self.board.in_flight()
    }
    /// Bytes acknowledged in order.
    pub fn acknowledged(&self) -> Bytes {
        self.board.bytes_before(self.board.first())
    }

    /// Payload before segment `seq`.
    pub fn bytes_before(&self, seq: u64) -> Bytes {
        self.board.bytes_before(seq)
    }

    /// Whether everything has been sent and acknowledged.
    pub fn is_done(&self) -> bool {
        self.board.sent_all() && self.board.is_empty()
    }
    /// What the controller did that no controller may do.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }
    /// Begins the measurement of the mean window anew.
    pub fn measure_window(&mut self, now: Time) {
        self.counters.window_area = 0.0;
        self.counters.window_from = now;
        self.counters.window_until = now;
    }

    /// Counts the present window up to `now`; for the end of a run.
    pub fn settle_window(&mut self, now: Time) {
        let segments = self.cwnd.as_f64() / self.options.mss.as_f64();
        self.counters.window_area += segments * now.since(self.counters.window_until).as_secs_f64();
        self.counters.window_until = now.max(self.counters.window_until);
    }

    /// The next segment, if one may leave at `now`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Segment> {
        let forced = self.forced.take().and_then(|forced| self.forced_segment(forced));
        let seq = match forced {
            Some(seq) => seq,
            None => {
                let Some(seq) = self.allowed() else {
                    self.train = None;
                    self.note_idleness();
                    return None;
                };
                let due = self.next_departure();
                if due >= self.batch_until {
                    if due > now {
                        return None;
                    }
                    self.batch_until = now + self.options.batch;
                }
                self.ask_for_train(now);
                seq
            }
        };
        Some(self.send(seq, now))
    }

    /// Tells what becomes of the last transmission of `segment`; only the statistics want to know.
    pub fn on_fate(&mut self, segment: &Segment, truth: Truth) {
        self.board.on_fate(segment.seq, truth);
    }

    /// Tells that segment `seq` arrives after all, repaired on its way; only the statistics want to know.
    pub fn on_arrival(&mut self, seq: u64) {
        self.board.on_fate(seq, Truth::Arrives);
    }

    /// When the next segment may leave, if only its pace holds it back.
    pub fn departure(&self) -> Option<Time> {
        self.allowed().map(|_| self.next_departure())
    }
    fn next_departure(&self) -> Time {
        self.train.map_or(self.next_departure, |under_way| under_way.next_departure)
    }

    fn ask_for_train(&mut self, now: Time) {
        if self.reports.is_none() || self.train.is_some() {
            return;
        }
        if let Some(train) = self.controller.poll_train(now) {
            self.record_event(Event::Train(now));
            self.train = Some(UnderWay { train, left: train.packets, next_departure: now });
        }
    }

    /// Counts a packet of the train under way; its number.
    fn ride(&mut self, now: Time, payload: Bytes) -> Option<u32> {
        let mut under_way = self.train.take()?;
        let gap = under_way.train.gap(under_way.train.packets.saturating_sub(under_way.left), payload);
        under_way.left = under_way.left.saturating_sub(1);
        under_way.next_departure = under_way.next_departure.max(now) + gap;
        self.train = Some(under_way).filter(|under_way| under_way.left > 0);
        Some(under_way.train.number)
    }

    /// Takes in what the far end reports of transmissions that have arrived.
    pub(crate) fn on_reports(&mut self, now: Time, arrivals: impl Iterator<Item = Arrival>) {
        let Some(mut reports) = self.reports.take() else { return };
        arrivals.for_each(|(number, at)| reports.on_arrival(number - 1, at));
        while let Some(report) = reports.next(now) {
            self.controller.on_report(&report);
            self.record_event(Event::Report(report));
        }
        self.reports = Some(reports);
        self.ask(now);
    }

    /// When [`on_timeout`](Sender::on_timeout) has something to do.
    pub fn timeout(&self) -> Option<Time> {
        let last = match self.probe_at() {
            Some(probe) => Some(probe),
            None => self.rto_at(),
        };
        match (self.rack.due, last) {
            (Some(due), Some(last)) => Some(due.min(last)),
            (due, last) => due.or(last),
        }
    }

    /// Handles what is due at `now`.
    pub fn on_timeout(&mut self, now: Time) {
        if self.rack.due.is_some_and(|due| due <= now) {
            self.judge(now);
        }
        if let Some(at) = self.probe_at() {
            if at <= now {
                self.send_probe(now);
            }
        } else if self.rto_at().is_some_and(|at| at <= now) {
            self.on_rto(now);
        }
    }

    /// Takes in an acknowledgment.
    pub fn on_ack(&mut self, now: Time, ack: &AckPacket) {
        let mut news = News::default();
        let Sender { board, delivery, rack, rtt, judge, .. } = self;
        let calm = board.reported() == 0;
        let least = if rtt.is_measured() { rtt.rtt().min * 3 / 4 } else { Duration::ZERO };
        let moved = board.acknowledge(ack, |seq, record, size| {
            delivery.on_packet_acked(&record.delivery, size, now, record.sent_at);
            news.acked += size;
            news.again |= record.again;
            news.latest = news.latest.max(Some(record.sent_at));
            let round_trip = now.since(record.sent_at);
            let earlier_copy = record.again && round_trip < least;
            if let Some(judge) = judge {
                rack.reordering_seen |= judge.on_arrived(now, seq, record, earlier_copy);
            }
            // RFC 8985 §6.2 step 2: an answer this quick was for an earlier copy. A quarter is allowed for
            // the queue that the first window's burst meets, so that the least sample is too long.
            if !earlier_copy && record.transmission > rack.newest {
                rack.newest = record.transmission;
                rack.rtt = round_trip;
            }
            // Step 3: what was sent once and arrives after something sent later was reordered.
            rack.reordering_seen |= !record.again && seq < rack.delivered_to;
            news.delivered_to = news.delivered_to.max(seq + 1);
        });
        rack.delivered_to = rack.delivered_to.max(news.delivered_to);
        if let Some(judge) = judge {
            judge.on_ack(now, calm && board.reported() == 0);
        }
        if let (Some(sent_at), false) = (news.latest, news.again) {
            // Karn: no sample from what was sent twice.
            self.rtt.on_sample(now.since(sent_at));
            self.backoff = 0;
        }
        if moved > 0 {
            self.timer_from = now;
            if self.rtt.is_measured() {
                self.backoff = 0;
            }
        }
        self.open(ack.next);
        if ack.duplicate {
            self.rack.on_duplicate(self.board.first(), self.board.next(), self.probe.is_some());
        }
        self.on_probe_answered(now, ack);
        if news.acked == Bytes::ZERO {
            return;
        }
        let sample = self.delivery.end_of_ack(self.rtt().map(|rtt| rtt.min));
        let sent_at = sample.newest_sent_at.unwrap_or(now);
        let round_start = self.rounds.on_ack(now, sent_at);
        if let Some(reduction) = &mut self.reduction {
            reduction.on_delivered(news.acked);
        }
        self.judge(now);
        let ack = Ack {
            now,
            sent_at,
            acked: news.acked,
            in_flight: self.board.in_flight(),
            peer_window: self.window,
            rtt: self.rtt_or_guess(now, sent_at),
            delivery_rate: sample.rate,
            round_start,
            app_limited: sample.app_limited,
        };
        self.tell(now, Event::Ack(ack));
        self.reduction = self.reduction.filter(|_| self.board.in_flight() > self.cwnd);
    }

    /// The segment that window and data allow next, pace aside.
    fn allowed(&self) -> Option<u64> {
        let lost = self.board.first_lost();
        let seq = lost.unwrap_or(self.board.next());
        if lost.is_none() && !self.has_new() {
            return None;
        }
        let in_flight = self.board.in_flight();
        let open = in_flight + self.board.size(seq) <= self.cwnd || in_flight == Bytes::ZERO;
        let reducing = self.reduction.is_some_and(|reduction| reduction.allows(self.cwnd));
        (open || reducing).then_some(seq)
    }

    fn has_new(&self) -> bool {
        !self.board.sent_all() && self.board.next() < self.edge.min(self.written)
    }

    fn forced_segment(&self, forced: Forced) -> Option<u64> {
        match forced {
            Forced::FirstLost => self.board.first_lost(),
            Forced::Again(seq) => self.board.record(seq).filter(|r| r.place == Place::InFlight).map(|_| seq),
            Forced::New => self.has_new().then(|| self.board.next()),
        }
    }

    /// The window is open and nothing is there to fill it: the application's fault or the peer's.
    fn note_idleness(&mut self) {
        let in_flight = self.board.in_flight();
        if self.board.first_lost().is_none() && in_flight + self.options.mss <= self.cwnd {
            self.delivery.mark_app_limited(in_flight);
        }
    }

    fn send(&mut self, seq: u64, now: Time) -> Segment {
        let payload = self.board.size(seq);
        let again = seq < self.board.next();
        if self.board.is_empty() {
            self.timer_from = now;
        }
        let delivery = self.delivery.on_sent(now, self.board.in_flight());
        let needless = self.board.on_sent(seq, now, delivery);
        self.counters.sent += 1;
        self.counters.again += u64::from(again);
        self.counters.spurious += u64::from(needless);
        if !again {
            self.last_new = now;
        }
        if self.rack.due.is_none() && self.judge.as_ref().is_some_and(|judge| judge.is_ready()) {
            // An open transmission has a time to look at it, even if nothing is ever heard again.
            self.rack.due = Some(now);
        }
        if self.reports.is_some() {
            let train = self.ride(now, payload);
            self.reports.iter_mut().for_each(|reports| reports.on_sent(now, payload, train));
        }
        if let Some(reduction) = &mut self.reduction {
            reduction.on_sent(payload);
        }
        let sent = Sent { now, bytes: payload, in_flight: self.board.in_flight() };
        self.controller.on_sent(&sent);
        self.record_event(Event::Sent(sent));
        self.ask(now);
        if let Some(rate) = self.pace() {
            self.next_departure = self.next_departure.max(now) + rate.time_for(payload);
        }
        Segment { seq, payload, again }
    }

    fn pace(&self) -> Option<Rate> {
        let own = match self.options.pacing {
            Pacing::Never => return None,
            _ => self.controller.pacing_rate(),
        };
        if own.is_some() || self.options.pacing == Pacing::IfAsked {
            return own;
        }
        let smoothed = self.rtt()?.smoothed.max(Duration::from_micros(1));
        Some(self.cwnd.per(smoothed).scale(PACING_GAIN).max(Rate::bit(1)))
    }

    fn open(&mut self, next: u64) {
        let room =
            self.window.map_or(u64::MAX, |window| next.saturating_add(window.0 / self.options.mss.0.max(1)));
        self.edge = self.edge.max(room);
    }

    /// Looks for losses.
    fn judge(&mut self, now: Time) {
        let losses = match self.options.recovery {
            Recovery::Dupack => self.board.judge_by_count(),
            Recovery::Rack => {
                let wait = self.rack.rtt + self.reordering_window();
                let (losses, suspect) =
                    self.board.judge_by_time(self.rack.newest, |sent_at| sent_at + wait <= now);
                self.rack.due = suspect.map(|sent_at| sent_at + wait);
                losses
            }
            Recovery::Predictive => {
                let (wait, newest) = (self.rack.rtt + self.reordering_window(), self.rack.newest);
                let rule = |transmission, sent_at: Time| (transmission < newest).then(|| sent_at + wait);
                let Some(judge) = &mut self.judge else { return };
                let (losses, due) = judge.look(now, &mut self.board, rule);
                self.rack.due = due;
                losses
            }
        };
        self.on_losses(now, losses, Signal::Gap);
    }

    fn reordering_window(&self) -> Duration {
        let gap = self.board.first() < self.recovery_end || self.board.reported() >= DUP_THRESHOLD;
        self.rtt().map_or(Duration::ZERO, |rtt| self.rack.window(gap, rtt))
    }

    fn on_losses(&mut self, now: Time, losses: Losses, signal: Signal) {
        if losses.segments == 0 {
            return;
        }
        self.counters.lost += losses.segments;
        let again = signal == Signal::Timeout && self.backoff > 1;
        // RFC 5681 §3.1: a timeout of what was already sent again keeps ssthresh.
        let new_episode = !again && self.episodes.on_loss(now, losses.sent_at);
        if new_episode {
            self.counters.episodes += 1;
            self.recovery_end = self.board.next();
            self.forced = Some(Forced::FirstLost);
        }
        let loss = Loss {
            now,
            sent_at: losses.sent_at,
            lost: losses.bytes,
            in_flight: self.board.in_flight(),
            rtt: self.rtt_or_guess(now, losses.sent_at),
            signal,
            new_episode,
        };
        let (window, flight) = (self.cwnd, loss.in_flight + losses.bytes);
        self.tell(now, Event::Loss(loss));
        self.counters.judged.add(&losses.truths, self.controller.judgement());
        match signal {
            Signal::Timeout => self.reduction = None,
            // Controllers that do not cut have no reduction to spread.
            _ if new_episode && self.cwnd < window => self.reduction = Some(Reduction::new(flight)),
            _ => {}
        }
    }

    fn rtt_or_guess(&self, now: Time, sent_at: Time) -> Rtt {
        self.rtt().unwrap_or_else(|| {
            // Karn left no sample, but something was answered: the best there is.
            let guess = now.since(sent_at).max(Duration::from_nanos(1));
            Rtt { latest: guess, smoothed: guess, min: guess }
        })
    }

    fn on_probe_answered(&mut self, now: Time, ack: &AckPacket) {
        let Some(probe) = self.probe.filter(|probe| ack.next >= probe.end) else { return };
        match probe.repeats {
            // RFC 8985 §7.4.2: more has arrived and no duplicate was reported, so the probe repaired a
            // loss, which must be answered. Until more arrives, the answer may be to the original.
            Some(_) if !ack.duplicate && ack.next == probe.end => {}
            Some(sent_at) if !ack.duplicate => {
                self.probe = None;
                let losses = Losses { segments: 1, bytes: self.options.mss, sent_at, ..Losses::default() };
                self.on_losses(now, losses, Signal::Gap);
            }
            _ => self.probe = None,
        }
    }

    /// When a tail loss probe is due (RFC 8985 §7.2), the timeout at the latest.
    fn probe_at(&self) -> Option<Time> {
        let calm = self.board.first() >= self.recovery_end
            && self.board.reported() == 0
            && self.board.first_lost().is_none();
        let idle = self.board.in_flight() == Bytes::ZERO || self.probe.is_some() || self.backoff > 0;
        if self.options.recovery == Recovery::Dupack || !calm || idle {
            return None;
        }
        let rto = self.rto_at()?;
        let wait = match self.rtt() {
            None => return None,
            // One segment may wait for its delayed ACK.
            Some(rtt) if self.board.in_flight() <= self.options.mss => rtt.smoothed * 2 + PROBE_PATIENCE,
            Some(rtt) => rtt.smoothed * 2,
        };
        Some((self.last_new.max(self.timer_from) + wait).min(rto))
    }

    fn send_probe(&mut self, now: Time) {
        self.counters.probes += 1;
        self.timer_from = now;
        let again = if self.has_new() { None } else { self.board.last_in_flight() };
        let repeats = again.and_then(|seq| self.board.record(seq)).map(|record| record.sent_at);
        self.forced = Some(again.map_or(Forced::New, Forced::Again));
        let end = self.board.next() + u64::from(again.is_none());
        self.probe = Some(Probe { end, repeats });
    }

    /// When the retransmission timer runs out (RFC 6298 §5): counted from the last step of the in-order
    /// point or, if later, from the last transmission of the first unacknowledged segment.
    fn rto_at(&self) -> Option<Time> {
        let first = self.board.record(self.board.first())?;
        let options = &self.options;
        let rto = match self.rtt() {
            None => options.initial_rto,
            Some(rtt) => self.rtt.timeout(options.least_rto.max(rtt.smoothed + options.rto_margin)),
        };
        let rto = rto.saturating_mul(1 << self.backoff.min(MOST_BACKOFF)).min(options.greatest_rto);
        Some(self.timer_from.max(first.sent_at) + rto)
    }

    fn on_rto(&mut self, now: Time) {
        self.counters.timeouts += 1;
        self.backoff += 1;
        self.timer_from = now;
        self.probe = None;
        self.rack.due = None;
        let losses = self.board.lose_all();
        if let Some(judge) = &mut self.judge {
            judge.on_rto();
        }
        self.on_losses(now, losses, Signal::Timeout);
        self.recovery_end = self.board.next();
        self.forced = Some(Forced::FirstLost);
    }

    /// Tells the controller and looks at its answer.
    fn tell(&mut self, now: Time, event: Event) {
        event.play(&mut *self.controller);
        self.record_event(event);
        self.ask(now);
        if self.controller.pacing_rate() == Some(Rate::ZERO) {
            self.broken.get_or_insert_with(|| "its pacing rate is zero".to_owned());
        }
    }

    /// Asks for the window and looks at the answer.
    fn ask(&mut self, now: Time) {
        let cwnd = self.controller.cwnd();
        if cwnd == self.cwnd {
            return;
        }
        self.settle_window(now);
        self.cwnd = cwnd;
        self.check_window();
    }

    fn check_window(&mut self) {
        let (cwnd, mss) = (self.cwnd, self.options.mss);
        let segments = cwnd.as_f64() / mss.as_f64();
        if !(LEAST_WINDOW..=CEILING_SEGMENTS + 1.0).contains(&segments) {
            self.broken =
                Some(format!("its window of {cwnd} is outside 2 to {CEILING_SEGMENTS} segments of {mss}"));
        }
    }

    fn record_event(&mut self, event: Event) {
        if let Some(tape) = &mut self.tape {
            tape.push(event, self.controller.cwnd());
        }
    }
}

/// What one ACK told.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    acked: Bytes,
    again: bool,
    latest: Option<Time>,
    delivered_to: u64,
}

/// Pace in windows per round trip, RFC 9002 §7.7.
const PACING_GAIN: f64 = 1.25;
/// DupThresh, RFC 5681 §3.2.
const DUP_THRESHOLD: u64 = 3;
/// `TLP.max_ack_delay`: how long a receiver may hold an ACK back; 200 ms in RFC 8985 §7.2 (worst case
/// of the delayed ACKs in use).
const PROBE_PATIENCE: Duration = Duration::from_millis(200);
/// The timeout doubles until the greatest one bounds it.
const MOST_BACKOFF: u32 = 16;
/// A window is two segments at least, rounding aside.
const LEAST_WINDOW: f64 = 1.999;

//! Flows that share a link, in virtual time.
//!
//! Data goes through one forward [`Link`], acknowledgments through one return [`Link`], or both through a
//! [`Carrier`] that uses them. Of events at the same moment, arriving data comes first, then arriving acknowledgments, then timers in the order they
//! were set. The run is a pure function of its plan and seed.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;

use skyhaul_cc::tape::Tape;
use skyhaul_cc::units::{Bytes, Duration, Rate, Time};
use skyhaul_cc::{Controller, Rtt};

use crate::arrivals::Arrivals;
pub use crate::arrivals::Stamps;
use crate::carrier::{Carrier, Links, Packet};
use crate::clock::Events;
use crate::link::{Cause, Fate, Link};
use crate::scenario::{Dir, Scenario};
use crate::tcp::{AckOptions, AckPacket, Receiver, Sender, SenderCounters, TcpOptions, Truth};
use crate::trace::{Note, Observer};

/// One TCP flow.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Its congestion controller.
    pub controller: Box<dyn Controller>,
    /// When it begins to send.
    pub start: Time,
    /// How much it sends; nothing for without end.
    pub bytes: Option<Bytes>,
    /// Settings of the sender.
    pub tcp: TcpOptions,
    /// Settings of the receiver.
    pub acks: AckOptions,
    /// Further delay of its acknowledgments, for flows of unlike round trip over one link.
    pub access: Duration,
    /// Whether the receiver reports when each packet arrived, as the channel's datagram shim does: two
    /// bytes per packet in each ACK. What a lost ACK reported is taken to be in the next one.
    pub reports: bool,
    /// How exact the reported receive times are.
    pub stamps: Stamps,
    /// How the application writes; everything at once if not given.
    pub writes: Option<Writes>,
    /// Segments of coded repair after the last one of data: the flow is delivered when as many segments
    /// have arrived as the data has. That is an ideal code over the whole flow, which bounds what coding
    /// the last window can do.
    pub repair: u64,
    /// Whether to record a tape of what the controller hears; it grows with the run.
    pub tape: bool,
}

impl Flow {
    /// A flow without end from time zero on, everything else by default.
    pub fn new(controller: Box<dyn Controller>) -> Self {
        Flow {
            controller,
            start: Time::ZERO,
            bytes: None,
            tcp: TcpOptions::default(),
            acks: AckOptions::default(),
            access: Duration::ZERO,
            reports: false,
            stamps: Stamps::default(),
            writes: None,
            repair: 0,
            tape: false,
        }
    }
}

/// An application that writes block by block, from the start of its flow on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writes {
    /// Full segments in a block, at least 1.
    pub segments: u64,
    /// From the beginning of a block to that of the next.
    pub every: Duration,
}

/// What became of a flow.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Name of its controller.
    pub controller: &'static str,
    /// When it began.
    pub start: Time,
    /// Bytes that the receiving application has got, in order.
    pub delivered: Bytes,
    /// Bytes delivered in each interval of [`World::bins`] since time zero.
    pub bins: Vec<Bytes>,
    /// The window at the end of each such interval.
    pub windows: Vec<Bytes>,
    /// When the last byte arrived at the receiver.
    pub finished: Option<Time>,
    /// What the sender did.
    pub counters: SenderCounters,
    /// Segments that reached the receiver more than once.
    pub duplicates: u64,
    /// The last round-trip estimate.
    pub rtt: Option<Rtt>,
    /// What the controller heard, where asked for.
    pub tape: Option<Tape>,
}

impl Outcome {
    /// Delivered bytes over the time from the start to the last byte, or to `end` for unfinished flows.
    pub fn goodput(&self, end: Time) -> Rate {
        let time = self.finished.unwrap_or(end).since(self.start);
        if time.is_zero() {
            return Rate::ZERO;
        }
        self.delivered.per(time)
    }

    /// Bytes delivered in the bins from the first to the one before the second.
    pub fn delivered_in(&self, bins: std::ops::Range<usize>) -> Bytes {
        self.bins.iter().take(bins.end).skip(bins.start).copied().sum()
    }
}

/// A run that could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Name of the flow's controller.
    pub controller: &'static str,
    /// The flow's number.
    pub flow: usize,
    /// Seed of the run.
    pub seed: u64,
    /// Virtual time.
    pub at: Time,
    /// What went wrong.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { controller, flow, seed, at, what } = self;
        write!(f, "controller \"{controller}\" of flow {flow} failed at {at} with seed {seed}: {what}")
    }
}

impl std::error::Error for Failure {}

/// Flows, a link and the time.
pub struct World {
    seed: u64,
    now: Time,
    forward: Link,
    back: Link,
    carrier: Option<Box<dyn Carrier>>,
    /// Flow, segment and number of the transmission.
    data: Air<(u32, u64, u64)>,
    /// Flow, ACK and how many arrivals have been reported with it.
    acks: Air<(u32, AckPacket, u64)>,
    timers: Events<(u32, Timer)>,
    ends: Vec<End>,
    unfinished: usize,
    /// Length of the intervals in which deliveries are counted: 1 s.
    pub bins: Duration,
    /// A flow that delivers nothing for so long fails the run: 300 s, more than any outage in the
    /// catalogue and several of the longest timeouts.
    pub patience: Duration,
    events: u64,
    /// Events since the clock last moved.
    at_once: u64,
    observer: Option<Box<dyn Observer>>,
}

/// Both ends of a flow.
struct End {
    sender: Sender,
    receiver: Receiver,
    ack_size: Bytes,
    arrivals: Option<Arrivals>,
    headers: Bytes,
    access: Duration,
    controller: &'static str,
    start: Time,
    started: bool,
    total: Option<Bytes>,
    writes: Option<Writes>,
    written: u64,
    /// Segments the data has, repair not counted.
    segments: u64,
    delivered: Bytes,
    last_delivery: Time,
    finished: Option<Time>,
    bins: Vec<Bytes>,
    windows: Vec<Bytes>,
    /// The earliest pending event of each kind of timer.
    armed: [Time; TIMERS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// The pace lets the next segment go.
    Pace,
    /// The sender's loss timers.
    Loss,
    /// The receiver's delayed ACK.
    Ack,
    /// The flow begins.
    Start,
    /// The application writes.
    Write,
    /// Is there any progress?
    Watch,
}

const TIMERS: usize = 3;

impl World {
    /// A world with data on `forward` and acknowledgments on `back`. The seed is only for messages: the
    /// links have theirs.
    pub fn new(forward: Link, back: Link, seed: u64) -> Self {
        World {
            seed,
            now: Time::ZERO,
            forward,
            back,
            carrier: None,
            data: Air::default(),
            acks: Air::default(),
            timers: Events::new(),
            ends: Vec::new(),
            unfinished: 0,
            bins: Duration::from_secs(1),
            patience: Duration::from_secs(300),
            events: 0,
            at_once: 0,
            observer: None,
        }
    }

    /// A world on a scenario's link, data going the way of `data`.
    pub fn on(scenario: &Scenario, data: Dir, seed: u64) -> Self {
        World::new(scenario.link(data, seed), scenario.link(data.opposite(), seed), seed)
    }

    /// Lets `carrier` take all packets from now on, in place of the bare links.
    pub fn carry(&mut self, carrier: Box<dyn Carrier>) {
        self.carrier = Some(carrier);
    }

    /// The carrier, if there is one of that kind.
    pub fn carrier<C: Carrier>(&self) -> Option<&C> {
        let carrier: &dyn Any = &**self.carrier.as_ref()?;
        carrier.downcast_ref()
    }

    /// Lets `observer` hear everything from now on.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Ends the observation.
    pub fn take_observer(&mut self) -> Option<Box<dyn Observer>> {
        self.observer.take()
    }

    /// Records from now on what a flow's controller hears; the tape grows with the run.
    pub fn record(&mut self, flow: usize) {
        if let Some(end) = self.ends.get_mut(flow) {
            end.sender.record();
        }
    }

    /// Adds a flow and returns its number.
    pub fn add(&mut self, flow: Flow) -> usize {
        let number = self.ends.len();
        let controller = flow.controller.name();
        let coded = flow.bytes.map(|bytes| bytes + flow.tcp.mss * flow.repair);
        let mut sender = Sender::new(flow.tcp, flow.controller, coded, flow.acks.window);
        if flow.tape {
            sender.record();
        }
        if flow.reports {
            sender.expect_reports();
        }
        let start = flow.start.max(self.now);
        sender.measure_window(start);
        let empty = flow.bytes == Some(Bytes::ZERO);
        self.ends.push(End {
            sender,
            receiver: Receiver::new(flow.acks),
            ack_size: flow.acks.size,
            arrivals: flow.reports.then(|| Arrivals::new(flow.stamps, number as u64)),
            headers: flow.tcp.headers,
            access: flow.access,
            controller,
            start,
            started: false,
            total: flow.bytes,
            writes: flow.writes,
            written: 0,
            segments: flow.bytes.map_or(u64::MAX, |bytes| bytes.0.div_ceil(flow.tcp.mss.0.max(1))),
            delivered: Bytes::ZERO,
            last_delivery: start,
            finished: empty.then_some(start),
            bins: Vec::new(),
            windows: Vec::new(),
            armed: [Time::MAX; TIMERS],
        });
        self.unfinished += usize::from(!empty);
        self.timers.schedule(start, (number as u32, Timer::Start));
        self.timers.schedule(start + self.patience, (number as u32, Timer::Watch));
        number
    }

    /// Runs until `until`, or until every flow has delivered everything.
    ///
    /// # Errors
    /// When a controller leaves its bounds or a flow stops making progress, by name and with the seed.
    pub fn run(&mut self, until: Time) -> Result<(), Failure> {
        while self.unfinished > 0 {
            let times =
                [self.data.next_at(), self.acks.next_at(), self.timers.next_at().unwrap_or(Time::MAX)];
            let carrier = self.carrier.as_ref().map_or(Time::MAX, |carrier| carrier.next_at());
            let next = times[0].min(times[1]).min(times[2]).min(carrier);
            if next > until || next == Time::MAX {
                break;
            }
            self.at_once = if next > self.now { 0 } else { self.at_once + 1 };
            self.now = next;
            self.events += 1;
            if next == carrier {
                self.advance_carrier();
                continue;
            }
            let flow = if next == times[0] {
                self.on_data()
            } else if next == times[1] {
                self.on_ack()
            } else {
                self.on_timer()?
            };
            let Some(flow) = flow else { continue };
            if let Some(what) = self.ends[flow].sender.broken() {
                return Err(self.failure(flow, what.to_owned()));
            }
            if self.at_once > MOST_AT_ONCE {
                return Err(self.failure(flow, format!("{MOST_AT_ONCE} events and the clock stands still")));
            }
        }
        if self.unfinished > 0 {
            self.now = self.now.max(until);
        }
        let now = self.now;
        self.ends.iter_mut().filter(|end| end.started).for_each(|end| end.sender.settle_window(now));
        Ok(())
    }

    /// Begins the measurement of mean windows anew, as after a start-up phase.
    pub fn measure_windows(&mut self) {
        let now = self.now;
        self.ends.iter_mut().for_each(|end| end.sender.measure_window(now));
    }

    /// Virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Packets and timers handled so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Packets offered to both links so far.
    pub fn packets(&self) -> u64 {
        self.forward.counters().offered.packets + self.back.counters().offered.packets
    }

    /// The link the data takes.
    pub fn forward(&self) -> &Link {
        &self.forward
    }

    /// The link the acknowledgments take.
    pub fn back(&self) -> &Link {
        &self.back
    }

    /// The sending end of a flow.
    pub fn sender(&self, flow: usize) -> Option<&Sender> {
        self.ends.get(flow).map(|end| &end.sender)
    }

    /// What became of the flows so far, in their order.
    pub fn outcomes(&self) -> Vec<Outcome> {
        self.ends
            .iter()
            .map(|end| Outcome {
                controller: end.controller,
                start: end.start,
                delivered: end.delivered,
                bins: end.bins.clone(),
                windows: end.windows.clone(),
                finished: end.finished,
                counters: *end.sender.counters(),
                duplicates: end.receiver.duplicates(),
                rtt: end.sender.rtt(),
                tape: end.sender.tape().cloned(),
            })
            .collect()
    }

    fn on_data(&mut self) -> Option<usize> {
        let (flow, seq, transmission) = self.data.pop()?;
        let index = flow as usize;
        let end = &mut self.ends[index];
        if let Some(arrivals) = &mut end.arrivals {
            arrivals.hear(transmission, self.now);
        }
        let before = end.receiver.next();
        let ack = end.receiver.on_segment(self.now, seq);
        let next = end.receiver.next();
        // Only with repair do more segments than the data has arrive.
        let decoded = next + end.receiver.held() >= end.segments;
        if next > before || decoded {
            let all = end.total.unwrap_or(Bytes::MAX);
            let delivered = if decoded { all } else { end.sender.bytes_before(next).min(all) };
            let bin = (self.now.as_nanos() / nanos(self.bins)) as usize;
            end.fill_bins(bin);
            end.bins[bin] += delivered - end.delivered;
            end.windows[bin] = end.sender.controller().cwnd();
            end.delivered = delivered;
            end.last_delivery = self.now;
        }
        let done = end.finished.is_none() && end.total == Some(end.delivered);
        if done {
            end.finished = Some(self.now);
            self.unfinished -= 1;
        }
        self.note(index, |_| Note::Arrived { seq, in_order: next });
        if done {
            self.note(index, |end| Note::Done { bytes: end.delivered });
        }
        if let Some(ack) = ack {
            self.acknowledge(flow, ack);
        }
        self.arm_receiver(flow);
        None
    }

    fn on_ack(&mut self) -> Option<usize> {
        let (flow, ack, reported) = self.acks.pop()?;
        let index = flow as usize;
        let End { sender, arrivals, .. } = &mut self.ends[index];
        if let Some(arrivals) = arrivals {
            sender.on_reports(self.now, arrivals.take(reported));
        }
        sender.on_ack(self.now, &ack);
        self.note(index, |end| Note::Acked {
            next: ack.next,
            state: end.sender.controller().snapshot(),
            smoothed: end.sender.rtt().map(|rtt| rtt.smoothed),
            in_flight: end.sender.in_flight(),
        });
        self.transmit(flow);
        Some(index)
    }

    fn on_timer(&mut self) -> Result<Option<usize>, Failure> {
        let Some((at, (flow, timer))) = self.timers.pop() else { return Ok(None) };
        let index = flow as usize;
        let end = &mut self.ends[index];
        match timer {
            Timer::Start => {
                end.started = true;
                if end.writes.is_some() {
                    self.timers.schedule(at, (flow, Timer::Write));
                    end.sender.write_up_to(0);
                } else {
                    self.transmit(flow);
                }
            }
            Timer::Write => {
                if let Some(writes) = end.writes {
                    end.written = end.written.saturating_add(writes.segments.max(1));
                    end.sender.write_up_to(end.written);
                    if end.total.is_none_or(|total| end.sender.bytes_before(end.written) < total) {
                        let every = writes.every.max(Duration::from_nanos(1));
                        self.timers.schedule(at + every, (flow, Timer::Write));
                    }
                }
                self.transmit(flow);
            }
            Timer::Watch => {
                if end.finished.is_some() {
                    return Ok(None);
                }
                if at.since(end.last_delivery) >= self.patience {
                    let what = format!("nothing was delivered for {} s", self.patience.as_secs());
                    return Err(self.failure(index, what));
                }
                self.timers.schedule(end.last_delivery + self.patience, (flow, Timer::Watch));
            }
            // An event that a sooner one has replaced.
            Timer::Pace | Timer::Loss | Timer::Ack if end.armed[timer as usize] != at => {}
            Timer::Pace => {
                end.armed[Timer::Pace as usize] = Time::MAX;
                self.transmit(flow);
            }
            Timer::Loss => {
                end.armed[Timer::Loss as usize] = Time::MAX;
                if end.sender.timeout().is_some_and(|due| due <= at) {
                    end.sender.on_timeout(at);
                    self.note(index, |end| Note::Timer {
                        timeouts: end.sender.counters().timeouts,
                        probes: end.sender.counters().probes,
                        cwnd: end.sender.controller().cwnd(),
                    });
                }
                self.transmit(flow);
            }
            Timer::Ack => {
                end.armed[Timer::Ack as usize] = Time::MAX;
                if let Some(ack) = end.receiver.on_timeout(at) {
                    self.acknowledge(flow, ack);
                }
                self.arm_receiver(flow);
            }
        }
        Ok(Some(index))
    }

    /// Sends what may leave now and sets the sender's timers.
    fn transmit(&mut self, flow: u32) {
        let now = self.now;
        let index = flow as usize;
        while let Some(segment) = self.ends[index].sender.poll_transmit(now) {
            let size = segment.payload + self.ends[index].headers;
            let transmission = self.ends[index].sender.counters().sent;
            let dropped = self.send(Packet::Data { flow, seq: segment.seq, transmission }, size);
            let truth = dropped.map_or(Truth::Arrives, |cause| Truth::in_world(self, cause));
            let end = &mut self.ends[index];
            end.sender.on_fate(&segment, truth);
            self.note(index, |end| Note::Sent { segment, dropped, in_flight: end.sender.in_flight() });
        }
        let end = &mut self.ends[index];
        for (timer, due) in [(Timer::Pace, end.sender.departure()), (Timer::Loss, end.sender.timeout())] {
            arm(&mut self.timers, end, flow, timer, due.map(|due| due.max(now)));
        }
    }

    fn acknowledge(&mut self, flow: u32, ack: AckPacket) {
        let end = &mut self.ends[flow as usize];
        let (reported, more) = end.arrivals.as_mut().map_or((0, Bytes::ZERO), Arrivals::report);
        let size = end.ack_size + more;
        self.send(Packet::Ack { flow, ack, reported }, size);
    }

    /// Sends a packet and says why it is dropped, if it is.
    fn send(&mut self, packet: Packet, size: Bytes) -> Option<Cause> {
        let mut links = Links { forward: &mut self.forward, back: &mut self.back };
        if let Some(carrier) = &mut self.carrier {
            return carrier.offer(self.now, packet, size, &mut links);
        }
        match links.of(packet.dir()).offer(self.now, size) {
            Fate::Delivered { at } => {
                self.arrive(at, packet);
                None
            }
            Fate::Dropped(cause) => Some(cause),
        }
    }

    fn arrive(&mut self, at: Time, packet: Packet) {
        match packet {
            Packet::Data { flow, seq, transmission } => {
                let at = self.ends[flow as usize].receiver.admitted(at);
                self.data.push(at, (flow, seq, transmission));
            }
            Packet::Ack { flow, ack, reported } => {
                self.acks.push(at + self.ends[flow as usize].access, (flow, ack, reported));
            }
        }
    }

    fn advance_carrier(&mut self) {
        let Some(mut carrier) = self.carrier.take() else { return };
        carrier.advance(self.now, &mut Links { forward: &mut self.forward, back: &mut self.back });
        while let Some(packet) = carrier.poll() {
            if let Packet::Data { flow, seq, .. } = packet {
                self.ends[flow as usize].sender.on_arrival(seq);
            }
            self.arrive(self.now, packet);
        }
        self.carrier = Some(carrier);
    }

    fn arm_receiver(&mut self, flow: u32) {
        let end = &mut self.ends[flow as usize];
        let due = end.receiver.timeout().map(|due| due.max(self.now));
        arm(&mut self.timers, end, flow, Timer::Ack, due);
    }

    fn note(&mut self, flow: usize, note: impl FnOnce(&End) -> Note) {
        if let Some(observer) = &mut self.observer {
            observer.note(self.now, flow, &note(&self.ends[flow]));
        }
    }

    fn failure(&self, flow: usize, what: String) -> Failure {
        Failure { controller: self.ends[flow].controller, flow, seed: self.seed, at: self.now, what }
    }
}

/// Sees to it that an event comes at `due` or before. One that comes too early sets the next one, so a
/// timer that keeps moving on costs an event per expiry and not one per move.
fn arm(timers: &mut Events<(u32, Timer)>, end: &mut End, flow: u32, timer: Timer, due: Option<Time>) {
    let armed = &mut end.armed[timer as usize];
    if let Some(due) = due.filter(|due| due < armed) {
        timers.schedule(due, (flow, timer));
        *armed = due;
    }
}

impl End {
    fn fill_bins(&mut self, bin: usize) {
        if self.bins.len() <= bin {
            let window = self.windows.last().copied().unwrap_or(Bytes::ZERO);
            self.bins.resize(bin + 1, Bytes::ZERO);
            self.windows.resize(bin + 1, window);
        }
    }
}

/// Packets in the air in order of arrival; equal times in the order they were sent. Links keep the order
/// unless told otherwise, so looking for the place from the end finds it at once.
struct Air<T> {
    packets: VecDeque<(Time, T)>,
}

impl<T> Default for Air<T> {
    fn default() -> Self {
        Air { packets: VecDeque::new() }
    }
}

impl<T> Air<T> {
    fn next_at(&self) -> Time {
        self.packets.front().map_or(Time::MAX, |(at, _)| *at)
    }

    fn push(&mut self, at: Time, packet: T) {
        if self.packets.back().is_none_or(|(last, _)| *last <= at) {
            self.packets.push_back((at, packet));
        } else {
            let place = self.packets.partition_point(|(other, _)| *other <= at);
            self.packets.insert(place, (at, packet));
        }
    }

    fn pop(&mut self) -> Option<T> {
        self.packets.pop_front().map(|(_, packet)| packet)
    }
}

/// More events than a window can hold, at one moment, are a loop.
const MOST_AT_ONCE: u64 = 100_000_000;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).max(1)
}

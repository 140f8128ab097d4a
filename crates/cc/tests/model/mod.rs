//! A sender, a bottleneck with a drop-tail queue, a lossy path and a receiver that bundles its
//! acknowledgments, in virtual time: as little as closed-loop tests of controllers need. The
//! simulator has the real thing.
#![allow(dead_code)] // each test file uses its own part of it

use skyhaul_cc::parts::{DeliveryEstimator, Episodes, PacketState, Rounds, RttEstimator};
use skyhaul_cc::{Ack, Bytes, Controller, Duration, Loss, Rate, Sent, Signal, Time};
use std::collections::VecDeque;

/// Bytes of every packet.
pub const MSS: Bytes = Bytes(1500);

/// The path and its receiver.
#[derive(Clone, Debug)]
pub struct Path {
    pub rate: Rate,
    pub rtt: Duration,
    /// Room in front of the bottleneck.
    pub queue: Bytes,
    /// Independent loss behind the bottleneck.
    pub loss: f64,
    /// An acknowledgment per this many packets, or 25 ms after the first unacknowledged one.
    pub per_ack: usize,
    pub seed: u64,
    /// Rates and round trips from a moment on.
    pub changes: Vec<(Time, Rate, Duration)>,
    /// Nothing comes through in these spans.
    pub outages: Vec<(Time, Time)>,
    /// What the application produces; nothing means always enough.
    pub source: Option<Rate>,
    /// Round trip the sender assumes before its first sample.
    pub initial_rtt: Duration,
}

impl Path {
    /// A path without loss, with two bandwidth-delay products of queue, every second packet
    /// acknowledged.
    pub fn new(rate: Rate, rtt: Duration) -> Self {
        Path {
            rate,
            rtt,
            queue: rate.bdp(rtt) * 2,
            loss: 0.0,
            per_ack: 2,
            seed: 1,
            changes: Vec::new(),
            outages: Vec::new(),
            source: None,
            initial_rtt: Duration::from_millis(333),
        }
    }

    /// The downlink of paper 001: 150 Mbit/s, 540 ms, 1.2 % loss, 5 MB queue, an ACK per 50 packets.
    pub fn geo(seed: u64) -> Self {
        Path {
            queue: Bytes(5_000_000),
            loss: 0.012,
            per_ack: 50,
            seed,
            ..Path::new(Rate::mbit(150), Duration::from_millis(540))
        }
    }
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Second {
    /// Bytes the bottleneck put on the link.
    pub carried: Bytes,
    /// Bytes that reached the receiver.
    pub received: Bytes,
    pub dropped_by_queue: u64,
    /// Greatest round trip measured.
    pub worst_rtt: Duration,
    /// Window and phase at the second's end.
    pub cwnd: Bytes,
    pub phase: &'static str,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub seconds: Vec<Second>,
    /// Time and window in segments at the start of each packet-timed round.
    pub rounds: Vec<(Time, f64)>,
    /// Time-weighted mean window in segments over the whole run.
    pub mean_window: f64,
    pub losses: u64,
    pub packets: u64,
}

impl Run {
    /// Share of the bottleneck used in `from..to` seconds.
    pub fn used(&self, rate: Rate, from: usize, to: usize) -> f64 {
        let carried: Bytes = self.seconds[from..to].iter().map(|s| s.carried).sum();
        carried.as_f64() / rate.bytes_in(Duration::from_secs((to - from) as u64)).as_f64()
    }
    pub fn received(&self, from: usize, to: usize) -> Bytes {
        self.seconds[from..to].iter().map(|s| s.received).sum()
    }
    pub fn dropped(&self, from: usize, to: usize) -> u64 {
        self.seconds[from..to].iter().map(|s| s.dropped_by_queue).sum()
    }
    pub fn worst_rtt(&self, from: usize, to: usize) -> Duration {
        self.seconds[from..to].iter().map(|s| s.worst_rtt).max().unwrap_or_default()
    }
}

/// Knuth's 64-bit linear congruential generator (MMIX); the high bits are the good ones.
pub struct Lcg(u64);

impl Lcg {
    pub fn new(seed: u64) -> Self {
        let mut lcg = Lcg(seed);
        lcg.share();
        lcg
    }
    pub fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

struct Record {
    sent_at: Time,
    state: PacketState,
    open: bool,
}

struct Sender<'a> {
    controller: &'a mut dyn Controller,
    records: VecDeque<Record>,
    first: u64,
    in_flight: Bytes,
    rtt: RttEstimator,
    rounds: Rounds,
    episodes: Episodes,
    delivery: DeliveryEstimator,
    next_departure: Time,
    sent_bytes: Bytes,
    last_news: Time,
    backoff: u32,
    losses: u64,
}

impl<'a> Sender<'a> {
    fn new(controller: &'a mut dyn Controller, initial_rtt: Duration) -> Self {
        Sender {
            controller,
            records: VecDeque::new(),
            first: 0,
            in_flight: Bytes::ZERO,
            rtt: RttEstimator::new(initial_rtt),
            rounds: Rounds::new(),
            episodes: Episodes::new(),
            delivery: DeliveryEstimator::new(),
            next_departure: Time::ZERO,
            sent_bytes: Bytes::ZERO,
            last_news: Time::ZERO,
            backoff: 0,
            losses: 0,
        }
    }

    fn on_timeout(&mut self, now: Time) {
        self.backoff += 1;
        self.last_news = now;
        let end = self.next_seq();
        self.declare_lost(now, end, Signal::Timeout);
    }

    fn next_seq(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    fn ready_at(&self, now: Time, source: Option<Rate>) -> Option<Time> {
        if self.in_flight + MSS > self.controller.cwnd() {
            return None;
        }
        let produced = source.map_or(Time::ZERO, |rate| Time::ZERO + rate.time_for(self.sent_bytes + MSS));
        Some(self.next_departure.max(now).max(produced))
    }

    fn send(&mut self, now: Time, source: Option<Rate>) -> u64 {
        let state = self.delivery.on_sent(now, self.in_flight);
        self.in_flight += MSS;
        if self.in_flight == MSS {
            self.last_news = now;
        }
        self.sent_bytes += MSS;
        let seq = self.next_seq();
        self.records.push_back(Record { sent_at: now, state, open: true });
        self.controller.on_sent(&Sent { now, bytes: MSS, in_flight: self.in_flight });
        let pace = self.controller.pacing_rate().unwrap_or_else(|| {
            self.controller.cwnd().per(self.rtt.rtt().smoothed.max(Duration::from_micros(1))).scale(1.25)
        });
        assert!(pace > Rate::ZERO);
        self.next_departure = self.next_departure.max(now) + pace.time_for(MSS);
        // Nothing more to send for now, though window and pace would allow it.
        let window_open = self.in_flight + MSS <= self.controller.cwnd();
        if window_open && self.ready_at(now, source).is_some_and(|at| at > self.next_departure) {
            self.delivery.mark_app_limited(self.in_flight);
        }
        seq
    }

    fn on_ack(&mut self, now: Time, seqs: &[u64]) -> Option<Ack> {
        let mut acked = Bytes::ZERO;
        let mut newest: Option<(u64, Time)> = None;
        for &seq in seqs {
            if seq < self.first {
                continue;
            }
            let record = &mut self.records[(seq - self.first) as usize];
            if record.open {
                record.open = false;
                acked += MSS;
                self.delivery.on_packet_acked(&record.state, MSS, now, record.sent_at);
                newest = newest.max(Some((seq, record.sent_at)));
            }
        }
        let (newest_seq, sent_at) = newest?;
        self.in_flight -= acked;
        self.last_news = now;
        self.backoff = 0;
        self.rtt.on_sample(now.since(sent_at));
        let sample = self.delivery.end_of_ack(Some(self.rtt.rtt().min));
        let round_start = self.rounds.on_ack(now, sent_at);
        // Three later packets arrived (RFC 9002 §6.1.1).
        self.declare_lost(now, newest_seq.saturating_sub(2), Signal::Gap);
        let ack = Ack {
            now,
            sent_at,
            acked,
            in_flight: self.in_flight,
            peer_window: None,
            rtt: self.rtt.rtt(),
            delivery_rate: sample.rate,
            round_start,
            app_limited: sample.app_limited,
        };
        self.controller.on_ack(&ack);
        Some(ack)
    }

    /// Declares open packets before `end` lost.
    fn declare_lost(&mut self, now: Time, end: u64, signal: Signal) {
        let (mut lost, mut newest) = (Bytes::ZERO, Time::ZERO);
        while self.first < end {
            let Some(record) = self.records.pop_front() else { break };
            self.first += 1;
            if record.open {
                lost += MSS;
                newest = record.sent_at;
            }
        }
        if lost > Bytes::ZERO {
            self.losses += lost.0 / MSS.0;
            self.in_flight -= lost;
            let new_episode = self.episodes.on_loss(now, newest);
            let (rtt, in_flight) = (self.rtt.rtt(), self.in_flight);
            self.controller.on_loss(&Loss {
                now,
                sent_at: newest,
                lost,
                in_flight,
                rtt,
                signal,
                new_episode,
            });
        }
    }

    fn timeout_at(&self) -> Time {
        if self.in_flight == Bytes::ZERO {
            return Time::MAX;
        }
        let timeout = self.rtt.timeout(Duration::from_millis(200)) + Duration::from_millis(25);
        self.last_news + timeout * (1 << self.backoff.min(4))
    }
}

/// Runs several controllers from their start times on one bottleneck, every packet acknowledged; returns
/// what each received in each second.
pub fn share(path: &Path, flows: &mut [(Time, Box<dyn Controller>)], length: Duration) -> Vec<Vec<Bytes>> {
    let end = Time::ZERO + length;
    let mut received = vec![vec![Bytes::ZERO; length.as_secs() as usize + 1]; flows.len()];
    let mut senders: Vec<_> = flows
        .iter_mut()
        .map(|(start, controller)| {
            let sender =
                Sender { next_departure: *start, ..Sender::new(&mut **controller, path.initial_rtt) };
            (sender, VecDeque::<(Time, u64)>::new())
        })
        .collect();
    let mut free_at = Time::ZERO;
    let mut now = Time::ZERO;
    loop {
        // The earliest event; equal times are served in order of flows, ACKs first.
        let mut next = (Time::MAX, 0, 0);
        for (i, (sender, acks)) in senders.iter().enumerate() {
            let ack = acks.front().map_or(Time::MAX, |(at, _)| *at);
            let departure = sender.ready_at(now, None).unwrap_or(Time::MAX);
            next = next.min((ack, 0, i)).min((departure, 1, i)).min((sender.timeout_at().max(now), 2, i));
        }
        let (at, kind, i) = next;
        if at > end {
            return received;
        }
        now = at;
        let (sender, acks) = &mut senders[i];
        match kind {
            0 => {
                let (_, seq) = acks.pop_front().expect("looked at it");
                received[i][now.since_start().as_secs() as usize] += MSS;
                sender.on_ack(now, &[seq]);
            }
            1 => {
                let seq = sender.send(now, None);
                free_at = free_at.max(now);
                if path.rate.bytes_in(free_at.since(now)) <= path.queue {
                    free_at += path.rate.time_for(MSS);
                    acks.push_back((free_at + path.rtt, seq));
                }
            }
            _ => sender.on_timeout(now),
        }
    }
}

/// Runs a controller on a path for a time.
pub fn run(path: &Path, controller: &mut dyn Controller, length: Duration) -> Run {
    let mut chance = Lcg::new(path.seed);
    let end = Time::ZERO + length;
    let mut result =
        Run { seconds: vec![Second::default(); length.as_secs() as usize + 1], ..Run::default() };
    let mut sender = Sender::new(controller, path.initial_rtt);
    let mut arrivals: VecDeque<(Time, u64)> = VecDeque::new();
    let mut acks: VecDeque<(Time, Vec<u64>)> = VecDeque::new();
    let mut waiting: Vec<u64> = Vec::new();
    let mut ack_due = Time::MAX;
    let mut free_at = Time::ZERO;
    let mut now = Time::ZERO;
    let (mut area, mut area_from) = (0.0, Time::ZERO);
    loop {
        let departure = sender.ready_at(now, path.source).unwrap_or(Time::MAX);
        let arrival = arrivals.front().map_or(Time::MAX, |(at, _)| *at);
        let ack = acks.front().map_or(Time::MAX, |(at, _)| *at);
        let timeout = sender.timeout_at().max(now);
        let next = departure.min(arrival).min(ack).min(ack_due).min(timeout);
        if next > end || next == Time::MAX {
            break;
        }
        now = next;
        let second = now.since_start().as_secs() as usize;
        let (rate, rtt) = path
            .changes
            .iter()
            .rev()
            .find(|(from, ..)| *from <= now)
            .map_or((path.rate, path.rtt), |(_, rate, rtt)| (*rate, *rtt));
        if next == arrival || next == ack_due {
            if next == arrival {
                let (_, seq) = arrivals.pop_front().expect("looked at it");
                result.seconds[second].received += MSS;
                if waiting.is_empty() {
                    ack_due = now + Duration::from_millis(25);
                }
                waiting.push(seq);
            }
            if waiting.len() >= path.per_ack || now >= ack_due {
                acks.push_back((now + rtt / 2, std::mem::take(&mut waiting)));
                ack_due = Time::MAX;
            }
        } else if next == ack {
            let (_, seqs) = acks.pop_front().expect("looked at it");
            let window = sender.controller.cwnd().as_f64() / MSS.as_f64();
            area += window * now.since(area_from).as_secs_f64();
            area_from = now;
            if let Some(event) = sender.on_ack(now, &seqs) {
                if event.round_start {
                    result.rounds.push((now, sender.controller.cwnd().as_f64() / MSS.as_f64()));
                }
                let entry = &mut result.seconds[second];
                entry.worst_rtt = entry.worst_rtt.max(event.rtt.latest);
                let snapshot = sender.controller.snapshot();
                (entry.cwnd, entry.phase) = (snapshot.cwnd, snapshot.phase);
            }
        } else if next == timeout && next < departure {
            sender.on_timeout(now);
        } else {
            let seq = sender.send(now, path.source);
            result.packets += 1;
            let lucky = chance.share() >= path.loss;
            free_at = free_at.max(now);
            if rate.bytes_in(free_at.since(now)) + MSS > path.queue + MSS {
                result.seconds[second].dropped_by_queue += 1;
                continue;
            }
            free_at += rate.time_for(MSS);
            if let Some(entry) = result.seconds.get_mut(free_at.since_start().as_secs() as usize) {
                entry.carried += MSS;
            }
            let out = path.outages.iter().any(|(from, to)| (*from..*to).contains(&free_at));
            if lucky && !out {
                let at = (free_at + rtt / 2).max(arrivals.back().map_or(Time::ZERO, |(at, _)| *at));
                arrivals.push_back((at, seq));
            }
        }
    }
    result.mean_window = area / area_from.as_secs_f64().max(1e-9);
    result.losses = sender.losses;
    result
}

//! TCP inside a tunnel of error correction: what it reaches, what it costs and what stays lost.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::units::{Bytes, Duration, Rate, Share, Time};
use skyhaul_cc::{registry, Setup};
use skyhaul_pep::fec::{residual_loss, DecoderStats, EncoderStats, Options, Order, Redundancy};
use skyhaul_sim::fec::FecTunnel;
use skyhaul_sim::scenario::{Dir, Scenario};
use skyhaul_sim::tcp::{AckOptions, Recovery, TcpOptions};
use skyhaul_sim::world::{Flow, Outcome, World};

/// IP, UDP and data header: what a packet is longer in the tunnel.
const HEADERS: u64 = 28 + 6;

struct Run {
    world: World,
    outcome: Outcome,
}

impl Run {
    /// A flow without end over p1.down-270, in a tunnel or without.
    fn new(controller: &str, tunnel: Option<Options>, recovery: Recovery, seconds: u64, seed: u64) -> Run {
        let scenario = Scenario::find("p1.down-270").unwrap();
        let plain = TcpOptions::default();
        let mss = if tunnel.is_some() { FecTunnel::mss(&plain) } else { plain.mss };
        let tcp = TcpOptions { mss, recovery, ..plain };
        // Below the link's rate even with an eighth of repairs: nothing but the air loses packets.
        let setup = Setup { link_rate: Some(Rate::mbit(110)), ..Setup::new(mss) };
        let mut world = World::on(&scenario, Dir::Forward, seed);
        if let Some(options) = tunnel {
            world.carry(Box::new(FecTunnel::new(options)));
        }
        world.add(Flow { tcp, ..Flow::new(registry::build(controller, &setup).unwrap()) });
        world.run(Time::from_secs(seconds)).unwrap();
        let outcome = world.outcomes().pop().unwrap();
        Run { world, outcome }
    }

    /// Mbit/s delivered in these seconds.
    fn goodput(&self, seconds: std::ops::Range<usize>) -> f64 {
        let time = Duration::from_secs(seconds.len() as u64);
        self.outcome.delivered_in(seconds).per(time).as_mbit()
    }

    fn ends(&self) -> (&EncoderStats, &DecoderStats) {
        let tunnel = self.world.carrier::<FecTunnel>().unwrap();
        (tunnel.sent(Dir::Forward), tunnel.received(Dir::Forward))
    }
}

fn with(redundancy: Redundancy) -> Options {
    let mut options = Options::default();
    options.encoder.redundancy = redundancy;
    options
}

fn fixed(share: f64) -> Options {
    with(Redundancy::Fixed(Share::new(share).unwrap()))
}

#[test]
fn cubic_in_a_tunnel_that_repairs_passes_60_mbit_per_s() {
    let run = Run::new("cubic", Some(Options::default()), Recovery::Rack, 18, 1);
    let goodput = run.goodput(8..18);
    assert!(goodput >= 60.0, "{goodput} Mbit/s");
    let (sent, received) = run.ends();
    assert!(received.repaired > 500, "{received:?}");
    // 1.2 % and what the overflow of slow start adds.
    assert!((0.008..0.05).contains(&sent.loss.value()), "{sent:?}");
}

#[test]
fn cubic_in_a_tunnel_that_does_not_repair_is_as_slow_as_outside() {
    let mean = |tunnel: Option<Options>| {
        let runs = (1..=6).map(|seed| Run::new("cubic", tunnel, Recovery::Rack, 100, seed).goodput(0..100));
        runs.sum::<f64>() / 6.0
    };
    let outside = mean(None);
    let off = mean(Some(with(Redundancy::Off)));
    let too_little = mean(Some(fixed(0.02)));
    assert!(outside > 0.2 && outside < 1.2, "{outside}");
    for inside in [off, too_little] {
        assert!(inside / outside > 0.6 && inside / outside < 1.6, "{inside} beside {outside} Mbit/s");
    }
}

#[test]
fn packets_behind_a_gap_must_wait_for_a_sender_that_counts_duplicates() {
    let inside = |order| {
        let mut options = Options::default();
        options.decoder.order = order;
        Run::new("cubic", Some(options), Recovery::Dupack, 14, 1).goodput(6..14)
    };
    let (held, as_they_come) = (inside(Order::default()), inside(Order::AsTheyCome));
    assert!(held > 40.0 && as_they_come < 10.0, "{held} and {as_they_come} Mbit/s");
}

#[test]
fn the_overhead_is_what_was_configured() {
    let run = Run::new("rate", Some(fixed(0.125)), Recovery::Rack, 6, 1);
    let (sent, _) = run.ends();
    let repairs = sent.repairs as f64 / sent.data as f64;
    assert!(sent.data > 40_000 && (repairs - 0.125).abs() < 0.0005, "{repairs} of {}", sent.data);
    let bytes = sent.data_bytes.0 + sent.repair_bytes.0 + HEADERS * sent.data + (HEADERS + 2) * sent.repairs;
    let offered = run.world.forward().counters().offered.bytes.0;
    // The rest are reports on the other direction, ten a second.
    assert!((bytes..bytes + 6 * 11 * 45).contains(&offered), "{offered} beside {bytes}");
}

#[test]
fn what_stays_lost_is_what_the_binomial_tail_says() {
    let (mut lost, mut packets) = (0, 0);
    for seed in 1..=3 {
        let run = Run::new("rate", Some(fixed(0.031_25)), Recovery::Rack, 6, seed);
        let (sent, received) = run.ends();
        assert_eq!(run.world.forward().counters().queue_full.packets, 0);
        lost += received.lost;
        packets += sent.data;
    }
    let measured = lost as f64 / packets as f64;
    let computed = residual_loss(64, 2, Share::new(0.012).unwrap());
    // About 300 losses, in threes at least: their count varies by a tenth.
    assert!((measured / computed - 1.0).abs() < 0.3, "{measured} measured, {computed} computed");
}

#[test]
fn without_losses_the_tunnel_costs_its_headers_and_no_time() {
    let scenario = Scenario::find("lan.gigabit-20").unwrap();
    let finished = |tunnel: bool| {
        let mut world = World::on(&scenario, Dir::Forward, 1);
        let (plain, acks) = (TcpOptions::default(), AckOptions::default());
        let mut tcp = TcpOptions { mss: FecTunnel::mss(&plain), ..plain };
        let mut size = acks.size;
        if tunnel {
            let mut options = with(Redundancy::Off);
            // Reports would come in between.
            options.decoder.report = Duration::from_secs(1_000_000);
            world.carry(Box::new(FecTunnel::new(options)));
        } else {
            tcp.headers += Bytes(HEADERS);
            size += Bytes(HEADERS);
        }
        let controller = registry::build("newreno", &Setup::new(tcp.mss)).unwrap();
        let acks = AckOptions { size, ..acks };
        world.add(Flow { tcp, acks, bytes: Some(Bytes::mib(8)), ..Flow::new(controller) });
        world.run(Time::from_secs(60)).unwrap();
        world.outcomes()[0].finished.unwrap()
    };
    assert_eq!(finished(true), finished(false));
}

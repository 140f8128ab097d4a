//! A link with the packets that go over it, and flows as a host would set them up.

use skyhaul_cc::controller::{PathHistory, Policy};
use skyhaul_cc::registry::{self, Contender};
use skyhaul_cc::units::{Bytes, Duration, Rate, Share, Time};
use skyhaul_cc::Setup;
use skyhaul_sim::link::Link;
use skyhaul_sim::scenario::{Dir, Direction, RateBase, Scenario};
use skyhaul_sim::tcp::{AckOptions, SackBlocks, TcpOptions};
use skyhaul_sim::world::{Flow, World};

use super::watch::Packet;
use super::Host;
use crate::experiment::LabError;

/// The controller that reads receive times and asks for trains.
const OWN: &str = "skyhaul";
/// Its first flight in packets: enough for halves that can be compared.
const OWN_FIRST: u64 = 32;
/// What others begin with (RFC 6928).
const FIRST: u64 = 10;

/// A link and the packets on it.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub scenario: Scenario,
    pub data: Dir,
    /// Payload of a full packet.
    pub mss: Bytes,
    /// The rest of it.
    pub headers: Bytes,
    /// What arrives is held to the next frame: data, and acknowledgments.
    pub frames: [Option<Duration>; 2],
    /// This share of the data's packets arrives up to so much later and is overtaken.
    pub detour: Option<(Share, Duration)>,
}

impl Path {
    /// The link of a scenario with the packets of the channel, where its data goes.
    pub fn of(scenario: Scenario) -> Path {
        let data = scenario.data();
        Path { scenario, data, mss: Bytes(1433), headers: Bytes(67), frames: [None; 2], detour: None }
    }

    /// A link that is the same both ways but for the loss, which is the data's; packets of TCP.
    pub fn alike(
        rate: Rate,
        rtt: Duration,
        loss: f64,
        base: RateBase,
        queue: Bytes,
    ) -> Result<Path, LabError> {
        let mut scenario = Scenario::find("p1.down-270")?;
        for direction in [&mut scenario.forward, &mut scenario.back] {
            direction.rate = rate;
            direction.rate_base = base;
            direction.one_way = rtt / 2;
            direction.loss = Share::ZERO;
            direction.queue = queue;
        }
        scenario.forward.loss = share(loss);
        Ok(Path {
            scenario,
            data: Dir::Forward,
            mss: Bytes(1448),
            headers: Bytes(52),
            frames: [None; 2],
            detour: None,
        })
    }

    /// The same in whole IP packets, with a queue of so many products of rate and round trip.
    pub fn with_queue(mbit: u64, rtt: Duration, loss: f64, products: f64) -> Result<Path, LabError> {
        let rate = Rate::mbit(mbit);
        let queue = Bytes::from_f64(rate.bdp(rtt).as_f64() * products);
        Path::alike(rate, rtt, loss, RateBase::Ip, queue)
    }

    /// Where the data goes.
    pub fn forward(&self) -> &Direction {
        self.scenario.direction(self.data)
    }

    /// Its settings.
    pub fn forward_mut(&mut self) -> &mut Direction {
        match self.data {
            Dir::Forward => &mut self.scenario.forward,
            Dir::Back => &mut self.scenario.back,
        }
    }

    /// Where acknowledgments go.
    pub fn back_mut(&mut self) -> &mut Direction {
        match self.data {
            Dir::Forward => &mut self.scenario.back,
            Dir::Back => &mut self.scenario.forward,
        }
    }

    pub fn rtt(&self) -> Duration {
        self.scenario.rtt()
    }

    /// A full packet.
    pub fn packet(&self) -> Packet {
        Packet { size: self.mss + self.headers, overhead: self.forward().rate_base.overhead() }
    }

    /// The link's rate in the bytes a sender counts.
    pub fn payload_rate(&self) -> Rate {
        let Packet { size, overhead } = self.packet();
        self.forward().rate.scale(self.mss.as_f64() / (size + overhead).as_f64())
    }

    /// Share of packets the link loses by itself.
    pub fn loss(&self) -> f64 {
        let forward = self.forward();
        let bursts = forward.burst.map_or(0.0, |burst| burst.average().value());
        let bits = forward.packet_error(self.packet().size).value();
        1.0 - (1.0 - forward.loss.value()) * (1.0 - bursts) * (1.0 - bits)
    }

    /// Payload rate that arrives when the link is full.
    pub fn arriving_rate(&self) -> Rate {
        self.payload_rate().scale(1.0 - self.loss())
    }

    /// Payload bits that the link offered to carry between two moments, changes and outages counted.
    pub fn offered(&self, from: Time, to: Time) -> f64 {
        let link = Link::new(self.forward(), 1);
        let step = Duration::from_millis(1);
        let (mut now, mut sum) = (from, 0.0);
        while now < to {
            if !link.is_out(now) {
                sum += link.rate(now).as_f64() * step.as_secs_f64();
            }
            now += step;
        }
        sum * self.arriving_rate().as_f64() / self.forward().rate.as_f64()
    }

    /// The truth, as an earlier connection would have left it.
    fn history(&self) -> PathHistory {
        PathHistory { loss: share(self.loss()), ..PathHistory::of(self.payload_rate(), self.rtt()) }
    }

    /// A world without flows.
    pub fn world(&self, seed: u64) -> World {
        let link = |dir: Dir, frame: Option<Duration>| {
            let link = self.scenario.link(dir, seed);
            match frame {
                Some(frame) => link.with_frames(frame),
                None => link,
            }
        };
        let mut data = link(self.data, self.frames[0]);
        if let Some((share, longest)) = self.detour {
            data = data.with_detour(share, longest, seed);
        }
        World::new(data, link(self.data.opposite(), self.frames[1]), seed)
    }

    /// What a host tells a controller, and how it sends and acknowledges.
    pub fn flow(
        &self,
        host: Host,
        who: &Contender,
        told: &Told,
        bytes: Option<Bytes>,
    ) -> Result<Flow, LabError> {
        let own = who.controller == OWN;
        let rtt = self.rtt();
        let rate = self.payload_rate();
        let history = told.history.unwrap_or_else(|| self.history());
        let setup = Setup {
            initial_rtt: rtt,
            initial_window: self.mss * if own { OWN_FIRST } else { FIRST },
            policy: told.policy,
            ..Setup::new(self.mss)
        };
        let setup = who.setup(setup, rate, history);
        let controller = registry::build(&who.controller, &setup)?;
        let tcp = TcpOptions { mss: self.mss, headers: self.headers, ..TcpOptions::default() };
        let flow = Flow { bytes, tcp, ..Flow::new(controller) };
        if !own || host == Host::Plain {
            return Ok(flow);
        }
        // As the channel does: reports every 1/64 of a round trip, probes without back-off while a path is out, and
        // repair of the last window by what it is expected to lose, four deviations more, and two.
        let thinning = (rtt / 64).clamp(Duration::from_micros(200), Duration::from_millis(10));
        let lost = self.loss() * (rate.bdp(rtt).as_f64() / self.mss.as_f64());
        Ok(Flow {
            tcp: TcpOptions {
                initial_rto: rtt * 3,
                greatest_rto: rtt * 2 + Duration::from_millis(200),
                ..flow.tcp
            },
            acks: AckOptions {
                every: 16,
                delay: Duration::from_millis(25),
                thinning,
                sacks: SackBlocks::All,
                ..AckOptions::default()
            },
            reports: true,
            repair: if bytes.is_some() { (lost + 4.0 * lost.sqrt() + 2.0) as u64 } else { 0 },
            ..flow
        })
    }
}

/// What a controller is told beside its start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// What an earlier connection left.
    pub history: Option<PathHistory>,
    /// How to get on with others.
    pub policy: Policy,
}

/// A share that is known to be one.
pub(super) fn share(value: f64) -> Share {
    Share::new(value).unwrap_or(Share::ZERO)
}

/// Milliseconds.
pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

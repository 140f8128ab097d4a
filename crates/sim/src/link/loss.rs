//! What the path loses: single packets, packets with a wrong bit, and bursts.

use skyhaul_cc::units::{Ber, Bytes};

use super::Cause;
use crate::rng::{Chance, Stream};
use crate::scenario::{BerUnit, Direction, GilbertElliott};

/// The loss processes of one direction. Each has its own stream and draws for every packet that was sent,
/// whatever the others decided, so adding one leaves the others' luck alone.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    single: Stream,
    bit_errors: Option<BitErrors>,
    bursts: Option<Bursts>,
}

impl Losses {
    pub fn new(direction: &Direction, seed: u64) -> Self {
        Losses {
            single: Stream::new(seed, "random loss"),
            bit_errors: (direction.ber != Ber::ZERO).then(|| BitErrors::new(direction, seed)),
            bursts: direction.burst.map(|model| Bursts::new(model, seed)),
        }
    }

    /// Whether and why a packet is lost. A packet hit twice is counted as burst before bit error before
    /// single loss.
    pub fn judge(&mut self, size: Bytes, single: Chance) -> Option<Cause> {
        let mut cause = self.single.chance(single).then_some(Cause::RandomLoss);
        if let Some(bit_errors) = &mut self.bit_errors {
            if bit_errors.hit(size) {
                cause = Some(Cause::BitError);
            }
        }
        if let Some(bursts) = &mut self.bursts {
            if bursts.hit() {
                cause = Some(Cause::Burst);
            }
        }
        cause
    }
}

/// Independent errors of bits or bytes; one loses the packet.
#[derive(Clone, Debug)]
struct BitErrors {
    ber: Ber,
    unit: BerUnit,
    stream: Stream,
    /// Packet error probability for each usual size, so that a packet costs a look-up.
    by_size: Box<[Chance]>,
}

impl BitErrors {
    fn new(direction: &Direction, seed: u64) -> Self {
        let (ber, unit) = (direction.ber, direction.ber_unit);
        let by_size = (0..=USUAL_SIZES).map(|size| unit.packet_error(ber, Bytes(size)).into()).collect();
        BitErrors { ber, unit, stream: Stream::new(seed, "bit errors"), by_size }
    }

    fn hit(&mut self, size: Bytes) -> bool {
        let usual = usize::try_from(size.0).ok().and_then(|size| self.by_size.get(size)).copied();
        let chance = usual.unwrap_or_else(|| self.unit.packet_error(self.ber, size).into());
        self.stream.chance(chance)
    }
}

/// Two states, one of which loses more (Gilbert 1960, Elliott 1963). A step per packet sent: the packet is
/// judged in the present state, then the state may change.
#[derive(Clone, Debug)]
struct Bursts {
    bad: bool,
    to_bad: Chance,
    to_good: Chance,
    good_loss: Chance,
    bad_loss: Chance,
    stream: Stream,
}

impl Bursts {
    fn new(model: GilbertElliott, seed: u64) -> Self {
        let mut stream = Stream::new(seed, "bursts");
        // Starting in the long-run mixture keeps short runs at the stated average.
        let bad = stream.chance(model.share_of_bad().into());
        Bursts {
            bad,
            to_bad: model.to_bad.into(),
            to_good: model.to_good.into(),
            good_loss: model.good_loss.into(),
            bad_loss: model.bad_loss.into(),
            stream,
        }
    }

    fn hit(&mut self) -> bool {
        let (loss, leave) =
            if self.bad { (self.bad_loss, self.to_good) } else { (self.good_loss, self.to_bad) };
        let lost = self.stream.chance(loss);
        self.bad ^= self.stream.chance(leave);
        lost
    }
}

/// Up to the largest packet of an Ethernet with a little tunnel overhead.
const USUAL_SIZES: u64 = 1600;

//! How many repairs a block gets.

use skyhaul_cc::units::Share;

use super::header::Report;
use super::{MOST_DATA, MOST_IN_BLOCK};

/// How many repairs are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Redundancy {
    /// None: the path is as lossy as without.
    Off,
    /// So many per packet of data, exactly in the long run.
    Fixed(Share),
    /// As many as the measured loss asks for.
    Adaptive(Adaptive),
}

/// Redundancy that follows the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptive {
    /// The share of packets that may stay lost.
    pub residual: Share,
    /// The loss to assume before the first report.
    pub initial: Share,
    /// At most so many repairs per packet of data, but always one per block. A queue that overflows
    /// loses more, not less, when more is sent into it.
    pub most: Share,
}

impl Default for Adaptive {
    /// 10⁻⁶ may stay lost, 2 % are lost at first, at most one repair for four packets.
    fn default() -> Self {
        let share = |value| Share::new(value).unwrap_or(Share::ZERO);
        Adaptive { residual: share(1e-6), initial: share(0.02), most: share(0.25) }
    }
}

impl Default for Redundancy {
    fn default() -> Self {
        Redundancy::Adaptive(Adaptive::default())
    }
}

/// Share of data packets that stay lost in blocks of `data` packets and `repairs` repairs, if each
/// datagram is lost by itself with probability `loss`.
///
/// A block is repaired unless more datagrams are lost than there are repairs; then, of `j` lost
/// datagrams out of `n`, `j·k/n` are data in the mean: Σ_{j>r} C(n,j) pʲ(1-p)ⁿ⁻ʲ · j/n. Counts beyond
/// what a block may have are taken for the greatest.
pub fn residual_loss(data: usize, repairs: usize, loss: Share) -> f64 {
    let data = data.clamp(1, MOST_DATA);
    let repairs = repairs.min(MOST_IN_BLOCK - data);
    let n = data + repairs;
    let p = loss.value();
    if p >= 1.0 {
        return 1.0;
    }
    // The term of j = 0, then each from the one before it.
    let mut term = (0..n).fold(1.0, |term, _| term * (1.0 - p));
    let mut sum = 0.0;
    for j in 1..=n {
        term *= (n - j + 1) as f64 / j as f64 * p / (1.0 - p);
        if j > repairs {
            sum += term * j as f64 / n as f64;
        }
    }
    sum
}

/// The fewest repairs with which a block of `data` packets keeps its residual loss, at most `most`.
pub fn repairs_for(data: usize, loss: Share, residual: Share, most: usize) -> usize {
    let most = most.min(MOST_IN_BLOCK - data.clamp(1, MOST_DATA));
    (0..most).find(|&repairs| residual_loss(data, repairs, loss) <= residual.value()).unwrap_or(most)
}

/// Decides for one block after the other.
#[derive(Clone, Debug)]
pub(super) struct Planner {
    redundancy: Redundancy,
    /// Repairs owed by fixed redundancy, a fraction of one.
    owed: f64,
    loss: LossMeter,
}

impl Planner {
    pub fn new(redundancy: Redundancy) -> Self {
        let initial = match redundancy {
            Redundancy::Adaptive(adaptive) => adaptive.initial,
            _ => Share::ZERO,
        };
        Planner { redundancy, owed: 0.0, loss: LossMeter::new(initial) }
    }

    /// Repairs for a block of `data` packets.
    pub fn repairs(&mut self, data: usize) -> usize {
        match self.redundancy {
            Redundancy::Off => 0,
            Redundancy::Fixed(share) => {
                self.owed += data as f64 * share.value();
                let due = (self.owed as usize).min(MOST_IN_BLOCK - data.min(MOST_DATA));
                // What no block has room for is not saved up.
                self.owed = (self.owed - due as f64).min(1.0);
                due
            }
            Redundancy::Adaptive(Adaptive { residual, most, .. }) => {
                let most = ((data as f64 * most.value()) as usize).max(1);
                repairs_for(data, self.loss.cautious(), residual, most)
            }
        }
    }

    /// Takes in what the far end has seen.
    pub fn on_report(&mut self, report: Report) {
        self.loss.on_report(report);
    }

    /// The loss before repair.
    pub fn loss(&self) -> Share {
        share(self.loss.estimate)
    }
}

/// Mean loss over the last datagrams, from the far end's reports.
#[derive(Clone, Debug)]
struct LossMeter {
    estimate: f64,
    /// Datagrams behind the estimate, at most [`MEMORY`].
    weight: f64,
    last: Option<Report>,
}

impl LossMeter {
    fn new(initial: Share) -> Self {
        LossMeter { estimate: initial.value(), weight: PRIOR, last: None }
    }

    fn on_report(&mut self, report: Report) {
        let before = self.last.replace(report);
        let Some(before) = before else { return };
        let sent = report.next.wrapping_sub(before.next);
        let received = report.received.wrapping_sub(before.received);
        if sent > u32::MAX / 2 {
            // An older report that was overtaken: what it says is known.
            self.last = Some(before);
            return;
        }
        // Late arrivals of an interval before, or a far end that began anew.
        if sent == 0 || received > sent {
            return;
        }
        let (sent, lost) = (f64::from(sent), f64::from(sent - received));
        self.weight = (self.weight + sent).min(MEMORY);
        let gain = (sent / self.weight).min(1.0);
        self.estimate += gain * (lost / sent - self.estimate);
    }

    /// Two standard deviations of the count above the estimate: too few repairs cost more than a repair
    /// too many.
    fn cautious(&self) -> Share {
        let deviation = (self.estimate * (1.0 - self.estimate) / self.weight).max(0.0).sqrt();
        share((self.estimate + 2.0 * deviation).min(GREATEST_LOSS))
    }
}

fn share(value: f64) -> Share {
    Share::new(value.clamp(0.0, 1.0)).unwrap_or(Share::ZERO)
}

/// The estimate forgets over so many datagrams: 0.8 s of 150 Mbit/s, and 120 losses at 1.2 %, which makes
/// its error a tenth.
const MEMORY: f64 = 10_000.0;
/// The assumption at the start counts as much as so many datagrams.
const PRIOR: f64 = 500.0;
/// Beyond a half, repairs would be most of what is sent.
const GREATEST_LOSS: f64 = 0.5;

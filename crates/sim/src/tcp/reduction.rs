//! Proportional rate reduction (RFC 6937 §3.1): a cut is spread over the round trip in which it is made.
//! Without it a sender falls silent until as much has arrived as the cut took away.

use skyhaul_cc::units::Bytes;

/// One cut under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reduction {
    /// RecoverFS: bytes in flight when the loss was noticed, the lost ones included.
    from: Bytes,
    /// `prr_delivered`.
    delivered: Bytes,
    /// `prr_out`.
    sent: Bytes,
}

impl Reduction {
    /// A cut made while `from` bytes were in flight.
    pub fn new(from: Bytes) -> Self {
        Reduction { from, delivered: Bytes::ZERO, sent: Bytes::ZERO }
    }

    /// Bytes were newly acknowledged.
    pub fn on_delivered(&mut self, bytes: Bytes) {
        self.delivered += bytes;
    }

    /// A segment left.
    pub fn on_sent(&mut self, bytes: Bytes) {
        self.sent += bytes;
    }

    /// Whether a segment may leave although more than `target`, the window after the cut, is in flight:
    /// out of `from` delivered bytes `target` are sent.
    pub fn allows(&self, target: Bytes) -> bool {
        let product = |a: Bytes, b: Bytes| u128::from(a.0) * u128::from(b.0);
        product(self.sent, self.from) < product(self.delivered, target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_halved_window_sends_a_segment_for_every_two_delivered() {
        let mut reduction = Reduction::new(Bytes(100));
        let mut sent = Vec::new();
        for delivered in 1..=10 {
            reduction.on_delivered(Bytes(1));
            if reduction.allows(Bytes(50)) {
                reduction.on_sent(Bytes(1));
                sent.push(delivered);
            }
        }
        assert_eq!(sent, [1, 3, 5, 7, 9]);
    }
}

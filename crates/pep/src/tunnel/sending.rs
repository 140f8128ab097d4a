//! Datagrams that leave by UDP.

use super::{batch, Batch, Peer, PeerId, Tunnel};
use crate::rollback::Carriage;
use quinn_proto::Transmit;
use skyhaul_cc::Time;

impl Tunnel {
    /// Datagrams that shall leave now, at most `max_segments` of one size in `out`, which is emptied
    /// first. Call until `None`.
    pub fn poll_transmit(&mut self, now: Time, max_segments: usize, out: &mut Vec<u8>) -> Option<Batch> {
        self.settle();
        out.clear();
        if let Some((transmit, bytes)) = self.responses.pop_front() {
            out.extend_from_slice(&bytes);
            return Some(batch(&transmit));
        }
        if let Some(word) = self.next_word(out) {
            return Some(word);
        }
        let (peer, first) = match self.held_back.take() {
            Some((peer, transmit, bytes)) => {
                out.extend_from_slice(&bytes);
                (peer, transmit)
            }
            None => self.next_datagram(now, out)?,
        };
        self.watch_marks(peer, &first);
        let result = batch(&first);
        let limit = max_segments.min(usize::from(u16::MAX) / result.segment.max(1));
        for _ in 1..limit {
            let Some(entry) = self.peers.get_mut(&peer) else { break };
            let mut next = Vec::with_capacity(result.segment);
            let Some(transmit) = entry.session.poll_transmit(now, &mut next) else { break };
            let same_path = transmit.destination == first.destination
                && transmit.src_ip == first.src_ip
                && transmit.ecn == first.ecn;
            if !same_path || next.len() > result.segment {
                self.held_back = Some((peer, transmit, next));
                break;
            }
            out.extend_from_slice(&next);
            if next.len() < result.segment {
                break;
            }
        }
        self.session_events(now, peer);
        self.endpoint_events(peer);
        Some(result)
    }

    fn next_datagram(&mut self, now: Time, out: &mut Vec<u8>) -> Option<(PeerId, Transmit)> {
        while let Some(peer) = self.active.pop_front() {
            let by_udp = |entry: &&mut Peer| entry.session.channel_ref().carriage() == Carriage::Udp;
            let entry = self.peers.get_mut(&peer).filter(by_udp);
            let transmit = entry.and_then(|entry| entry.session.poll_transmit(now, out));
            match transmit {
                Some(transmit) => {
                    self.active.push_back(peer);
                    return Some((peer, transmit));
                }
                None => {
                    self.marked.remove(&peer);
                    self.session_events(now, peer);
                    self.endpoint_events(peer);
                }
            }
        }
        None
    }

    /// When the next datagram of a train shall leave, if one is under way. Its spacing is what the far end's receive
    /// times are compared with, so this moment should be met to some microseconds.
    pub fn train_departure(&mut self) -> Option<Time> {
        self.peers.values_mut().filter_map(|entry| entry.session.channel().train_departure()).min()
    }
}

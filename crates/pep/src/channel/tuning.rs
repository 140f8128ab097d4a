//! What both ends of a channel are tuned by, and what of it quinn-proto is told.

use super::adapter::{Gate, GateFactory};
use crate::rollback;
use crate::shim::HEADER;
use quinn_proto::{TransportConfig, VarInt};
use skyhaul_cc::{Bytes, Duration};
use std::sync::Arc;

/// What both ends of a channel are tuned by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// Largest IP packet of the path. Fixed: nothing searches for a larger one.
    pub mtu: u16,
    /// Round trip to assume before the first sample.
    pub initial_rtt: Duration,
    /// Unacknowledged and unsent stream bytes kept for repair. 4 bandwidth-delay products are needed
    /// under 1 % loss, because a packet may be lost two or three times.
    pub send_window: Bytes,
    /// The other end may acknowledge only every so many packets …
    pub ack_every: u32,
    /// … or after this time. The default of every second packet fills a 10 Mbit/s return link.
    pub ack_delay: Duration,
    /// Ping after this much silence, so that a dead path is noticed and NAT bindings live.
    pub keep_alive: Duration,
    /// Give the other end up after this much silence: longer than any outage worth surviving. A peer
    /// that stops is noticed sooner, by its own word or by ICMP.
    pub give_up: Duration,
    /// Flows that may be open at once in each direction.
    pub flows: u32,
    /// Datagrams carry numbers and the ends report when each arrived ([`crate::shim`]), if the other
    /// end does so too. Without it the wire shows plain QUIC.
    pub shim: bool,
    /// Repair by code what is lost of the ends of bursts, if the other end understands it.
    pub repair: bool,
    /// When to leave UDP and when to return to it.
    pub rollback: rollback::Settings,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            mtu: 1500,
            initial_rtt: Duration::from_millis(600),
            send_window: Bytes::mib(64),
            ack_every: 40,
            ack_delay: Duration::from_millis(25),
            keep_alive: Duration::from_secs(2),
            give_up: Duration::from_secs(900),
            flows: 4096,
            shim: true,
            repair: true,
            rollback: rollback::Settings::default(),
        }
    }
}

/// IP and UDP headers of a datagram.
pub(super) fn headers(v6: bool) -> u16 {
    if v6 {
        HEADERS_V6
    } else {
        HEADERS_V4
    }
}

/// Bytes of one UDP payload in one packet of the path.
pub(crate) fn datagram_size(mtu: u16, v6: bool) -> u16 {
    mtu.saturating_sub(headers(v6)).max(1200)
}

/// A gate and the transport settings that lead quinn-proto to it.
pub(crate) struct Prepared {
    pub(super) gate: Arc<Gate>,
    pub(crate) transport: Arc<TransportConfig>,
}

/// Whatever quinn-proto shall leave to us is switched off.
pub(crate) fn prepare(tuning: &Tuning, v6: bool) -> Prepared {
    let gate = Arc::new(Gate::default());
    gate.set(true);
    let header = if tuning.shim { HEADER as u16 } else { 0 };
    let datagram = datagram_size(tuning.mtu - header, v6);
    let mut ack = quinn_proto::AckFrequencyConfig::default();
    ack.ack_eliciting_threshold(tuning.ack_every.into())
        .max_ack_delay(Some(tuning.ack_delay))
        // A gap is reported at once when three later packets have come: RFC 9002 §6.1.1.
        .reordering_threshold(3u32.into());
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(tuning.flows.into())
        .max_concurrent_uni_streams(1u32.into())
        .max_idle_timeout(tuning.give_up.try_into().ok())
        .keep_alive_interval(Some(tuning.keep_alive))
        // Everything is drained at once; who may send how much is ours to say (crate::credit).
        .stream_receive_window(VarInt::MAX)
        .receive_window(VarInt::MAX)
        .send_window(tuning.send_window.0)
        .initial_rtt(tuning.initial_rtt)
        .initial_mtu(datagram)
        .min_mtu(datagram)
        .mtu_discovery_config(None)
        .ack_frequency_config(Some(ack))
        .datagram_receive_buffer_size(Some(UNREAD_MESSAGES))
        .datagram_send_buffer_size(UNSENT_MESSAGES)
        .enable_segmentation_offload(false)
        .congestion_controller_factory(Arc::new(GateFactory(gate.clone())));
    Prepared { gate, transport: Arc::new(transport) }
}

const HEADERS_V4: u16 = 28;
const HEADERS_V6: u16 = 48;
/// Messages that wait to be read: they are at once.
const UNREAD_MESSAGES: usize = 4 << 20;
/// Messages that wait to be sent: one report and one repair at a time.
const UNSENT_MESSAGES: usize = 64 << 10;

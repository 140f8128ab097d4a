//! The accelerator without a socket or a clock: QUIC channel, sessions, credit.

pub mod auth;

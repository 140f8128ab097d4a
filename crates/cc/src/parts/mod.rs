//! Pieces that hosts and controllers share, so that nobody computes a round, a rate or an episode in
//! a way of their own.

pub mod backlog;
pub mod bundle;
pub mod cubic_curve;
pub mod delivery;
pub mod draw;
pub mod episode;
pub mod extreme;
pub mod fates;
pub mod hystart;
pub mod loss_odds;
pub mod round_mean;
pub mod rounds;
pub mod rtt;
pub mod sawtooth;
pub mod span;
pub mod tail;

pub use backlog::backlog;
pub use bundle::Bundles;
pub use cubic_curve::CubicCurve;
pub use delivery::{DeliveryEstimator, DeliverySample, PacketState};
pub use draw::draw;
pub use episode::Episodes;
pub use extreme::{WindowedMax, WindowedMin};
pub use fates::Fates;
pub use hystart::HyStart;
pub use loss_odds::{LossOdds, LossOddsOptions};
pub use round_mean::RoundMean;
pub use rounds::Rounds;
pub use rtt::RttEstimator;
pub use sawtooth::Sawtooth;
pub use span::scaled;
pub use tail::Tail;

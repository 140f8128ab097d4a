//! Who may talk to whom: the keys of both ends.

mod keys;
pub(crate) mod tls;

pub use keys::{KeyError, PublicKey, SecretKey};

//! What stands in for the loader in a build without the feature `bpf`: nothing can be registered.

use super::probe::Abilities;
use super::{KernelError, Law, Missing};

/// Never made.
pub enum Registration {}

pub fn temporarily(_laws: &[Law]) -> Result<Vec<Registration>, KernelError> {
    Err(Missing::Build.into())
}

/// The kernel's types are not read: nothing would come of it.
pub fn abilities() -> Option<Abilities> {
    None
}

//! What stands in for the loader in a build without the feature `bpf`: nothing can be registered.

use super::paths::Learnt;
use super::pins::{Change, Hook};
use super::probe::Abilities;
use super::watch::Event;
use super::{KernelError, Law, Missing};
use std::ops::ControlFlow;
use std::time::Duration;

/// Never made.
pub enum Registration {}

pub fn is_built(_law: Law) -> bool {
    false
}

pub fn temporarily(_laws: &[Law]) -> Result<Vec<Registration>, KernelError> {
    Err(Missing::Build.into())
}

/// The kernel's types are not read: nothing would come of it.
pub fn abilities() -> Option<Abilities> {
    None
}

pub fn install(_laws: &[Law], _for_everybody: &[Law]) -> Result<Vec<(Law, Change)>, KernelError> {
    Err(Missing::Build.into())
}

pub fn remove(_laws: &[Law], _keep_paths: bool) -> Result<(), KernelError> {
    Err(Missing::Build.into())
}

pub fn running(_law: Law) -> Option<(Option<Duration>, Vec<Hook>)> {
    None
}

pub fn paths() -> Result<Vec<Learnt>, KernelError> {
    Err(Missing::Build.into())
}

pub fn clear(_forget: &dyn Fn(&Learnt) -> bool) -> Result<usize, KernelError> {
    Err(Missing::Build.into())
}

pub fn watch(
    _take: &mut dyn FnMut(Event) -> ControlFlow<()>,
    _idle: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<(), KernelError> {
    Err(Missing::Build.into())
}

pub fn count_run_time() -> Result<std::os::fd::OwnedFd, KernelError> {
    Err(Missing::Build.into())
}

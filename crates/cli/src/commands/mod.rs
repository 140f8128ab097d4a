//! One file per command: `Args` is its command line, `run` carries it out.

pub mod link;
pub mod pair;

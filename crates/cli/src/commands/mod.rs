//! One file per command: `Args` is its command line, `run` carries it out.

pub mod bench;
pub mod demo;
mod end;
pub mod faults;
pub mod fec_tunnel;
pub mod gateway;
pub mod kernel;
pub mod link;
pub mod list;
pub mod pair;
pub mod paper;
pub mod paths;
pub mod replay;
pub mod report;
pub mod run;
pub mod simulate;
pub mod split;
pub mod terminal;
mod watch;

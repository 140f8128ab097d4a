//! What the command line shows: tables, machine-readable rows, progress.

pub mod bench;
pub mod figures;
pub mod numbers;
pub mod progress;
pub mod rows;
pub mod schemes;
pub mod table;

//! The skyhaul command.
fn main() {}

//! What the accelerator may hold: the window towards each TCP sender, and memory over all flows.
//!
//! [`crate::credit`] bounds what waits at the far end of the channel. These two bound this end: the
//! window controller and the resource manager of paper 000, section 3.4. Neither knows sockets or clocks.

pub mod resources;
pub mod window;

pub use resources::{Floor, Resources};
pub use window::WindowController;

//! What the accelerator may hold: the window towards each TCP sender, and memory over all flows.
//!
//! Credit bounds what waits at the far end of the channel (`docs/decisions/0002`). These bound this end: the window
//! controller and the resource manager of paper 000, section 3.4, and the [`budget`] that divides one amount of memory
//! among all channels. None knows sockets or clocks.

pub mod budget;
pub mod bypass;
pub mod resources;
pub mod window;

pub use budget::{Budget, Split};
pub use bypass::Bypass;
pub use resources::{Floor, Resources};
pub use window::WindowController;

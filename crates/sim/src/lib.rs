//! Virtual clock, link elements, scenarios and the channel over simulated links.

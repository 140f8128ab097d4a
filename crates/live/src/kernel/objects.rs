//! The compiled controllers, as the build script made them.

use super::Law;

/// libbpf reads the object in place and wants it where a header may lie.
#[repr(C, align(16))]
struct Aligned<T: ?Sized>(T);

/// File name in `bpf/` without its ending, and the object.
static OBJECTS: &[(&str, &Aligned<[u8]>)] = include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// The object of a controller, if this build has one.
pub fn find(law: Law) -> Option<&'static [u8]> {
    OBJECTS.iter().find(|(name, _)| *name == law.name()).map(|(_, object)| &object.0)
}

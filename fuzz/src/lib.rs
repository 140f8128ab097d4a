//! What the fuzz targets do with an input, apart from the fuzzer: `fuzz_targets/` hands them what libFuzzer makes up,
//! and a test of the program (`crates/cli/tests/fuzz_corpus.rs`) what lies in `corpus/`, with any compiler.

pub mod config;
pub mod fec;
pub mod frame;
pub mod memory;
pub mod proxies;
pub mod repair;
pub mod rollback;
pub mod scenario;
pub mod shim;
pub mod syn;
pub mod tape;
pub mod tunnel;

/// Hands one input to a target; panics if what must hold does not.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 12] = [
    ("config", |bytes| config::run(&text(bytes))),
    ("fec", fec::run),
    ("frame", frame::run),
    ("memory", memory::run),
    ("proxies", proxies::run),
    ("repair", repair::run),
    ("rollback", rollback::run),
    ("scenario", |bytes| scenario::run(&text(bytes))),
    ("shim", shim::run),
    ("syn", syn::run),
    ("tape", |bytes| tape::run(&text(bytes))),
    ("tunnel", tunnel::run),
];

/// The text that libFuzzer would make of bytes, or one that is as odd.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

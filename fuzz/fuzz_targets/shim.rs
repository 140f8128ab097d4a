#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| skyhaul_fuzz::shim::run(bytes));

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| skyhaul_fuzz::tape::run(text));

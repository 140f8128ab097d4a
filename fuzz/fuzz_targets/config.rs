#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| skyhaul_fuzz::config::run(text));

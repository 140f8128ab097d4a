//! Any text is refused in one line or becomes the config of an end.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use skyhaul_live::config::{Config, Role};

fuzz_target!(|text: &str| {
    for role in [Role::Terminal, Role::Gateway] {
        match Config::parse(text, Path::new("fuzz.toml"), role) {
            Ok(config) => {
                assert_eq!(config.role(), role);
                assert!(!config.peers.is_empty());
            }
            Err(error) => {
                let error = error.to_string();
                assert!(error.starts_with("fuzz.toml: ") && !error.contains('\n'), "{error:?}");
            }
        }
    }
});

//! Any text is refused in one line or becomes the config of an end.

use std::path::Path;

use skyhaul_live::config::{Config, Role};

/// One input.
pub fn run(text: &str) {
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
}

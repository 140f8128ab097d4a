//! House rules that no compiler checks. Each finding names file and line and says what would do.
//!
//! Rules on Rust code ([`rust`]) can be lifted for one line, with a reason:
//! `// tidy: allow(eight): RFC 6298 §2 smooths with 1/8`.

mod rust;
mod source;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// What one rule has to say about one line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// File, relative to the root.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// Whether it fails the run or is only said.
    pub weight: Weight,
    /// What was found and what would do.
    pub message: String,
}

/// Whether a finding fails the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// It does.
    Error,
    /// It does not.
    Warning,
}

/// The repository's text files by path relative to the root, `/` between folders.
pub type Tree = BTreeMap<String, String>;

impl Finding {
    fn error(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, weight: Weight::Error, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weight = match self.weight {
            Weight::Error => "",
            Weight::Warning => "warning: ",
        };
        write!(f, "{}:{}: {weight}{}", self.path, self.line, self.message)
    }
}

/// Checks the repository at `root`, prints what it finds and returns whether every rule is kept. Fails when the
/// repository cannot be read.
pub fn run(root: &Path) -> Result<bool, String> {
    let mut tree = Tree::new();
    read(root, "", &mut tree).map_err(|error| format!("cannot read the repository: {error}"))?;
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    Ok(findings.iter().all(|finding| finding.weight == Weight::Warning))
}

/// All findings, in order of file and line.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let rust = tree.iter().filter(|(path, _)| path.ends_with(".rs"));
    let mut findings: Vec<Finding> = rust.flat_map(|(path, text)| rust::check(path, text)).collect();
    findings.extend(text::check(tree));
    findings.sort();
    findings
}

/// Reads the text files below `folder`. Build results, links and files that are not UTF-8 are left out.
fn read(root: &Path, folder: &str, tree: &mut Tree) -> Result<(), String> {
    let here = root.join(folder);
    let say = |error: std::io::Error| format!("{}: {error}", here.display());
    for entry in std::fs::read_dir(&here).map_err(say)? {
        let entry = entry.map_err(say)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let kind = entry.file_type().map_err(say)?;
        if kind.is_dir() && name != "target" && name != ".git" {
            read(root, &path, tree)?;
        } else if kind.is_file() && name != ".git" {
            let bytes = std::fs::read(entry.path()).map_err(say)?;
            if let Ok(text) = String::from_utf8(bytes) {
                tree.insert(path, text);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_reaches_every_folder_but_build_results() {
        let mut tree = Tree::new();
        read(&crate::root(), "", &mut tree).unwrap();
        assert!(tree.contains_key("xtask/src/tidy/mod.rs"));
        assert!(tree.contains_key(".cargo/config.toml"), "hidden folders are folders");
        assert!(!tree.keys().any(|path| path.starts_with("target/") || path.starts_with(".git/")));
    }

    #[test]
    fn findings_come_in_order_of_file_and_line() {
        let text = "let a = b * 8;\nlet c = b * 8;\n".to_owned();
        let tree = Tree::from([
            ("crates/pep/src/a.rs".to_owned(), text.clone()),
            ("crates/cc/src/z.rs".to_owned(), text),
        ]);
        let found: Vec<String> =
            check(&tree).iter().map(|found| format!("{}:{}", found.path, found.line)).collect();
        let wanted = ["README.md:1", "README.md:1", "crates/cc/src/z.rs:1", "crates/cc/src/z.rs:2"];
        assert_eq!(found[..4], wanted);
    }
}

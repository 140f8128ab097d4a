//! Rules on everything that is text: no trace of one machine, links that lead somewhere, scenarios named after
//! their id, a README that names the two commands.

use super::{Finding, Tree};

/// Folders whose names in an absolute path give away somebody's machine.
const MACHINE_FOLDERS: [&str; 5] = ["tmp", "work", "root", "home", "Users"];

/// What may follow such a folder all the same: a placeholder, and the files of root as a user.
const PLACEHOLDERS: [&str; 5] = ["$", "{", "<", "X", ".ssh"];

/// Package registries. Which one a build asks is the business of the machine it runs on.
const REGISTRIES: [&str; 5] = [
    concat!("crates", ".io"),
    concat!("rsproxy", ".cn"),
    concat!("pypi", ".org"),
    concat!("npmjs", ".org"),
    concat!("deb.", "debian.org"),
];

/// Where the lock file says every package comes from; another source would tie the build to a machine.
const LOCKED_SOURCE: &str = concat!("registry+https://github.com/rust-lang/crates", ".io-index");

/// All findings in the tree.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree {
        for (index, line) in text.lines().enumerate() {
            let say = |message: String| Finding::error(path, index + 1, message);
            findings.extend(machine_path(line).map(say));
            if path.ends_with("Cargo.lock") {
                findings.extend(locked_elsewhere(line).map(say));
            } else {
                findings.extend(registry(line).map(say));
            }
        }
        if path.ends_with(".md") {
            findings.extend(dead_links(tree, path, text));
            findings.extend(dead_paths(tree, path, text));
        }
        findings.extend(scenario_name(path, text));
    }
    findings.extend(readme(tree));
    findings
}

fn machine_path(line: &str) -> Option<String> {
    let found = MACHINE_FOLDERS.iter().find(|folder| {
        let needle = format!("/{folder}/");
        line.match_indices(&needle).any(|(at, _)| {
            let goes_on = line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-~}*)>".contains(c));
            let after = &line[at + needle.len()..];
            !goes_on && !PLACEHOLDERS.iter().any(|start| after.starts_with(start))
        })
    })?;
    Some(format!(
        "a path below /{found} exists on one machine only; make it relative, or ask for a temporary folder"
    ))
}

fn registry(line: &str) -> Option<String> {
    let host = REGISTRIES.iter().find(|host| line.contains(**host))?;
    Some(format!("names the package registry {host}; the machine's own settings choose it"))
}

fn locked_elsewhere(line: &str) -> Option<String> {
    let source = line.strip_prefix("source = \"")?.trim_end_matches('"');
    (source != LOCKED_SOURCE)
        .then(|| format!("locked to {source}; only the public registry is good everywhere"))
}

/// Links to files or headings that are not there. Links to the web are not followed.
fn dead_links(tree: &Tree, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, target) in links(text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (file, heading) = target.split_once('#').unwrap_or((target.as_str(), ""));
        let file = if file.is_empty() { path.to_owned() } else { join(path, file) };
        let folder = format!("{}/", file.trim_end_matches('/'));
        match tree.get(&file) {
            None if !tree.keys().any(|known| known.starts_with(&folder)) => {
                findings.push(Finding::error(
                    path,
                    line,
                    format!("the link leads to {file}, which is not there"),
                ));
            }
            Some(text)
                if !heading.is_empty()
                    && file.ends_with(".md")
                    && !headings(text).any(|has| has == heading) =>
            {
                findings.push(Finding::error(path, line, format!("{file} has no heading #{heading}")));
            }
            _ => {}
        }
    }
    findings
}

/// Paths in prose such as `crates/cc/src` that are not there. One with a placeholder in capitals is no path.
fn dead_paths(tree: &Tree, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        // Every second piece between backticks is code.
        for code in line.split('`').skip(1).step_by(2) {
            let is_path = ["crates/", "docs/", "scenarios/", "scripts/", "xtask/"]
                .iter()
                .any(|top| code.starts_with(top))
                && !code.contains(|c: char| c.is_whitespace() || c.is_uppercase() || c == '*');
            let folder = format!("{}/", code.trim_end_matches('/'));
            if is_path && !tree.contains_key(code) && !tree.keys().any(|known| known.starts_with(&folder)) {
                findings.push(Finding::error(path, index + 1, format!("{code} is not there")));
            }
        }
    }
    findings
}

/// Targets of links and pictures with their lines. Code, fenced or inline, has none.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Every second piece between backticks is code.
        let prose: String = line.split('`').step_by(2).collect();
        let inline = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let defined =
            prose.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target.trim());
        links.extend(inline.chain(defined).map(|target| (index + 1, target.to_owned())));
    }
    links
}

/// The anchors that forges give to headings: lower case, words joined by hyphens, punctuation dropped.
fn headings(text: &str) -> impl Iterator<Item = String> + '_ {
    let titles =
        text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    titles.map(|title| {
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// Where `link` in the file `from` leads, relative to the root.
fn join(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

fn scenario_name(path: &str, text: &str) -> Option<Finding> {
    let stem = path.strip_prefix("scenarios/")?.strip_suffix(".toml")?;
    let value = |line: &str| -> Option<String> {
        let rest = line.trim_start().strip_prefix("id")?.trim_start().strip_prefix('=')?;
        Some(rest.split('"').nth(1)?.to_owned())
    };
    let found = text.lines().enumerate().find_map(|(index, line)| Some((index + 1, value(line)?)));
    match found {
        Some((_, id)) if id == stem => None,
        Some((line, id)) => {
            Some(Finding::error(path, line, format!("the id is \"{id}\", so the file wants to be {id}.toml")))
        }
        None => Some(Finding::error(path, 1, format!("the scenario has no id; it wants id = \"{stem}\""))),
    }
}

fn readme(tree: &Tree) -> Vec<Finding> {
    let text = tree.get("README.md").map(String::as_str).unwrap_or_default();
    let absent = ["make demo", "make test"].into_iter().filter(|command| !text.contains(command));
    absent.map(|command| Finding::error("README.md", 1, format!("does not name \"{command}\""))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree in which nothing is wrong, with `files` on top.
    fn tree(files: &[(&str, &str)]) -> Tree {
        let readme = [("README.md", "Run `make demo` or `make test`.\n")];
        readme.iter().chain(files).map(|(path, text)| (path.to_string(), text.to_string())).collect()
    }

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&tree(files)).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        for folder in MACHINE_FOLDERS {
            assert!(machine_path(&format!("see /{folder}/ann/notes")).is_some(), "{folder}");
            assert!(machine_path(&format!("target/{folder}/notes")).is_none(), "{folder}");
        }
        assert!(machine_path(&format!("mktemp /{}/XXXX", "tmp")).is_none());
        assert!(machine_path("the folder ~/work/skyhaul").is_none());
    }

    #[test]
    fn a_registry_is_found_but_not_in_the_lock_file() {
        let host = REGISTRIES[0];
        assert_eq!(messages(&[("a.toml", &format!("url = \"{host}\""))]).len(), 1);
        let lock = format!("source = \"{LOCKED_SOURCE}\"\n");
        assert_eq!(messages(&[("Cargo.lock", &lock)]), [""; 0]);
        assert_eq!(messages(&[("Cargo.lock", "source = \"registry+https://mirror.example\"\n")]).len(), 1);
    }

    #[test]
    fn links_must_lead_somewhere() {
        let good = "[a](docs/a.md) ![b](docs/b.svg) [c](https://x.example/y) [d](#a-title) [e](docs) `[f](nowhere)`\n# A title!\n";
        let others = [("docs/a.md", "[up](../READ.md#a-title)"), ("docs/b.svg", "")];
        assert_eq!(messages(&[("READ.md", good), others[0], others[1]]), [""; 0]);
        let bad = "[a](gone.md)\n[b](docs/a.md#gone)\n\n[c]: gone/too.md\n";
        let found = messages(&[("READ.md", bad), ("docs/a.md", "")]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found.contains(&"READ.md:1: the link leads to gone.md, which is not there".to_owned()),
            "{found:?}"
        );
    }

    #[test]
    fn paths_in_prose_must_be_there() {
        let text = "`docs/a.md` `docs/` `docs/NAME.md` `scripts/setup --check` and then `docs/gone.md`\n";
        let found = messages(&[("READ.md", text), ("docs/a.md", "")]);
        assert_eq!(found, ["READ.md:1: docs/gone.md is not there"]);
    }

    #[test]
    fn links_in_code_are_not_followed() {
        assert_eq!(links("```\n[a](b)\n```\n[c](d)\n"), [(4, "d".to_owned())]);
    }

    #[test]
    fn a_scenario_is_named_after_its_id() {
        assert_eq!(messages(&[("scenarios/p1.up.toml", "title = \"x\"\nid = \"p1.up\"\n")]), [""; 0]);
        assert_eq!(messages(&[("scenarios/p1.up.toml", "id = \"p1.down\"\n")]).len(), 1);
        assert_eq!(messages(&[("scenarios/p1.up.toml", "idle = \"p1.up\"\n")]).len(), 1);
    }

    #[test]
    fn the_readme_names_both_commands() {
        let found = check(&Tree::from([("README.md".to_owned(), "make test".to_owned())]));
        assert_eq!(found, [Finding::error("README.md", 1, "does not name \"make demo\"")]);
        assert_eq!(check(&Tree::new()).len(), 2);
    }
}

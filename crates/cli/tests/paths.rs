//! `skyhaul paths` as a user meets it.

use std::path::Path;
use std::process::{Command, Output};

use skyhaul_cc::{Duration, PathHistory, Rate};
use skyhaul_live::memory::{unix_now, Store};
use skyhaul_pep::auth::PublicKey;
use skyhaul_pep::memory::{Interface, Network, PathKey, Record};

fn paths(store: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skyhaul"));
    command.args(["paths", "--memory"]).arg(store).args(more);
    command.output().expect("the binary under test runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn path(peer: u8) -> PathKey {
    PathKey {
        peer: PublicKey::from_bytes([peer; 32]),
        interface: Interface::new("eth1").expect("a name"),
        network: Network::V4([192, 0, 2]),
    }
}

fn record(mbit: u64) -> Record {
    let history = PathHistory::of(Rate::mbit(mbit), Duration::from_millis(540));
    Record::first(&history, unix_now()).expect("it is possible")
}

#[test]
fn paths_are_shown_and_cleared_by_key_or_by_the_name_in_the_config() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("paths.redb");
    let nothing = paths(&file, &[]);
    assert!(text(&nothing.stdout).contains("no paths") && !file.exists(), "{}", text(&nothing.stderr));
    Store::new(file.clone())
        .write(&[1, 2, 3].map(|n| (path(n), record(100 + u64::from(n)))))
        .expect("written");

    let config = folder.path().join("gateway.toml");
    let (ship, buoy) = (path(1).peer, path(2).peer);
    let content = format!(
        "[channel]\nlisten = \"0.0.0.0:4433\"\n[keys]\nsecret_file = \"g.key\"\n\
         [[peer]]\nname = \"ship\"\nkey = \"{ship}\"\n[[peer]]\nname = \"buoy\"\nkey = \"{buoy}\"\n"
    );
    std::fs::write(&config, content).expect("written");
    let config = config.to_str().expect("plain letters");

    let shown = text(&paths(&file, &["--config", config]).stdout);
    for part in ["ship", "eth1", "192.0.2.0/24", "101.0", "540.0", "100.0"] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let json = text(&paths(&file, &["list", "--format", "json", "--config", config]).stdout);
    let rows: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(rows[1]["name"], "buoy");
    assert_eq!(rows[1]["rate_bit_per_s"], 102_000_000);
    assert_eq!(rows[2]["peer"], path(3).peer.to_string());

    let wrong = paths(&file, &["clear", "shop", "--config", config]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stderr).contains("no peer is called \"shop\" (ship, buoy)"),
        "{}",
        text(&wrong.stderr)
    );
    assert!(text(&paths(&file, &["clear", "ship", "--config", config]).stdout).contains("1 path forgotten"));
    assert!(text(&paths(&file, &["clear", &buoy.to_string()]).stdout).contains("1 path forgotten"));
    assert_eq!(Store::new(file.clone()).read().expect("readable").records.len(), 1);
    assert!(text(&paths(&file, &["clear"]).stdout).contains("1 path forgotten"));
    assert!(text(&paths(&file, &[]).stdout).contains("no paths"));
}

#[test]
fn a_file_that_is_no_store_is_named_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("paths.redb");
    std::fs::write(&file, "a letter").expect("written");
    for action in [&["list"][..], &["clear"]] {
        let output = paths(&file, action);
        assert_eq!(output.status.code(), Some(2));
        let message = text(&output.stderr);
        assert!(message.contains("paths.redb: no usable store of path memory"), "{message}");
    }
    assert_eq!(std::fs::read_to_string(&file).expect("still there"), "a letter");
}

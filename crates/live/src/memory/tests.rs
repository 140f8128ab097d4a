use super::*;
use proptest::prelude::*;
use skyhaul_cc::{Rate, Share};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn history(mbit: u64) -> PathHistory {
    PathHistory::of(Rate::mbit(mbit), Duration::from_millis(540))
}

fn way(peer: u8) -> Way {
    let peer = Some(PublicKey::from_bytes([peer; 32]));
    Way { peer, remote: "127.0.0.1:4433".parse().unwrap(), history: None }
}

fn path(peer: u8) -> PathKey {
    let way = way(peer);
    PathKey::new(way.peer.unwrap(), route::interface_towards(way.remote), way.remote)
}

fn record(mbit: u64, age: u64) -> Record {
    Record::first(&history(mbit), UnixTime(unix_now().0 - age)).unwrap()
}

fn memory(file: &Path) -> Arc<Memory> {
    Memory::open(&PathMemory { enabled: true, file: Some(file.to_owned()) })
}

/// A connection to the peer that finds this rate.
fn connection(memory: &Memory, peer: u8, mbit: u64) -> Option<PathHistory> {
    let known = memory.recall(&way(peer));
    memory.learn(way(peer).peer.unwrap(), way(peer).remote, &history(mbit));
    known
}

#[test]
fn what_one_run_learns_the_next_one_knows() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state/paths.redb");
    let first = memory(&file);
    assert_eq!(connection(&first, 1, 150), None);
    assert!(!file.exists(), "nothing was worth a file yet");
    first.exchange();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let second = memory(&file);
    assert_eq!(second.recall(&way(1)), Some(history(150)));
    assert_eq!(second.recall(&way(2)), None);
    assert_eq!(second.recall(&Way { peer: None, ..way(1) }), None);
    // From another network it is a guess.
    let moved = Way { remote: "127.0.1.1:4433".parse().unwrap(), ..way(1) };
    assert_eq!(second.recall(&moved).unwrap().confidence, Share::ZERO);
}

#[test]
fn a_connection_counts_once_however_often_it_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("paths.redb");
    let memory = memory(&file);
    for rate in [100, 104, 110] {
        connection(&memory, 1, 1);
        for _ in 0..3 {
            memory.learn(way(1).peer.unwrap(), way(1).remote, &history(rate));
            memory.exchange();
            assert!(!memory.has_news());
        }
    }
    let records = Store::new(file).read().unwrap().records;
    assert_eq!(records[&path(1)].observations(), 3);
}

#[test]
fn a_file_that_is_no_store_is_set_aside_and_the_end_starts_cold() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("paths.redb");
    let aside = folder.path().join("paths.redb.damaged");
    for content in
        [b"this is a letter to grandmother".to_vec(), vec![0; 10_000], b"redb\x1A\x0A\xA9\x0D\x0A".to_vec()]
    {
        fs::write(&file, &content).unwrap();
        let memory = memory(&file);
        assert_eq!(fs::read(&aside).unwrap(), content);
        assert_eq!(connection(&memory, 1, 150), None);
        memory.exchange();
        assert!(Store::new(file.clone()).read().unwrap().records.contains_key(&path(1)));
        fs::remove_file(&aside).unwrap();
    }
}

#[test]
fn a_store_out_of_reach_is_done_without() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    // A folder, and a path below a file.
    for file in [folder.path().to_owned(), folder.path().join("file/paths.redb")] {
        let memory = memory(&file);
        connection(&memory, 1, 150);
        memory.exchange();
        assert_eq!(connection(&memory, 1, 150), Some(history(150)), "from memory, for this run");
    }
    let off = Memory::open(&PathMemory::OFF);
    connection(&off, 1, 150);
    off.exchange();
    assert!(off.store.is_none());
}

#[test]
fn a_locked_store_names_who_has_it_and_is_used_once_it_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("paths.redb");
    let store = Store::new(file.clone());
    store.write(&[(path(1), record(150, 0))]).unwrap();
    let held = redb::Database::open(&file).unwrap();
    let error = store.read().unwrap_err();
    assert!(
        matches!(error, StoreError::Locked(_, Some(process)) if process == std::process::id()),
        "{error}"
    );
    drop(held);
    assert_eq!(store.read().unwrap().records.len(), 1);
}

#[test]
fn what_is_cleared_is_forgotten_by_an_end_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("paths.redb");
    let memory = memory(&file);
    connection(&memory, 1, 150);
    connection(&memory, 2, 20);
    memory.exchange();
    let mine = memory.store.as_ref().unwrap();
    assert!(!mine.is_changed());
    assert_eq!(Store::new(file).clear(way(1).peer).unwrap(), Cleared { records: 1 });
    assert!(mine.is_changed());
    memory.exchange();
    assert_eq!(memory.recall(&way(1)), None);
    assert_eq!(memory.recall(&way(2)), Some(history(20)));
}

#[test]
fn records_that_cannot_be_true_are_left_out_and_thrown_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("paths.redb");
    let store = Store::new(file.clone());
    store.write(&[(path(1), record(150, 0)), (path(2), record(20, 0))]).unwrap();
    {
        let database = redb::Database::open(&file).unwrap();
        let transaction = database.begin_write().unwrap();
        let table = redb::TableDefinition::<&[u8], &[u8]>::new("paths");
        // The record of one path under the key of another, and something without form.
        let stolen = record(150, 0).encode(&path(1));
        transaction
            .open_table(table)
            .unwrap()
            .insert(path(2).encode().as_slice(), stolen.as_slice())
            .unwrap();
        transaction.open_table(table).unwrap().insert(&b"key"[..], &b"value"[..]).unwrap();
        transaction.commit().unwrap();
    }
    let contents = store.read().unwrap();
    assert_eq!((contents.records.len(), contents.refused), (1, 2));
    store.write(&[(path(3), record(30, 0))]).unwrap();
    let contents = store.read().unwrap();
    assert_eq!((contents.records.len(), contents.refused), (2, 0));
}

#[test]
fn the_oldest_paths_make_room() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path().join("paths.redb"));
    let key = |n: u16| PathKey {
        network: skyhaul_pep::memory::Network::V4([10, n.to_be_bytes()[0], n.to_be_bytes()[1]]),
        ..path(1)
    };
    let all: Vec<_> = (0..4100u16).map(|n| (key(n), record(10, 5000 - u64::from(n)))).collect();
    let kept = store.write(&all).unwrap().records;
    assert_eq!(kept.len(), 4096);
    assert!(!kept.contains_key(&key(3)) && kept.contains_key(&key(4)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn no_damage_to_the_file_stops_an_end(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in prop::option::of(any::<prop::sample::Index>())
    ) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("paths.redb");
        Store::new(file.clone()).write(&[(path(1), record(150, 0)), (path(2), record(20, 0))]).unwrap();
        let mut bytes = fs::read(&file).unwrap();
        for (at, byte) in &damage {
            // Most of the file is empty; the first pages say what is where.
            let at = at.index(bytes.len().min(20_000));
            bytes[at] = *byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(&file, &bytes).unwrap();
        let memory = memory(&file);
        let known = memory.recall(&way(1));
        prop_assert!(known.is_none_or(|known| known == history(150)), "{:?}", known);
        memory.learn(way(1).peer.unwrap(), way(1).remote, &history(150));
        memory.exchange();
        memory.exchange();
        let known = super::tests::memory(&file).recall(&way(1));
        prop_assert!(known.is_none_or(|known| known.rate == Rate::mbit(150)), "{:?}", known);
    }
}

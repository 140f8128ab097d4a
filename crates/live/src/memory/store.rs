//! The store of path memory: one table in an embedded database that survives crashes (redb), open for moments
//! only, because it is locked while it is open.

use redb::{Builder, Database, DatabaseError, ReadableTable, TableDefinition, TableError};
use skyhaul_cc::Duration;
use skyhaul_pep::auth::PublicKey;
use skyhaul_pep::memory::{PathKey, Record};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::panic::{catch_unwind, set_hook, take_hook, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Instant, SystemTime};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("paths");
/// Paths that are kept; the oldest go first. A gateway of a thousand terminals with four ways to each.
const KEPT: usize = 4096;
/// The table is a few pages.
const CACHE: usize = 1 << 20;
/// How long another process may have the store: it takes some milliseconds, on a busy disk some hundred.
const LOCKED: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(20);

/// A store that cannot be used, with the name of its file.
#[derive(Debug)]
pub enum StoreError {
    /// Another process has it open, for longer than a moment.
    Locked(PathBuf, Option<u32>),
    /// It is no store of ours, or damaged.
    Damaged(PathBuf, String),
    /// The system refuses.
    Io(PathBuf, io::Error),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Locked(file, Some(process)) => {
                write!(f, "{}: process {process} has it open", file.display())
            }
            StoreError::Locked(file, None) => write!(f, "{}: another process has it open", file.display()),
            StoreError::Damaged(file, why) => {
                write!(f, "{}: no usable store of path memory ({why})", file.display())
            }
            StoreError::Io(file, error) => write!(f, "{}: {error}", file.display()),
        }
    }
}
impl std::error::Error for StoreError {}

/// What is in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The records that can be believed.
    pub records: BTreeMap<PathKey, Record>,
    /// How many could not.
    pub refused: usize,
}

/// What was taken out of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleared {
    /// Records that are gone.
    pub records: usize,
}

/// A store by the name of its file, which need not exist.
#[derive(Debug)]
pub struct Store {
    file: PathBuf,
    /// Inode, size and time of change as we left it.
    left: Mutex<Option<Trace>>,
}

type Trace = (u64, u64, Option<SystemTime>);

impl Store {
    /// Opens nothing yet.
    pub fn new(file: PathBuf) -> Self {
        Store { file, left: Mutex::default() }
    }

    /// Its file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Everything in it; nothing if there is no file.
    ///
    /// # Errors
    /// When it is locked, damaged or out of reach.
    pub fn read(&self) -> Result<Contents, StoreError> {
        self.guarded(|| {
            let Some(database) = self.open(Missing::Leave)? else { return Ok(Contents::default()) };
            let transaction = database.begin_read().map_err(|error| self.broken(error))?;
            let table = match transaction.open_table(TABLE) {
                Ok(table) => table,
                Err(TableError::TableDoesNotExist(_)) => return Ok(Contents::default()),
                Err(error) => return Err(self.broken(error)),
            };
            self.contents(&table).map(|(contents, _)| contents)
        })
    }

    /// Puts records in the place of those of the same paths and throws out what is too old or damaged;
    /// everything in it then.
    ///
    /// # Errors
    /// As [`read`](Self::read), and when the file or its folder cannot be made.
    pub fn write(&self, records: &[(PathKey, Record)]) -> Result<Contents, StoreError> {
        self.change(|contents| {
            contents.records.extend(records.iter().cloned());
            while contents.records.len() > KEPT {
                let oldest = contents.records.iter().min_by_key(|(_, record)| record.seen());
                let Some(key) = oldest.map(|(key, _)| key.clone()) else { break };
                contents.records.remove(&key);
            }
        })
    }

    /// Forgets the paths to a peer, or all.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn clear(&self, peer: Option<PublicKey>) -> Result<Cleared, StoreError> {
        if !self.file.exists() {
            return Ok(Cleared { records: 0 });
        }
        let mut before = 0;
        let after = self.change(|contents| {
            before = contents.records.len();
            contents.records.retain(|key, _| peer.is_some_and(|peer| key.peer != peer));
        })?;
        Ok(Cleared { records: before - after.records.len() })
    }

    /// Whether somebody has changed the file since this was last used.
    pub fn is_changed(&self) -> bool {
        self.trace() != *self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renames the file so that a new one can take its place; its new name.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn set_aside(&self) -> io::Result<PathBuf> {
        let mut name = self.file.as_os_str().to_owned();
        name.push(".damaged");
        fs::rename(&self.file, &name)?;
        Ok(name.into())
    }

    fn change(&self, change: impl FnOnce(&mut Contents)) -> Result<Contents, StoreError> {
        self.guarded(|| {
            let database = self.open(Missing::Make)?;
            let database = database.ok_or_else(|| self.failed(io::ErrorKind::NotFound.into()))?;
            let transaction = database.begin_write().map_err(|error| self.broken(error))?;
            let contents = {
                let mut table = transaction.open_table(TABLE).map_err(|error| self.broken(error))?;
                let (mut contents, raw) = self.contents(&table)?;
                change(&mut contents);
                let wanted: BTreeMap<Vec<u8>, Vec<u8>> = contents
                    .records
                    .iter()
                    .map(|(path, record)| (path.encode(), record.encode(path)))
                    .collect();
                for key in raw.keys().filter(|key| !wanted.contains_key(*key)) {
                    table.remove(key.as_slice()).map_err(|error| self.broken(error))?;
                }
                for (key, value) in wanted.iter().filter(|(key, value)| raw.get(*key) != Some(*value)) {
                    table.insert(key.as_slice(), value.as_slice()).map_err(|error| self.broken(error))?;
                }
                contents
            };
            transaction.commit().map_err(|error| self.broken(error))?;
            Ok(contents)
        })
    }

    #[allow(clippy::type_complexity)] // what was read, and the bytes it was read from
    fn contents(
        &self,
        table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    ) -> Result<(Contents, BTreeMap<Vec<u8>, Vec<u8>>), StoreError> {
        let (mut contents, mut raw) = (Contents::default(), BTreeMap::new());
        for entry in table.iter().map_err(|error| self.broken(error))? {
            let (key, value) = entry.map_err(|error| self.broken(error))?;
            let (key, value) = (key.value().to_vec(), value.value().to_vec());
            let read = PathKey::decode(&key).and_then(|path| Ok((Record::decode(&path, &value)?, path)));
            match read {
                Ok((record, path)) => {
                    contents.records.insert(path, record);
                }
                Err(_) => contents.refused += 1,
            }
            raw.insert(key, value);
        }
        Ok((contents, raw))
    }

    fn open(&self, missing: Missing) -> Result<Option<Database>, StoreError> {
        if missing == Missing::Make {
            let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
            if let Some(folder) = folder {
                let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
                made.map_err(|error| StoreError::Io(folder.to_owned(), error))?;
            }
        }
        let until = Instant::now() + LOCKED;
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(missing == Missing::Make).mode(0o600);
            let file = match options.open(&self.file) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound && missing == Missing::Leave => {
                    return Ok(None);
                }
                Err(error) => return Err(self.failed(error)),
            };
            match Builder::new().set_cache_size(CACHE).create_file(file) {
                Ok(database) => return Ok(Some(database)),
                Err(DatabaseError::DatabaseAlreadyOpen) if Instant::now() < until => {
                    std::thread::sleep(RETRY);
                }
                Err(DatabaseError::DatabaseAlreadyOpen) => {
                    return Err(StoreError::Locked(self.file.clone(), self.holder()));
                }
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    /// Runs `work`; the database library asserts where a damaged file makes no sense to it.
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let outcome = quietly(work).unwrap_or_else(|| {
            Err(StoreError::Damaged(self.file.clone(), "its parts do not fit".to_owned()))
        });
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = self.trace();
        outcome
    }

    fn trace(&self) -> Option<Trace> {
        let metadata = fs::metadata(&self.file).ok()?;
        Some((metadata.ino(), metadata.len(), metadata.modified().ok()))
    }

    fn failed(&self, error: io::Error) -> StoreError {
        StoreError::Io(self.file.clone(), error)
    }

    /// An error of the database: the file's fault, or the system's.
    fn broken(&self, error: impl Into<redb::Error>) -> StoreError {
        match error.into() {
            redb::Error::Io(error)
                if !matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
            {
                self.failed(error)
            }
            error => StoreError::Damaged(self.file.clone(), error.to_string()),
        }
    }

    /// The process that has the file locked, by the kernel's list.
    fn holder(&self) -> Option<u32> {
        let inode = format!(":{}", fs::metadata(&self.file).ok()?.ino());
        let locks = fs::read_to_string("/proc/locks").ok()?;
        // 1: FLOCK  ADVISORY  WRITE 2173 08:01:395527 0 EOF
        let line = locks.lines().find(|line| line.split_whitespace().any(|word| word.ends_with(&inode)))?;
        line.split_whitespace().nth(4)?.parse().ok()
    }
}

thread_local! {
    /// This thread is at work whose panics are an answer.
    static AT_WORK: Cell<bool> = const { Cell::new(false) };
}

/// What `work` returns; nothing if it panics, of which the log then hears from the caller alone, in one line.
fn quietly<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            if !AT_WORK.get() {
                usual(panic);
            }
        }));
    });
    AT_WORK.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    AT_WORK.set(false);
    outcome.ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Make,
    Leave,
}

//! What was changed on this host and how it was before, in /run: like pins and routes it is gone after a restart.

use super::KernelError;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where the host's state is.
pub const FOLDER: &str = "/run/skyhaul";
const FILE: &str = "kernel.json";

/// The changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The default controller of namespaces when something was installed from there, by the namespace's number.
    #[serde(default)]
    pub defaults: BTreeMap<u64, String>,
    /// Routes in the order in which they were changed.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Whether bpffs was mounted for us.
    #[serde(default)]
    pub mounted: bool,
}

/// A route that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Number of the namespace it is in.
    pub namespace: u64,
    /// `-4` or `-6`.
    pub family: String,
    /// The destinations.
    pub prefix: String,
    /// The registered name of the controller they were given.
    pub algorithm: String,
    /// As `ip route` printed it before; nothing if there was none.
    pub before: Option<String>,
    /// As `ip route` printed it afterwards.
    pub after: String,
}

/// The state, for one process at a time.
pub struct Held {
    folder: PathBuf,
    _lock: Flock<File>,
    /// The changes; write them with [`Held::save`].
    pub state: State,
}

impl Held {
    /// Waits for its turn and reads.
    ///
    /// # Errors
    /// When the folder cannot be made or the file says something else than we write.
    pub fn open(folder: &Path) -> Result<Held, KernelError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| KernelError::File { path, source }
        };
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(failed(folder))?;
        let lock = Flock::lock(File::open(folder).map_err(failed(folder))?, FlockArg::LockExclusive)
            .map_err(|(_, error)| failed(folder)(error.into()))?;
        let path = folder.join(FILE);
        let state = match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| {
                KernelError::Request(format!(
                    "{}: {error}; it says how to undo routes, which \"ip route\" shows: set them right and delete it",
                    path.display()
                ))
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => State::default(),
            Err(error) => return Err(failed(&path)(error)),
        };
        Ok(Held { folder: folder.to_owned(), _lock: lock, state })
    }

    /// Writes the state, or removes file and folder when nothing is changed any more.
    ///
    /// # Errors
    /// When that fails.
    pub fn save(&self) -> Result<(), KernelError> {
        let path = self.folder.join(FILE);
        let failed = |source: io::Error| KernelError::File { path: path.clone(), source };
        if self.state == State::default() {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
            // Others may keep something there.
            let _ = fs::remove_dir(&self.folder);
            return Ok(());
        }
        let text = serde_json::to_string_pretty(&self.state).map_err(|error| failed(error.into()))?;
        let new = self.folder.join(format!("{FILE}.new"));
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&new).map_err(failed)?;
        io::Write::write_all(&mut &file, (text + "\n").as_bytes()).map_err(failed)?;
        fs::rename(&new, &path).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_kept_until_there_are_none() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("skyhaul");
        let mut held = Held::open(&folder).unwrap();
        held.state.defaults.insert(4_026_531_840, "cubic".to_owned());
        held.state.routes.push(Route {
            namespace: 4_026_531_840,
            family: "-4".to_owned(),
            prefix: "192.0.2.0/24".to_owned(),
            algorithm: "sky_hybla".to_owned(),
            before: None,
            after: "192.0.2.0/24 via 10.0.0.1 dev eth0 congctl sky_hybla".to_owned(),
        });
        held.save().unwrap();
        let saved = held.state.clone();
        drop(held);

        let mut held = Held::open(&folder).unwrap();
        assert_eq!(held.state, saved);
        held.state = State::default();
        held.save().unwrap();
        assert!(!folder.exists(), "nothing stays behind");
    }

    #[test]
    fn a_file_that_is_not_ours_is_named_and_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join(FILE);
        fs::write(&file, "{\"roots\": []}").unwrap();
        let message = Held::open(parent.path()).err().unwrap().to_string();
        assert!(message.contains("kernel.json") && message.contains("unknown field"), "{message}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "{\"roots\": []}");
    }
}

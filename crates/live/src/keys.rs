//! Secret keys in files that only their owner may read.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use skyhaul_pep::auth::{KeyError, SecretKey};

/// A secret key's file that cannot be used.
#[derive(Debug)]
pub struct KeyFileError {
    file: PathBuf,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Io(io::Error),
    Key(KeyError),
    Mode(u32),
}

/// A new secret key from the system's random numbers.
///
/// # Errors
/// When the system has none.
pub fn generate() -> Result<SecretKey, KeyError> {
    SecretKey::generate(&SystemRandom::new())
}

/// So many of the system's random bytes.
///
/// # Errors
/// When the system has none.
pub fn by_chance<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map(|()| bytes).map_err(|_| io::Error::other("the system gives no random numbers"))
}

/// Reads a secret key.
///
/// # Errors
/// When the file is missing, is no key, or may be read by others than its owner.
pub fn read(file: &Path) -> Result<SecretKey, KeyFileError> {
    let error = |cause| KeyFileError { file: file.to_owned(), cause };
    let mode = fs::metadata(file).map_err(|e| error(Cause::Io(e)))?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(error(Cause::Mode(mode)));
    }
    let text = fs::read_to_string(file).map_err(|e| error(Cause::Io(e)))?;
    SecretKey::from_pem(&text).map_err(|e| error(Cause::Key(e)))
}

/// Writes a secret key with mode 0600. An existing file is an error unless `replace`.
///
/// # Errors
/// When the file exists or cannot be written.
pub fn write(file: &Path, key: &SecretKey, replace: Replace) -> Result<(), KeyFileError> {
    write_private(file, key.to_pem().as_bytes(), replace, 0o600)
        .map_err(|e| KeyFileError { file: file.to_owned(), cause: Cause::Io(e) })
}

/// What to do with a file that is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Leave it and fail.
    Never,
    /// Put the new one in its place.
    Existing,
}

/// Writes a file that has its mode from the first moment on. A file in its place is removed first, not overwritten,
/// so that nobody who has it open sees the new content.
pub(crate) fn write_private(file: &Path, content: &[u8], replace: Replace, mode: u32) -> io::Result<()> {
    if replace == Replace::Existing {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    OpenOptions::new().write(true).create_new(true).mode(mode).open(file)?.write_all(content)
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match &self.cause {
            Cause::Io(error) => write!(f, "{file}: {error}; `skyhaul pair` makes the keys of both ends"),
            Cause::Key(error) => write!(f, "{file}: {error}"),
            Cause::Mode(mode) => {
                write!(f, "{file}: found mode {mode:04o}, expected 0600; `chmod 600 {file}` sets it")
            }
        }
    }
}
impl std::error::Error for KeyFileError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_survives_its_file_and_is_for_the_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("end.key");
        let key = generate().unwrap();
        write(&file, &key, Replace::Never).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(read(&file).unwrap().public(), key.public());
    }

    #[test]
    fn an_existing_key_is_replaced_only_when_asked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("end.key");
        let first = generate().unwrap();
        write(&file, &first, Replace::Never).unwrap();
        let second = generate().unwrap();
        assert!(write(&file, &second, Replace::Never).is_err());
        assert_eq!(read(&file).unwrap().public(), first.public());
        write(&file, &second, Replace::Existing).unwrap();
        assert_eq!(read(&file).unwrap().public(), second.public());
    }

    #[test]
    fn a_key_that_others_may_read_is_refused_with_the_cure() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("end.key");
        write(&file, &generate().unwrap(), Replace::Never).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains("found mode 0644, expected 0600; `chmod 600"), "{error}");
    }
}

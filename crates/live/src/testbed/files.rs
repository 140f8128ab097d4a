//! The files of a run: a seeded source, a place in memory for everything, and the comparison afterwards.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use nix::mount::{mount, MsFlags};
use nix::sched::{unshare, CloneFlags};
use nix::unistd::mkdtemp;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use ring::digest::{Context, Digest, SHA256};
use skyhaul_cc::units::Bytes;

use super::LabError;

/// A folder for one command of the lab, in memory if there is room, so that no disk takes part in a measurement.
///
/// The memory is a tmpfs mounted over /dev/shm in a mount namespace of this process and its children: nobody
/// else sees it, and the kernel frees it when the last of them ends, however that happens.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    mounted: bool,
}

impl Scratch {
    /// Makes the folder, with room for `room` bytes. Call it before threads are started: only threads started later
    /// see the folder in memory.
    ///
    /// # Errors
    /// When the folder can't be made.
    pub fn new(room: Bytes) -> Result<Scratch, LabError> {
        let enough = memory_available() > room.0.saturating_add(SPARE.0);
        if enough && mount_tmpfs(Path::new(IN_MEMORY)).is_ok() {
            return Ok(Scratch { path: PathBuf::from(IN_MEMORY), mounted: true });
        }
        let path = std::env::temp_dir().join("skyhaul-lab-XXXXXX");
        let path = mkdtemp(&path).map_err(|e| LabError::io("make the folder", &path, e.into()))?;
        tracing::warn!(
            "{room} are not free in memory, so the files of this run are kept in {}; figures then include the speed \
             of that disk. A smaller --bytes avoids it",
            path.display()
        );
        Ok(Scratch { path, mounted: false })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.mounted {
            let _ = nix::mount::umount2(&self.path, nix::mount::MntFlags::MNT_DETACH);
        } else {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// A file of pseudo-random bytes: incompressible, and the same for the same seed.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// How long it is.
    pub bytes: Bytes,
    /// SHA-256 of its content.
    pub sha256: [u8; 32],
}

impl Source {
    /// Writes the file.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn create(path: PathBuf, bytes: Bytes, seed: u64) -> Result<Source, LabError> {
        let write = || -> io::Result<Digest> {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut file = File::create(&path)?;
            let mut digest = Context::new(&SHA256);
            let mut block = vec![0; BLOCK];
            let mut left = bytes.0;
            while left > 0 {
                let size = usize::try_from(left).map_or(BLOCK, |left| left.min(BLOCK));
                random.fill_bytes(&mut block[..size]);
                digest.update(&block[..size]);
                file.write_all(&block[..size])?;
                left -= size as u64;
            }
            Ok(digest.finish())
        };
        let digest = write().map_err(|e| LabError::io("write the source file", &path, e))?;
        Ok(Source { bytes, sha256: to_array(&digest), path })
    }

    /// Whether `received` is this file (`complete`), or its beginning: same length and SHA-256 in the first case, the
    /// same bytes as far as it goes in the second.
    ///
    /// # Errors
    /// When either file can't be read.
    pub fn matches(&self, received: &Path, complete: bool) -> Result<bool, LabError> {
        if complete {
            Ok(sha256(received)? == self.sha256)
        } else {
            self.starts_with(received).map_err(|e| LabError::io("compare", received, e))
        }
    }

    fn starts_with(&self, received: &Path) -> io::Result<bool> {
        let received = match File::open(received) {
            // Nothing arrived: that is the beginning of every file.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
            other => other?,
        };
        let mut received = BufReader::with_capacity(BLOCK, received);
        let mut source = BufReader::with_capacity(BLOCK, File::open(&self.path)?);
        let (mut ours, mut theirs) = (vec![0; BLOCK], vec![0; BLOCK]);
        loop {
            let size = received.read(&mut theirs)?;
            if size == 0 {
                return Ok(true);
            }
            match source.read_exact(&mut ours[..size]) {
                Ok(()) if ours[..size] == theirs[..size] => {}
                Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => return Err(e),
                // Different, or longer than the source.
                _ => return Ok(false),
            }
        }
    }
}

/// SHA-256 of a file.
///
/// # Errors
/// When it can't be read.
pub fn sha256(path: &Path) -> Result<[u8; 32], LabError> {
    let read = || -> io::Result<Digest> {
        let mut file = File::open(path)?;
        let mut digest = Context::new(&SHA256);
        let mut block = vec![0; BLOCK];
        loop {
            match file.read(&mut block)? {
                0 => return Ok(digest.finish()),
                size => digest.update(&block[..size]),
            }
        }
    };
    read().map(|digest| to_array(&digest)).map_err(|e| LabError::io("read", path, e))
}

fn to_array(digest: &Digest) -> [u8; 32] {
    let mut array = [0; 32];
    array.copy_from_slice(digest.as_ref());
    array
}

fn mount_tmpfs(path: &Path) -> nix::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let nothing: Option<&str> = None;
    // Without this the new mount would travel back to the namespace we came from.
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?;
    mount(Some("skyhaul"), path, Some("tmpfs"), MsFlags::empty(), Some("mode=0755,size=90%"))
}

/// Bytes of memory the kernel could give us; zero if it does not say.
fn memory_available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    super::measure::field_kib(&text, "MemAvailable:").unwrap_or(0)
}

/// Exists on every Linux, and nothing the lab starts looks for anything in it.
const IN_MEMORY: &str = "/dev/shm";
const BLOCK: usize = 1 << 20;
/// Left to sockets and programs when the files are kept in memory.
const SPARE: Bytes = Bytes::mib(1024);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_file_is_the_same_for_the_same_seed_and_another_for_another() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, seed| Source::create(dir.path().join(name), Bytes(3_000_001), seed).unwrap();
        let (a, b, c) = (make("a", 1), make("b", 1), make("c", 2));
        assert_eq!(a.sha256, b.sha256);
        assert_ne!(a.sha256, c.sha256);
        assert_eq!(fs::metadata(&a.path).unwrap().len(), 3_000_001);
        assert_eq!(sha256(&a.path).unwrap(), a.sha256);
    }

    #[test]
    fn a_received_file_matches_whole_or_as_a_prefix_and_a_flipped_bit_shows() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::create(dir.path().join("source"), Bytes(2_500_000), 7).unwrap();
        let received = dir.path().join("received");
        assert!(source.matches(&received, false).unwrap(), "nothing has arrived");

        let mut content = fs::read(&source.path).unwrap();
        fs::write(&received, &content).unwrap();
        assert!(source.matches(&received, true).unwrap());

        fs::write(&received, &content[..1_700_000]).unwrap();
        assert!(source.matches(&received, false).unwrap());
        assert!(!source.matches(&received, true).unwrap(), "a part is not the whole");

        content[1_600_000] ^= 1;
        fs::write(&received, &content[..1_700_000]).unwrap();
        assert!(!source.matches(&received, false).unwrap());

        content[1_600_000] ^= 1;
        content.push(0);
        fs::write(&received, &content).unwrap();
        assert!(!source.matches(&received, false).unwrap(), "longer than the source");
    }
}

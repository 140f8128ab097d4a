//! Controllers held by files on bpffs.

use super::super::pins::{pin, Change, Hook, FOLDER};
use super::super::probe::Abilities;
use super::super::{KernelError, Law};
use super::{load, registered_link, Loaded, Manner, Said, Shared, PATHS, SHARED};
use libbpf_rs::query::{LinkTypeInfo, MapInfoIter, ProgInfoIter};
use libbpf_rs::{Link, MapCore, MapHandle, ProgramType};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What has been done so far, undone unless it is kept.
#[derive(Default)]
struct Undo {
    files: Vec<PathBuf>,
    /// Pins of maps that hold themselves.
    held_by_themselves: Vec<PathBuf>,
    folder: bool,
    /// Links that were given new code, with the map that holds the old.
    replaced: Vec<(Link, MapHandle)>,
    kept: bool,
}

impl Drop for Undo {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        for (link, old) in &self.replaced {
            // What was in force a moment ago is taken back by the kernel; if not, nothing better can be done.
            let _ = update(link, old.as_fd());
        }
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
        for file in &self.held_by_themselves {
            let _ = unregister_map(file);
        }
        if self.folder {
            let _ = fs::remove_dir(FOLDER);
        }
    }
}

/// As [`super::super::pins::install`], which has looked at the conditions.
pub fn install(laws: &[Law], for_everybody: &[Law]) -> Result<Vec<(Law, Change)>, KernelError> {
    let manner = Manner::here()?;
    // The verifier judges all before the first is registered.
    let mut shared = pinned_maps();
    let known: Vec<String> = shared.keys().cloned().collect();
    let mut loaded = Vec::new();
    for &law in laws {
        let manner = Manner { for_everybody: for_everybody.contains(&law), ..manner };
        loaded.push(load(law, manner, &mut shared)?);
    }

    let mut undo = Undo::default();
    let folder = Path::new(FOLDER);
    if !folder.is_dir() {
        let made = fs::DirBuilder::new().mode(0o700).create(folder);
        made.map_err(|source| KernelError::File { path: folder.to_owned(), source })?;
        undo.folder = true;
    }
    for (name, map) in shared.iter_mut().filter(|(name, _)| !known.contains(name)) {
        let path = folder.join(name);
        // One that is there was made by another version, with another layout.
        let _ = fs::remove_file(&path);
        map.pin(&path).map_err(|error| file(&path, &error))?;
        undo.files.push(path);
    }
    let mut changes = Vec::new();
    for one in &mut loaded {
        changes.push((one.law, put(one, manner.abilities, &mut undo)?));
    }
    undo.kept = true;
    Ok(changes)
}

/// Registers a controller and pins what holds it, or replaces the code of the one that is pinned.
fn put(loaded: &mut Loaded, abilities: Abilities, undo: &mut Undo) -> Result<Change, KernelError> {
    let law = loaded.law;
    let path = pin(law);
    if !abilities.links {
        return put_without_links(loaded, &path, undo);
    }
    match loaded.attach()? {
        Some(mut link) => {
            // A pin whose controller is gone holds nothing.
            let _ = fs::remove_file(&path);
            link.pin(&path).map_err(|error| file(&path, &error))?;
            undo.files.push(path);
            Ok(Change::New)
        }
        None if path.is_file() => {
            let link = Link::open(&path).map_err(|error| file(&path, &error))?;
            let old = map_of(&link);
            let new = loaded.operations().ok_or(KernelError::NotBuilt(law))?;
            update(&link, new.as_fd())
                .map_err(|error| KernelError::Refused { law, reason: error.to_string() })?;
            // Only CAP_SYS_ADMIN may look the old code up; without it, it cannot be put back either.
            undo.replaced.extend(old.map(|old| (link, old)));
            Ok(Change::Replaced)
        }
        // A program holds it for as long as it runs, as the lab does.
        None => {
            let (link, map) = registered_link(law).ok_or_else(|| KernelError::taken(law))?;
            if !loaded.has_code_of(map) {
                return Err(KernelError::taken(law));
            }
            pin_descriptor(link.as_fd(), &path)?;
            undo.files.push(path);
            Ok(Change::New)
        }
    }
}

/// Before Linux 6.4 a registered controller holds itself. The pinned map is what unregisters it.
fn put_without_links(loaded: &mut Loaded, path: &Path, undo: &mut Undo) -> Result<Change, KernelError> {
    let law = loaded.law;
    let change = if path.is_file() { Change::Replaced } else { Change::New };
    unregister_map(path)?;
    let mut link = loaded.attach()?.ok_or_else(|| KernelError::taken(law))?;
    let map = loaded.operations().ok_or(KernelError::NotBuilt(law))?;
    pin_descriptor(map.as_fd(), path)?;
    undo.held_by_themselves.push(path.to_owned());
    link.disconnect();
    Ok(change)
}

/// Unregisters the controller whose operations are in the pinned map, and removes the pin. Nothing if there is none.
fn unregister_map(path: &Path) -> Result<(), KernelError> {
    if !path.is_file() {
        return Ok(());
    }
    let map = MapHandle::from_pinned_path(path).map_err(|error| file(path, &error))?;
    // It is not there when somebody else has unregistered it.
    let _ = map.delete(&0u32.to_ne_bytes());
    fs::remove_file(path).map_err(|source| KernelError::File { path: path.to_owned(), source })
}

/// Gives the link the operations in `map`: new connections get them, existing ones keep theirs.
///
/// `bpf_link__update_map` takes only links that this process has attached, and ours come from a pin.
fn update(link: &Link, map: BorrowedFd<'_>) -> io::Result<()> {
    let (link, map) = (link.as_fd().as_raw_fd(), map.as_raw_fd());
    // SAFETY: both are descriptors that their owners keep open during the call; no options are given.
    match unsafe { libbpf_sys::bpf_link_update(link, map, std::ptr::null()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn pin_descriptor(descriptor: BorrowedFd<'_>, path: &Path) -> Result<(), KernelError> {
    let failed = |source| KernelError::File { path: path.to_owned(), source };
    let text = std::ffi::CString::new(path.as_os_str().as_encoded_bytes());
    let text = text.map_err(|_| failed(io::ErrorKind::InvalidInput.into()))?;
    // SAFETY: a descriptor that is open during the call and a text that ends with a zero.
    match unsafe { libbpf_sys::bpf_obj_pin(descriptor.as_raw_fd(), text.as_ptr()) } {
        0 => Ok(()),
        _ => Err(failed(io::Error::last_os_error())),
    }
}

/// As [`super::super::pins::remove`].
pub fn remove(laws: &[Law], keep_paths: bool) -> Result<(), KernelError> {
    let remove = |path: &Path| match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(KernelError::File { path: path.to_owned(), source })
        }
        _ => Ok(()),
    };
    let links = Manner::here()?.abilities.links;
    for &law in laws {
        match links {
            true => remove(&pin(law))?,
            false => unregister_map(&pin(law))?,
        }
    }
    if Law::ALL.into_iter().any(|law| pin(law).is_file()) {
        return Ok(());
    }
    for name in SHARED.iter().filter(|name| !(keep_paths && **name == PATHS)) {
        remove(&Path::new(FOLDER).join(name))?;
    }
    match fs::remove_dir(FOLDER) {
        Err(source) if !keep_paths && source.kind() != io::ErrorKind::NotFound => {
            Err(KernelError::File { path: FOLDER.into(), source })
        }
        _ => Ok(()),
    }
}

/// When the code of a registered controller was loaded, and what its hooks have cost.
pub fn running(law: Law) -> Option<(Option<Duration>, Vec<Hook>)> {
    // What is pinned counts: another program may hold an object of the same name that it calls otherwise.
    let pinned = || match Link::open(pin(law)).ok()?.info().ok()?.info {
        LinkTypeInfo::StructOps(operations) => Some(operations.map_id),
        _ => None,
    };
    let held_by_itself = || {
        let map = MapHandle::from_pinned_path(pin(law)).ok()?;
        libbpf_rs::MapInfo::new(map.as_fd()).ok().map(|info| info.info.id)
    };
    let said = Said::begin();
    let map = pinned().or_else(held_by_itself).or_else(|| registered_link(law).map(|(_, map)| map))?;
    drop(said);
    let types = MapInfoIter::default().find(|found| found.id == map)?.btf_id;
    let programs: Vec<_> = ProgInfoIter::default()
        .filter(|program| program.ty == ProgramType::StructOps && program.btf_id == types)
        .collect();
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).ok().map(Duration::from);
    let loaded = programs.iter().map(|program| program.load_time).min();
    let age = now.zip(loaded).and_then(|(now, loaded)| now.checked_sub(loaded));
    let hooks = programs.iter().map(|program| Hook {
        name: program.name.to_string_lossy().into_owned(),
        calls: program.run_cnt,
        time_ns: program.run_time_ns,
    });
    Some((age, hooks.collect()))
}

/// The shared maps that are pinned. A map with another layout than ours is left out.
fn pinned_maps() -> Shared {
    let _said = Said::begin();
    let open = |name: &&str| {
        let map = MapHandle::from_pinned_path(Path::new(FOLDER).join(name)).ok()?;
        super::maps::has_our_layout(&map, name).then(|| ((*name).to_owned(), map))
    };
    SHARED.iter().filter_map(open).collect()
}

fn map_of(link: &Link) -> Option<MapHandle> {
    match link.info().ok()?.info {
        LinkTypeInfo::StructOps(operations) => MapHandle::from_map_id(operations.map_id).ok(),
        _ => None,
    }
}

fn file(path: &Path, error: &libbpf_rs::Error) -> KernelError {
    KernelError::Request(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn listed(law: Law) -> bool {
        let list = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
        list.split_whitespace().any(|name| name == law.algorithm())
    }

    /// The way of kernels before 6.4, which later ones still know.
    #[test]
    fn needs_root_without_links_a_controller_stays_until_its_map_is_emptied() {
        if let Err(missing) = super::super::super::available() {
            eprintln!("skipped: {missing}");
            return;
        }
        let law = Law::Enhanced;
        if listed(law) {
            eprintln!("skipped: {} is in use on this machine", law.algorithm());
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        nix::mount::mount(
            Some("bpf"),
            folder.path(),
            Some("bpf"),
            nix::mount::MsFlags::empty(),
            None::<&str>,
        )
        .unwrap();
        let pin = folder.path().join("enhanced");
        let manner = Manner::here().unwrap();
        let manner = Manner { abilities: Abilities { links: false, ..manner.abilities }, ..manner };
        let again = || load(law, manner, &mut Shared::new()).unwrap();

        let mut undo = Undo::default();
        let first = put_without_links(&mut again(), &pin, &mut undo).map_err(|error| error.to_string());
        let stays = listed(law);
        let second = put_without_links(&mut again(), &pin, &mut undo).map_err(|error| error.to_string());
        let stays_again = listed(law);
        // Not kept: what was done is taken back.
        drop(undo);
        let gone = (0..100).any(|_| {
            thread::sleep(Duration::from_millis(20));
            !listed(law)
        });
        let pinned = pin.exists();
        nix::mount::umount2(folder.path(), nix::mount::MntFlags::MNT_DETACH).unwrap();
        assert_eq!(first, Ok(Change::New));
        assert!(stays, "it holds itself");
        assert_eq!(second, Ok(Change::Replaced));
        assert!(stays_again && gone && !pinned, "{stays_again} {gone} {pinned}");
    }
}

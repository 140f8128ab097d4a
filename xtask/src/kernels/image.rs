//! What the machine has in its memory: programs with their libraries, a few modules, and a script that runs the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{debian, said, Kernel, Programs};

/// Programs that the tests and the script call, by name; where they are here they are there.
const CALLED: [&str; 12] =
    ["sh", "cat", "find", "grep", "mkdir", "mount", "umount", "ip", "ss", "unshare", "nsenter", "setpriv"];
/// Devices of the tests, and what `ss` asks, where they are not built into the kernel.
const MODULES: [&str; 3] = ["veth", "tun", "tcp_diag"];
/// Types in the mode of a file (stat.h).
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// Programs of this machine that run in the other.
#[derive(Debug)]
pub struct Tools {
    called: Vec<PathBuf>,
    /// Loads modules.
    busybox: PathBuf,
}

/// Finds them; `busybox` is fetched where it is missing.
pub fn tools(folder: &Path) -> Result<Tools, String> {
    let called = CALLED
        .iter()
        .map(|name| find(name).ok_or(format!("{name} is not there")))
        .collect::<Result<_, _>>()?;
    let busybox = match find("busybox") {
        Some(busybox) => busybox,
        None => {
            let unpacked = debian::unpack(folder, "busybox-static")?;
            let places = ["usr/bin/busybox", "bin/busybox"].map(|place| unpacked.join(place));
            places.into_iter().find(|place| place.exists()).ok_or("busybox-static has no busybox")?
        }
    };
    Ok(Tools { called, busybox })
}

/// A program in the usual places.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut places = path.split(':').chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"]);
    places.find_map(|place| Some(Path::new(place).join(name)).filter(|path| path.is_file()))
}

/// Writes the archive from which the kernel fills its memory.
pub fn write(
    to: &Path,
    kernel: &Kernel,
    programs: &Programs,
    tools: &Tools,
    only: Option<&str>,
) -> Result<(), String> {
    let mut archive = Archive::default();
    for folder in ["proc", "sys", "dev", "run", "tmp", "etc"] {
        archive.folder(Path::new(folder));
    }
    for path in [&programs.skyhaul, &programs.tests] {
        archive.file(path, stripped(path)?);
    }
    archive.file(Path::new("/busybox"), read(&tools.busybox)?);
    for path in &tools.called {
        archive.file(path, read(path)?);
        // A shell under its usual name, wherever it is.
        if path.ends_with("sh") {
            archive.file(Path::new("/bin/sh"), read(path)?);
        }
    }
    let wanting: Vec<&PathBuf> =
        [&programs.skyhaul, &programs.tests].into_iter().chain(&tools.called).collect();
    for library in libraries(&wanting)? {
        archive.file(&library, read(&library)?);
    }
    let mut script = String::from(BEGIN);
    for (name, module) in modules(&kernel.modules)? {
        archive.file(Path::new(&format!("/modules/{name}.ko")), module);
        script += &format!("/busybox insmod /modules/{name}.ko\n");
    }
    script += &format!("{} kernel probe\n", programs.skyhaul.display());
    script +=
        &format!("{} --test-threads=1 --show-output {}\n", programs.tests.display(), only.unwrap_or(""));
    script += END;
    archive.file(Path::new("/init"), script.into_bytes());
    fs::write(to, archive.finish()).map_err(|error| format!("{}: {error}", to.display()))
}

/// Before and after what the machine is there for. Its end is its first process's end, which stops the kernel.
const BEGIN: &str = "#!/bin/sh\n\
    export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n\
    mount -t proc proc /proc\nmount -t sysfs sys /sys\nmount -t devtmpfs dev /dev\n\
    mount -t tmpfs run /run\nmount -t bpf bpf /sys/fs/bpf\nip link set lo up\n";
const END: &str =
    "echo \"the tests ended with status $?\"\necho o > /proc/sysrq-trigger\n/busybox sleep 60\n";

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// A program without what only debuggers read, where there is something to take that off with.
fn stripped(path: &Path) -> Result<Vec<u8>, String> {
    let small = std::env::temp_dir().join(format!("kernels-{}", std::process::id()));
    let done = ["llvm-strip", "strip"]
        .iter()
        .any(|strip| said(strip, &["-o", &small.to_string_lossy(), &path.to_string_lossy()]).is_some());
    let bytes = read(if done { &small } else { path });
    let _ = fs::remove_file(&small);
    bytes
}

/// What the dynamic linker loads for these programs, itself included.
fn libraries(programs: &[&PathBuf]) -> Result<BTreeSet<PathBuf>, String> {
    let output = Command::new("ldd").args(programs).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("ldd: {error}"))?;
    Ok(named(&String::from_utf8_lossy(&output.stdout)))
}

/// The files in what `ldd` says: `NAME => FILE (ADDRESS)`, or for the linker `FILE (ADDRESS)`.
fn named(said: &str) -> BTreeSet<PathBuf> {
    let file = |line: &str| {
        let (line, _) = line.trim().split_once(" (0x")?;
        let path = line.split_once("=> ").map_or(line, |(_, path)| path);
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    said.lines().filter_map(file).collect()
}

/// The modules and those they need, in an order in which they can be loaded.
fn modules(folder: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut files = BTreeMap::new();
    collect(folder, &mut files).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut loaded: Vec<(String, Vec<u8>)> = Vec::new();
    let mut waiting: Vec<String> = MODULES.map(str::to_owned).to_vec();
    while let Some(name) = waiting.pop() {
        // One that is not there is built in, or its test says that it is missing.
        let Some(path) = files.get(&name) else { continue };
        let module = unpacked(path)?;
        waiting.extend(needed(&module));
        loaded.retain(|(other, _)| *other != name);
        loaded.push((name, module));
    }
    loaded.reverse();
    Ok(loaded)
}

/// All modules below a folder by name.
fn collect(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), files)?;
        } else if let Some((name, _)) = entry.file_name().to_string_lossy().split_once(".ko") {
            files.insert(name.replace('-', "_"), entry.path());
        }
    }
    Ok(())
}

/// A module as the kernel takes it.
fn unpacked(path: &Path) -> Result<Vec<u8>, String> {
    let program = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return read(path),
    };
    let output = Command::new(program).arg("-dc").arg(path).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{program}, for {}: {error}", path.display()))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!("{program} cannot unpack {}", path.display()))
    }
}

/// The modules that one needs, by its own words.
fn needed(module: &[u8]) -> Vec<String> {
    const WORD: &[u8] = b"\0depends=";
    let Some(at) = module.windows(WORD.len()).position(|window| window == WORD) else { return Vec::new() };
    let rest = &module[at + WORD.len()..];
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(0);
    let names = String::from_utf8_lossy(&rest[..end]).replace('-', "_");
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// An archive in cpio's "newc" form, which the kernel unpacks: each entry with the folders above it, each once.
#[derive(Debug, Default)]
struct Archive {
    bytes: Vec<u8>,
    names: BTreeSet<PathBuf>,
}

impl Archive {
    fn file(&mut self, path: &Path, content: Vec<u8>) {
        if let Some(parent) = path.parent() {
            self.folder(parent);
        }
        if self.names.insert(relative(path)) {
            self.entry(&relative(path), FILE | 0o755, &content);
        }
    }

    fn folder(&mut self, path: &Path) {
        let path = relative(path);
        if path.as_os_str().is_empty() || self.names.contains(&path) {
            return;
        }
        if let Some(parent) = path.parent() {
            self.folder(parent);
        }
        self.names.insert(path.clone());
        // Where a folder is another one's name here it is so there: loaders look for libraries under both.
        let here = Path::new("/").join(&path);
        match fs::read_link(&here) {
            Ok(target) => {
                self.folder(&Path::new("/").join(path.parent().unwrap_or(Path::new(""))).join(&target));
                self.entry(&path, LINK | 0o777, target.to_string_lossy().as_bytes());
            }
            Err(_) => self.entry(&path, FOLDER | 0o755, &[]),
        }
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) {
        let name = path.to_string_lossy();
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let length = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        let fields = [number, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, length, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// Name and content end at a multiple of four bytes.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry(Path::new("TRAILER!!!"), 0, &[]);
        self.bytes
    }
}

fn relative(path: &Path) -> PathBuf {
    path.strip_prefix("/").unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_the_files_that_the_linker_names() {
        let said = "/bin/x:\n\tlinux-vdso.so.1 (0x00007ffd)\n\tlibz.so.1 => /lib/libz.so.1 (0x00007f00)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f01)\n\tlibgone.so => not found\n";
        let expected = ["/lib/libz.so.1", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(named(said).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_module_names_what_it_needs() {
        let module = b"\x7fELF..license=GPL\0depends=udp_tunnel,ip6-udp-tunnel\0retpoline=Y\0";
        assert_eq!(needed(module), ["udp_tunnel", "ip6_udp_tunnel"]);
        assert!(needed(b"license=GPL\0depends=\0").is_empty());
        assert!(needed(b"").is_empty());
    }

    #[test]
    fn an_archive_has_every_folder_once_and_ends() {
        let mut archive = Archive::default();
        archive.file(Path::new("/skyhaul-test/a"), b"12345".to_vec());
        archive.file(Path::new("/skyhaul-test/b"), Vec::new());
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("070701").count(), 4, "a folder, two files, the end");
        assert_eq!(text.matches("skyhaul-test/a\0").count(), 1);
        assert!(text.contains("TRAILER!!!") && bytes.len().is_multiple_of(4));
    }
}

//! Kernels and programs as Debian ships them, fetched with apt from wherever this machine is configured to and unpacked
//! without installing anything.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{said, Kernel};

/// The newest kernel of a series that apt offers, in the small build for virtual machines.
pub fn fetch(folder: &Path, series: &str) -> Result<Kernel, String> {
    let prefix = format!("linux-image-{series}.");
    let names = said("apt-cache", &["pkgnames", &prefix]).ok_or(
        "apt-cache is not there: give a kernel with --kernel FILE --modules DIR (its lib/modules/RELEASE)",
    )?;
    let package = newest(&names).ok_or(format!(
        "apt offers no {prefix}*-cloud-amd64; apt-get update may help, or give a kernel with --kernel and --modules"
    ))?;
    let unpacked = unpack(folder, package)?;
    let release = package.trim_start_matches("linux-image-");
    let usr = unpacked.join("usr/lib/modules").join(release);
    let modules = if usr.is_dir() { usr } else { unpacked.join("lib/modules").join(release) };
    Ok(Kernel {
        name: release.to_owned(),
        image: unpacked.join("boot").join(format!("vmlinuz-{release}")),
        modules,
    })
}

/// The newest of package names, one per line, by the numbers in them.
fn newest(names: &str) -> Option<&str> {
    let numbers = |name: &str| -> Vec<u64> {
        name.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
    };
    names.lines().filter(|name| name.ends_with("-cloud-amd64")).max_by_key(|name| numbers(name))
}

/// The folder that holds what `package` holds; fetched the first time only.
pub fn unpack(folder: &Path, package: &str) -> Result<PathBuf, String> {
    let unpacked = folder.join(package);
    if unpacked.is_dir() {
        return Ok(unpacked);
    }
    println!("fetching {package}");
    let fresh = folder.join(format!("{package}.new"));
    let _ = std::fs::remove_dir_all(&fresh);
    std::fs::create_dir_all(&fresh).map_err(|error| format!("{}: {error}", fresh.display()))?;
    let run = |program: &str, arguments: &[&str]| {
        let status = Command::new(program).args(arguments).current_dir(&fresh).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(format!("{program} {} failed; its message is above", arguments.join(" "))),
            Err(error) => Err(format!("{program}: {error}")),
        }
    };
    // Without a sandbox user, who cannot write here.
    run("apt-get", &["-qq", "-o", "APT::Sandbox::User=root", "download", package])?;
    let archive = std::fs::read_dir(&fresh)
        .map_err(|error| format!("{}: {error}", fresh.display()))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .find(|name| name.ends_with(".deb"))
        .ok_or(format!("apt-get was content but has left no {package}"))?;
    run("dpkg-deb", &["-x", &archive, "."])?;
    std::fs::rename(&fresh, &unpacked).map_err(|error| format!("{}: {error}", unpacked.display()))?;
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_that_with_the_greatest_numbers() {
        let names = "linux-image-6.1.0-9-cloud-amd64\nlinux-image-6.1.0-41-cloud-amd64\n\
            linux-image-6.1.0-42-amd64\nlinux-image-6.1.0-43-cloud-amd64-unsigned\n";
        assert_eq!(newest(names), Some("linux-image-6.1.0-41-cloud-amd64"));
        assert_eq!(newest("linux-image-6.1.0-42-amd64"), None);
    }
}

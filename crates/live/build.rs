//! Compiles the kernel controllers in `bpf/` and writes the list that `kernel::objects` includes.
//!
//! Without the feature `bpf` it does nothing, so a plain `cargo build` needs neither clang nor libelf.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_BPF").is_none() {
        return ExitCode::SUCCESS;
    }
    match compile() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            println!("cargo::error={}", message.trim_end().replace('\n', "\ncargo::error="));
            ExitCode::FAILURE
        }
    }
}

/// One object for every `bpf/*.bpf.c`, without debug information but with its types, which the kernel needs.
fn compile() -> Result<(), String> {
    let variable = |name: &str| env::var_os(name).map(PathBuf::from).ok_or(format!("cargo gives no {name}"));
    let root = variable("CARGO_MANIFEST_DIR")?.join("../..");
    let root = root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
    let out = variable("OUT_DIR")?;
    // libbpf-sys brings the headers of the libbpf it builds, so those of the system are not needed.
    let headers = variable("DEP_BPF_INCLUDE")?;
    let source = root.join("bpf");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=BPF_CLANG");
    println!("cargo::rerun-if-env-changed=BPF_STRIP");

    let mut names = Vec::new();
    for entry in fs::read_dir(&source).map_err(|error| format!("{}: {error}", source.display()))? {
        let name = entry.map_err(|error| error.to_string())?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".bpf.c")).map(str::to_owned));
    }
    names.sort();
    let mut list = String::from("&[\n");
    for name in &names {
        let object = out.join(format!("{name}.bpf.o"));
        clang(&root, name, &headers, &object)?;
        list += &format!("    ({name:?}, &Aligned(*include_bytes!({:?}))),\n", object.display().to_string());
    }
    list += "]\n";
    fs::write(out.join("objects.rs"), list).map_err(|error| format!("objects.rs: {error}"))
}

/// Compiles one source. Paths of this machine stay out of it, so the same source gives the same object anywhere.
fn clang(root: &Path, name: &str, headers: &Path, object: &Path) -> Result<(), String> {
    let mut clang = Command::new(env::var_os("BPF_CLANG").unwrap_or_else(|| "clang".into()));
    clang.current_dir(root);
    clang.args(["-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Wall", "-Werror", "-c"]);
    clang.arg(format!("-ffile-prefix-map={}=.", root.display()));
    clang.arg(format!("-ffile-prefix-map={}=libbpf", headers.display()));
    clang.args(["-fdebug-compilation-dir=.", "-Ibpf"]).arg("-isystem").arg(headers);
    clang.arg(format!("bpf/{name}.bpf.c")).arg("-o").arg(object);
    run(clang, "clang")?;
    let mut strip = Command::new(env::var_os("BPF_STRIP").unwrap_or_else(|| "llvm-strip".into()));
    strip.arg("-g").arg(object);
    run(strip, "llvm-strip")
}

fn run(mut command: Command, program: &str) -> Result<(), String> {
    let output = command.output().map_err(|error| {
        format!(
            "{program}: {error}; the feature bpf compiles kernel controllers with it. Debian and Ubuntu: \
             apt-get install clang llvm. Or build without the feature; `skyhaul kernel` is then left out"
        )
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} failed ({}):\n{said}", output.status))
}

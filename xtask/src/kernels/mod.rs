//! Kernel controllers on other kernels than the one that runs here: Debian's, unmodified, each in an emulated machine
//! that has the tests of the kernel commands (`crates/cli/tests/kernel.rs`) in its memory and nothing else.
//!
//! Nothing is installed and nobody needs to be root. What is fetched and built stays in `target/kernels`.

mod debian;
mod image;
mod machine;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::ci;
use machine::{Accelerator, Heard};

/// The series of kernels that are tried when none is given: the oldest promised, and the one whose `cong_control` has
/// changed since.
const SERIES: [&str; 2] = ["6.1", "6.12"];
/// What to say where there is no emulator.
const HOW_TO_GET: &str =
    "qemu-system-x86_64 is not there; on Debian: apt-get install --no-install-recommends qemu-system-x86";

/// What was asked for.
#[derive(Debug, Default)]
struct Request {
    /// A kernel and the folder with its modules, instead of Debian's.
    own: Option<(PathBuf, PathBuf)>,
    series: Vec<String>,
    accelerator: Accelerator,
    /// Only tests whose names have this in them.
    only: Option<String>,
}

/// A kernel to try.
#[derive(Debug)]
struct Kernel {
    name: String,
    image: PathBuf,
    /// Its `lib/modules/RELEASE`.
    modules: PathBuf,
}

/// Tries every kernel, prints what it can do and which tests passed, and returns whether all did.
///
/// # Errors
/// When the request is wrong or something to try them with cannot be had.
pub fn run(root: &Path, arguments: &[&str]) -> Result<bool, String> {
    let request = Request::parse(arguments)?;
    if said(machine::PROGRAM, &["--version"]).is_none() {
        println!("skipped: {HOW_TO_GET}");
        return Ok(true);
    }
    let folder = root.join("target/kernels");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let kernels = match &request.own {
        Some((image, modules)) => vec![Kernel {
            name: image.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            image: image.clone(),
            modules: modules.clone(),
        }],
        None => {
            request.series.iter().map(|series| debian::fetch(&folder, series)).collect::<Result<_, _>>()?
        }
    };
    let programs = build(root)?;
    let tools = image::tools(&folder)?;
    let mut verdicts = Vec::new();
    for kernel in &kernels {
        println!("== {}", kernel.name);
        let start = Instant::now();
        let disk = folder.join(format!("{}.cpio", kernel.name));
        image::write(&disk, kernel, &programs, &tools, request.only.as_deref())?;
        let heard = machine::run(&kernel.image, &disk, request.accelerator)?;
        verdicts.push((kernel.name.as_str(), heard, start.elapsed()));
    }
    println!("\n{}", table(&verdicts));
    Ok(verdicts.iter().all(|(_, heard, _)| heard.good()))
}

impl Request {
    fn parse(arguments: &[&str]) -> Result<Request, String> {
        let mut request = Request::default();
        let (mut image, mut modules) = (None, None);
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} wants a value"));
            match *word {
                "--kernel" => image = Some(PathBuf::from(value()?)),
                "--modules" => modules = Some(PathBuf::from(value()?)),
                "--accel" => request.accelerator = value()?.parse()?,
                "--only" => request.only = Some((*value()?).to_owned()),
                series if series.starts_with(|first: char| first.is_ascii_digit()) => {
                    request.series.push(series.to_owned());
                }
                other => {
                    return Err(format!(
                        "kernels takes --kernel FILE --modules DIR, or series like 6.1, --accel tcg|kvm and --only \
                         TEST; it does not take \"{other}\""
                    ))
                }
            }
        }
        request.own = match (image, modules) {
            (Some(image), Some(modules)) => {
                for path in [&image, &modules] {
                    path.metadata().map_err(|error| format!("{}: {error}", path.display()))?;
                }
                Some((image, modules))
            }
            (None, None) => None,
            _ => return Err("--kernel and --modules (its lib/modules/RELEASE) are given together".to_owned()),
        };
        if request.series.is_empty() {
            request.series = SERIES.map(str::to_owned).to_vec();
        }
        Ok(request)
    }
}

/// The programs that run in the machine.
struct Programs {
    /// `skyhaul` itself, where the tests expect it.
    skyhaul: PathBuf,
    /// The tests of the kernel commands.
    tests: PathBuf,
}

/// Builds them as the tests of the repository are built, so that nothing is compiled twice.
fn build(root: &Path) -> Result<Programs, String> {
    let output = ci::cargo_command()
        .args(["test", "--release", "--workspace", "--locked"])
        .args(ci::FEATURES)
        .args(["--test", "kernel", "--no-run", "--message-format=json-render-diagnostics"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err("the tests do not build".to_owned());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let find = |name: &str| {
        executable(&messages, name).ok_or(format!("cargo does not say where it has built {name}"))
    };
    Ok(Programs { skyhaul: find("skyhaul")?, tests: find("kernel")? })
}

/// Where cargo has put the program of the target `name`, by its messages, one JSON object per line.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let target = format!("\"name\":\"{name}\"");
    let line = messages.lines().find(|line| line.contains(&target) && line.contains("\"executable\":\""))?;
    let (_, path) = line.split_once("\"executable\":\"")?;
    path.split_once('"').map(|(path, _)| PathBuf::from(path))
}

/// One row per kernel.
fn table(verdicts: &[(&str, Heard, Duration)]) -> String {
    let mut text = String::from("kernel  what it can do  tests  minutes\n");
    for (name, heard, took) in verdicts {
        let tests = heard.result.as_deref().unwrap_or("did not come to an end");
        text +=
            &format!("{name}  {}  {tests}  {:.1}\n", heard.abilities.join(", "), took.as_secs_f64() / 60.0);
    }
    text
}

/// What a program says, if it is there and content.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_series_or_a_kernel_with_its_modules() {
        assert_eq!(Request::parse(&[]).map(|request| request.series), Ok(vec!["6.1".into(), "6.12".into()]));
        let request = Request::parse(&["6.12", "--accel", "kvm", "--only", "watch"]).expect("a good request");
        assert_eq!((request.series, request.only), (vec!["6.12".to_owned()], Some("watch".to_owned())));
        for (wrong, part) in [
            (&["--kernel", "/etc/hostname"][..], "together"),
            (&["--kernel"], "wants a value"),
            (&["--kernel", "/no/such/file", "--modules", "/"], "/no/such/file"),
            (&["--accel", "xen"], "tcg or kvm"),
            (&["latest"], "latest"),
        ] {
            let said = Request::parse(wrong).expect_err("a wrong request");
            assert!(said.contains(part), "{wrong:?}: {said}");
        }
    }

    #[test]
    fn of_cargos_messages_the_program_of_the_wanted_target_is_taken() {
        let messages = "{\"target\":{\"kind\":[\"lib\"],\"name\":\"kernel\"},\"executable\":null}\n\
            {\"target\":{\"kind\":[\"test\"],\"name\":\"kernel\"},\"executable\":\"/t/kernel-1\",\"fresh\":true}\n\
            {\"target\":{\"kind\":[\"bin\"],\"name\":\"skyhaul\"},\"executable\":\"/t/skyhaul\"}\n";
        assert_eq!(executable(messages, "kernel"), Some("/t/kernel-1".into()));
        assert_eq!(executable(messages, "skyhaul"), Some("/t/skyhaul".into()));
        assert_eq!(executable(messages, "gateway"), None);
    }
}

//! Compares the simulator with ns-3: one flow over one bottleneck, the same cells in both. Nothing of ns-3 is
//! needed to build or test the repository; this is run by hand and its results are kept.

mod plan;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use plan::{Form, Job};
use table::{Figures, Record, Records};

/// Where results are kept.
const RECORDED: &str = "xtask/ns3/recorded.csv";
/// Our program for ns-3.
const SOURCE: &str = "xtask/ns3/reference.cc";
/// What to say when ns-3 is not there.
const HOW_TO_GET: &str = "ns-3 or g++ is missing; on Debian: apt-get install -y ns3 libns3-dev g++";

/// Runs both simulators over all cells, keeps the results and prints the tables. Answers whether every cell agrees
/// that has no known reason not to.
pub fn run(root: &Path) -> Result<bool, String> {
    let versions = versions()?;
    let programs = Programs { ns3: Some(compile(root)?), ours: build(root)? };
    let records = Records::new(versions, programs.play(&plan::jobs())?);
    keep(root, &records)
}

/// Runs only our simulator, puts its results beside those of ns-3 that are kept and goes on as [`run`] does. It
/// wants no ns-3 and takes a minute.
pub fn run_ours(root: &Path) -> Result<bool, String> {
    let kept = recorded(root)?;
    let programs = Programs { ns3: None, ours: build(root)? };
    let mut jobs = plan::jobs();
    jobs.retain(|job| job.form == Form::Ours);
    keep(root, &kept.with_ours(programs.play(&jobs)?))
}

/// Prints the tables of the results that are kept, without running anything.
pub fn show(root: &Path) -> Result<bool, String> {
    Ok(report(&recorded(root)?))
}

fn recorded(root: &Path) -> Result<Records, String> {
    let path = root.join(RECORDED);
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Records::parse(&text).map_err(|error| format!("{RECORDED}: {error}"))
}

fn keep(root: &Path, records: &Records) -> Result<bool, String> {
    let path = root.join(RECORDED);
    std::fs::write(&path, records.to_csv())
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(report(records))
}

/// Prints the tables and names the cells that should agree and do not.
fn report(records: &Records) -> bool {
    println!("{}", records.tables());
    let apart = records.apart();
    for cell in &apart {
        println!("apart: {cell}");
    }
    apart.is_empty()
}

/// Where the programs are.
struct Programs {
    ns3: Option<PathBuf>,
    ours: PathBuf,
}

impl Programs {
    /// Runs all jobs, as many at a time as there are cores; the first failure ends it.
    fn play(&self, jobs: &[Job]) -> Result<Vec<Record>, String> {
        let results = Mutex::new(Vec::new());
        let failure = Mutex::new(None);
        let next = AtomicUsize::new(0);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let failed = lock(&failure).is_some();
                    let Some(job) = jobs.get(index).filter(|_| !failed) else { break };
                    match self.play_one(job) {
                        Ok(figures) => lock(&results).push(Record::of(job, figures)),
                        Err(message) => *lock(&failure) = Some(message),
                    }
                    if index.is_multiple_of(20) {
                        eprintln!("{index} of {} runs", jobs.len());
                    }
                });
            }
        });
        let failed = lock(&failure).take();
        failed.map_or_else(|| Ok(std::mem::take(&mut *lock(&results))), Err)
    }

    /// Runs one job at low priority.
    fn play_one(&self, job: &Job) -> Result<Figures, String> {
        let program = match &self.ns3 {
            Some(ns3) if job.form != Form::Ours => ns3,
            _ => &self.ours,
        };
        let arguments = job.arguments();
        let output = Command::new("nice")
            .args(["-n", "5"])
            .arg(program)
            .args(&arguments)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let figures = output.status.success().then(|| Figures::parse(text.trim())).flatten();
        figures.ok_or_else(|| {
            format!("{} {} answered \"{}\"", program.display(), arguments.join(" "), text.trim())
        })
    }
}

/// Locks; what a thread that panicked left behind is whole, because it pushes in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Versions for the record; fails with how to get ns-3 when it is missing.
fn versions() -> Result<String, String> {
    let compiler = said("g++", &["-dumpfullversion"]).ok_or(HOW_TO_GET)?;
    let header = ["-E", "-x", "c++", "-include", "ns3/core-module.h", "/dev/null"];
    said("g++", &header).ok_or(HOW_TO_GET)?;
    let library = said("pkg-config", &["--modversion", "ns3-core"])
        .or_else(|| said("dpkg-query", &["-W", "-f", "${Version}", "libns3-dev"]))
        .unwrap_or_else(|| "of unknown version".to_owned());
    Ok(format!("ns-3 {library}, g++ {compiler}, skyhaul {}", env!("CARGO_PKG_VERSION")))
}

/// What a program says, if it is there and content.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Compiles our program for ns-3; a few seconds.
fn compile(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target/ns3");
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    let program = folder.join("reference");
    let libraries = ["applications", "internet", "point-to-point", "traffic-control", "network", "core"];
    let status = Command::new("g++")
        .args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-o"])
        .arg(&program)
        .arg(root.join(SOURCE))
        .args(libraries.map(|library| format!("-lns3-{library}")))
        .status()
        .map_err(|error| format!("cannot run g++: {error}"))?;
    if status.success() {
        Ok(program)
    } else {
        Err(format!("{SOURCE} does not compile with the ns-3 of this machine; it was written for 3.37"))
    }
}

/// Builds our program: an example of the simulator, so that xtask itself stays small.
fn build(root: &Path) -> Result<PathBuf, String> {
    let arguments = ["build", "--quiet", "--release", "-p", "skyhaul-sim", "--example", "one_flow"];
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .current_dir(root)
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let program = root.join("target/release/examples/one_flow");
    if status.success() {
        Ok(program)
    } else {
        Err("the example one_flow of skyhaul-sim does not build".to_owned())
    }
}
